"""Draws log.jsonl of a training as a picture: losses, and held-out shares."""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def smoothed(values, weight=0.98):
    out, mean = [], values[0]
    for value in values:
        mean = weight * mean + (1 - weight) * value
        out.append(mean)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    args = parser.parse_args()
    lines = (args.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    steps = [e for e in entries if "own" in e]
    judged = [e for e in entries if "held_out" in e]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    tokens = [e["tokens"] / 1e6 for e in steps]
    left.plot(tokens, smoothed([e["own"] for e in steps]), label="tokens the model writes")
    left.plot(tokens, smoothed([e["index"] for e in steps]), label="index loss")
    left.set(xlabel="million tokens", ylabel="nats", yscale="log", title="Training")
    kinds = ("call", "answer", "recall")
    names = sorted({n for e in judged for n in e if n.split("_")[0] in kinds})
    for name in names:
        points = [(e["tokens"] / 1e6, e[name]) for e in judged if name in e]
        right.plot(*zip(*points), marker=".", label=name.replace("_", " up to "))
    right.set(xlabel="million tokens", ylabel="exactly right", ylim=(0, 1), title="Held out")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(args.picture)


if __name__ == "__main__":
    main()
