"""The operations of ops.py with forward and backward passes in C (fast_ops.c), for training.

`load(config, folder)` compiles the C file for the shape of a model, once, and returns an object
with the functions of ops.py. One process uses one thread.
"""

import ctypes
import hashlib
import pathlib
import subprocess

import torch

import ops

_SOURCE = pathlib.Path(__file__).with_name("fast_ops.c")


def compile_library(config, folder: pathlib.Path) -> ctypes.CDLL:
    """The compiled library, kept in `folder` under a hash of its source and shape."""
    macros = dict(
        HEADS=config.num_attention_heads, WIDTH=config.head_dim, STREAMS=config.hc_mult,
        DIM=config.hidden_size, INDEX_HEADS=config.index_n_heads, INDEX_WIDTH=config.index_head_dim,
    )
    flags = [f"-D{key}={value}" for key, value in macros.items()]
    cpu = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("flags", 1)[1]
    key = _SOURCE.read_bytes() + " ".join(flags).encode() + cpu.split("\n", 1)[0].encode()
    path = pathlib.Path(folder) / f"fast_ops-{hashlib.sha1(key).hexdigest()[:12]}.so"
    if not path.exists():
        made = path.with_suffix(f".{id(path)}")
        command = ["gcc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", *flags]
        subprocess.run([*command, "-o", str(made), str(_SOURCE), "-lm"], check=True)
        made.replace(path)
    return ctypes.CDLL(str(path))


def _at(tensor):
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def _n(value: int):
    return ctypes.c_int64(value)


def _f(value: float):
    return ctypes.c_float(value)


class _Sight(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in ("batch", "t", "g", "window", "ratio", "top_k")] + [
        ("list", ctypes.c_void_p)
    ]


class _Search(ctypes.Structure):
    _fields_ = [
        (n, ctypes.c_int64)
        for n in ("batch", "t", "g", "ratio", "top_k", "top_blocks", "block", "mode")
    ]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, q, window_kv, window, main_kv, seen, sink):
        b, t, heads, width = q.shape
        q = (q * width**-0.5).contiguous()
        window_kv, main_kv = window_kv.contiguous(), _dense(main_kv)
        listed, ratio = seen if seen is not None else (None, 1)
        sight = _Sight(b, t, 0 if main_kv is None else main_kv.shape[1], window, ratio,
                       0 if listed is None else listed.shape[2],
                       None if listed is None else listed.data_ptr())
        out, lse = torch.empty_like(q), torch.empty(b, t, heads)
        lib.attention_forward(ctypes.byref(sight), _at(q), _at(window_kv), _at(main_kv), _at(sink),
                              _at(out), _at(lse))
        ctx.save_for_backward(q, window_kv, main_kv, sink, out, lse)
        ctx.rest = lib, sight, listed
        return out

    @staticmethod
    def backward(ctx, d_out):
        q, window_kv, main_kv, sink, out, lse = ctx.saved_tensors
        lib, sight, _ = ctx.rest
        d_out = d_out.contiguous()
        d_q, d_window = torch.empty_like(q), torch.zeros_like(window_kv)
        d_sink = torch.zeros_like(sink)
        d_main = None if main_kv is None else torch.zeros_like(main_kv)
        lib.attention_backward(
            ctypes.byref(sight), _at(q), _at(window_kv), _at(main_kv), _at(sink), _at(out),
            _at(lse), _at(d_out), _at(d_q), _at(d_window), _at(d_main), _at(d_sink),
        )
        return None, d_q * q.shape[-1] ** -0.5, d_window, None, d_main, None, d_sink


class _HyperIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, h, pre_in, fn, scale, base, weight, iterations, eps, norm_eps):
        h, pre_in = h.contiguous(), pre_in.contiguous()
        n, s, d = h.shape
        x, inverse_rms, inverse = torch.empty(n, d), torch.empty(n), torch.empty(n)
        lib.streams_in_forward(_n(n), _at(h), _at(pre_in), _at(weight), _f(norm_eps), _at(x),
                               _at(inverse_rms), _at(inverse))
        m = h.view(n, s * d) @ fn.t()
        pre, post, comb = torch.empty(n, s), torch.empty(n, s), torch.empty(n, s, s)
        lib.coefficients_forward(_n(n), _at(m), _at(inverse), _at(scale), _at(base), _n(iterations),
                                 _f(eps), _at(pre), _at(post), _at(comb))
        ctx.save_for_backward(h, pre_in, fn, scale, base, weight, inverse_rms, inverse, m, pre,
                              post)
        ctx.rest = lib, iterations, eps
        return x, pre, post, comb

    @staticmethod
    def backward(ctx, d_x, d_pre, d_post, d_comb):
        h, pre_in, fn, scale, base, weight, inverse_rms, inverse, m, pre, post = ctx.saved_tensors
        lib, iterations, eps = ctx.rest
        n, s, d = h.shape
        d_m, d_inverse = torch.empty_like(m), torch.empty(n)
        d_scale, d_base = torch.empty(3), torch.empty_like(base)
        lib.coefficients_backward(
            _n(n), _at(m), _at(inverse), _at(scale), _at(base), _n(iterations), _f(eps), _at(pre),
            _at(post), _at(d_pre.contiguous()), _at(d_post.contiguous()), _at(d_comb.contiguous()),
            _at(d_m), _at(d_inverse), _at(d_scale), _at(d_base),
        )
        d_h = (d_m @ fn).view(n, s, d)
        d_fn = d_m.t() @ h.view(n, s * d)
        along = -d_inverse * inverse**3 / (s * d)
        d_pre_in, d_weight = torch.empty_like(pre_in), torch.empty_like(weight)
        lib.streams_in_backward(
            _n(n), _at(h), _at(pre_in), _at(weight), _at(inverse_rms), _at(d_x.contiguous()),
            _at(along), _at(d_h), _at(d_pre_in), _at(d_weight),
        )
        return None, d_h, d_pre_in, d_fn, d_scale, d_base, d_weight, None, None, None


class _Expand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, y, h, post, comb):
        y, h, post, comb = y.contiguous(), h.contiguous(), post.contiguous(), comb.contiguous()
        out = torch.empty_like(h)
        lib.streams_out_forward(_n(len(y)), _at(y), _at(h), _at(post), _at(comb), _at(out))
        ctx.save_for_backward(y, h, post, comb)
        ctx.lib = lib
        return out

    @staticmethod
    def backward(ctx, d_out):
        y, h, post, comb = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in (y, h, post, comb)]
        ctx.lib.streams_out_backward(_n(len(y)), _at(y), _at(h), _at(post), _at(comb),
                                     _at(d_out.contiguous()), *map(_at, grads))
        return (None, *grads)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, x, weight, eps):
        x = x.contiguous()
        n = x.numel() // x.shape[-1]
        out, inverse = torch.empty_like(x), torch.empty(n)
        lib.rms_norm_forward(_n(n), _n(x.shape[-1]), _at(x), _at(weight), _f(eps), _at(out),
                             _at(inverse))
        ctx.save_for_backward(x, weight, inverse)
        ctx.lib = lib
        return out

    @staticmethod
    def backward(ctx, d_out):
        x, weight, inverse = ctx.saved_tensors
        d_x, d_weight = torch.empty_like(x), torch.zeros_like(weight)
        ctx.lib.rms_norm_backward(_n(len(inverse)), _n(x.shape[-1]), _at(x), _at(weight),
                                  _at(inverse), _at(d_out.contiguous()), _at(d_x), _at(d_weight))
        return None, d_x, d_weight, None


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, x, cos, sin, sign):
        x = x.contiguous()
        b, t, width = x.shape[0], x.shape[1], x.shape[-1]
        shape = _n(b * t), _n(t), _n(x.numel() // (b * t * width)), _n(width), _n(cos.shape[-1])
        ctx.rest = lib, shape, cos, sin, sign
        return _Rotate._run(lib, shape, cos, sin, sign, x)

    @staticmethod
    def _run(lib, shape, cos, sin, sign, x):
        out = torch.empty_like(x)
        lib.rotate(*shape, _at(cos), _at(sin), _f(sign), _at(x), _at(out))
        return out

    @staticmethod
    def backward(ctx, d_out):
        lib, shape, cos, sin, sign = ctx.rest
        return None, _Rotate._run(lib, shape, cos, sin, -sign, d_out.contiguous()), None, None, None


class _Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, gate, up, limit, share):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n, width = gate.shape
        lib.swiglu_forward(_n(n), _n(width), _at(gate), _at(up), _at(share), _f(limit), _at(out))
        ctx.save_for_backward(gate, up, share)
        ctx.rest = lib, limit
        return out

    @staticmethod
    def backward(ctx, d_out):
        gate, up, share = ctx.saved_tensors
        lib, limit = ctx.rest
        n, width = gate.shape
        d_gate, d_up = torch.empty_like(gate), torch.empty_like(up)
        d_share = None if share is None else torch.empty_like(share)
        lib.swiglu_backward(_n(n), _n(width), _at(gate), _at(up), _at(share), _f(limit),
                            _at(d_out.contiguous()), _at(d_gate), _at(d_up), _at(d_share))
        return None, d_gate, d_up, None, d_share


class _Gather(torch.autograd.Function):
    """Rows of a table by id; the backward pass adds rows that were taken twice."""

    @staticmethod
    def forward(ctx, lib, table, ids):
        table, ids = table.contiguous(), ids.contiguous()
        out = torch.empty(ids.numel(), table.shape[1])
        lib.gather_rows(_n(ids.numel()), _n(table.shape[1]), _at(table), _at(ids), _at(out))
        ctx.rest = lib, table.shape, ids
        return out.view(*ids.shape, table.shape[1])

    @staticmethod
    def backward(ctx, d_out):
        lib, shape, ids = ctx.rest
        d_table = torch.zeros(shape)
        lib.scatter_rows(_n(ids.numel()), _n(shape[1]), _at(d_out.contiguous()), _at(ids),
                         _at(d_table))
        return None, d_table, None


class _Scatter(torch.autograd.Function):
    """Sums of rows that go to the same place: out[ids[i]] += x[i]."""

    @staticmethod
    def forward(ctx, lib, x, ids, n_out):
        x, ids = x.contiguous(), ids.contiguous()
        out = torch.zeros(n_out, x.shape[1])
        lib.scatter_rows(_n(len(x)), _n(x.shape[1]), _at(x), _at(ids), _at(out))
        ctx.rest = lib, ids
        return out

    @staticmethod
    def backward(ctx, d_out):
        lib, ids = ctx.rest
        d_out = d_out.contiguous()
        d_x = torch.empty(len(ids), d_out.shape[1])
        lib.gather_rows(_n(len(ids)), _n(d_out.shape[1]), _at(d_out), _at(ids), _at(d_x))
        return None, d_x, None, None


def _dense(tensor):
    return None if tensor is None else tensor.contiguous()


class FastOps:
    """The functions of ops.py over one compiled library."""

    index_scores = staticmethod(ops.index_scores)
    engram_gate = staticmethod(ops.engram_gate)

    def __init__(self, lib: ctypes.CDLL):
        self._lib = lib

    def rms_norm(self, x, weight, eps):
        return _RmsNorm.apply(self._lib, x, weight, eps)

    def hyper_in(self, h, pre, fn, scale, base, weight, iterations, eps, norm_eps):
        return _HyperIn.apply(self._lib, h, pre, fn, scale, base, weight, iterations, eps, norm_eps)

    def collapse(self, h, pre):
        return ops.collapse(h, pre)

    def expand(self, y, h, post, comb):
        return _Expand.apply(self._lib, y, h, post, comb)

    def rotate(self, x, cos, sin, sign=1.0):
        return _Rotate.apply(self._lib, x, cos, sin, sign)

    def swiglu(self, gate, up, limit, share=None):
        return _Swiglu.apply(self._lib, gate, up, limit, share)

    def gather(self, table, ids):
        return _Gather.apply(self._lib, table, ids)

    def scatter(self, x, ids, n_out):
        return _Scatter.apply(self._lib, x, ids, n_out)

    def see_all(self, batch, n_tokens, ratio):
        return None, ratio

    def attention(self, q, window_kv, window, main_kv, seen, sink):
        return _Attention.apply(self._lib, q, window_kv, window, main_kv, seen, sink)

    def select_entries(self, q, w, keys, ratio, top_k, pool, writes_pool, top_blocks, block):
        b, t, g = q.shape[0], q.shape[1], keys.shape[1]
        if writes_pool:
            pool = torch.zeros(b, t, -(-g // block), dtype=torch.uint8)
        mode = 1 if writes_pool else 0 if pool is None else 2
        search = _Search(b, t, g, ratio, top_k, top_blocks, block, mode)
        listed = torch.empty(b, t, top_k, dtype=torch.int32)
        q, w, keys = q.contiguous(), w.contiguous(), keys.contiguous()
        self._lib.select_entries(ctypes.byref(search), _at(q), _at(w), _at(keys), _at(pool),
                                 _at(listed))
        return (listed, ratio), pool


def load(config, folder: pathlib.Path) -> FastOps:
    """Operations for a model of this shape."""
    return FastOps(compile_library(config, folder))
