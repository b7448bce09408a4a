"""A vocabulary in which every word is one token, so that the number of tokens of a text is exact.

A word is a space, a syllable and a syllable, as in " dobu"; a syllable is a consonant and a vowel, so that byte pair
encoding can merge the letters of a word in one order only.
"""

import itertools
from collections.abc import Iterable

from benchmarks.models import SPECIAL, Merges, byte_letters

SYLLABLES = tuple(map("".join, itertools.product("bcdfghjklmnpqrstvwxyz", "aeiou")))
NAMES = tuple(map("".join, itertools.product(SYLLABLES, repeat=2)))
# The token of the first word. Words follow bytes, syllables and names; a name is a word without its space.
FIRST = 256 + len(SYLLABLES) + len(NAMES)
COUNT = len(NAMES)
LEAST_VOCABULARY = FIRST + COUNT + len(SPECIAL)

_TOKENS = {name: FIRST + index for index, name in enumerate(NAMES)}


def merges() -> Merges:
    """Return the merges that make syllables, names and words, in the order of their tokens."""
    space = byte_letters()[ord(" ")]
    syllables = [(syllable[0], syllable[1]) for syllable in SYLLABLES]
    names = [(name[:2], name[2:]) for name in NAMES]
    return [*syllables, *names, *((space, name) for name in NAMES)]


def text_of(tokens: Iterable[int]) -> str:
    """Return the text of some words. Raises IndexError for tokens that are no words."""
    return "".join(f" {NAMES[token - FIRST]}" for token in tokens)


def tokens_of(text: str) -> tuple[int, ...]:
    """Return the tokens of a text of words. Raises KeyError for anything else."""
    return tuple(_TOKENS[name] for name in text.split())
