"""Number formats of the released checkpoint and KV cache, in numpy and torch-free.

E4M3 and E2M1 round to nearest, ties to even, and saturate; scales are powers of two that round up
(architecture.md 3.1 to 3.4). Every `*_codes` function returns what is stored, every `qdq_*`
function what it decodes to.
"""

import numpy as np

E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
INV448 = np.uint32(0x3B124925).view(np.float32)
INV6 = np.uint32(0x3E2AAAAB).view(np.float32)


def e4m3_table() -> np.ndarray:
    """The 256 values of E4M3; the two NaN codes are NaN."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    value = np.where(
        exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    )
    value = np.where(code & 0x7F == 0x7F, np.nan, value)
    return np.where(code & 0x80, -value, value).astype(np.float32)


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """`x` rounded to the E4M3 grid, saturating at 448."""
    x = np.asarray(x, dtype=np.float32)
    magnitude = np.minimum(np.abs(x), np.float32(448))
    _, exponent = np.frexp(magnitude)
    step = np.ldexp(np.float32(1), np.maximum(exponent - 4, -9))
    rounded = np.rint(magnitude / step) * step
    return np.copysign(np.minimum(rounded, np.float32(448)), x).astype(np.float32)


def e4m3_codes(x: np.ndarray) -> np.ndarray:
    """Bytes of values that are on the E4M3 grid."""
    magnitude = np.abs(x).astype(np.float32)
    fraction, exponent = np.frexp(magnitude)
    normal = magnitude >= 2.0**-6
    code = np.where(
        normal,
        ((exponent + 6) << 3) + np.rint((fraction * 2 - 1) * 8).astype(np.int64),
        np.rint(magnitude * 2.0**9).astype(np.int64),
    )
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def e2m1_codes(x: np.ndarray) -> np.ndarray:
    """Codes 0 to 15 nearest to `x`; ties go to the even code."""
    magnitude = np.abs(x)
    code = np.zeros(x.shape, dtype=np.uint8)
    for threshold, up_at_tie in zip(
        (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), (False, True, False, True, False, True, False)
    ):
        code += (magnitude >= threshold) if up_at_tie else (magnitude > threshold)
    return code | np.where(np.signbit(x), 8, 0).astype(np.uint8)


def e2m1_values(codes: np.ndarray) -> np.ndarray:
    """What E2M1 codes stand for."""
    value = E2M1_VALUES[codes & 7]
    return np.where(codes & 8, -value, value).astype(np.float32)


def scale_exponent(x: np.ndarray) -> np.ndarray:
    """k of the smallest 2^k that is at least the positive f32 `x`."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32).astype(np.int64)
    return ((bits >> 23) & 255) - 127 + ((bits & 0x7FFFFF) != 0)


def bf16_bits(x: np.ndarray) -> np.ndarray:
    """The upper halves of `x` rounded to bf16, as uint16."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    """The f32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _tile_exponents(tiles: np.ndarray, largest: np.float32, floor: float) -> np.ndarray:
    """Scale exponents of tiles [..., rows, columns] over their last two axes."""
    amax = np.maximum(np.abs(tiles).max(axis=(-2, -1)), np.float32(floor))
    return scale_exponent((amax * largest).astype(np.float32))


def fp8_weight(weight: np.ndarray, rows: int = 32):
    """E4M3 codes [n, k] and E8M0 scale bytes [n/rows, k/32] of a matrix, in tiles of rows x 32."""
    n, k = weight.shape
    tiles = weight.reshape(n // rows, rows, k // 32, 32).transpose(0, 2, 1, 3)
    exponent = _tile_exponents(tiles, INV448, 1e-4)
    values = round_e4m3(np.ldexp(tiles, -exponent[..., None, None]))
    codes = e4m3_codes(values).transpose(0, 2, 1, 3).reshape(n, k)
    return codes, (exponent + 127).astype(np.uint8)


def fp8_weight_values(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The f32 matrix that codes and scale bytes stand for; tile rows follow from the shapes."""
    rows = codes.shape[0] // scales.shape[0]
    scale = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    return e4m3_table()[codes] * np.repeat(np.repeat(scale, rows, axis=0), 32, axis=1)


def fp4_weight(weight: np.ndarray):
    """Packed E2M1 bytes [n, k/2] and E8M0 scale bytes [n, k/32]; even columns in low nibbles."""
    n, k = weight.shape
    groups = weight.reshape(n, k // 32, 1, 32)
    exponent = _tile_exponents(groups, INV6, 6 * 2.0**-126)
    codes = e2m1_codes(np.ldexp(groups, -exponent[..., None, None])).reshape(n, k)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return packed.astype(np.uint8), (exponent + 127).astype(np.uint8)


def fp4_weight_values(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The f32 matrix that packed bytes and scale bytes stand for."""
    packed = packed.view(np.uint8)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)
    scale = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    return e2m1_values(codes) * np.repeat(scale, 32, axis=1)
