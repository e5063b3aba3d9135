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
        self._lib = ctypes.CDLL(str(library))
        self._lib.cairn_error_message.restype = ctypes.c_char_p
        self._runtime, self.model = ctypes.c_void_p(), ctypes.c_void_p()
        options = _RuntimeOptions(ctypes.sizeof(_RuntimeOptions), threads)
        self._call("cairn_runtime_create", ctypes.byref(options), ctypes.byref(self._runtime))
        options = _ModelOptions(ctypes.sizeof(_ModelOptions), numerics)
        name = str(folder).encode()
        self._call("cairn_model_open", self._runtime, name, ctypes.c_size_t(len(name)),
                   ctypes.byref(options), ctypes.byref(self.model))

    def _call(self, name: str, *arguments):
        error = ctypes.c_void_p()
        if getattr(self._lib, name)(*arguments, ctypes.byref(error)) != 0:
            message = self._lib.cairn_error_message(error)
            raise EngineError(f"{name}: {message.decode() if message else 'no message'}")

    def _take(self, kind: str, content: str, owner: ctypes.c_void_p, item_bytes: int) -> bytes:
        """The content of an owned result, which is destroyed."""
        count = ctypes.c_size_t()
        read = getattr(self._lib, f"cairn_{kind}_{content}")
        read.restype = ctypes.c_void_p
        address = read(owner, ctypes.byref(count))
        data = ctypes.string_at(address, count.value * item_bytes) if address else b""
        getattr(self._lib, f"cairn_{kind}_destroy")(ctypes.byref(owner))
        return data

    def render(self, messages: list, thinking: bool, effort: int = 75) -> Tuple[str, int]:
        """The prompt of messages in the OpenAI shape, and its number of tokens."""
        text, count = ctypes.c_void_p(), ctypes.c_int64()
        body = json.dumps(messages).encode()
        self._call("cairn_model_render", self.model, body, ctypes.c_size_t(len(body)),
                   int(thinking), effort, ctypes.byref(text), ctypes.byref(count))
        return self._take("buffer", "bytes", text, 1).decode("utf-8"), count.value

    def tokenise(self, text: str) -> List[int]:
        """Token ids of ordinary text."""
        tokens, body = ctypes.c_void_p(), text.encode("utf-8")
        self._call("cairn_model_tokenize", self.model, body, ctypes.c_size_t(len(body)),
                   ctypes.byref(tokens))
        return np.frombuffer(self._take("token_list", "ids", tokens, 4), np.int32).tolist()

    def logits(self, ids: List[int], vocab_size: int, first: int = 0) -> np.ndarray:
        """Logits after each of ids[first:], computed one token at a time from there."""
        sequence = ctypes.c_void_p()
        self._call("cairn_raw_sequence_create", self.model, ctypes.byref(sequence))
        out = np.empty((len(ids) - first, vocab_size), dtype=np.float32)
        for i, part in enumerate([ids[: first + 1]] + [[x] for x in ids[first + 1 :]]):
            array = (ctypes.c_int32 * len(part))(*part)
            self._call("cairn_raw_sequence_append", sequence, array, ctypes.c_size_t(len(part)))
            self._call("cairn_raw_sequence_logits", sequence,
                       out[i].ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(vocab_size))
        self._lib.cairn_raw_sequence_destroy(ctypes.byref(sequence))
        return out
