#!/usr/bin/env python3
"""Draws and lists what tests/nano/evaluation.py measured: plot_nano.py RESULTS.json PICTURE.svg

Prints the table of docs/nano.md; the picture shows recall by distance in every mode. Needs matplotlib
(Debian: python3-matplotlib).
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROWS = (("valid", "messages well formed"), ("calls", "calls as expected"), ("solved", "tasks solved"))


def cell(entry):
    return f"{100 * entry['share']:.1f} %" if entry else ""


def table(results):
    first = next(iter(results.values()))
    distances = sorted(int(name[10:]) for name in first if name.startswith("task_fact_"))
    rows = ROWS + tuple((f"task_fact_{d}", f"fact from {d} tokens back") for d in distances)
    print("| mode | " + " | ".join(text for _, text in rows) + " | perplexity of text |")
    print("|---" * (len(rows) + 2) + "|")
    counts = [str(first.get(name, {}).get("of", "")) for name, _ in rows]
    print("| of | " + " | ".join(counts) + " | |")
    for mode, shares in results.items():
        text = shares.get("text", {}).get("perplexity", "")
        cells = [cell(shares.get(name)) for name, _ in rows]
        print(f"| {mode} | " + " | ".join(cells) + f" | {text} |")
    return distances


def main():
    results = json.load(open(sys.argv[1], encoding="utf-8"))
    distances = table(results)
    figure, axes = plt.subplots(figsize=(7, 4))
    for mode, shares in results.items():
        axes.plot(distances, [shares[f"task_fact_{d}"]["share"] for d in distances], marker=".",
                  label=mode)
    axes.set(xscale="log", xlabel="tokens since the fact was said", ylabel="answers that have it",
             ylim=(0, 1), title="cairn-nano, held-out conversations, greedy")
    axes.set_xticks(distances, [str(d) for d in distances])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
