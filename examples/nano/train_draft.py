"""Trains the draft stages on the frozen backbone of FOLDER/state.pt; writes FOLDER/draft.pt.

The stages learn the backbone's own next-token distribution, which is what they have to guess, and
the confidence head whether its first choice would be accepted.
"""

import argparse
import dataclasses
import json
import pathlib

import blas  # first: before torch
import torch

import draft
import fake_quant
import fast_ops
import init
import model as models
import optimiser
import rows
import train

SEED = 20262
N_STAGES = 2
N_TOKENS = 512
N_ROWS = 4
ANCHORS = 48  # of a row
RATE = 2e-3


def with_drafts(config, noise_id: int):
    """The configuration with draft stages; `noise_id` is a token that no draft input contains."""
    return dataclasses.replace(
        config, num_nextn_predict_layers=N_STAGES, dspark_noise_token_id=noise_id
    )


class DraftTrainer:
    """One process, one thread; the state is the parameters and the step."""

    def __init__(self, folder: pathlib.Path):
        torch.set_num_threads(1)
        self.folder = folder
        config, classes = train.make_config(folder)
        self.maker = rows.RowMaker(folder, held_out=False)
        self.config = with_drafts(config, self.maker.tokenizer.added["<｜System｜>"])
        saved = folder / "draft.pt"
        state = torch.load(saved) if saved.exists() else None
        self.parameters = state["parameters"] if state else init.draft_parameters(self.config, SEED)
        for name, value in self.parameters.items():
            value.requires_grad_(optimiser.is_trained(name))
        self.step_number = state["step"] if state else 0
        self.optimiser = optimiser.Optimiser(
            {name: value.detach() for name, value in self.parameters.items()},
            lambda name: config.o_groups if name.endswith("wo_a") else 1,
        )
        if state:
            self.optimiser.load(state["optimiser"])
        everything = dict(torch.load(folder / "state.pt")["parameters"], **self.parameters)
        self.model = models.Model(
            self.config, everything, models.EngramHash(config, classes),
            fast_ops.load(config, folder),
        )
        self.model.quantiser = fake_quant.Quantiser()
        self.drafter = draft.Drafter(self.model)

    def save(self):
        train.save_state(self.folder / "draft.pt", dict(
            parameters={n: v.detach() for n, v in self.parameters.items()},
            optimiser=self.optimiser.state, step=self.step_number,
        ))

    def _batch(self):
        seed = (1 << 40) + self.step_number * N_ROWS  # rows that the backbone was not trained on
        ids, weights = self.maker.batch(seed, N_ROWS, rows.mix_for(N_TOKENS))
        g = torch.Generator().manual_seed(self.step_number)
        block = self.config.dspark_block_size
        own = torch.from_numpy(weights[:, 1 : N_TOKENS - block] == rows.OWN_WEIGHT)
        chance = own.float() + 0.02
        return torch.from_numpy(ids), torch.multinomial(chance, ANCHORS, generator=g)

    def step(self, rate: float) -> dict:
        ids, anchors = self._batch()
        block, hidden = self.config.dspark_block_size, {}
        with torch.no_grad():
            final, _ = self.model.forward(ids, taps=hidden)
            tapped = draft.taps(self.config, hidden, ids.shape)
            at = anchors.unsqueeze(2) + 1 + torch.arange(block)
            behind = final[torch.arange(N_ROWS).view(-1, 1, 1), at]
            target = torch.softmax(self.model.logits(behind), dim=-1)
        logits, confidence = self.drafter.forward(ids, tapped, anchors)
        loss = -(target * torch.log_softmax(logits, dim=-1)).sum(-1).mean()
        hit = (logits.detach().argmax(-1) == target.argmax(-1)).float()
        sure = torch.nn.functional.binary_cross_entropy_with_logits(confidence, hit)
        (loss + sure).backward()
        self.step_number += 1
        names = [n for n, v in self.parameters.items() if v.grad is not None]
        self.optimiser.step({n: self.parameters[n].grad for n in names}, rate, self.step_number)
        for name in names:
            self.parameters[name].grad = None
        accepted = torch.cumprod(hit, dim=-1).sum(-1).mean()
        return dict(draft_step=self.step_number, loss=round(float(loss), 4),
                    confidence=round(float(sure), 4), accepted=round(float(accepted), 3))

    def run(self, n_steps: int):
        while self.step_number < n_steps:
            rate = RATE * min(1.0, (self.step_number + 1) / 50,
                              4 * (n_steps - self.step_number) / n_steps)
            entry = self.step(rate)
            if self.step_number % 10 == 0:
                with open(self.folder / "draft.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            if self.step_number % 100 == 0:
                self.save()
        self.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    DraftTrainer(args.folder).run(args.steps)


if __name__ == "__main__":
    main()
