"""Byte-level BPE in the released shape: training, encoding, tokenizer.json, Engram classes.

The pre-tokenizer is the released one (prompt-format.md 1.1) but for its first pass: numbers are
split into single digits, so that a small model copies and compares them digit by digit.
"""

import collections
import heapq
import json
import pathlib
import re
import sys
import unicodedata
from typing import Dict, Iterable, List

import prompt_format

DIGITS = r"\p{N}"
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_alphabet() -> List[str]:
    """The printable character of each byte, as published with GPT-2."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


ALPHABET = _byte_alphabet()
_BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}


def _category_classes() -> Dict[str, str]:
    """Character class bodies of the Unicode categories L, M, N, P and S."""
    ranges = collections.defaultdict(list)
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))[0]
        if kind in "LMNPS":
            if ranges[kind] and ranges[kind][-1][1] == code - 1:
                ranges[kind][-1][1] = code
            else:
                ranges[kind].append([code, code])
    return {
        kind: "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in pairs) for kind, pairs in ranges.items()
    }


class Splitter:
    """Splits text into the pieces within which BPE merges."""

    def __init__(self):
        classes = _category_classes()
        space = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
        negated = space.replace("[", "[^", 1)

        def compiled(pattern):
            pattern = re.sub(r"\[([^\]]*\\p[^\]]*)\]", lambda m: "[" + expand(m[1]) + "]", pattern)
            pattern = re.sub(r"\\p\{(\w)\}", lambda m: "[" + classes[m[1]] + "]", pattern)
            return re.compile(pattern.replace(r"\s", space).replace(r"\S", negated))

        def expand(body):
            return re.sub(r"\\p\{(\w)\}", lambda m: classes[m[1]], body)

        self._passes = [compiled(DIGITS), compiled(CJK), compiled(WORDS)]

    def split(self, text: str) -> List[str]:
        """The pieces of `text` in order."""
        pieces = [text]
        for pattern in self._passes:
            pieces = [part for piece in pieces for part in _isolate(pattern, piece)]
        return pieces


def _isolate(pattern, text: str) -> List[str]:
    parts, end = [], 0
    for match in pattern.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        if match.end() > match.start():
            parts.append(match.group())
        end = match.end()
    if end < len(text):
        parts.append(text[end:])
    return parts


def _symbols(piece: str) -> List[str]:
    return [ALPHABET[b] for b in piece.encode("utf-8")]


def train(texts: Iterable[str], n_merges: int, min_count: int = 2) -> List[tuple]:
    """The first `n_merges` merges of the texts' pieces; ties go to the pair of lower spelling."""
    splitter, counts = Splitter(), collections.Counter()
    for text in texts:
        counts.update(splitter.split(text))
    words = [(_symbols(piece), n) for piece, n in counts.items() if n >= min_count]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for index, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where[pair].add(index)
    queue = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(queue)
    merges, spellings = [], set()
    while queue and len(merges) < n_merges:
        n, best = heapq.heappop(queue)
        if pairs[best] != -n or n == 0:
            continue
        if best[0] + best[1] not in spellings:
            spellings.add(best[0] + best[1])
            merges.append(best)
        changed = _merge_words(words, best, pairs, where)
        for pair in changed:
            if pairs[pair] > 0:
                heapq.heappush(queue, (-pairs[pair], pair))
    return merges


def _merge_words(words, best, pairs, where) -> set:
    """Applies one merge to all words that have it; returns the pairs whose count changed."""
    changed = set()
    for index in where.pop(best):
        symbols, n = words[index]
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] -= n
            changed.add(pair)
        merged = _merge(symbols, best)
        for pair in zip(merged, merged[1:]):
            pairs[pair] += n
            where[pair].add(index)
            changed.add(pair)
        words[index] = (merged, n)
    changed.discard(best)
    pairs[best] = 0
    return changed


def _merge(symbols: List[str], pair: tuple) -> List[str]:
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def file_content(merges: List[tuple], n_tokens: int) -> dict:
    """tokenizer.json for merges; ids 0 to 2 are special, the other added tokens come last."""
    special = [prompt_format.BOS, prompt_format.EOS, prompt_format.PAD]
    spellings = special + ALPHABET + [a + b for a, b in merges]
    first_added = n_tokens - len(prompt_format.ADDED_TOKENS)
    if len(spellings) != first_added:
        raise ValueError(f"{len(spellings)} base tokens, room for {first_added}")
    added = list(enumerate(special)) + [
        (first_added + i, text) for i, text in enumerate(prompt_format.ADDED_TOKENS)
    ]
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    split = [
        dict(type="Split", pattern=dict(Regex=pattern), behavior="Isolated", invert=False)
        for pattern in (DIGITS, CJK, WORDS)
    ]
    byte_level = dict(
        type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False
    )
    return dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[dict(id=i, content=text, **flags) for i, text in added],
        normalizer=dict(type="Sequence", normalizers=[]),
        pre_tokenizer=dict(type="Sequence", pretokenizers=split + [byte_level]),
        post_processor=None,
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(
            type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
            end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
            vocab={text: i for i, text in enumerate(spellings)},
            merges=[f"{a} {b}" for a, b in merges],
        ),
    )


class Tokenizer:
    """Encodes and decodes with the content of a tokenizer.json that this module wrote."""

    def __init__(self, content: dict):
        self.vocabulary: Dict[str, int] = content["model"]["vocab"]
        self.added = {token["content"]: token["id"] for token in content["added_tokens"]}
        self._rank = {tuple(m.split(" ")): i for i, m in enumerate(content["model"]["merges"])}
        self._splitter, self._known = Splitter(), {}
        self.spelling = {i: text for text, i in self.vocabulary.items()}
        self.spelling.update({i: text for text, i in self.added.items()})

    @staticmethod
    def read(path: pathlib.Path) -> "Tokenizer":
        return Tokenizer(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))

    @property
    def size(self) -> int:
        return max(self.spelling) + 1

    def encode(self, text: str) -> List[int]:
        """Ordinary text; spellings of added tokens in it stay text."""
        ids = []
        for piece in self._splitter.split(text):
            known = self._known.get(piece)
            if known is None:
                known = self._encode_piece(piece)
                if len(self._known) < 200_000:
                    self._known[piece] = known
            ids.extend(known)
        return ids

    def _encode_piece(self, piece: str) -> List[int]:
        symbols = _symbols(piece)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda p: self._rank.get(p, 1 << 30))
            if best not in self._rank:
                break
            symbols = _merge(symbols, best)
        return [self.vocabulary[s] for s in symbols]

    def bytes_of(self, token: int) -> bytes:
        spelling = self.spelling[token]
        if spelling in self.added:
            return spelling.encode("utf-8")
        return bytes(_BYTE_OF[c] for c in spelling)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.bytes_of(i) for i in ids).decode("utf-8", errors="replace")

    def engram_classes(self) -> List[int]:
        """Class of every id under the normalised vocabulary (engram.md 3)."""
        classes, out = {}, []
        for token in range(self.size):
            out.append(classes.setdefault(self._class_key(token), len(classes)))
        return out

    def _class_key(self, token: int) -> str:
        text = self.bytes_of(token).decode("utf-8", errors="replace")
        if "\ufffd" in text:
            return self.spelling[token]
        return _normalised(text) or text


def _normalised(text: str) -> str:
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if not unicodedata.category(c).startswith("M"))
    text = re.sub("[ \t\r\n]+", " ", "".join(c.lower() for c in text))
    return " " if text == " " else text.strip()
