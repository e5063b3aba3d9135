#!/usr/bin/env python3
"""Kills the example agent at random points and checks that it loses nothing.

kill_resume_test.py TOOL_LOOP SOURCE_DIR [-n KILLS] [--seed SEED]

Each round starts an agent over an empty store and kills it with SIGKILL at a random point of its
run, then starts it again, and now and then kills that one too, until one process reaches the end.
Its transcript must equal that of a run that was never killed, and what every killed process showed
must be the beginning of it. Points are drawn in time, so that start-up, prefill, decode, commits and
tool calls are all hit.
"""

import argparse
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

MAX_PROCESSES = 20  # of one round
TASKS = (
    "What is index_level in storage/archive.yaml?",
    "The port of Vennor is 5512.",
    "Fix the failing test.",
    "Set album_limit in storage/archive.yaml to 750.",
    "What is the port of Vennor?",
)


class Agent:
    def __init__(self, options, work, name):
        source = pathlib.Path(options.source)
        self.transcript = work / f"{name}.transcript"
        self.account = work / f"{name}.account"
        self.store = work / f"{name}.store"
        self.workspace = work / f"{name}.workspace"
        shutil.copytree(source / "examples/workspace", self.workspace)
        self.command = [
            options.tool_loop,
            "--model", source / "examples/models/nano",
            "--store", self.store,
            "--workspace", self.workspace,
            *(part for task in TASKS for part in ("--task", task)),
            "--max-tokens", "200",
            "--greedy",
            "--transcript", self.transcript,
            "--account", self.account,
        ]

    def start(self):
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def run_to_end(self):
        process = self.start()
        _, errors = process.communicate()
        if process.returncode != 0:
            sys.exit(f"the agent failed ({process.returncode}): {errors.decode()}")

    def run_for(self, seconds):
        """Kills the agent after that time. True if it reached the end before."""
        process = self.start()
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False
        if process.returncode != 0:
            sys.exit(f"the agent failed ({process.returncode}): {errors.decode()}")
        return True

    def shown(self):
        return self.transcript.read_bytes() if self.transcript.exists() else b""

    def files(self):
        """What the tools made of the workspace."""
        found = (p for p in self.workspace.rglob("*") if p.is_file())
        return {p.relative_to(self.workspace): p.read_bytes() for p in found}

    def resumed_mid_answer(self):
        return "resumed_turns=1" in self.account.read_text()


def one_round(options, work, reference, duration, seed):
    """Returns the number of kills and whether an answer was continued in the middle."""
    draw, expected = random.Random(seed), reference.shown()
    agent = Agent(options, work, f"round_{seed}")
    kills, mid_answer = 0, False
    while True:
        if kills == MAX_PROCESSES or (kills > 0 and draw.random() < 0.7):
            agent.run_to_end()
            ended = True
        else:
            ended = agent.run_for(draw.uniform(0, duration))
        shown = agent.shown()
        if ended:
            mid_answer = mid_answer or agent.resumed_mid_answer()
            break
        kills += 1
        if not expected.startswith(shown):
            sys.exit(f"seed {seed}: kill {kills}: what was shown is not a beginning of the answers")
    if shown != expected:
        sys.exit(f"seed {seed}: after {kills} kills the answers differ from the uninterrupted run")
    if agent.files() != reference.files():
        sys.exit(f"seed {seed}: after {kills} kills the workspace differs")
    shutil.rmtree(agent.store)
    return kills, mid_answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool_loop")
    parser.add_argument("source")
    parser.add_argument("-n", "--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        reference = Agent(options, work, "uninterrupted")
        began = time.monotonic()
        reference.run_to_end()
        duration = time.monotonic() - began
        print(f"uninterrupted: {duration:.2f} s, {len(reference.shown())} bytes of answers")

        kills, continued, seed = 0, 0, options.seed
        while kills < options.kills:
            n, mid_answer = one_round(options, work, reference, duration, seed)
            kills += n
            continued += mid_answer
            print(f"seed {seed}: {n} kills, equal", flush=True)
            seed += 1
        print(f"{kills} kills in {seed - options.seed} rounds (seeds {options.seed} to {seed - 1}), "
              f"{continued} rounds ended by continuing an answer; all answers equal")


if __name__ == "__main__":
    main()
