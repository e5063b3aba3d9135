"""Conversations of an agent, made up turn by turn.

A `Conversation` grows by tasks: each appends the messages of one exchange, from what the user says
to the final answer, with the calls a good agent makes and the results the repository gives. What
was said stays true: facts, files read and preferences of earlier turns come back in later ones.
"""

import dataclasses
import math
import random
from typing import Callable, Dict, List, Optional

from names import COLORS, NOUNS, Pools, is_held_out
from prompt_format import Call, Message
from world import TOOLS, Repository

SYSTEM_TEXTS = [
    "You are Cairn, a coding agent in a small repository.",
    "You help with a small code repository.",
    "Answer briefly and use the tools.",
    "",
]

CHAT = [
    (["Hello!", "Hi.", "Good morning.", "Hey there."], ["Hello! How can I help?"]),
    (["Who are you?", "What are you?"], ["I am Cairn, a small coding agent."]),
    (["What can you do?", "How can you help me?"],
     ["I can read, search and edit files, run tests, compute and remember facts."]),
    (["Thanks!", "Thank you.", "Great, thanks."], ["You are welcome."]),
    (["Are you there?", "Still with me?"], ["Yes, I am here."]),
    (["Good work.", "Well done.", "Nice."], ["Thank you."]),
    (["Wait a moment.", "One second.", "Hold on."], ["I will wait."]),
    (["Let us go on.", "Next one.", "Ready?"], ["Ready."]),
    (["That is all.", "Goodbye.", "Bye."], ["Goodbye."]),
]

FACT_FORMS = [
    "The {attr} of {name} is {value}.",
    "{name} has the {attr} {value}.",
    "For {name} the {attr} is {value}.",
    "Note: the {attr} of {name} is {value}.",
]
ASK_FORMS = [
    "What is the {attr} of {name}?",
    "Tell me the {attr} of {name}.",
    "Which {attr} does {name} have?",
    "Do you recall the {attr} of {name}?",
    "{name}: which {attr}?",
]
NOTED = ["Noted.", "Okay.", "Understood."]


@dataclasses.dataclass
class Fact:
    """Something said earlier: `position` is the token count when it was said."""

    attr: str
    name: str
    value: str
    position: int
    source: str = "user"  # or the path of the file it was read in


@dataclasses.dataclass
class Preference:
    """How final answers have to look from now on."""

    request: str
    form: str  # with {full} and {short}


@dataclasses.dataclass
class Mark:
    """What an assistant message is for, so that it can be judged."""

    message: int  # its index
    task: str
    is_call: bool
    must_say: Optional[str]  # what the answer is about; None where any polite words do
    distance: int  # tokens since a recalled fact was said, else 0


class Conversation:
    """Messages so far and what they made true. `length` tells the tokens so far."""

    def __init__(self, rng: random.Random, held_out: bool, thinking: bool, max_lines: int,
                 with_tools: bool, length: Callable[[], int], passages: List[str]):
        self.rng, self.held_out, self.thinking = rng, held_out, thinking
        self.effort = 75  # of a thinking prompt
        self.pools = Pools(rng, held_out)
        self.repository = Repository(self.pools, max_lines)
        self.length, self.passages = length, passages
        self.facts: List[Fact] = []
        self.preference: Optional[Preference] = None
        self.messages: List[Message] = []
        self.configs, self.codes, self.read = {}, {}, set()
        self.marks: List[Mark] = []
        self.worlds: Dict[int, Repository] = {}  # as they are when message i has been said
        self._last_task, self._distance = "start", 0
        if with_tools or rng.random() < 0.5:
            tools = list(TOOLS) if with_tools else None
            self.messages.append(
                Message("system", rng.choice(SYSTEM_TEXTS), tools=tools)
            )

    # Building blocks -----------------------------------------------------------------------------

    def say(self, *forms: str, **values):
        """A user message in one of several phrasings."""
        self.messages.append(Message("user", self.rng.choice(forms).format(**values)))

    def call(self, reasoning: str, *calls: Call) -> List[str]:
        """An assistant message with calls, and their results."""
        self._append("", reasoning, calls, None)
        results = [self.repository.run(call) for call in calls]
        self.messages.extend(Message("tool", result) for result in results)
        for call, result in zip(calls, results):
            if call.name == "read_file" and not result.startswith("error"):
                self._note_read(call.arguments["path"])
        return results

    def answer(self, reasoning: str, full: str, short: Optional[str] = None):
        """A final answer, shaped by the preference in force. `short` is what it is about."""
        if self.preference and short is not None:
            full = self.preference.form.format(full=full, short=short)
        self._append(full, reasoning, (), short)

    def _append(self, content, reasoning, calls, must_say):
        if self.messages[-1].role == "user":
            self.worlds[len(self.messages) - 1] = self.repository.copy()
        self.marks.append(
            Mark(len(self.messages), self._last_task, bool(calls), must_say, self._distance)
        )
        reasoning = reasoning if self.thinking else ""
        self.messages.append(Message("assistant", content, reasoning, list(calls)))

    def _note_read(self, path: str):
        if path in self.read:
            return
        self.read.add(path)
        for key, value in self.configs.get(path, {}).items():
            self.facts.append(Fact(key, path, value, self.length(), path))

    def config(self, fresh: bool = True) -> tuple:
        """A configuration file (path, entries), a new one or one that exists."""
        unread = [path for path in self.configs if path not in self.read]
        if not fresh or (unread and self.rng.random() < 0.5):
            if unread:
                path = self.rng.choice(unread)
                return path, self.configs[path]
        path, entries = self.repository.add_config()
        self.configs[path] = entries
        return path, entries

    def code(self) -> tuple:
        path, names = self.repository.add_code()
        if not names:
            return self.code()
        self.codes[path] = names
        return path, names

    # Choosing what comes next --------------------------------------------------------------------

    def step(self, weights):
        """Appends one exchange; `weights` maps tasks to how often they come."""
        names = list(weights)
        while True:
            name = self.rng.choices(names, [weights[n] for n in names])[0]
            unseen = is_held_out(f"{self._last_task}>{name}")
            if not unseen or self.held_out:
                break
        self._last_task, self._distance = name, 0
        getattr(self, "task_" + name)()

    # Facts ---------------------------------------------------------------------------------------

    def _new_fact(self) -> Fact:
        rng, pools = self.rng, self.pools
        kinds = {
            "port": lambda: pools.number(4, 4), "code": pools.code, "owner": pools.person,
            "color": lambda: rng.choice(COLORS), "number": lambda: pools.number(2, 5),
            "branch": pools.identifier, "version": pools.version, "city": pools.person,
            "room": lambda: pools.number(3, 3),
            "title": lambda: f"{pools.word()} {rng.choice(NOUNS)}",
        }
        attr = rng.choice(list(kinds))
        said = [f for f in self.facts if f.source == "user"]
        name = rng.choice(said).name if said and rng.random() < 0.25 else pools.word()
        return Fact(attr, name, kinds[attr](), self.length())

    def _state(self, fact: Fact) -> str:
        return self.rng.choice(FACT_FORMS).format(**vars(fact))

    def _store(self, fact: Fact):
        self.facts = [f for f in self.facts if (f.attr, f.name) != (fact.attr, fact.name)]
        self.facts.append(fact)

    def task_facts(self):
        """The user states facts."""
        facts = []
        for _ in range(self.rng.choice((1, 1, 2, 3, 4, 6))):
            fact = self._new_fact()
            if all((f.attr, f.name) != (fact.attr, fact.name) for f in facts):
                facts.append(fact)
        self.messages.append(Message("user", " ".join(self._state(fact) for fact in facts)))
        for fact in facts:
            self._store(fact)
        self.answer("The user states facts. I note them.", self.rng.choice(NOTED))

    def task_remember(self):
        """The user asks to store a fact."""
        fact = self._new_fact()
        self.say("Remember this: {text}", "Please remember: {text}", "Store this. {text}",
                 text=self._state(fact))
        self._store(fact)
        self.call("I store it.", Call("remember", {"key": f"{fact.attr} of {fact.name}",
                                                   "value": fact.value}))
        self.answer("It is saved.", "I will remember it.")

    def pick_fact(self) -> Optional[Fact]:
        """A fact whose distance is about log-uniform."""
        if not self.facts:
            return None
        here = self.length()
        farthest = max(here - min(f.position for f in self.facts), 17)
        wanted = math.exp(self.rng.uniform(math.log(16), math.log(farthest)))
        gaps = [abs(math.log(max(here - f.position, 1)) - math.log(wanted)) for f in self.facts]
        best = min(gaps)
        return self.rng.choice([f for f, gap in zip(self.facts, gaps) if gap <= best + 0.05])

    def task_recall(self):
        """A question about something said or read earlier."""
        fact = self.pick_fact()
        if fact is None:
            return self.task_facts()
        self._distance = self.length() - fact.position
        if fact.source == "user":
            self.say(*ASK_FORMS, **vars(fact))
            self.answer(
                f"The user said: the {fact.attr} of {fact.name} is {fact.value}.",
                f"The {fact.attr} of {fact.name} is {fact.value}.", fact.value,
            )
        else:
            self._ask_value(fact.name, fact.attr)
            self.answer(
                f"I have read {fact.name}. There {fact.attr} is {fact.value}.",
                f"{fact.attr} in {fact.name} is {fact.value}.", fact.value,
            )

    def task_change(self):
        """The user corrects an earlier fact."""
        said = [f for f in self.facts if f.source == "user"]
        if not said:
            return self.task_facts()
        old = self.rng.choice(said)
        fact = dataclasses.replace(old, value=self.pools.value(), position=self.length())
        self.say("The {attr} of {name} is now {value}.", "Correction: the {attr} of {name} is "
                 "{value}.", "{name} has a new {attr}: {value}.", **vars(fact))
        self._store(fact)
        self.answer("The user changes a fact.", self.rng.choice(NOTED))

    def task_preference(self):
        """The user says how answers have to look."""
        word = self.pools.word()
        self.preference = self.rng.choice([
            Preference("From now on answer with the value only.", "{short}"),
            Preference(f"From now on end every answer with the word {word}.", "{full} " + word),
            Preference(f"Call me {word.capitalize()} at the start of every answer.",
                       word.capitalize() + ", {full}"),
            Preference("From now on answer in full sentences.", "{full}"),
        ])
        self.say(self.preference.request)
        self.answer("The user has a wish for my answers.", "I will do that.")

    # Talk ----------------------------------------------------------------------------------------

    def task_chat(self):
        questions, answers = self.rng.choice(CHAT)
        self.say(*questions)
        self.answer("Small talk.", self.rng.choice(answers))

    def task_passage(self):
        """The user pastes a text: distance without content."""
        if not self.passages:
            return self.task_chat()
        text = self.rng.choice(self.passages)
        limit = 60 * self.repository.max_lines
        if len(text) > limit:
            text = text[:limit].rsplit(" ", 1)[0]
        self.messages.append(
            Message("user", self.rng.choice(("Read this:", "Here is a text.", "Look at this:"))
                    + "\n" + text)
        )
        self.answer("The user shows a text.", "I have read it.")

    # Looking things up ---------------------------------------------------------------------------

    def _ask_value(self, path: str, key: str):
        self.say("What is {key} in {path}?", "Find {key} in {path}.", "Tell me {key} from {path}.",
                 "Which value has {key} in {path}?", "Look up {key} in {path}.", key=key, path=path)

    def task_value(self):
        """One value from a file that has not been read."""
        path, entries = self.config()
        if path in self.read:
            return self.task_recall()
        key = self.rng.choice(list(entries))
        self._ask_value(path, key)
        self.call(f"I read {path}.", Call("read_file", {"path": path}))
        self.answer(f"There {key} is {entries[key]}.", f"{key} in {path} is {entries[key]}.",
                    entries[key])

    def task_two_values(self):
        """Two files at once."""
        asked = []
        for _ in range(2):
            path, entries = self.repository.add_config()
            self.configs[path] = entries
            asked.append((path, self.rng.choice(list(entries)), entries))
        (p, k, e), (q, m, f) = asked
        self.say("What are {k} in {p} and {m} in {q}?", "Compare {k} in {p} with {m} in {q}.",
                 "I need {k} from {p} and {m} from {q}.", k=k, p=p, m=m, q=q)
        self.call("I read both files.", Call("read_file", {"path": p}),
                  Call("read_file", {"path": q}))
        self.answer(f"{k} is {e[k]} and {m} is {f[m]}.", f"{k} is {e[k]} and {m} is {f[m]}.",
                    f"{e[k]} and {f[m]}")

    def task_where(self):
        """Which file has a key or defines a function."""
        if self.rng.random() < 0.5:
            path, entries = self.config()
            name = self.rng.choice(list(entries))
            self.say("Which file sets {name}?", "Where is {name} set?",
                     "Find the file with {name}.", name=name)
        else:
            path, names = self.code()
            name = self.rng.choice(names)
            self.say("Where is {name} defined?", "Which file defines {name}?",
                     "Find the function {name}.", name=name)
        (result,) = self.call(f"I search for {name}.", Call("search", {"text": name}))
        path = result.split(":", 1)[0]
        self.answer(f"It is in {path}.", f"{name} is in {path}.", path)

    def task_list(self):
        """What a folder has."""
        while len(self.repository.files) < 2:
            self.config()
        folder = self.rng.choice(self.repository.folders())
        self.say("What is in {folder}?", "List {folder}.", "Which files are in {folder}?",
                 "Show me the folder {folder}.", folder=folder)
        (result,) = self.call(f"I list {folder}.", Call("list_dir", {"path": folder}))
        names = ", ".join(result.split("\n"))
        self.answer(f"It has {names}.", f"{folder} has {names}.", names)

    def task_lost_file(self):
        """A file that is not where the user thinks; the folder shows the right name."""
        path, entries = self.config()
        if path in self.read:
            return self.task_list()
        folder, name = path.rsplit("/", 1)
        wrong = f"{self.pools.stem()}.{name.rsplit('.', 1)[1]}"
        if f"{folder}/{wrong}" in self.repository.files:
            return self.task_list()
        key = self.rng.choice(list(entries))
        self._ask_value(f"{folder}/{wrong}", key)
        self.call(f"I read {folder}/{wrong}.", Call("read_file", {"path": f"{folder}/{wrong}"}))
        (result,) = self.call(f"There is no such file. I search for {key}.",
                              Call("search", {"text": key}))
        found = result.split(":", 1)[0]
        value = self.configs[found][key]
        self.answer(f"It is in {found}: {value}.",
                    f"{folder}/{wrong} does not exist. {key} in {found} is {value}.", value)

    def task_missing(self):
        """Something that does not exist: the agent says so."""
        if self.rng.random() < 0.5:
            ending = self.rng.choice(["md", "txt", "log"])
            path = f"{self.pools.stem()}/{self.pools.stem()}.{ending}"
            self.say("Read {path}.", "What does {path} say?", "Open {path}.", "Show me {path}.",
                     path=path)
            self.call(f"I read {path}.", Call("read_file", {"path": path}))
            self.answer("The file does not exist.", f"I cannot read {path}: no such file.", path)
        else:
            name = self.pools.identifier()
            self.say("Where is {name} defined?", "Find the function {name}.", name=name)
            self.call(f"I search for {name}.", Call("search", {"text": name}))
            self.answer("Nothing was found.", f"I cannot find {name}.", name)

    # Computing -----------------------------------------------------------------------------------

    def task_compute(self):
        """Arithmetic with the tool, of given numbers or of values known from earlier."""
        known = [f for f in self.facts if f.value.isdigit() and f.source == "user"]
        sign, word = self.rng.choice([("+", "plus"), ("-", "minus"), ("*", "times")])
        if known and self.rng.random() < 0.4:
            fact, other = self.rng.choice(known), self.pools.number(1, 3)
            self.say("What is the {attr} of {name} {word} {other}?",
                     "Compute the {attr} of {name} {word} {other}.", word=word, other=other,
                     **vars(fact))
            expression = f"{fact.value} {sign} {other}"
            reasoning = f"The {fact.attr} of {fact.name} is {fact.value}. I compute."
        else:
            first, second = self.pools.number(1, 4), self.pools.number(1, 3)
            self.say("What is {a} {w} {b}?", "Compute {a} {s} {b}.", "How much is {a} {s} {b}?",
                     a=first, b=second, s=sign, w=word)
            expression, reasoning = f"{first} {sign} {second}", "I compute it."
        (result,) = self.call(reasoning, Call("calc", {"expression": expression}))
        self.answer(f"It is {result}.", f"{expression} is {result}.", result)

    def task_sum(self):
        """Two values from two files, added."""
        asked = []
        for _ in range(2):
            path, entries = self.repository.add_config()
            self.configs[path] = entries
            numbers = [key for key, value in entries.items() if value.isdigit()]
            if not numbers:
                return self.task_compute()
            asked.append((path, self.rng.choice(numbers), entries))
        (p, k, e), (q, m, f) = asked
        self.say("Add {k} in {p} and {m} in {q}.", "What is {k} in {p} plus {m} in {q}?",
                 "Sum up {k} from {p} and {m} from {q}.", k=k, p=p, m=m, q=q)
        self.call("I read both files.", Call("read_file", {"path": p}),
                  Call("read_file", {"path": q}))
        expression = f"{e[k]} + {f[m]}"
        (result,) = self.call(f"{k} is {e[k]} and {m} is {f[m]}. I add.",
                              Call("calc", {"expression": expression}))
        self.answer(f"It is {result}.", f"The sum is {result}.", result)

    # Changing code -------------------------------------------------------------------------------

    def task_set_value(self):
        """A configuration value is changed."""
        path, entries = self.config()
        if path in self.read:
            return self.task_compute()
        key, new = self.rng.choice(list(entries)), self.pools.value()
        self.say("Set {key} in {path} to {new}.", "Change {key} in {path} to {new}.",
                 "In {path}, {key} must be {new}.", key=key, path=path, new=new)
        (text,) = self.call(f"I read {path}.", Call("read_file", {"path": path}))
        line = next(x for x in text.split("\n") if key in x).strip().rstrip(",")
        shown = new if new.isdigit() or '"' not in line.replace(f'"{key}"', "") else f'"{new}"'
        at = line.rindex(entries[key])
        before = line[:at].rstrip('"')
        edited = before + shown
        self.call(f"I replace the line {line}.",
                  Call("edit_file", {"path": path, "old": line, "new": edited}))
        entries[key] = new
        self.facts = [f for f in self.facts if (f.name, f.attr) != (path, key)]
        self.facts.append(Fact(key, path, new, self.length(), path))
        self.answer("It is changed.", f"{key} in {path} is now {new}.", new)

    def task_rename(self):
        """A function gets another name."""
        path, names = self.code()
        old, new = self.rng.choice(names), self.pools.identifier()
        if new in self.repository.expected:
            return self.task_compute()
        self.say("Rename {old} to {new}.", "The function {old} must be called {new}.",
                 "Rename the function {old} to {new}.", old=old, new=new)
        (result,) = self.call(f"I search for {old}.", Call("search", {"text": old}))
        path = result.split(":", 1)[0]
        self.call(f"It is in {path}. I rename it.",
                  Call("edit_file", {"path": path, "old": old, "new": new}))
        self.codes[path] = [new if n == old else n for n in names]
        self.answer("It is renamed.", f"I renamed {old} to {new} in {path}.", new)

    def _failing(self):
        path, names = self.code()
        name = self.rng.choice(names)
        wrong, right = self.repository.break_function(path, name)
        return path, name, wrong, right

    def task_explain(self):
        """Which test fails, and how."""
        path, name, wrong, right = self._failing()
        self.say("Why do the tests fail?", "Which test fails?", "Do the tests pass?",
                 "Run the tests and explain.")
        (result,) = self.call("I run the tests.", Call("run_tests", {}))
        line = result.split("\n")[0]
        expected, got = line.rsplit(": expected ", 1)[1].split(", got ")
        function = line.split(": ")[1].split("(")[0]
        self.answer(f"{function} gives {got}, not {expected}.",
                    f"{function} fails: expected {expected}, got {got}.", function)
        self.repository._run_edit_file(path, wrong, right)

    def task_fix(self):
        """A failing test is made to pass."""
        path, name, wrong, right = self._failing()
        self.say("Fix the failing test.", "A test fails. Fix the code.", "Make the tests pass.",
                 "The tests fail. Please repair {name}.", name=name)
        (result,) = self.call("I run the tests.", Call("run_tests", {}))
        name = result.split(": ")[1].split("(")[0]
        (result,) = self.call(f"{name} is wrong. I search for it.",
                              Call("search", {"text": f"def {name}"}))
        path = result.split(":", 1)[0]
        (text,) = self.call(f"It is in {path}.", Call("read_file", {"path": path}))
        said = text.split(f"def {name}(x):", 1)[1].split("Returns x times ", 1)[1].split('."""')[0]
        a, b = said.split(" plus ")
        self.call(
            f"{name} must return x times {a} plus {b}.",
            Call("edit_file", {"path": path, "old": wrong, "new": f"return x * {a} + {b}"}),
        )
        (result,) = self.call("I run the tests again.", Call("run_tests", {}))
        self.answer("All tests pass.", f"I fixed {name} in {path}. The tests pass.", name)

    def task_passing(self):
        """The tests pass."""
        self.code()
        self.say("Do the tests pass?", "Run the tests.", "Check the tests.")
        (result,) = self.call("I run the tests.", Call("run_tests", {}))
        count = result.split(" ")[0]
        self.answer("They pass.", f"All {count} tests pass.", count)


AGENT = dict(
    value=14, two_values=6, where=8, list=5, lost_file=4, missing=4, compute=8, sum=4, set_value=7,
    rename=6, explain=5, fix=6, passing=2, remember=5, facts=5, recall=12, change=2, preference=3,
    chat=3, passage=1,
)
# What training practises: to find one of many lines and to copy what it says is learnt last.
PRACTICE = dict(AGENT, value=22, two_values=12, sum=8, set_value=14, fix=10)
FACTS = dict(facts=30, remember=5, recall=45, change=4, value=4, chat=4, passage=8, compute=2,
             preference=1)
