"""Plain text from Debian packages: ordinary English and code. SOURCES.md states the licences.

Each source gives paragraphs of ASCII text. A paragraph is held out by a hash of its text.
"""

import hashlib
import html
import itertools
import json
import pathlib
import re
from typing import Iterable, List


def is_held_out(text: str) -> bool:
    """One text in twenty is never trained on."""
    return hashlib.sha1(text.encode("utf-8")).digest()[0] % 20 == 0


def _ascii(text: str) -> str:
    return text.encode("ascii", errors="ignore").decode("ascii")


def _sqlite_pages(folder: pathlib.Path) -> Iterable[str]:
    """Paragraphs of the SQLite documentation."""
    for path in sorted(folder.rglob("*.html")):
        page = path.read_text(encoding="utf-8", errors="ignore")
        page = re.sub(r"(?s)<(script|style|svg).*?</\1>", " ", page)
        for block in re.findall(r"(?s)<p>(.*?)(?=<p>|</p>|<h\d|<ul|<ol|<table|</div>)", page):
            text = html.unescape(re.sub(r"(?s)<[^>]*>", "", block))
            text = _ascii(re.sub(r"\s+", " ", text)).strip()
            if 80 <= len(text) <= 1500:
                yield text


def _wordnet_glosses(folder: pathlib.Path) -> Iterable[str]:
    """Definitions: "word, word: gloss" lines of WordNet."""
    for path in sorted(folder.glob("data.*")):
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            fields, gloss = line.split("|", 1)
            parts = fields.split()
            words = [parts[4 + 2 * i].replace("_", " ") for i in range(int(parts[3], 16))]
            yield _ascii(f"{', '.join(words)}: {gloss.strip()}")


def _python_code(folder: pathlib.Path) -> Iterable[str]:
    """Functions of NumPy's Python files."""
    for path in sorted(folder.rglob("*.py")):
        code = path.read_text(encoding="utf-8", errors="ignore")
        for part in re.split(r"\n(?=def |class |@)", code):
            part = _ascii(part).rstrip() + "\n"
            if 100 <= len(part) <= 1500:
                yield part


MAX_PARAGRAPHS = 6000  # of one source


def collect() -> List[str]:
    """Paragraphs of all sources on this machine, in a fixed order."""
    glosses = itertools.islice(_wordnet_glosses(pathlib.Path("/usr/share/wordnet")), 100_000)
    glosses = list(glosses)[:: 100_000 // (4 * MAX_PARAGRAPHS)]
    sources = [
        _sqlite_pages(pathlib.Path("/usr/share/doc/sqlite3")),
        ["\n".join(glosses[i : i + 4]) for i in range(0, len(glosses), 4)],
        _python_code(pathlib.Path("/usr/lib/python3/dist-packages/numpy")),
    ]
    return [text for source in sources for text in itertools.islice(source, MAX_PARAGRAPHS)]


def write(path: pathlib.Path):
    """Collects the paragraphs into a file, so that training does not depend on the machine."""
    path.write_text(json.dumps(collect(), indent=0), encoding="utf-8")


def read(path: pathlib.Path, held_out: bool) -> List[str]:
    """The paragraphs of a collected file on one side of the split."""
    texts = json.loads(path.read_text(encoding="utf-8"))
    return [text for text in texts if is_held_out(text) == held_out]
