"""Holds an exported checkpoint's PyTorch model against the engine, on a held-out conversation.

In f32 arithmetic logits have to agree to 1e-4 of the largest one; rendering and tokens exactly.
"""

import argparse
import dataclasses
import pathlib
import random
import sys

import numpy as np
import torch

import checkpoint
import config as configs
import engine
import model as models
import ops
import prompt_format
import rows

TOLERANCE = 1e-4


def torch_logits(folder: pathlib.Path, classes, ids) -> np.ndarray:
    """Logits of the exported weights, dequantised, by the formulas."""
    config = configs.read(folder)
    parameters = {k: torch.from_numpy(np.array(v)) for k, v in checkpoint.load(folder).items()}
    model = models.Model(config, parameters, models.EngramHash(config, classes), ops)
    with torch.no_grad():
        hidden, _ = model.forward(torch.tensor(ids)[None])
        return model.logits(hidden[0]).numpy()


def engine_logits(opened, ids, vocab_size: int, first: int) -> np.ndarray:
    """The engine's logits after each of ids[first:]."""
    sequence, out = engine.Sequence(opened, vocab_size), []
    for part in [ids[: first + 1]] + [[token] for token in ids[first + 1 :]]:
        sequence.append(part)
        out.append(sequence.logits())
    sequence.close()
    return np.stack(out)


def openai_messages(messages) -> list:
    """Messages in the OpenAI shape, for the engine's renderer."""
    out, call_ids = [], []
    for number, message in enumerate(messages):
        entry = dict(role=message.role, content=message.content)
        if message.tools:
            entry["tools"] = [dict(type="function", function=tool) for tool in message.tools]
        if message.reasoning:
            entry["reasoning_content"] = message.reasoning
        if message.calls:
            call_ids = [f"call_{number}_{i}" for i in range(len(message.calls))]
            entry["tool_calls"] = [
                dict(id=i, type="function",
                     function=dict(name=c.name, arguments=prompt_format.dump(c.arguments)))
                for i, c in zip(call_ids, message.calls)
            ]
        if message.role == "tool":
            entry["tool_call_id"] = call_ids.pop(0)
        out.append(entry)
    return out


def check_prompt(opened, maker, n_tokens: int, seed: int) -> list:
    """Compares rendering and tokens of one conversation with tools; returns its ids."""
    mix = dataclasses.replace(rows.mix_for(n_tokens), with_tools=1.0)
    rng = random.Random(f"compare:{seed}")
    talk, ids, _, _ = maker.conversation(rng, mix, "agent" if seed % 2 else "facts")
    segments = prompt_format.render(talk.messages, talk.thinking, is_open=False)
    text, count = opened.render(openai_messages(talk.messages), talk.thinking, talk.effort)
    own = prompt_format.prompt_text(
        prompt_format.render(talk.messages, talk.thinking, talk.effort, is_open=False)
    )
    if text != own:
        at = next(i for i, (a, b) in enumerate(zip(text + " ", own + " ")) if a != b)
        near = slice(max(0, at - 40), at + 40)
        raise SystemExit(f"rendered differently at {at}: {text[near]!r} {own[near]!r}")
    if count != len(ids):
        raise SystemExit(f"{len(ids)} tokens here, {count} in the engine")
    for segment in segments:
        if not segment.marker and maker.encode(segment) != opened.tokenise(segment.text):
            raise SystemExit(f"tokens differ: {segment.text!r}")
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="with tokenizer.json and texts.json")
    parser.add_argument("exported", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path, help="libcairn.so")
    parser.add_argument("--tokens", type=int, default=700)
    parser.add_argument("--prompts", type=int, default=20)
    args = parser.parse_args()
    maker = rows.RowMaker(args.folder, held_out=True)
    opened = engine.Engine(args.library, args.exported, engine.F32)
    for seed in range(args.prompts):
        ids = check_prompt(opened, maker, args.tokens, seed)
    print(f"{args.prompts} prompts render and tokenise alike")
    ids = ids[: args.tokens]
    classes = np.array(maker.tokenizer.engram_classes())
    ours = torch_logits(args.exported, classes, ids)
    first = max(0, len(ids) - 40)
    theirs = engine_logits(opened, ids, ours.shape[1], first)
    difference = np.abs(ours[first:] - theirs).max()
    print(f"{len(ids)} tokens: largest difference {difference:.2e} of {np.abs(ours).max():.2f}")
    sys.exit(0 if difference < TOLERANCE * max(1, np.abs(ours).max()) else 1)


if __name__ == "__main__":
    main()
