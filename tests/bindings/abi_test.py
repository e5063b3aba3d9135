#!/usr/bin/env python3
"""The ABI of cairn.h is what bindings/c/abi says, or more.

abi_test.py CC HEADER ABI_FOLDER [--renew]

functions.abi is abidw's description of a library that defines the functions of the header; abidiff
finds those that were removed or changed. layout.c asserts where each field is and what each constant
is: abidiff 2.2 cannot tell a field added at the end, which is allowed, from one that moved.
exports_test and layout_test say that the real library exports these functions. cairn_raw.h, which
is not part of the ABI, is not looked at.

Before that the test tries itself on altered headers. --renew writes both files anew: after additions,
or on purpose with a new soname.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

cc, header_file, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
NO_FIELDS = '[suppress_type]\n  type_kind = struct\n'  # layout.c has them


def code_of(header):
    return re.sub(r'/\*.*?\*/', '', header, flags=re.S)


def names_of(header):
    """The fields of all structs, as (struct, field), and the constants, as (name, value)."""
    code = code_of(header)
    fields = []
    for name, body in re.findall(r'typedef struct (\w+) \{(.*?)\} \1;', code, flags=re.S):
        for field in re.findall(r'(\w+)(?:\[[^]]*\])?\s*;', body):
            fields.append((name, field))
    constants = re.findall(r'\b(CAIRN_\w+) = (\d+)', code)
    return fields, constants


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def must_run(*command):
    done = run(*command)
    if done.returncode != 0:
        sys.exit(f'{command}: {done.stdout}{done.stderr}')
    return done.stdout


class Variant:
    """A header in a folder of its own, as <cairn/cairn.h>."""

    def __init__(self, work, name, header):
        self.root = work / name
        (self.root / 'cairn').mkdir(parents=True)
        (self.root / 'cairn/cairn.h').write_text(header)
        self.header = header

    def library(self):
        functions = re.findall(r'CAIRN_API\s+([^;#]*?\bcairn_\w+\([^;]*\));', code_of(self.header))
        source = self.root / 'functions.c'
        source.write_text('#include <cairn/cairn.h>\n' +
                          ''.join(f'{f} {{ __builtin_trap(); }}\n' for f in functions))
        library = self.root / 'functions.so'
        must_run(cc, '-g', '-w', '-shared', '-fPIC', f'-I{self.root}', str(source), '-o',
                 str(library))
        return library

    def describe(self):
        description = must_run('abidw', '--no-corpus-path', '--no-show-locs', '--no-comp-dir-path',
                               '--no-elf-needed', '--no-parameter-names', str(self.library()))
        return description.replace(f'{self.root}/', '')

    def assertions(self):
        """Assertions with the numbers of this header, as the compiler sees them."""
        fields, constants = names_of(self.header)
        source = self.root / 'numbers.c'
        rows = ''.join(f'  printf("%zu %zu\\n", offsetof({s}, {f}), sizeof((({s}*)0)->{f}));\n'
                       for s, f in fields)
        source.write_text('#include <stdio.h>\n#include <cairn/cairn.h>\n'
                          f'int main(void) {{\n{rows}  return 0;\n}}\n')
        program = self.root / 'numbers'
        must_run(cc, '-std=c99', f'-I{self.root}', str(source), '-o', str(program))
        numbers = [line.split() for line in must_run(str(program)).splitlines()]
        text = ('/* Written by tests/bindings/abi_test.py --renew: compiles as long as no field has\n'
                ' * moved and no constant has changed. */\n#include <cairn/cairn.h>\n\n'
                '#define FIELD(type, field, offset, size)                                  \\\n'
                '  _Static_assert(offsetof(type, field) == offset &&                       \\\n'
                '                     sizeof(((type*)0)->field) == size,                   \\\n'
                '                 #type "." #field " has moved")\n'
                '#define CONSTANT(name, value) _Static_assert(name == value, #name " changed")\n\n')
        for (struct, field), (offset, size) in zip(fields, numbers, strict=True):
            text += f'FIELD({struct}, {field}, {offset}, {size});\n'
        return text + ''.join(f'CONSTANT({name}, {value});\n' for name, value in constants)

    def breaks(self, functions_abi, layout_c):
        """What of the description this header does not keep; '' if it keeps all."""
        suppressions = self.root / 'suppressions.ini'
        suppressions.write_text(NO_FIELDS)
        compared = run('abidiff', '--no-added-syms', '--suppr', str(suppressions),
                       str(functions_abi), str(self.library()))
        compiled = run(cc, '-std=c11', '-fsyntax-only', f'-I{self.root}', str(layout_c))
        return ((compared.stdout + compared.stderr if compared.returncode != 0 else '') +
                (compiled.stderr if compiled.returncode != 0 else ''))


def replaced(header, old, new):
    if header.count(old) < 1:
        sys.exit(f'the self-check does not find this in the header any more: {old}')
    return header.replace(old, new, 1)


def check_itself(work, header):
    base = Variant(work, 'base', header)
    functions_abi, layout_c = work / 'functions.abi', work / 'layout.c'
    functions_abi.write_text(base.describe())
    layout_c.write_text(base.assertions())
    first, second = '  int32_t restore;', '  int32_t thinking;'
    swapped = replaced(replaced(header, first, '  int32_t swapped;'), second, first)
    last_field = '} cairn_sync_options;'
    end = '/** Why the turn failed'
    added = replaced(header, last_field, f'  int64_t later;\n{last_field}')
    added = replaced(added, end, f'CAIRN_API void cairn_later(int32_t x);\n{end}')
    added = replaced(added, 'CAIRN_ALREADY_EXISTS = 14', 'CAIRN_ALREADY_EXISTS = 14,\n CAIRN_L = 15')
    variants = {
        'same': (header, True),
        'added': (added, True),
        'fields_swapped': (replaced(swapped, '  int32_t swapped;', second), False),
        'field_removed': (replaced(header, '  int64_t lost_tokens;', ''), False),
        'field_wider': (replaced(header, '  int32_t has_state;', '  int64_t has_state;'), False),
        'field_in_the_middle': (replaced(header, '  int64_t n_kept;',
                                         '  int64_t early;\n  int64_t n_kept;'), False),
        'constant_changed': (replaced(header, 'CAIRN_BUSY = 6', 'CAIRN_BUSY = 66'), False),
        'function_removed': (replaced(
            header, 'CAIRN_API void cairn_turn_cancel(cairn_turn* turn);', ''), False),
        'parameter_changed': (replaced(header, 'cairn_turn* turn, int64_t timeout_ms',
                                       'cairn_turn* turn, int32_t timeout_ms'), False),
        'parameter_added': (replaced(header, 'cairn_turn_cancel(cairn_turn* turn)',
                                     'cairn_turn_cancel(cairn_turn* turn, int32_t now)'), False),
        'result_changed': (replaced(header, 'CAIRN_API void cairn_turn_cancel(',
                                    'CAIRN_API int32_t cairn_turn_cancel('), False),
    }
    for name, (text, is_kept) in variants.items():
        found = Variant(work, name, text).breaks(functions_abi, layout_c)
        if is_kept != (found == ''):
            sys.exit(f'self-check: {name} was taken for a break: {found}' if is_kept else
                     f'self-check: {name} was not noticed')
    print(f'self-check: {len(variants)} headers judged rightly')


with tempfile.TemporaryDirectory() as scratch:
    text = header_file.read_text()
    check_itself(pathlib.Path(scratch), text)
    present = Variant(pathlib.Path(scratch), 'present', text)
    if '--renew' in sys.argv:
        folder.mkdir(exist_ok=True)
        (folder / 'functions.abi').write_text(present.describe())
        (folder / 'layout.c').write_text(present.assertions())
    broken = present.breaks(folder / 'functions.abi', folder / 'layout.c')
    if broken:
        sys.exit(f'{header_file} breaks callers of the ABI in {folder}:\n{broken}')
