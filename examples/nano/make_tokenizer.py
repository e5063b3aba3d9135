"""Collects the texts and trains the tokenizer: writes texts.json and tokenizer.json."""

import argparse
import json
import pathlib
import random

import dialogues
import prompt_format
import text_sources
import tokenizer

N_TOKENS = 4096


def training_texts(passages):
    """Conversations as the model will see them, then plain text."""
    for seed in range(600):
        rng = random.Random(f"tokenizer:{seed}")
        thinking = seed % 2 == 0
        length = [0]
        talk = dialogues.Conversation(
            rng, False, thinking, 10, seed % 20 == 0, lambda: length[0], []
        )
        for _ in range(8):
            talk.step(dialogues.AGENT if seed % 3 else dialogues.FACTS)
            length[0] += 200
        for segment in prompt_format.render(talk.messages, thinking, is_open=False):
            if not segment.marker:
                yield segment.text
    rng = random.Random("tokenizer texts")
    yield from rng.sample(passages, min(len(passages), 1200))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    text_sources.write(folder / "texts.json")
    passages = text_sources.read(folder / "texts.json", held_out=False)
    n_merges = N_TOKENS - 3 - 256 - len(prompt_format.ADDED_TOKENS)
    merges = tokenizer.train(training_texts(passages), n_merges)
    content = tokenizer.file_content(merges, N_TOKENS)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    made = tokenizer.Tokenizer(content)
    print(f"{made.size} tokens, {max(made.engram_classes()) + 1} classes")


if __name__ == "__main__":
    main()
