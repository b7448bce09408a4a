"""Make names, numbers and paths from an open vocabulary, split so that held-out ones are never trained on.

A model that is trained on a closed list of names recites them; made-up words force it to copy what it reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword
from random import Random
from typing import Literal
from zlib import crc32

# `train`; `entity`: trained wordings, held-out names; `wording`: held-out wordings and held-out names.
Split = Literal["train", "entity", "wording"]

SPLITS: tuple[Split, ...] = ("train", "entity", "wording")

ONSETS = tuple("b c d f g h j k l m n p r s t v w z br dr gr kr pl tr st sh ch th".split())
VOWELS = tuple("a e i o u a e i o u a e i o u ai ea io".split())
CODAS = ("", "", "", "", "", "n", "r", "l", "s", "m", "k", "t", "d", "x")
ENGLISH = tuple(
    "report notes data result log index summary draft table list record order stock item price market garden river "
    "bridge paper letter window station forest mountain winter summer engine sensor server client budget invoice "
    "quartz copper silver marble coffee orange lemon pepper salt sugar bread water metal stone wood glass north south "
    "east west alpha beta gamma delta omega first second third old new main test sample example input output source "
    "target plan team staff member player teacher doctor driver pilot farmer baker shop store office school library "
    "house room door floor wall roof field road street square circle point line shape color sound music song book "
    "page chapter story poem news event meeting project task issue ticket bug feature release version change".split()
)
EXTENSIONS = tuple("txt txt txt txt md csv json log yaml".split())
HELD_OUT_SHARE = 8


def is_held_out(word: str) -> bool:
    """Return whether `word` is one of the eighth of all words that training never sees."""
    return crc32(word.lower().encode()) % HELD_OUT_SHARE == 0


@dataclass(frozen=True, slots=True)
class WordingPool:
    """Wordings of one kind: those trained on, and those reserved for evaluation."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    def pick(self, rng: Random, split: Split) -> str:
        """Return a wording; the split `wording` gets only reserved ones."""
        return rng.choice(self.held_out if split == "wording" else self.train)


def seeded(seed: str) -> Random:
    """Return a random generator that depends only on `seed`."""
    return Random(seed)  # noqa: S311 - data to learn from, no secrets


class Lexicon:
    """Draws words of one split: every made-up or English word that it returns belongs to the split."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng = rng
        self.held_out = split != "train"
        self._seen: set[str] = set()

    def word(self) -> str:
        """Return a lower-case word that this lexicon did not return before."""
        while True:
            word = self._draw()
            if is_held_out(word) == self.held_out and word not in self._seen and not iskeyword(word):
                self._seen.add(word)
                return word

    def _draw(self) -> str:
        roll = self.rng.random()
        if roll < 0.08:
            # Of two words each, so that every token of an English word had to be copied in training.
            return self.rng.choice(ENGLISH) + self.rng.choice(ENGLISH)
        return self.rng.choice(ENGLISH) if roll < 0.15 else self._made_up()

    def _made_up(self) -> str:
        syllables = self.rng.choices((1, 2, 3), (1, 9, 2))[0]
        choice = self.rng.choice
        word = "".join(choice(ONSETS) + choice(VOWELS) + choice(CODAS) for _ in range(syllables))
        return word if len(word) > 2 else word + "rn"

    def name(self) -> str:
        """Return a capitalized name of one word, now and then of two."""
        first = self.word().capitalize()
        return f"{first} {self.word().capitalize()}" if self.rng.random() < 0.15 else first

    def number(self) -> int:
        """Return a number of one to four digits, most often three."""
        digits = self.rng.choices((1, 2, 3, 4), (1, 4, 5, 2))[0]
        return self.rng.randrange(10 ** (digits - 1), 10**digits)

    def stem(self) -> str:
        """Return the stem of a file name, such as `brimol`, `brimol_dak` or `dak-3`."""
        roll = self.rng.random()
        if roll < 0.72:
            return self.word()
        if roll < 0.87:
            return f"{self.word()}{self.rng.choice('_-')}{self.word()}"
        return f"{self.word()}{self.rng.choice(('_', '-', ''))}{self.rng.randrange(1, 30)}"

    def file(self) -> str:
        """Return a file name, one in ten of them inside a folder."""
        name = f"{self.stem()}.{self.rng.choice(EXTENSIONS)}"
        return f"{self.word()}/{name}" if self.rng.random() < 0.1 else name

    def identifier(self) -> str:
        """Return a Python identifier made of one or two words."""
        return f"{self.word()}_{self.word()}" if self.rng.random() < 0.3 else self.word()


def listing(items: Sequence[str], last: str = "and") -> str:
    """Return `items` as an enumeration: `a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def sentence(text: str) -> str:
    """Return `text` with its first letter in upper case, the rest untouched."""
    return text[:1].upper() + text[1:]
