#!/usr/bin/env python3
"""Every piece of code that the papers and the public headers show compiles, C as C99 and as C++20.

snippets_test.py CC CXX SOURCE_DIR BUILD_INCLUDE_DIR

A piece is a fence with a language in a *.md file or @code ... @endcode in a header. One without a main
stands in a function that has the handles it may name.
"""
import pathlib
import re
import subprocess
import sys

cc, cxx, source, build_include = sys.argv[1:5]
source = pathlib.Path(source)
PAPERS = [path for path in source.rglob('*.md') if 'build' not in path.parts]
HEADERS = [*(source / 'bindings/c').glob('*.h'), *(source / 'include/cairn').glob('*.h')]
NOT_CODE = {'', 'sh', 'text'}
HANDLES = ('cairn_runtime* runtime, cairn_model* model, cairn_store* store, cairn_session* session, '
           'cairn_turn* turn, cairn_event* event')
AROUND = {
    'c': ('#include <cairn/cairn.h>\n#include <stdio.h>\n\n'
          f'void snippet({HANDLES});\nvoid snippet({HANDLES}) {{\n', '\n}\n'),
    'cpp': ('#include <cairn/session.h>\n#include <cstdio>\n\n'
            'cairn::Status snippet(cairn::Model model, cairn::Store store, cairn::Session session);\n'
            'cairn::Status snippet(cairn::Model model, cairn::Store store, '
            'cairn::Session session) {\n', '\n  return {};\n}\n'),
}
UNUSED = ['-Wno-unused-parameter', '-Wno-unused-but-set-parameter', '-Wno-unused-variable']
STRICT = ['-pedantic', '-Wall', '-Wextra', '-Werror', *UNUSED, '-fsyntax-only',
          f'-I{build_include}', f'-I{source}/include']
COMPILERS = {'c': [[cc, '-x', 'c', '-std=c99'], [cxx, '-x', 'c++', '-std=c++20']],
             'cpp': [[cxx, '-x', 'c++', '-std=c++20']]}


def pieces():
    """(place, language, code) of everything shown."""
    for path in sorted(PAPERS):
        for match in re.finditer(r'^```(\w*)\n(.*?)^```$', path.read_text(), flags=re.S | re.M):
            yield path.relative_to(source), match[1], match[2]
    for path in sorted(HEADERS):
        for match in re.finditer(r'@code(?:\{\.(\w+)\})?\n(.*?)@endcode', path.read_text(), re.S):
            code = re.sub(r'^ *(\*|//+) ?', '', match[2], flags=re.M)
            yield path.relative_to(source), match[1] or 'c', code


def errors_of(language, code):
    before, after = ('', '') if 'main(' in code else AROUND[language]
    for compiler in COMPILERS[language]:
        done = subprocess.run([*compiler, *STRICT, '-'], input=before + code + after,
                              capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr
    return ''


for language, bad in (('c', 'cairn_turn_next(turn, -1);'), ('cpp', 'session.append("text");')):
    if not errors_of(language, bad):
        sys.exit(f'self-check: {bad} compiled')

n_compiled = {}
for place, language, code in pieces():
    if language in NOT_CODE:
        continue
    if language not in COMPILERS:
        sys.exit(f'{place}: a piece in {language}, which this test cannot compile')
    failed = errors_of(language, code)
    if failed:
        sys.exit(f'{place}:\n{code}\n{failed}')
    n_compiled[str(place)] = n_compiled.get(str(place), 0) + 1
if not {'README.md', 'bindings/c/cairn.h'} <= set(n_compiled):
    sys.exit(f'pieces are missing: {n_compiled}')
print(f'compiled: {n_compiled}')
