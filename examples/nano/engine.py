"""Cairn's C API from Python, as far as the recipe needs it: render, tokenise, logits."""

import ctypes
import json
import pathlib
from typing import List, Tuple

import numpy as np

REFERENCE, F32_CACHE, F32 = 0, 1, 2  # arithmetics, cairn.h CAIRN_NUMERICS_...


class _ModelOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int32) for name in ("numerics", "prefill_chunk", "max_context", "reserved")
    ]


class _RuntimeOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("compute_threads", ctypes.c_int32),
        ("log_level", ctypes.c_int32), ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p),
        ("log_finalize", ctypes.c_void_p),
    ]


class EngineError(RuntimeError):
    """A call failed; the text is the library's."""


class Engine:
    """One open checkpoint folder."""

    def __init__(
        self, library: pathlib.Path, folder: pathlib.Path, numerics: int, threads: int = 1
    ):
        self.library = ctypes.CDLL(str(library))
        self.library.cairn_error_message.restype = ctypes.c_char_p
        self._runtime, self.model = ctypes.c_void_p(), ctypes.c_void_p()
        options = _RuntimeOptions(ctypes.sizeof(_RuntimeOptions), threads)
        self.call("cairn_runtime_create", ctypes.byref(options), ctypes.byref(self._runtime))
        options = _ModelOptions(ctypes.sizeof(_ModelOptions), numerics)
        name = str(folder).encode()
        self.call("cairn_model_open", self._runtime, name, ctypes.c_size_t(len(name)),
                   ctypes.byref(options), ctypes.byref(self.model))

    def call(self, name: str, *arguments):
        """Calls a function of the library that returns a code and takes an error last."""
        error = ctypes.c_void_p()
        if getattr(self.library, name)(*arguments, ctypes.byref(error)) != 0:
            message = self.library.cairn_error_message(error)
            raise EngineError(f"{name}: {message.decode() if message else 'no message'}")

    def _take(self, kind: str, content: str, owner: ctypes.c_void_p, item_bytes: int) -> bytes:
        """The content of an owned result, which is destroyed."""
        count = ctypes.c_size_t()
        read = getattr(self.library, f"cairn_{kind}_{content}")
        read.restype = ctypes.c_void_p
        address = read(owner, ctypes.byref(count))
        data = ctypes.string_at(address, count.value * item_bytes) if address else b""
        getattr(self.library, f"cairn_{kind}_destroy")(ctypes.byref(owner))
        return data

    def render(self, messages: list, thinking: bool, effort: int = 75) -> Tuple[str, int]:
        """The prompt of messages in the OpenAI shape, and its number of tokens."""
        text, count = ctypes.c_void_p(), ctypes.c_int64()
        body = json.dumps(messages).encode()
        self.call("cairn_model_render", self.model, body, ctypes.c_size_t(len(body)),
                   int(thinking), effort, ctypes.byref(text), ctypes.byref(count))
        return self._take("buffer", "bytes", text, 1).decode("utf-8"), count.value

    def tokenise(self, text: str) -> List[int]:
        """Token ids of ordinary text."""
        tokens, body = ctypes.c_void_p(), text.encode("utf-8")
        self.call("cairn_model_tokenize", self.model, body, ctypes.c_size_t(len(body)),
                   ctypes.byref(tokens))
        return np.frombuffer(self._take("token_list", "ids", tokens, 4), np.int32).tolist()


class Sequence:
    """Tokens computed one after the other by an open checkpoint."""

    def __init__(self, opened: Engine, vocab_size: int):
        self._engine, self._n, self._at = opened, vocab_size, ctypes.c_void_p()
        opened.call("cairn_raw_sequence_create", opened.model, ctypes.byref(self._at))

    def append(self, ids: List[int]):
        """Computes tokens after those there are."""
        array = (ctypes.c_int32 * len(ids))(*ids)
        self._engine.call("cairn_raw_sequence_append", self._at, array, ctypes.c_size_t(len(ids)))

    def logits(self) -> np.ndarray:
        """Logits of the next token."""
        out = np.empty(self._n, dtype=np.float32)
        self._engine.call("cairn_raw_sequence_logits", self._at,
                          out.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self._n))
        return out

    def close(self):
        self._engine.library.cairn_raw_sequence_destroy(ctypes.byref(self._at))
