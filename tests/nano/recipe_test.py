"""Tests of cairn-nano's recipe that need neither torch nor training."""

import json
import pathlib
import random
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "examples" / "nano"))
sys.dont_write_bytecode = True

import dialogues
import names
import prompt_format
import tokenizer
import world
from prompt_format import Call, Message

try:
    import numpy as np

    import checkpoint
    import config
    import formats
    import primes
except ImportError:
    np = None


def needs_numpy(case):
    return unittest.skipUnless(np, "python3-numpy is not installed")(case)


def conversation(seed: int, held_out: bool, n_steps: int) -> dialogues.Conversation:
    length = [0]
    talk = dialogues.Conversation(
        random.Random(seed), held_out, seed % 2 == 0, 6, seed % 3 == 0, lambda: length[0],
        ["A text to paste."],
    )
    for step in range(n_steps):
        talk.step(dialogues.AGENT if seed % 2 else dialogues.FACTS)
        length[0] = 100 * (step + 1)
    return talk


def rendered(talk: dialogues.Conversation) -> str:
    return prompt_format.prompt_text(prompt_format.render(talk.messages, talk.thinking))


class PromptFormat(unittest.TestCase):
    """The cases of the vendor's encoder that the generator's conversations can have."""

    def test_golden_prompts_are_rendered(self):
        cases = json.loads((GOLDEN / "prompts" / "golden_prompts.json").read_text(encoding="utf-8"))
        checked = 0
        for case in cases:
            messages = self._own_messages(case)
            if messages is None:
                continue
            effort = {None: 75, "max": 100}.get(case["effort"], case["effort"])
            segments = prompt_format.render(messages, case["thinking"], effort)
            self.assertEqual(prompt_format.prompt_text(segments), case["prompt"], case["title"])
            checked += 1
        self.assertGreaterEqual(checked, 6)

    def _own_messages(self, case):
        """The messages of a case in call order; None if it has what the recipe never makes."""
        text = json.dumps(case["messages"])
        drops_reasoning = case["thinking"] and "tools" not in text and "assistant" in text
        others = ("task", "image_url", "response_format", "namespace", "latest_reminder")
        if drops_reasoning or any(f'"{word}"' in text for word in others):
            return None
        out, order = [], []
        for message in case["messages"]:
            calls = message.get("tool_calls", [])
            order = [call["id"] for call in calls] or order
            made = [Call(c["function"]["name"], json.loads(c["function"]["arguments"]))
                    for c in calls]
            out.append(Message(
                message["role"], message["content"], message.get("reasoning_content", ""), made,
                [tool["function"] for tool in message.get("tools", [])] or None,
            ))
            out[-1].place = order.index(message["tool_call_id"]) if "tool_call_id" in message else 0
        for i in range(len(out) - 1):
            if out[i].role == out[i + 1].role == "tool" and out[i].place > out[i + 1].place:
                out[i], out[i + 1] = out[i + 1], out[i]
        return out

    def test_a_prompt_grows_by_appending(self):
        for seed in range(20):
            talk = conversation(seed, False, 5)
            whole = prompt_format.render(talk.messages, talk.thinking, is_open=False)
            ends = [i + 1 for i, m in enumerate(talk.messages)
                    if m.role == "assistant" and not m.calls]
            parts, first = [], 0
            for end in ends:
                parts += prompt_format.render(
                    talk.messages[:end], talk.thinking, first=first, is_open=False
                )
                first = end
            self.assertEqual(whole, parts, f"seed {seed}")

    def test_text_never_becomes_a_marker(self):
        segments = prompt_format.render([Message("user", "<｜User｜> </think>")], False)
        self.assertIn(prompt_format.Segment("<｜User｜> </think>"), segments)


class Dialogues(unittest.TestCase):
    def test_a_seed_gives_one_conversation(self):
        self.assertEqual(rendered(conversation(7, False, 10)), rendered(conversation(7, False, 10)))

    def test_answers_say_what_they_are_about(self):
        said = 0
        for seed in range(150):
            talk = conversation(seed, seed % 5 == 0, 10)
            for mark in talk.marks:
                message = talk.messages[mark.message]
                self.assertEqual(message.role, "assistant")
                self.assertEqual(bool(message.calls), mark.is_call)
                if mark.must_say is not None:
                    for part in mark.must_say.split(" and "):
                        self.assertIn(part, message.content, f"seed {seed}, {mark.task}")
                    said += 1
        self.assertGreater(said, 500)

    def test_results_are_what_the_tools_give(self):
        """No call of a made-up conversation fails, except where a task is about a failure."""
        for seed in range(150):
            talk = conversation(seed, False, 10)
            tasks = {mark.message: mark.task for mark in talk.marks}
            task = None
            for i, message in enumerate(talk.messages):
                task = tasks.get(i, task)
                if message.role == "tool" and task not in ("missing", "lost_file"):
                    self.assertFalse(message.content.startswith("error"), f"seed {seed}, {task}")

    def test_a_recalled_fact_was_said_before_its_question(self):
        recalled = 0
        for seed in range(100):
            talk = conversation(seed, False, 12)
            for mark in talk.marks:
                if not mark.distance:
                    continue
                before = "".join(m.content for m in talk.messages[: mark.message - 1])
                self.assertIn(mark.must_say, before)
                recalled += 1
        self.assertGreater(recalled, 50)

    def test_held_out_names_are_never_trained_on(self):
        pools = [names.Pools(random.Random(1), side) for side in (False, True)]
        for make in ("word", "identifier", "key", "code"):
            drawn = [{getattr(p, make)() for _ in range(300)} for p in pools]
            self.assertFalse(drawn[0] & drawn[1], make)
        paths = [{p.path("billing", "ini") for _ in range(300)} for p in pools]
        self.assertFalse(paths[0] & paths[1])
        stems = [{p.stem() for _ in range(20000)} for p in pools]
        self.assertLessEqual(stems[0] & stems[1], set(names.NOUNS))
        self.assertEqual(stems[1] & set(names.NOUNS), set(names.NOUNS))


class World(unittest.TestCase):
    def setUp(self):
        self.repository = world.Repository(names.Pools(random.Random(5), False), 8)

    def test_a_broken_function_fails_until_it_is_edited(self):
        path, (name, *_) = self.repository.add_code()
        wrong, right = self.repository.break_function(path, name)
        self.assertIn(f"{name}(", self.repository.run(Call("run_tests", {})))
        self.repository.run(Call("edit_file", {"path": path, "old": wrong, "new": right}))
        self.assertRegex(self.repository.run(Call("run_tests", {})), r"^\d+ passed, 0 failed$")

    def test_wrong_calls_are_error_texts(self):
        for call in (Call("fly", {}), Call("read_file", {}), Call("read_file", {"path": "no/x.py"}),
                     Call("calc", {"expression": "__import__('os')"}),
                     Call("edit_file", {"path": "x", "old": "", "new": ""})):
            self.assertTrue(self.repository.run(call).startswith("error"), call)

    def test_tools_are_declared_as_they_are_run(self):
        for tool in world.TOOLS:
            arguments = {key: "x" for key in tool["parameters"]["required"]}
            result = self.repository.run(Call(tool["name"], arguments))
            self.assertNotIn("wrong arguments", result)
            self.assertNotIn("no such tool", result)


class Tokenizer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        texts = [rendered(conversation(seed, False, 4)) for seed in range(8)]
        cls.merges = tokenizer.train(texts, 300)
        cls.n_tokens = 3 + 256 + 300 + len(prompt_format.ADDED_TOKENS)
        cls.content = tokenizer.file_content(cls.merges, cls.n_tokens)
        cls.made = tokenizer.Tokenizer(cls.content)

    def test_text_comes_back(self):
        odd = "é 東京 ½ \u3000\x00"
        for text in ("", "a", "Set port_3 to 8413.\n\n  x = 1\r\n", odd, "｜DSML｜"):
            self.assertEqual(self.made.decode(self.made.encode(text)), text)

    def test_digits_stand_alone(self):
        self.assertEqual(len(self.made.encode("84130")), 5)
        for merge in self.merges:
            self.assertFalse(re.search(r"\d.|.\d", "".join(merge)), merge)

    def test_merges_only_shorten(self):
        text = rendered(conversation(99, True, 6))
        self.assertLess(len(self.made.encode(text)), len(text.encode("utf-8")))

    def test_ids_are_dense_and_added_tokens_last(self):
        self.assertEqual(sorted(self.made.spelling), list(range(self.n_tokens)))
        ends = [self.made.added[t] for t in (prompt_format.BOS, prompt_format.EOS)]
        self.assertEqual(ends, [0, 1])

    def test_released_split_is_used(self):
        splitter = tokenizer.Splitter()
        self.assertEqual(
            splitter.split('<x name="read_file">\n  Hello 12 a.b_c  \n\n'),
            ["<x", " name", '="', "read", "_file", '">\n', " ", " Hello", " ", "1", "2", " a", ".b",
             "_c", "  \n\n"],
        )

    def test_classes_ignore_case_and_spaces(self):
        vocabulary = dict(self.content["model"]["vocab"])
        classes = self.made.engram_classes()
        self.assertEqual(classes[vocabulary["a"]], classes[vocabulary["A"]])
        self.assertEqual(max(classes) + 1, len(set(classes)))
        self.assertLess(max(classes) + 1, self.n_tokens)


@needs_numpy
class Formats(unittest.TestCase):
    def test_codes_agree_with_golden_vectors(self):
        golden = checkpoint.read_safetensors(GOLDEN / "unit" / "quantisers.safetensors")

        def array(name):
            dtype, value = golden[name]
            return formats.from_bf16_bits(value) if dtype == "BF16" else value

        codes, scales = formats.fp8_weight(array("q8_in"), rows=1)
        self.assertTrue((codes == array("q8_codes")).all())
        self.assertTrue((scales == array("q8_scale_e8m0")).all())
        packed, scales = formats.fp4_weight(array("qm4_in"))
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 32)
        self.assertTrue((codes == array("qm4_codes")).all())
        self.assertTrue((scales[:, 0] == array("qm4_scale_e8m0")).all())

    def test_all_e4m3_values_keep_their_codes(self):
        table = formats.e4m3_table()
        finite = np.flatnonzero(~np.isnan(table))
        self.assertTrue((formats.e4m3_codes(table[finite]) == finite).all())
        self.assertTrue((formats.round_e4m3(table[finite]) == table[finite]).all())

    def test_ties_go_to_even(self):
        ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
        self.assertEqual(formats.e2m1_values(formats.e2m1_codes(ties)).tolist(),
                         [0, 1, 1, 2, 2, 4, 4])

    def test_the_specification_s_row(self):
        x = np.array([(((37 * i) % 29) - 14) / 8 for i in range(32)], dtype=np.float32)
        codes, scale = formats.fp8_weight(x[None], rows=1)
        self.assertEqual(scale.tolist(), [[119]])
        self.assertEqual(bytes(codes[0, :8]).hex(), "fef4687afbec727d")
        packed, scale = formats.fp4_weight(x[None])
        self.assertEqual(scale.tolist(), [[126]])
        self.assertEqual(bytes(packed[0]).hex(), "be41ad520cd42ac539c640ad528ce41b")

    def test_stored_weights_are_fixed_points(self):
        rng = np.random.default_rng(3)
        weight = rng.normal(size=(64, 96)).astype(np.float32)
        once = formats.fp8_weight_values(*formats.fp8_weight(weight))
        self.assertTrue((formats.fp8_weight_values(*formats.fp8_weight(once)) == once).all())
        self.assertLess(np.abs(once - weight).max(), 2**-4 * np.abs(weight).max())
        once = formats.fp4_weight_values(*formats.fp4_weight(weight))
        self.assertTrue((formats.fp4_weight_values(*formats.fp4_weight(once)) == once).all())


@needs_numpy
class Checkpoint(unittest.TestCase):
    def test_the_golden_checkpoint_survives_a_round_trip(self):
        folder = ROOT / "examples" / "models" / "tiny-a"
        shape = config.read(folder)
        before = {}
        for path in sorted(folder.glob("*.safetensors")):
            before.update(checkpoint.read_safetensors(path))
        parameters = checkpoint.decode(before)
        with tempfile.TemporaryDirectory() as out:
            checkpoint.save(pathlib.Path(out), shape, parameters, 509)
            after = checkpoint.read_safetensors(pathlib.Path(out) / "model.safetensors")
            again = checkpoint.load(pathlib.Path(out))
            self.assertEqual(config.read(pathlib.Path(out)).index_topk, shape.index_topk)
        self.assertEqual({n: (t, a.shape) for n, (t, a) in before.items()},
                         {n: (t, a.shape) for n, (t, a) in after.items()})
        for name, value in parameters.items():
            self.assertTrue((again[name] == value).all(), name)

    def test_engram_constants_are_the_released_ones(self):
        shape = config.nano(4096, 99092, engram_vocab_size=16000000, engram_n_heads=8,
                            engram_layer_ids=[1, 14])
        self.assertEqual(shape.engram_num_embeddings, [384006168, 384016682])
        self.assertEqual(primes.multipliers(shape)[0][:2], [76632096046245, 4839876093313])


if __name__ == "__main__":
    unittest.main()
