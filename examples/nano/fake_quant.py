"""The formats of checkpoint and KV cache in the forward pass of training.

Values are rounded as they will be stored; gradients pass as if nothing had been rounded.
"""

import re

import numpy as np
import torch

_FP8 = re.compile(r"(wq_a|wq_b|attn\.wkv|wo_a|wo_b|shared_experts\.w[123]|engram\.wkv|main_proj)$")


def _pass_through(x: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    return x + (rounded - x).detach()


def _power_of_two(x: torch.Tensor) -> torch.Tensor:
    """The smallest power of two that is at least x > 0 (architecture.md 3.3)."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), exponent - (fraction == 0.5).to(exponent.dtype))


def _e4m3(x: torch.Tensor) -> torch.Tensor:
    _, exponent = torch.frexp(x)
    step = torch.ldexp(torch.ones_like(x), (exponent - 4).clamp(min=-9))
    return (torch.round(x / step) * step).clamp(-448, 448)


def _e2m1(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs().clamp(max=6)
    _, exponent = torch.frexp(magnitude)
    step = torch.ldexp(torch.ones_like(x), (exponent - 2).clamp(min=-1))
    return torch.copysign(torch.round(magnitude / step) * step, x)


def _bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(torch.float32)


_INV448 = float(np.uint32(0x3B124925).view(np.float32))
_INV6 = float(np.uint32(0x3E2AAAAB).view(np.float32))


def q8(x: torch.Tensor) -> torch.Tensor:
    """E4M3 in groups of 32 with power-of-two scales (3.4)."""
    groups = x.detach().reshape(*x.shape[:-1], -1, 32)
    scale = _power_of_two(groups.abs().amax(-1, keepdim=True).clamp(min=1e-4) * _INV448)
    return (_e4m3(groups / scale) * scale).reshape(x.shape)


def qm4(x: torch.Tensor) -> torch.Tensor:
    """E2M1 in groups of 32 with power-of-two scales (3.4)."""
    groups = x.detach().reshape(*x.shape[:-1], -1, 32)
    scale = _power_of_two(groups.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-126) * _INV6)
    return (_e2m1(groups / scale) * scale).reshape(x.shape)


def qn4(x: torch.Tensor) -> torch.Tensor:
    """E2M1 in groups of 16 with E4M3 scales (3.4)."""
    groups = x.detach().reshape(*x.shape[:-1], -1, 16)
    scale = _e4m3(groups.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-9) / 6)
    return (_e2m1(groups / scale) * scale).reshape(x.shape)


def fp8_tiles(w: torch.Tensor) -> torch.Tensor:
    """A matrix in E4M3 with one power-of-two scale for each 32 x 32 tile."""
    n, k = w.shape
    tiles = w.detach().reshape(n // 32, 32, k // 32, 32)
    amax = tiles.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-4)
    scale = _power_of_two(amax * _INV448)
    return (_e4m3(tiles / scale) * scale).reshape(n, k)


class Quantiser:
    """What Model calls where a format applies."""

    def weight(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A parameter as the exported checkpoint will have it."""
        if ".experts.w" in name:
            rounded = qm4(value)
        elif name.endswith("engram.embed.weight"):
            rounded = q8(value)
        elif _FP8.search(name):
            rounded = fp8_tiles(value)
        else:
            rounded = _bf16(value.detach())
        return _pass_through(value, rounded)

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        """The input of an FP8 or FP4 matrix product."""
        return _pass_through(x, q8(_bf16(x.detach())))

    def window(self, kv: torch.Tensor) -> torch.Tensor:
        return _pass_through(kv, q8(_bf16(kv.detach())))

    def main(self, kv: torch.Tensor) -> torch.Tensor:
        return _pass_through(kv, qn4(_bf16(kv.detach())))

    def index(self, x: torch.Tensor) -> torch.Tensor:
        return _pass_through(x, qm4(_bf16(x.detach())))
