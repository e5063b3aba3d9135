#!/usr/bin/env python3
"""The headers are the manual: Doxygen reads them without a warning, and the comment of every function
of the C API says who owns what, which threads may call it, whether it blocks, its codes, and since
when.

header_docs_test.py DOXYFILE SOURCE_DIR

What a comment leaves out is looked for by what the declaration has: a handle or a borrowed text that
comes out, an error. Before that the test tries itself on headers with planted defects.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

doxyfile, source = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
C_HEADERS = [source / 'bindings/c/cairn.h', source / 'bindings/c/cairn_raw.h']
CPP_HEADERS = sorted((source / 'include/cairn').glob('*.h'))


def warnings_of(headers, work, extract_all):
    """What Doxygen says of these files; '' if nothing."""
    files = ' '.join(str(header) for header in headers)
    config = (f'{doxyfile}\nINPUT = {files}\nOUTPUT_DIRECTORY = {work}\nGENERATE_HTML = NO\n'
              f'GENERATE_XML = YES\nEXTRACT_ALL = {"YES" if extract_all else "NO"}\n')
    done = subprocess.run(['doxygen', '-'], input=config, capture_output=True, text=True)
    if done.returncode != 0 and not done.stderr:
        return f'doxygen failed with {done.returncode}'
    return done.stderr


def prose(comment):
    return re.sub(r'\s+', ' ', re.sub(r'\n \* ?', ' ', comment.strip()[3:-2])).strip()


def functions_of(header):
    """(name, result, parameters, comment) of each function."""
    pattern = r'(^/\*\*(?:(?!\*/).)*\*/\n)?^CAIRN_API ([^;()]*?)\b(cairn_\w+)\(([^;]*?)\);'
    for comment, result, name, parameters in re.findall(pattern, header, flags=re.S | re.M):
        yield name, result.strip(), parameters, prose(comment) if comment else ''


def structs_with_text(header):
    structs = re.findall(r'typedef struct (\w+) \{(.*?)\} \1;', header, flags=re.S)
    return {name for name, body in structs if re.search(r'const char\* \w+;', body)}


def gaps_of(header, code_names, text_structs):
    """What the comments of the functions do not say, one line each."""
    gaps = []
    for name, result, parameters, said in functions_of(header):
        def need(what, pattern):
            if not re.search(pattern, said):
                gaps.append(f'{name}: {what} is not stated')
        need('since when', r'Since \d+\.\d+\.')
        need('thread', r'Any thread')
        need('blocking', r'Does not (block|wait)|Blocks')
        if 'cairn_error** error' in parameters and result == 'cairn_code':
            need('which codes', r'Codes: ')
            listed = said.partition('Codes: ')[2].partition('Since ')[0]
            for word in re.findall(r'\b[A-Z]+(?:_[A-Z]+)+\b|\b(?:BUSY|CORRUPT|CANCELLED)\b', listed):
                if word not in code_names and not word.startswith('CAIRN_'):
                    gaps.append(f'{name}: there is no code {word}')
        elif 'Codes: ' in said:
            gaps.append(f'{name}: has no error, but codes')
        if not name.endswith(('_destroy', '_detach')):
            for out in re.findall(r'\bcairn_(?!error\b)\w+\*\* (\w+)', parameters):
                need(f'the owner of *{out}', rf'\*{out}\b.*own|own.*\*{out}\b')
        borrowed = '*' in result or re.search(r'const char\*\* \w+', parameters) or any(
            re.search(rf'(?<!const )\b{struct}\* \w+', parameters) for struct in text_structs
            if not struct.endswith('_options'))
        if borrowed:
            need('how long the result lives', r'[Bb]orrowed|Static')
    return gaps


def gaps_of_all(texts):
    together = '\n'.join(texts)
    code_names = set(re.findall(r'\bCAIRN_([A-Z_]+) = \d+', together))
    text_structs = structs_with_text(together)
    return [gap for text in texts for gap in gaps_of(text, code_names, text_structs)]


def planted(text, old, new):
    if old not in text:
        sys.exit(f'the self-check does not find this in cairn.h any more: {old}')
    return text.replace(old, new, 1)


def check_itself(work):
    header = C_HEADERS[0].read_text()
    for_doxygen = {
        'a field without a comment': ('size_t struct_size; /**< sizeof this struct */',
                                      'size_t struct_size;'),
        'a command that there is not': ('/** Gives a session another name.', '/** @gives another.'),
        'a function without a comment': ('/** What to do about it,', '/* What to do about it,'),
    }
    for_gaps = {
        'since': ('Opens a checkpoint folder', 'Since', ''),
        'thread': ('Opens a checkpoint folder', 'Any thread', 'Some thread'),
        'blocking': ('Opens a checkpoint folder', 'Blocks: reads the folder.', ''),
        'codes': ('Opens a checkpoint folder', 'Codes:', ''),
        'a code that there is not': ('Opens a checkpoint folder', 'IO_ERROR', 'NO_ERROR'),
        'owner': ('The caller\n * owns *model.', 'owns *model', 'has *model'),
        'lifetime': ('Fills *stats; its string is borrowed', 'borrowed', 'taken'),
        'no comment at all': ('/** What to do about it,', '/** What', '/* What'),
    }
    folder = work / 'planted'
    folder.mkdir()
    for what, (old, new) in for_doxygen.items():
        (folder / 'cairn.h').write_text(planted(header, old, new))
        if not warnings_of([folder / 'cairn.h'], work, extract_all=False):
            sys.exit(f'self-check: Doxygen did not notice {what}')
    for what, (place, old, new) in for_gaps.items():
        at = header.index(place)
        text = header[:at] + planted(header[at:], old, new)
        if not gaps_of_all([text]):
            sys.exit(f'self-check: the missing {what} was not noticed')
    session = (source / 'include/cairn/session.h').read_text()
    (folder / 'include/cairn').mkdir(parents=True)
    altered = folder / 'include/cairn/session.h'
    altered.write_text(planted(session, '\n// ', '\n// @gives '))
    if not warnings_of([altered], work, extract_all=True):
        sys.exit('self-check: the comments of C++ headers are not read')
    print(f'self-check: {len(for_doxygen) + len(for_gaps) + 1} planted defects found')


with tempfile.TemporaryDirectory() as scratch:
    check_itself(pathlib.Path(scratch))
    found = (warnings_of(C_HEADERS, scratch, extract_all=False) +
             warnings_of(CPP_HEADERS, scratch, extract_all=True) +
             '\n'.join(gaps_of_all([header.read_text() for header in C_HEADERS])))
if found:
    sys.exit(found)
count = sum(len(list(functions_of(header.read_text()))) for header in C_HEADERS)
print(f'{count} functions documented')
