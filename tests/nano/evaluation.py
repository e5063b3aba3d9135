"""Measures cairn-nano in the engine: held-out conversations, played live and greedily.

    evaluation.py PROBE MODEL [--conversations N] [--tokens N] [--mode MODE ...] [--texts TEXTS]

The user's side of a conversation is made up front; the model answers, its calls are run on the
repository as it stands, and the conversation goes on from what the model said. Prints one JSON
object: how many messages are well formed, how many calls are the expected ones, how many exchanges
end with an answer that says what it has to, and the same for recalled facts by distance. Modes say
how the engine runs; PROBE is the module of engine_probe.cc.
"""

import argparse
import collections
import ctypes
import json
import math
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time
from typing import Dict, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "nano"))
sys.dont_write_bytecode = True

import dialogues
import prompt_format
import text_sources
import tokenizer
from prompt_format import Call, Message

DSML = prompt_format.DSML
REFERENCE, F32_CACHE, F32 = 0, 1, 2  # arithmetics, cairn.h CAIRN_NUMERICS_...
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


class Mode:
    """How the engine runs."""

    def __init__(self, numerics=REFERENCE, restore="never", bounded_prefill=False, drafted=False,
                 **changes):
        self.numerics, self.restore, self.bounded_prefill = numerics, restore, bounded_prefill
        self.drafted = drafted  # all drafts of every step are verified
        self.changes = changes  # of text_config


MODES = {
    "exact": Mode(),
    "KV not quantised": Mode(F32),
    "KV quantised, all else f32": Mode(F32_CACHE),
    "bounded replay once": Mode(restore="once"),
    "bounded replay before every turn": Mode(restore="always"),
    "decoder replay in prefill": Mode(bounded_prefill=True),
    "drafts": Mode(drafted=True),
    "half the selected entries": Mode(index_topk=0.5),
}


class Probe:
    """The engine, with one open model."""

    def __init__(self, library: pathlib.Path, folder: pathlib.Path, mode: Mode, threads: int):
        self.library, self.mode = ctypes.CDLL(str(library)), mode
        for name, result in (("open", ctypes.c_void_p), ("sequence", ctypes.c_void_p),
                             ("error", ctypes.c_char_p), ("generate", ctypes.c_int64)):
            getattr(self.library, "probe_" + name).restype = result
        with tempfile.TemporaryDirectory() as changed:
            if mode.changes:
                folder = changed_copy(folder, pathlib.Path(changed), mode.changes)
            self.model = ctypes.c_void_p(
                self.library.probe_open(str(folder).encode(), mode.numerics, threads)
            )
        if not self.model:
            self.check(1)

    def check(self, failed: int):
        if failed:
            raise RuntimeError(self.library.probe_error().decode())

    def loss(self, ids: List[int]) -> float:
        """Negative log-likelihood in nats of all ids but the first."""
        array, out = (ctypes.c_int32 * len(ids))(*ids), ctypes.c_double()
        self.check(self.library.probe_loss(self.model, array, ctypes.c_int64(len(ids)),
                                           ctypes.byref(out)))
        return out.value


def changed_copy(folder: pathlib.Path, out: pathlib.Path, factors: dict) -> pathlib.Path:
    """A checkpoint folder with numbers of its text_config multiplied."""
    for path in folder.iterdir():
        if path.name != "config.json":
            shutil.copyfile(path, out / path.name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key, factor in factors.items():
        config["text_config"][key] = int(config["text_config"][key] * factor)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return out


class Sequence:
    """Tokens computed one after the other."""

    def __init__(self, probe: Probe):
        self._probe, self._lib = probe, probe.library
        self._at = ctypes.c_void_p(self._lib.probe_sequence(probe.model))
        self.n_tokens, self.seconds, self.n_decoded = 0, 0.0, 0

    def append(self, ids: List[int]):
        array = (ctypes.c_int32 * len(ids))(*ids)
        bounded = int(self._probe.mode.bounded_prefill and len(ids) > 1)
        self._probe.check(
            self._lib.probe_append(self._at, array, ctypes.c_int64(len(ids)), bounded)
        )
        self.n_tokens += len(ids)

    def generate(self, stop: int, most: int):
        """Greedy tokens up to `stop`, and how many of them each pass gave."""
        tokens, passes = (ctypes.c_int32 * most)(), (ctypes.c_int64 * most)()
        started = time.perf_counter()
        n_passes = self._lib.probe_generate(self._at, stop, ctypes.c_int64(most),
                                            int(self._probe.mode.drafted), tokens, passes)
        self.seconds += time.perf_counter() - started
        self._probe.check(n_passes < 0)
        n = sum(passes[:n_passes])
        self.n_tokens, self.n_decoded = self.n_tokens + n, self.n_decoded + n
        return tokens[:n], passes[:n_passes]

    def restore_bounded(self):
        self._probe.check(self._lib.probe_restore_bounded(self._at))

    def close(self):
        self._lib.probe_free(self._at)


class Player:
    """Plays conversations with one open model."""

    def __init__(self, probe: Probe, made: tokenizer.Tokenizer):
        self.probe, self.tokenizer = probe, made
        self.counts, self.right = collections.Counter(), collections.Counter()
        self.passes: Dict[str, List[int]] = collections.defaultdict(list)  # by kind of text
        self.seconds, self.n_decoded = 0.0, 0

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

    def _count_passes(self, ids: List[int], passes: List[int], thinking: bool):
        """Sorts the passes by what the model was writing when each began."""
        added, kind = self.tokenizer.added, "reasoning" if thinking else "text"
        at = 0
        for n in passes:
            self.passes[kind].append(n)
            for token in ids[at : at + n]:
                if token == added[prompt_format.THINK_END]:
                    kind = "text"
                elif token == added[DSML]:
                    kind = "call"
            at += n

    def play(self, talk: dialogues.Conversation):
        """Plays the user's side of a conversation against the model."""
        sequence, history = Sequence(self.probe), []
        users = [i for i, message in enumerate(talk.messages) if message.role == "user"]
        middle = users[len(users) // 2]
        can_go_on = True
        for user, following in zip(users, users[1:] + [len(talk.messages)]):
            marks = [mark for mark in talk.marks if user < mark.message < following]
            if not can_go_on:
                self._score(marks[-1], False)
                continue
            if not history:
                history += talk.messages[:user]
            first = len(history) if user != users[0] else 0
            restore = self.probe.mode.restore
            if first and (restore == "always" or (restore == "once" and user == middle)):
                sequence.restore_bounded()
            history.append(talk.messages[user])
            can_go_on = self._exchange(talk, sequence, history, first, user, marks)
        self.seconds, self.n_decoded = (
            self.seconds + sequence.seconds, self.n_decoded + sequence.n_decoded
        )
        sequence.close()

    def _exchange(self, talk, sequence, history, first, user, marks) -> bool:
        """One exchange; False if the conversation cannot go on."""
        repository = talk.worlds[user]
        expected = [talk.messages[mark.message].calls for mark in marks if mark.is_call]
        made, answer = [], None
        while answer is None and len(made) < MOST_CALLS:
            segments = prompt_format.render(history, talk.thinking, talk.effort, first)
            sequence.append(self._encode(segments))
            ids, passes = sequence.generate(self.tokenizer.added[prompt_format.EOS], MOST_TOKENS)
            self._count_passes(ids, passes, talk.thinking)
            message = parse(self.tokenizer.decode(ids), talk.thinking)
            self._note("valid", message is not None)
            if message is None:
                break
            history.append(message)
            first = len(history)
            if message.calls:
                made.append(message.calls)
                history += [Message("tool", repository.run(call)) for call in message.calls]
            else:
                answer = message
        for turn, calls in enumerate(expected):
            self._note("calls", made[turn : turn + 1] == [calls])
        self._score(marks[-1], answer is not None and self._is_right(answer, marks[-1], repository))
        return answer is not None

    def _is_right(self, message: Message, mark: dialogues.Mark, repository) -> bool:
        if mark.must_say is None:
            return True
        if mark.task == "fix" and not repository.run(Call("run_tests", {})).endswith(" 0 failed"):
            return False
        if mark.task in ("set_value", "rename") and not any(
            mark.must_say in text for text in repository.files.values()
        ):
            return False
        return all(part in message.content for part in mark.must_say.split(" and "))

    def _score(self, mark: dialogues.Mark, right: bool):
        if mark.must_say is None:
            return
        self._note("solved", right)
        self._note("task_" + mark.task, right)
        if mark.distance:
            bucket = next((b for b in BUCKETS if mark.distance <= b), BUCKETS[-1])
            self._note(f"recall_{bucket}", right)

    def result(self) -> dict:
        shares = {
            name: dict(right=self.right[name], of=self.counts[name],
                       share=round(self.right[name] / self.counts[name], 4))
            for name in sorted(self.counts)
        }
        per_pass = {kind: round(sum(n) / len(n), 3) for kind, n in sorted(self.passes.items())}
        return dict(shares, tokens_per_second=round(self.n_decoded / self.seconds, 1),
                    tokens_per_pass=per_pass)


def grown(talk: dialogues.Conversation, made: tokenizer.Tokenizer) -> int:
    """Tokens of a conversation so far."""
    segments = prompt_format.render(talk.messages, talk.thinking, is_open=False)
    return len(made.encode(prompt_format.prompt_text(segments)))


def conversations(passages, n: int, n_tokens: int, made: tokenizer.Tokenizer):
    """Held-out conversations with tools, of about n_tokens tokens."""
    for index in range(n):
        length = [500]
        talk = dialogues.Conversation(
            random.Random(f"evaluation:{n_tokens}:{index}"), True, index % 2 == 0, 10, True,
            lambda: length[0], passages
        )
        while length[0] < n_tokens:
            talk.step(dialogues.AGENT if index % 4 < 2 else dialogues.FACTS)
            length[0] = grown(talk, made)
        yield talk


def fact_conversations(passages, n: int, distance: int, made: tokenizer.Tokenizer):
    """Held-out conversations in which the facts of the first exchanges are asked for after
    `distance` tokens of other exchanges; judged as task fact_<distance>."""
    for index in range(n):
        length = [500]
        talk = dialogues.Conversation(
            random.Random(f"facts:{distance}:{index}"), True, index % 2 == 0, 10, True,
            lambda: length[0], passages
        )
        while len(talk.facts) < 4:
            talk.step(dict(facts=1))
        length[0] = grown(talk, made)
        first, until = list(talk.facts), length[0] + distance
        while length[0] < until:
            talk.step(dialogues.FACTS if index % 4 < 2 else dialogues.AGENT)
            length[0] = grown(talk, made)
        kept = [fact for fact in first if any(fact is other for other in talk.facts)]
        for fact in kept[:3]:
            talk.pick_fact = lambda fact=fact: fact
            talk.step({"recall": 1})
            talk.marks[-1].task = f"fact_{distance}"
        yield talk


def text_loss(probe: Probe, made: tokenizer.Tokenizer, passages: List[str], n_tokens: int) -> dict:
    """Perplexity of held-out text, by token and by byte."""
    bos, loss, n, n_bytes = made.added[prompt_format.BOS], 0.0, 0, 0
    for passage in passages[: 200 * n_tokens]:
        ids = [bos] + made.encode(passage)
        loss += probe.loss(ids)
        n, n_bytes = n + len(ids) - 1, n_bytes + len(passage.encode())
        if n >= n_tokens:
            break
    return dict(perplexity=round(math.exp(loss / n), 2), tokens=n,
                bits_per_byte=round(loss / n_bytes / math.log(2), 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path, help="texts.json of the training")
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--facts", type=int, default=[], nargs="*", help="distances")
    parser.add_argument("--mode", choices=MODES, action="append", help="default: exact")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    made = tokenizer.Tokenizer.read(args.model / "tokenizer.json")
    passages = text_sources.read(args.texts, held_out=True) if args.texts else []
    results = {}
    for name in args.mode or ["exact"]:
        probe = Probe(args.probe, args.model, MODES[name], args.threads)
        player = Player(probe, made)
        for talk in conversations(passages, args.conversations, args.tokens, made):
            player.play(talk)
        for distance in args.facts:
            for talk in fact_conversations(passages, args.conversations, distance, made):
                player.play(talk)
        results[name] = player.result()
        if passages:
            results[name]["text"] = text_loss(probe, made, passages, 4000)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
