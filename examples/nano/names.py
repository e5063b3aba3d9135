"""Random names and values from pools too large to memorise, split by a hash.

`Pools(rng, held_out)` draws only names whose hash falls on its side of the split, so that no made-up
word, identifier, key, path or longer number of the held-out conversations was ever trained on. The
dictionary words that they are made of are vocabulary: a token that was never seen cannot be copied.
"""

import hashlib
import random

NOUNS = """account agent alarm album archive asset audit backup badge banner batch beacon border
bridge broker bucket budget buffer bundle cable cache calendar camera canvas carrier cart catalog
channel chart client clock cluster column comment company config contact counter courier cursor
customer database deadline delivery depot device digest discount display driver editor engine
entry event export factory feature feed filter folder font forecast frame gallery garden gateway
grid guide handler harbor header history image import index input invoice item job journal kernel
label ladder layer layout ledger lesson library limit listing loader locker logger market marker
matrix member memory menu message meter metric mirror mission mobile model module monitor motor
network note number object office offset order outlet output owner package packet page panel
parcel parser partner patch payment permit phone pipeline planner player pocket policy portal
price printer profile project queue quota radar range record region relay report request reserve
result review ribbon robot route router sample scanner schedule screen script season sector sender
sensor server session shadow shelf signal sketch socket source stack station status storage store
stream student sum survey switch symbol table tag target task teacher template ticket timer token
topic total tower tracker trade traffic train transfer trigger tunnel user valley value vector
vendor version video viewer visitor voucher wallet warehouse window worker zone""".split()

VERBS = """add apply build call check clean close collect compute convert copy count create decode
delete detect draw encode fetch fill find fold format get group handle hide join keep limit list
load make mark match measure merge move open pack parse patch pick plan post print pull push rank
read reduce render reset resize resolve run save scale scan score select send set shift show sign
sort split start stop store sum swap sync test trim update use verify wait walk wrap
write""".split()

COLORS = """red blue green yellow orange purple white black brown pink gray silver gold violet
indigo teal olive maroon navy cyan amber coral crimson ivory jade lilac mint peach plum rose ruby
sand scarlet tan""".split()

KEYS = """timeout retries port host level mode size limit depth width height rate delay count
threads workers cache buffer path name owner region theme color format version prefix suffix
budget weight score margin offset page batch window capacity interval threshold priority quota
seed speed scale volume language currency""".split()

_ONSETS = "b br c d dr f fl g gr h j k kl l m n p pl qu r s sk st t tr v w z".split()
_VOWELS = "a e i o u ai ea io ou".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "k", "t", "m", "x", "nd", "rt", "lm"]


def is_held_out(text: str) -> bool:
    """The side of the split a name falls on: one in eight is held out."""
    return hashlib.sha1(text.encode("utf-8")).digest()[1] % 8 == 0


class Pools:
    """Draws names; every drawn name is on the `held_out` side of the split."""

    def __init__(self, rng: random.Random, held_out: bool):
        self.rng, self.held_out = rng, held_out

    def _draw(self, make) -> str:
        while True:
            text = make()
            if is_held_out(text) == self.held_out:
                return text

    def _syllables(self, n: int) -> str:
        pick = self.rng.choice
        return "".join(
            pick(_ONSETS) + pick(_VOWELS) + (pick(_CODAS) if i == n - 1 or n == 2 else "")
            for i in range(n)
        )

    def word(self) -> str:
        """A made-up word such as "brunovex"."""
        return self._draw(lambda: self._syllables(self.rng.choice((2, 2, 3))))

    def person(self) -> str:
        return self.word().capitalize()

    def identifier(self) -> str:
        """A function name such as "merge_invoice" or "load_brunov"."""
        pick = self.rng.choice

        def make():
            tail = pick(NOUNS) if self.rng.random() < 0.6 else self._syllables(2)
            middle = pick(NOUNS) + "_" if self.rng.random() < 0.25 else ""
            return f"{pick(VERBS)}_{middle}{tail}"

        return self._draw(make)

    def key(self) -> str:
        """A configuration key such as "timeout", "cache_size" or "brunov_rate"."""
        pick = self.rng.choice

        def make():
            form = self.rng.random()
            if form < 0.5:
                return f"{pick(NOUNS)}_{pick(KEYS)}"
            return f"{self._syllables(2)}_{pick(KEYS)}"

        return self._draw(make)

    def number(self, least: int = 2, most: int = 5) -> str:
        """Digits without a leading zero; numbers of three and more digits are split."""
        digits = self.rng.randint(least, most)

        def make():
            return str(self.rng.randint(10 ** (digits - 1), 10**digits - 1))

        return make() if digits < 3 else self._draw(make)

    def version(self) -> str:
        numbers = [self.rng.randint(0, 19) for _ in range(3)]
        return ".".join(str(n) for n in numbers)

    def code(self) -> str:
        """A mixed code such as "k7t2m"."""
        symbols = "abcdefghkmnprstuvwxyz23456789"
        return self._draw(lambda: "".join(self.rng.choice(symbols) for _ in range(5)))

    def value(self) -> str:
        """A configuration value: mostly a number, else a word, a version, a color or a code."""
        form = self.rng.random()
        if form < 0.5:
            return self.number(1, 4)
        if form < 0.7:
            return self.word()
        if form < 0.8:
            return self.version()
        return self.rng.choice(COLORS) if form < 0.92 else self.code()

    def stem(self) -> str:
        """A file or folder name without ending: a dictionary word or a made-up one."""
        if self.rng.random() < 0.5:
            return self.rng.choice(NOUNS)
        return self._draw(lambda: self._syllables(2))

    def path(self, folder: str, ending: str) -> str:
        """A file in a folder."""
        return self._draw(lambda: f"{folder}/{self.stem()}.{ending}")
