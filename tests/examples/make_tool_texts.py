#!/usr/bin/env python3
"""Writes what the tools of the recipe's world (examples/nano/world.py) answer to many calls.

    make_tool_texts.py            prints tool_texts.json
    make_tool_texts.py --check    fails if tool_texts.json differs

The model is trained with these texts, so the tools of the example have to give the same ones:
workspace_tools_test does every call in a folder with the same files. Standard library only.
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "nano"))
sys.dont_write_bytecode = True

import world
from prompt_format import Call

TEXTS = HERE / "tool_texts.json"
TESTED_WITH = 6  # the argument that examples/workspace/run_tests.sh gives to every function


MORE_FILES = {
    "alpha/beta/deep.json": '{\n  "depth": 12,\n  "label": "peach"\n}\n',
    "alpha-beta/near.ini": "[near]\nscale = 3\nowner = Ada\n",
    "alpha.b/dot.txt": "= = =\n\n\tindented line \nlast line without a newline",
    "alpha/umlaut.yaml": "name: \u00e4pfel \u2192 \U0001f34e\nempty:\n",
    "theta/two.py": "def share_name(x):\n    \"\"\"Returns x times 2 plus 3.\"\"\"\n    return x * 2 + 3\n",
    "zeta/many.env": "".join(f"KEY_{i}={i * i}\n" for i in range(14)),
}


def repository_of(files: dict) -> world.Repository:
    """With the same tests as run_tests.sh of examples/workspace does."""
    repository = world.Repository(None, 0)
    repository.files = dict(sorted(files.items()))
    for path, text in files.items():
        for name, a, b in re.findall(r"def (\w+)\(x\):\n.*times (\d+) plus (\d+)", text):
            test, expected = "tests/test_" + path.rsplit("/", 1)[-1], TESTED_WITH * int(a) + int(b)
            repository.expected[name] = (test, TESTED_WITH, expected)
    return repository


def example_files() -> dict:
    """Those of the example's workspace, whose tests the world does without a script."""
    folder = HERE.parents[1] / "examples" / "workspace"
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run_tests.sh" and not path.name.startswith(".")
    }


def looks(repository: world.Repository):
    """Calls that change nothing."""
    paths = sorted(repository.files)
    for path in paths:
        yield "read_file", dict(path=path)
        yield "list_dir", dict(path=path)
    folders = {path[:at] for path in paths for at, c in enumerate(path) if c == "/"}
    for folder in sorted(folders) + ["", ".", "/", "absent", "absent/deeper"]:
        yield "list_dir", dict(path=folder)
    for folder in sorted(folders):
        yield "list_dir", dict(path="/" + folder + "/")
        yield "read_file", dict(path=folder)
    yield "read_file", dict(path="absent.txt")
    for text in ["return x", "def ", " = ", "=", ":", "Returns x times ", "absent word", "\n", "e"]:
        yield "search", dict(text=text)
    for path in paths:
        for line in repository.files[path].splitlines()[:2]:
            yield "search", dict(text=line.strip() or "x")
    for expression in ["37 * 21", "2 + 3 * 4 - 20", "0 * 5", "12 - 400 - 3 * 7", "9999 * 9999", "5", "",
                       "1+2", "1 +", "-1", "1 / 2", "a + b", "1 + 2 ", " 1"]:
        yield "calc", dict(expression=expression)
    yield "remember", dict(key="port of brunovex", value="8214")
    yield "run_tests", {}
    yield "delete_file", dict(path=paths[0])
    for name, arguments in [("read_file", {}), ("read_file", dict(path=paths[0], mode="r")),
                            ("read_file", dict(file=paths[0])), ("run_tests", dict(path="tests")),
                            ("edit_file", dict(path=paths[0], old="a")), ("remember", dict(key="a"))]:
        yield name, arguments


def changes(repository: world.Repository):
    """Edits, and the tests after each. Breaks functions by edits, so that a folder can follow."""
    paths = sorted(repository.files)
    for path in [path for path in paths if not path.endswith(".py")]:
        line = repository.files[path].splitlines()[-1].strip()
        yield "edit_file", dict(path=path, old=line, new=line + line)
        yield "edit_file", dict(path=path, old="e", new="")
        yield "read_file", dict(path=path)
    code = [path for path in paths if path.endswith(".py")]
    for path in code:
        wrong = {line.strip() for line in repository.files[path].splitlines() if "return" in line}
        for line in sorted(wrong):
            yield "edit_file", dict(path=path, old=line, new=line + "1")
        yield "run_tests", {}
        yield "search", dict(text="return")
    for arguments in [dict(path="absent", old="a", new="b"), dict(path=code[0], old="", new="b"),
                      dict(path=code[0], old="absent words", new="b")]:
        yield "edit_file", arguments


def steps_of(repository: world.Repository):
    for calls in (looks, changes):
        for name, arguments in calls(repository):
            result = repository.run(Call(name, arguments))
            yield dict(name=name, arguments=arguments, result=result)


def made() -> str:
    cases = []
    for files in (example_files(), dict(example_files(), **MORE_FILES)):
        repository = repository_of(files)
        files = dict(repository.files)
        cases.append(dict(files=files, steps=list(steps_of(repository))))
    tools = [dict(type="function", function=tool) for tool in world.TOOLS]
    return json.dumps(dict(tools=tools, cases=cases), indent=1) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"{TEXTS}: made from another world.py" if TEXTS.read_text(encoding="utf-8") != made() else 0)
    sys.stdout.write(made())
