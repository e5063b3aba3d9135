"""Writes a checkpoint of the training as a folder in the released layout."""

import argparse
import pathlib
import shutil

import torch

import checkpoint
import prompt_format
import tokenizer
import train
import train_draft


def export(folder: pathlib.Path, out: pathlib.Path, parameters, config) -> int:
    """Writes config.json, tokenizer.json and model.safetensors; returns the payload bytes."""
    made = tokenizer.Tokenizer.read(folder / "tokenizer.json")
    arrays = {name: value.detach().numpy() for name, value in parameters.items()}
    for name in [n for n in arrays if n.endswith("gate.bias")]:
        arrays[name + "_vl"] = arrays[name]
    size = checkpoint.save(out, config, arrays, made.added[prompt_format.IMAGE])
    shutil.copyfile(folder / "tokenizer.json", out / "tokenizer.json")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="of the training")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--fresh", action="store_true", help="untrained parameters")
    args = parser.parse_args()
    config, _ = train.make_config(args.folder)
    if args.fresh:
        parameters = train.fresh_parameters(config)
    else:
        parameters = torch.load(args.folder / "state.pt")["parameters"]
    if (args.folder / "draft.pt").exists() and not args.fresh:
        parameters.update(torch.load(args.folder / "draft.pt")["parameters"])
        made = tokenizer.Tokenizer.read(args.folder / "tokenizer.json")
        config = train_draft.with_drafts(config, made.added[prompt_format.SYSTEM])
    size = export(args.folder, args.out, parameters, config)
    count = sum(p.numel() for p in parameters.values())
    print(f"{size / 1e6:.2f} MB, {count / 1e6:.2f} M parameters")


if __name__ == "__main__":
    main()
