"""Trains cairn-nano: `train.py FOLDER` starts or goes on; it can be killed at any moment.

FOLDER holds texts.json and tokenizer.json (make_tokenizer.py) and receives state.pt, the newest
checkpoint, log.jsonl and the compiled operations. What a step computes depends only on the
checkpoint, so a training that was killed goes on as if it had not been, up to the order of sums.

With `--from MODEL` a training that has no checkpoint yet goes on from an exported model, late in the
schedule and with rows that were not seen.

Processes share the parameters and, each with one thread, take an equal part of every batch.
"""

import argparse
import ctypes
import dataclasses
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import time
from typing import Dict, Optional

import blas  # first: before numpy and torch
import numpy as np
import torch

import checkpoint
import config as configs
import evaluate
import fake_quant
import fast_ops
import init
import model as models
import optimiser
import rows
import schedule
import tokenizer

SEED = 20261
SAMPLED = 16  # queries of a row that teach the indexers
MICRO_TOKENS = 2048
BIAS_RATE = 1e-3  # of the router biases, a step


class Shared:
    """Parameters and gradients of all processes in shared memory, as views of flat vectors."""

    def __init__(self, parameters: Dict[str, torch.Tensor], n_processes: int, load_shape):
        self.sizes = {name: value.shape for name, value in parameters.items()}
        total = sum(value.numel() for value in parameters.values())
        self.values = torch.empty(total).share_memory_()
        self.gradients = torch.zeros(n_processes, total).share_memory_()
        self.loads = torch.zeros(n_processes, *load_shape).share_memory_()
        self.losses = torch.zeros(n_processes, 3, dtype=torch.float64).share_memory_()
        self.orders = torch.zeros(4, dtype=torch.int64).share_memory_()  # step, tokens, seed, stop
        for name, view in self.views(self.values).items():
            view.copy_(parameters[name])

    def views(self, flat: torch.Tensor) -> Dict[str, torch.Tensor]:
        out, at = {}, 0
        for name, shape in self.sizes.items():
            out[name] = flat[at : at + shape.numel()].view(shape)
            at += shape.numel()
        return out


def make_config(folder: pathlib.Path):
    """The configuration and Engram classes that go with the folder's tokenizer."""
    made = tokenizer.Tokenizer.read(folder / "tokenizer.json")
    classes = made.engram_classes()
    return configs.nano(made.size, max(classes) + 1), np.array(classes)


class Worker:
    """One process's share of every step."""

    def __init__(self, folder: pathlib.Path, rank: int, n_processes: int, shared: Shared,
                 optimiser_: optimiser.Optimiser):
        torch.set_num_threads(1)
        self.rank, self.n_processes, self.shared = rank, n_processes, shared
        self.optimiser = optimiser_
        self.updated = optimiser.shares(optimiser_.parameters, n_processes)[rank]
        self.config, classes = make_config(folder)
        values = shared.views(shared.values)
        self.leaves = {
            name: value.detach().requires_grad_(optimiser.is_trained(name))
            for name, value in values.items()
        }
        self.model = models.Model(
            self.config, self.leaves, models.EngramHash(self.config, classes),
            fast_ops.load(self.config, folder),
        )
        for name, view in shared.views(shared.gradients[rank]).items():
            if optimiser.is_trained(name):
                self.leaves[name].grad = view
        self.maker = rows.RowMaker(folder, held_out=False)

    def gradients(self, step: int, tokens: int, seed: int):
        """Adds up this process's gradients of a step into shared memory."""
        self.shared.gradients[self.rank].zero_()
        self.shared.loads[self.rank].zero_()
        self.model.quantiser = (
            fake_quant.Quantiser() if tokens >= schedule.QUANTISE_FROM else None
        )
        self.model.dense = tokens < schedule.DENSE_UNTIL
        n_tokens = schedule.length_of(step, tokens)
        n_rows = schedule.rows_of(step, tokens)
        mix = rows.mix_for(n_tokens)
        per_micro = max(1, MICRO_TOKENS // n_tokens)
        mine = list(range(self.rank, n_rows, self.n_processes))
        sums = torch.zeros(3, dtype=torch.float64)
        for first in range(0, len(mine), per_micro):
            part = mine[first : first + per_micro]
            made = [self.maker.row(seed + i, mix) for i in part]
            ids = torch.from_numpy(np.stack([m[0] for m in made]))
            weights = torch.from_numpy(np.stack([m[1] for m in made]))
            sums += self._micro(seed + part[0], ids, weights, len(part) / n_rows)
        self.shared.losses[self.rank] = sums

    def update(self, step: int, tokens: int) -> float:
        """Updates this process's share of the parameters, once all gradients are there."""
        all_views = [self.shared.views(flat) for flat in self.shared.gradients]
        gradients = {name: sum(views[name] for views in all_views) for name in self.updated}
        return self.optimiser.step(gradients, schedule.rate_of(tokens), step + 1)

    def _micro(self, seed, ids, weights, share):
        """Backward pass of a few rows; returns (loss sum, own loss sum, index loss) shares."""
        b, t = ids.shape[0], ids.shape[1] - 1
        g = torch.Generator().manual_seed(seed)
        sampled = torch.randint(0, t, (b, SAMPLED), generator=g)
        hidden, index_loss = self.model.forward(ids[:, :-1].contiguous(), sampled)
        target, weight = ids[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
        # Of what the model does not write, a quarter of the tokens, at four times the weight.
        own = weight == rows.OWN_WEIGHT
        kept = own | (torch.rand(weight.shape, generator=g) < 0.25)
        weight = torch.where(own, weight, weight * 4)[kept]
        logits = self.model.logits(hidden.reshape(b * t, -1)[kept])
        losses = torch.nn.functional.cross_entropy(logits, target[kept], reduction="none")
        loss = (losses * weight).sum() / weight.sum()
        ((loss + index_loss) * share).backward()
        for layer, load in enumerate(self.model.loads):
            self.shared.loads[self.rank, layer] += load
        own = own[kept]
        own_loss = losses.detach()[own].mean() if bool(own.any()) else loss.detach()
        return torch.tensor([float(loss), float(own_loss), float(index_loss)]).double() * share


def balance_experts(shared: Shared, views: Dict[str, torch.Tensor]) -> float:
    """Moves the router biases against the load; returns the largest load over the mean one."""
    loads = shared.loads.sum(0)
    mean = loads.mean(1, keepdim=True)
    for layer in range(loads.shape[0]):
        views[f"layers.{layer}.ffn.gate.bias"] += BIAS_RATE * torch.sign(mean - loads)[layer]
    return float((loads / mean).max())


def save_state(path: pathlib.Path, state: dict):
    """Replaces the checkpoint in one step."""
    made = path.with_suffix(".new")
    with open(made, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


@dataclasses.dataclass
class Progress:
    """Where training stands."""

    step: int = 0
    tokens: int = 0
    next_seed: int = 0
    seconds: float = 0.0


def fresh_parameters(config) -> Dict[str, torch.Tensor]:
    return init.parameters(config, SEED)


def exported_state(folder: pathlib.Path, model: pathlib.Path) -> dict:
    """A state that begins with the weights and the tokenizer of an exported model."""
    shutil.copyfile(model / "tokenizer.json", folder / "tokenizer.json")
    names = fresh_parameters(make_config(folder)[0])
    found = checkpoint.load(model)
    parameters = {name: torch.from_numpy(np.array(found[name])) for name in names}
    progress = Progress(tokens=int(schedule.EXPORTED_FROM), next_seed=1 << 32)
    return dict(parameters=parameters, progress=dataclasses.asdict(progress), optimiser=None)


class Barriers:
    """Where the processes wait for each other in every step."""

    def __init__(self, context, n_processes: int):
        self.begin, self.middle, self.end = (
            context.Barrier(n_processes, timeout=3600) for _ in range(3)
        )


def serve(folder, rank, n_processes, shared, optimiser_, barriers):
    """The loop of the processes beside the first, with which they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    worker = Worker(folder, rank, n_processes, shared, optimiser_)
    while True:
        barriers.begin.wait()
        step, tokens, seed, stop = (int(x) for x in shared.orders)
        if stop:
            return
        worker.gradients(step, tokens, seed)
        barriers.middle.wait()
        worker.update(step, tokens)
        barriers.end.wait()


class Trainer:
    """The first process: it leads the others and keeps the books."""

    def __init__(self, folder: pathlib.Path, n_processes: int, model: Optional[pathlib.Path]):
        self.folder = folder
        state = self._load()
        if state is None and model is not None:
            state = exported_state(folder, model)
        config, _ = make_config(folder)
        parameters = state["parameters"] if state else fresh_parameters(config)
        shape = (config.num_hidden_layers, config.n_routed_experts)
        self.shared = Shared(parameters, n_processes, shape)
        self.views = self.shared.views(self.shared.values)
        self.optimiser = optimiser.Optimiser(
            self.views, lambda name: config.o_groups if name.endswith("wo_a") else 1
        )
        self.progress = Progress(**state["progress"]) if state else Progress()
        if state and state["optimiser"]:
            self.optimiser.load(state["optimiser"])
        context = multiprocessing.get_context("fork")
        self.barriers = Barriers(context, n_processes)
        common = (n_processes, self.shared, self.optimiser)
        self.others = [
            context.Process(target=serve, daemon=True, args=(folder, rank, *common, self.barriers))
            for rank in range(1, n_processes)
        ]
        for process in self.others:
            process.start()
        self.worker = Worker(folder, 0, *common)
        self.held_out = rows.RowMaker(folder, held_out=True)

    def _load(self):
        path = self.folder / "state.pt"
        return torch.load(path) if path.exists() else None

    def save(self):
        save_state(self.folder / "state.pt", dict(
            parameters={name: view.clone() for name, view in self.views.items()},
            optimiser=self.optimiser.state, progress=dataclasses.asdict(self.progress),
        ))

    def log(self, **entry):
        with open(self.folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def step(self):
        """One update; returns what is worth logging."""
        p = self.progress
        started = time.monotonic()
        self.shared.orders[:] = torch.tensor([p.step, p.tokens, p.next_seed, 0])
        self.barriers.begin.wait()
        self.worker.gradients(p.step, p.tokens, p.next_seed)
        self.barriers.middle.wait()
        norm = self.worker.update(p.step, p.tokens)
        busiest = balance_experts(self.shared, self.views)
        self.barriers.end.wait()
        rate, length = schedule.rate_of(p.tokens), schedule.length_of(p.step, p.tokens)
        n_rows = schedule.rows_of(p.step, p.tokens)
        p.step, p.tokens, p.next_seed = p.step + 1, p.tokens + n_rows * length, p.next_seed + n_rows
        p.seconds += time.monotonic() - started
        loss, own, index = (round(float(x), 4) for x in self.shared.losses.sum(0))
        return dict(step=p.step, tokens=p.tokens, length=length, loss=loss, own=own, index=index,
                    rate=round(rate, 6), norm=round(norm, 3), busiest=round(busiest, 2),
                    seconds=round(p.seconds, 1))

    def evaluate(self):
        stage = next((s for s in schedule.STAGES if self.progress.tokens < s.until),
                     schedule.STAGES[-1])
        length = max(stage.lengths)
        n_rows = max(4, 8192 // length)
        shares = evaluate.measure(self.worker.model, self.held_out, length, n_rows, 0)
        self.log(step=self.progress.step, tokens=self.progress.tokens, held_out=length, **shares)

    def run(self, save_every: float, eval_every: int, max_steps: int):
        last_save = time.monotonic()
        for _ in range(max_steps):
            if self.progress.tokens >= schedule.TOTAL:
                break
            self.log(**self.step())
            if time.monotonic() - last_save > save_every:
                self.save()
                last_save = time.monotonic()
            if self.progress.step % eval_every == 0:
                self.evaluate()
        self.save()
        self.shared.orders[3] = 1
        self.barriers.begin.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--from", dest="model", type=pathlib.Path, help="an exported model")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save-every", type=float, default=300, help="seconds")
    parser.add_argument("--eval-every", type=int, default=100, help="steps")
    parser.add_argument("--max-steps", type=int, default=1 << 60)
    args = parser.parse_args()
    trainer = Trainer(args.folder, args.processes, args.model)
    trainer.run(args.save_every, args.eval_every, args.max_steps)


if __name__ == "__main__":
    main()
