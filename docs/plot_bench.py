#!/usr/bin/env python3
"""Draws what `cairn bench --json` measured: plot_bench.py BENCH.json FOLDER

roofline.svg: products, decode steps and prefilled layers under the limits of the machine that were
measured in the same run. context.svg: the parts of a decode step at every context. Needs matplotlib
(Debian: python3-matplotlib).
"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def largest(report, name):
    return max((limit["value"] for limit in report["limits"] if limit["name"] == name), default=0)


def roofline(report, path):
    read = largest(report, "read")
    integer = 2 * max(largest(report, "pmaddwd"), largest(report, "vpdpwssd"))
    fma = largest(report, "f32_fma")
    figure, axes = plt.subplots(figsize=(7, 4.5))
    intensities = [0.5 * 2**i for i in range(14)]
    for peak, label in ((integer, "16-bit integer products"), (fma, "f32 fused multiply-adds")):
        axes.plot(intensities, [min(read * x, peak) for x in intensities],
                  label=f"{label}: {peak:.0f} G/s")
    marks = {"product": "o", "decode": "s", "decode together": "D", "draft": "x", "verify": "P",
             "prefill layer": "^"}
    for name, mark in marks.items():
        points = [m for m in report["measures"] if m["name"] == name and m["bytes"] > 0]
        if not points:
            continue
        axes.plot(
            [2 * m["multiply_adds"] / m["bytes"] for m in points],
            [2 * m["multiply_adds"] / m["ms"] / 1e6 for m in points],
            mark, linestyle="none", label=name,
        )
    axes.set(xscale="log", yscale="log", xlabel="operations a byte read", ylabel="G operations/s",
             title=f"{report['threads']} threads, read {read:.1f} GB/s")
    axes.legend(fontsize=8)
    axes.grid(True, which="both", alpha=0.2)
    figure.savefig(path, bbox_inches="tight")


def context_scaling(report, path):
    steps = [m for m in report["measures"] if m["name"] == "decode"]
    names = []
    for step in steps:
        names += [part["name"] for part in step["parts"] if part["name"] not in names]
    figure, axes = plt.subplots(figsize=(7, 4.5))
    bottoms = [0.0] * len(steps)
    for name in names:
        heights = [sum(p["ms"] for p in step["parts"] if p["name"] == name) for step in steps]
        axes.bar(range(len(steps)), heights, bottom=bottoms, width=0.6, label=name)
        bottoms = [b + h for b, h in zip(bottoms, heights)]
    axes.plot(range(len(steps)), [s["memory_ms"] for s in steps], "k_", markersize=30,
              label="its bytes at read bandwidth")
    axes.set_xticks(range(len(steps)), [f"{step['context'] // 1024}k" for step in steps])
    axes.set(xlabel="tokens of context", ylabel="ms a decoded token",
             title="Only the indexer reads more in a longer context")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, bbox_inches="tight")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    report = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(sys.argv[2])
    roofline(report, folder / "roofline.svg")
    context_scaling(report, folder / "context.svg")


if __name__ == "__main__":
    main()
