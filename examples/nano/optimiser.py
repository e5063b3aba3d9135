"""Muon for the matrices inside the layers, AdamW for everything else.

Muon's update is an orthogonalised momentum, scaled to about the size of an AdamW update, so that
both share one learning rate. State is a dictionary of tensors by parameter name: it is saved as it is.
"""

import re
from typing import Dict, List

import torch

_NOT_MUON = re.compile(r"embed|head\.weight|norm|hc_|sink|gate\.|q_weight|k_weight|weights_proj")
_NO_GRADIENT = re.compile(r"gate\.bias$")
MUON_SCALE = 0.4  # of an update, over the square root of its larger side
MOMENTUM, BETA1, BETA2, EPS = 0.95, 0.9, 0.98, 1e-10
WEIGHT_DECAY = 0.05
EMBEDDING_FACTOR = 5.0  # of the rate: tables start at a larger scale than matrices


def uses_muon(name: str, parameter: torch.Tensor) -> bool:
    """Whether a parameter is a matrix, or a stack of matrices, inside a layer."""
    return parameter.dim() >= 2 and not _NOT_MUON.search(name)


def is_trained(name: str) -> bool:
    """Router biases follow the load of the experts instead of a gradient."""
    return not _NO_GRADIENT.search(name)


def orthogonalised(x: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz iteration towards the nearest semi-orthogonal matrices of x [batch, r, c]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    turned = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if turned else x
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if turned else x


def shares(parameters: Dict[str, torch.Tensor], n: int) -> List[List[str]]:
    """The trained parameters in n lists of about equal work; the first has all of AdamW's."""
    lists, work = [[] for _ in range(n)], [0.0] * n
    trained = [name for name in parameters if is_trained(name)]
    for name in trained:
        if not uses_muon(name, parameters[name]):
            lists[0].append(name)
            work[0] += 30.0 * parameters[name].numel()
    matrices = [name for name in trained if uses_muon(name, parameters[name])]
    cost = {name: parameters[name].numel() * min(parameters[name].shape[-2:]) for name in matrices}
    for name in sorted(matrices, key=lambda name: (-cost[name], name)):
        least = work.index(min(work))
        lists[least].append(name)
        work[least] += cost[name]
    return lists


class Optimiser:
    """Updates parameters in place from gradients of the same names. Its state is in shared memory,
    so that processes can update a share each."""

    def __init__(self, parameters: Dict[str, torch.Tensor], n_groups_of=None):
        self.parameters = parameters
        self.state: Dict[str, torch.Tensor] = {}
        self.n_groups_of = n_groups_of or (lambda name: 1)
        for name, value in parameters.items():
            if is_trained(name):
                kinds = "m" if uses_muon(name, value) else "mv"
                for kind in kinds:
                    self.state[f"{name}:{kind}"] = torch.zeros_like(value).share_memory_()

    def load(self, state: Dict[str, torch.Tensor]):
        """Goes on from a saved state."""
        for name, value in self.state.items():
            value.copy_(state[name])

    @torch.no_grad()
    def step(self, gradients: Dict[str, torch.Tensor], rate: float, count: int) -> float:
        """One update of the parameters that have gradients here; `count` is 1 at the first one.
        AdamW's gradients are clipped together; returns their norm."""
        others = [n for n in gradients if not uses_muon(n, self.parameters[n])]
        norm = float(sum(gradients[n].square().sum() for n in others)) ** 0.5
        factor = min(1.0, 1.0 / (norm + 1e-6))
        for name, gradient in gradients.items():
            if uses_muon(name, self.parameters[name]):
                self._muon(name, gradient, rate)
            else:
                self._adam(name, gradient * factor, rate, count)
        return norm

    def _muon(self, name, gradient, rate):
        value, m = self.parameters[name], self.state[name + ":m"]
        m.mul_(MOMENTUM).add_(gradient)
        update = gradient.add(m, alpha=MOMENTUM)
        rows, columns = value.shape[-2] // self.n_groups_of(name), value.shape[-1]
        update = orthogonalised(update.reshape(-1, rows, columns)).reshape(value.shape)
        value.mul_(1 - rate * WEIGHT_DECAY)
        value.add_(update, alpha=-rate * MUON_SCALE * max(rows, columns) ** 0.5)

    def _adam(self, name, gradient, rate, count):
        value, m, v = self.parameters[name], self.state[name + ":m"], self.state[name + ":v"]
        if name.endswith("embed.weight"):
            rate *= EMBEDDING_FACTOR
        m.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = (v / (1 - BETA2**count)).sqrt_().add_(EPS)
        value.addcdiv_(m, scale, value=-rate / (1 - BETA1**count))
