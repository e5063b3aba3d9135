"""A small made-up repository and the tools that act on it.

Files are text in memory. The tools give what a real tool would, so a conversation can be made up
front or played live with a model's own calls. Functions of code files have the one form
`return x * A + B`; `run_tests` evaluates them.
"""

import re
from typing import Dict, List

from names import Pools
from prompt_format import Call

CONFIG_ENDINGS = ["ini", "yaml", "json", "env", "toml"]


def _tool(name: str, description: str, **parameters: str) -> dict:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": description, "parameters": schema}


TOOLS = [
    _tool("list_dir", "List a folder.", path="folder"),
    _tool("read_file", "Read a file.", path="file"),
    _tool("search", "Find lines that contain a text.", text="what to find"),
    _tool("edit_file", "Replace a text in a file.", path="file", old="text to replace",
          new="replacement"),
    _tool("run_tests", "Run the tests."),
    _tool("calc", "Compute an arithmetic expression.", expression="numbers with + - *"),
    _tool("remember", "Store a note.", key="what", value="content"),
]


class Repository:
    """Files by path, their configuration entries and functions, and the tools."""

    def __init__(self, pools: Pools, max_lines: int):
        self.pools, self.max_lines = pools, max_lines
        self.files: Dict[str, str] = {}
        self.notes: Dict[str, str] = {}
        self.expected: Dict[str, tuple] = {}  # function -> (test file, argument, result)

    def copy(self) -> "Repository":
        """Another repository with the same files."""
        other = Repository(self.pools, self.max_lines)
        other.files, other.notes = dict(self.files), dict(self.notes)
        other.expected = dict(self.expected)
        return other

    # Making files --------------------------------------------------------------------------------

    def _new_path(self, ending: str) -> str:
        while True:
            rng = self.pools.rng
            folder = rng.choice(self.folders()) if self.files and rng.random() < 0.5 else None
            if folder is None:
                folder = self.pools.stem()
                if rng.random() < 0.2:
                    folder += "/" + self.pools.stem()
            path = self.pools.path(folder, ending)
            if path not in self.files:
                return path

    def folders(self) -> List[str]:
        return sorted({path.rsplit("/", 1)[0] for path in self.files})

    def add_config(self) -> tuple:
        """A configuration file; returns (path, {key: value})."""
        rng = self.pools.rng
        path = self._new_path(rng.choice(CONFIG_ENDINGS))
        keys = {self.pools.key() for _ in range(rng.randint(2, max(2, self.max_lines)))}
        if path.endswith(".env"):
            keys = {key.upper() for key in keys}
        entries = {key: self.pools.value() for key in sorted(keys)}
        self.files[path] = format_config(path, entries, self.pools)
        return path, entries

    def add_code(self) -> tuple:
        """A Python file with its test; returns (path, [function names])."""
        rng = self.pools.rng
        path = self._new_path("py")
        count = rng.randint(1, max(1, self.max_lines // 4))
        names = [self.pools.identifier() for _ in range(count)]
        names = list(dict.fromkeys(name for name in names if name not in self.expected))
        test = "tests/test_" + path.rsplit("/", 1)[1]
        parts = []
        for name in names:
            a, b, x = rng.randint(2, 9), rng.randint(1, 30), rng.randint(2, 9)
            parts.append(
                f'def {name}(x):\n    """Returns x times {a} plus {b}."""\n'
                f"    return x * {a} + {b}\n"
            )
            self.expected[name] = (test, x, x * a + b)
        self.files[path] = "\n".join(parts)
        return path, names

    def break_function(self, path: str, name: str) -> tuple:
        """Changes one number of a function; returns (wrong line, right line)."""
        a, b = self._body(name)
        right = f"return x * {a} + {b}"
        wrong_a, wrong_b = a, b
        if self.pools.rng.random() < 0.5:
            wrong_a = self.pools.rng.choice([n for n in range(2, 10) if n != a])
        else:
            wrong_b = self.pools.rng.choice([n for n in range(1, 31) if n != b])
        wrong = f"return x * {wrong_a} + {wrong_b}"
        head, tail = self.files[path].split(f"def {name}(x):", 1)
        self.files[path] = f"{head}def {name}(x):{tail.replace(right, wrong, 1)}"
        return wrong, right

    def _body(self, name: str):
        for text in self.files.values():
            found = re.search(rf"def {name}\(x\):\n.*\n    return x \* (\d+) \+ (\d+)", text)
            if found:
                return int(found[1]), int(found[2])
        return None

    # The tools -----------------------------------------------------------------------------------

    def run(self, call: Call) -> str:
        """The result of a call; what a model gets wrong is an error text, never an exception."""
        tool = getattr(self, "_run_" + call.name, None)
        if tool is None:
            return f"error: no such tool: {call.name}"
        try:
            return tool(**call.arguments)
        except TypeError:
            return "error: wrong arguments"

    def _run_list_dir(self, path):
        path = path.strip("/")
        inside = "" if path in ("", ".") else path + "/"
        names = {
            rest.split("/", 1)[0] + ("/" if "/" in rest else "")
            for rest in (f[len(inside) :] for f in self.files if f.startswith(inside))
        }
        return "\n".join(sorted(names)) if names else f"error: no such folder: {path}"

    def _run_read_file(self, path):
        return self.files.get(path, f"error: no such file: {path}").rstrip("\n")

    def _run_search(self, text):
        hits = [
            f"{path}:{number}: {line.strip()}"
            for path in sorted(self.files)
            for number, line in enumerate(self.files[path].splitlines(), 1)
            if text in line
        ]
        return "\n".join(hits[:10]) if hits else "no matches"

    def _run_edit_file(self, path, old, new):
        if path not in self.files:
            return f"error: no such file: {path}"
        count = self.files[path].count(old) if old else 0
        if count == 0:
            return "error: text not found"
        self.files[path] = self.files[path].replace(old, new)
        for name in [n for n in self.expected if n == old]:
            self.expected[new] = self.expected.pop(name)
        return f"replaced {count}"

    def _run_run_tests(self):
        failures = []
        for name, (test, x, expected) in sorted(self.expected.items()):
            body = self._body(name)
            got = x * body[0] + body[1] if body else "no such function"
            if got != expected:
                failures.append(f"FAIL {test}: {name}({x}): expected {expected}, got {got}")
        passed = len(self.expected) - len(failures)
        return "\n".join(failures + [f"{passed} passed, {len(failures)} failed"])

    def _run_calc(self, expression):
        if not re.fullmatch(r"[0-9]+( [-+*] [0-9]+)*", expression):
            return "error: not an expression"
        return str(eval(expression))  # digits and operators only, checked above

    def _run_remember(self, key, value):
        self.notes[key] = value
        return "saved"


def format_config(path: str, entries: Dict[str, str], pools: Pools) -> str:
    """The text of a configuration file in the syntax of its ending."""
    ending = path.rsplit(".", 1)[1]
    if ending == "ini":
        section = f"[{pools.stem()}]\n"
        return section + "".join(f"{key} = {value}\n" for key, value in entries.items())
    if ending == "env":
        return "".join(f"{key}={value}\n" for key, value in entries.items())
    if ending == "yaml":
        return "".join(f"{key}: {value}\n" for key, value in entries.items())

    def quoted(value):
        return value if value.isdigit() else f'"{value}"'

    if ending == "toml":
        return "".join(f"{key} = {quoted(value)}\n" for key, value in entries.items())
    lines = ",\n".join(f'  "{key}": {quoted(value)}' for key, value in entries.items())
    return "{\n" + lines + "\n}\n"
