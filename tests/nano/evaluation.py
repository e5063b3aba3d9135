"""Measures cairn-nano in the engine: held-out conversations, played live and greedily.

    evaluation.py LIBRARY MODEL TEXTS [--turns N] [--tokens N] [--numerics reference]

The user's side of a conversation is made up front; the model answers, its calls are run on the
repository as it stands, and the conversation goes on from what the model said. Prints one JSON
object: how many messages are well formed, how many calls are the expected ones, how many exchanges
end with an answer that says what it has to, and the same for recalled facts by distance.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import sys
from typing import List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "nano"))
sys.dont_write_bytecode = True

import dialogues
import engine
import prompt_format
import text_sources
import tokenizer
from prompt_format import Call, Message

DSML = prompt_format.DSML
NUMERICS = dict(reference=engine.REFERENCE, f32_cache=engine.F32_CACHE, f32=engine.F32)
MOST_CALLS = 8  # of one exchange
MOST_TOKENS = 300  # of one message
BUCKETS = (256, 512, 1024, 2048, 4096, 8192)

_PARAMETER = re.compile(
    rf'<{DSML} parameter name="([^">]+)" string="(true|false)">(.*?)</{DSML} parameter>', re.DOTALL
)
_INVOKE = re.compile(rf'<{DSML} invoke name="([^">]+)">\n(.*?)\n</{DSML} invoke>\n', re.DOTALL)
_CALLS = re.compile(rf"\n\n<{DSML} calls>\n((?:{_INVOKE.pattern})+)</{DSML} calls>$", re.DOTALL)


def parse(text: str, thinking: bool) -> Optional[Message]:
    """What the model wrote, by the reference grammar (prompt-format.md 4.1); None if malformed."""
    if not text.endswith(prompt_format.EOS):
        return None
    text, reasoning = text[: -len(prompt_format.EOS)], ""
    if thinking:
        reasoning, end, text = text.partition(prompt_format.THINK_END)
        if not end:
            return None
    found = _CALLS.search(text)
    content = text[: found.start()] if found else text
    if any(marker in content + reasoning for marker in ("<｜", DSML, "think>")):
        return None
    message = Message("assistant", content, reasoning)
    for name, body in _INVOKE.findall(found[1]) if found else []:
        arguments = _arguments(body)
        if arguments is None:
            return None
        message.calls.append(Call(name, arguments))
    return message


def _arguments(body: str) -> Optional[dict]:
    out, at = {}, 0
    for found in _PARAMETER.finditer(body):
        if body[at : found.start()].strip():
            return None
        at = found.end()
        try:
            out[found[1]] = found[3] if found[2] == "true" else json.loads(found[3])
        except json.JSONDecodeError:
            return None
    return None if body[at:].strip() else out


class Player:
    """Plays conversations with one open model."""

    def __init__(self, opened: engine.Engine, made: tokenizer.Tokenizer):
        self.opened, self.tokenizer = opened, made
        self.counts, self.right = collections.Counter(), collections.Counter()

    def _note(self, name: str, right: bool):
        self.counts[name] += 1
        self.right[name] += right

    def _encode(self, segments) -> List[int]:
        ids = []
        for segment in segments:
            if segment.marker:
                ids.append(self.tokenizer.added[segment.text])
            else:
                ids += self.tokenizer.encode(segment.text)
        return ids

    def _generate(self, sequence: engine.Sequence) -> str:
        eos, ids = self.tokenizer.added[prompt_format.EOS], []
        while len(ids) < MOST_TOKENS and (not ids or ids[-1] != eos):
            ids.append(int(sequence.logits().argmax()))
            sequence.append(ids[-1:])
        self.length += len(ids)
        return self.tokenizer.decode(ids)

    def play(self, talk: dialogues.Conversation):
        """Plays the user's side of a conversation against the model."""
        sequence = engine.Sequence(self.opened, self.tokenizer.size)
        self.length, history = 0, []
        users = [i for i, message in enumerate(talk.messages) if message.role == "user"]
        for user, following in zip(users, users[1:] + [len(talk.messages)]):
            if not history:
                history += talk.messages[:user]
            first = len(history) if user != users[0] else 0
            history.append(talk.messages[user])
            marks = [mark for mark in talk.marks if user < mark.message < following]
            if not self._exchange(talk, sequence, history, first, user, marks):
                break
        sequence.close()

    def _exchange(self, talk, sequence, history, first, user, marks) -> bool:
        """One exchange; False if the conversation cannot go on."""
        repository = talk.worlds[user]
        expected = [talk.messages[mark.message].calls for mark in marks]
        for turn in range(MOST_CALLS):
            segments = prompt_format.render(history, talk.thinking, talk.effort, first)
            ids = self._encode(segments)
            sequence.append(ids)
            self.length += len(ids)
            message = parse(self._generate(sequence), talk.thinking)
            self._note("valid", message is not None)
            if message is None:
                self._note("solved", False)
                return False
            if turn < len(marks) and expected[turn]:
                self._note("calls", message.calls == expected[turn])
            history.append(message)
            first = len(history)
            if not message.calls:
                return self._judge(message, marks[-1], repository)
            history += [Message("tool", repository.run(call)) for call in message.calls]
        self._note("solved", False)
        return False

    def _judge(self, message: Message, mark: dialogues.Mark, repository) -> bool:
        if mark.must_say is None:
            return True
        right = all(part in message.content for part in mark.must_say.split(" and "))
        if mark.task in ("fix", "rename", "set_value"):
            right = right and "error" not in message.content
        if mark.task == "fix":
            right = right and repository.run(Call("run_tests", {})).endswith(" 0 failed")
        self._note("solved", right)
        self._note("task_" + mark.task, right)
        if mark.distance:
            bucket = next((b for b in BUCKETS if mark.distance <= b), BUCKETS[-1])
            self._note(f"recall_{bucket}", right)
        return True

    def result(self) -> dict:
        return {
            name: dict(right=self.right[name], of=self.counts[name],
                       share=round(self.right[name] / self.counts[name], 4))
            for name in sorted(self.counts)
        }


def conversations(passages, n: int, n_tokens: int, made: tokenizer.Tokenizer):
    """Held-out conversations with tools, of about n_tokens tokens."""
    for index in range(n):
        rng = random.Random(f"evaluation:{n_tokens}:{index}")
        length = [500]
        talk = dialogues.Conversation(
            rng, True, index % 2 == 0, 10, True, lambda: length[0], passages
        )
        while length[0] < n_tokens:
            talk.step(dialogues.AGENT if index % 4 < 2 else dialogues.FACTS)
            text = prompt_format.prompt_text(
                prompt_format.render(talk.messages, talk.thinking, is_open=False)
            )
            length[0] = len(made.encode(text))
        yield talk


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path, help="texts.json of the training")
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--numerics", choices=NUMERICS, default="reference")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    made = tokenizer.Tokenizer.read(args.model / "tokenizer.json")
    passages = text_sources.read(args.texts, held_out=True)
    opened = engine.Engine(args.library, args.model, NUMERICS[args.numerics], args.threads)
    player = Player(opened, made)
    for talk in conversations(passages, args.conversations, args.tokens, made):
        player.play(talk)
    print(json.dumps(player.result(), indent=1))


if __name__ == "__main__":
    main()
