"""Keep what a model's steps cost with each number of threads, and learn it from the steps that are done."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.curve import Curve, favoured_width

LEARNED_EVERY = 17
"""A curve learns from the first of so many steps: to learn from all takes longer than what there is to learn. A prime,
so that it sees all kinds of steps where they alternate."""

DRAFTED_LEARNED_EVERY = 5
"""Steps with drafts are counted by themselves. They are rarer and longer than others, and where a few per cent too much
are expected of them, drafts that would pay are not made."""

FIRST = 64
"""It learns from all of so many of them at first: what was measured alone may be a tenth off when there is work."""

FADES = 0.01
"""With each plain step that is learned from while nothing is drafted, steps with drafts get so much of their measured
shape back. They may have been seen at a bad time, and then nothing would be drafted, and nothing better learned of
them, ever again."""

SETTLED = 2
"""The step of a kind, in a row, from which is learned each time that the kind changes: where most steps have drafts,
the others say what they save. llama.cpp lays the first one out anew, which takes longer."""


class Curves:
    """The curves of one model. `now` is that of the threads in use."""

    def __init__(self, threads: int, curve: Curve) -> None:
        self.now = curve
        self._threads = threads
        self._measured = {threads: curve}
        self._known: dict[int, Curve] = {}
        self._counts = {False: 0, True: 0}
        self._kind, self._in_a_row = False, SETTLED
        self._favoured = (curve, 0), 0

    def relaid(self, threads: int, *, fills: bool) -> "Curves":
        """Return those to begin with when the cells of the cache lie otherwise, which `fills` steps or not."""
        return Curves(threads, replace(self.now, fills=fills))

    def use(self, threads: int) -> None:
        """Go over to so many threads. Until steps were done with them, they are expected to take as long."""
        self._known[self._threads] = self.now
        self._threads, self.now = threads, self._known.get(threads, self.now)

    def favoured_width(self, depths: Sequence[int]) -> int:
        """Return how many running sequences to decode in one step, as `curve.favoured_width` has it.

        That takes as long as much else in a step, and hardly changes while nothing is learned and as many run: until
        then it is what it was.
        """
        asked = self.now, len(depths)
        if asked != self._favoured[0]:
            self._favoured = asked, favoured_width(self.now, depths)
        return self._favoured[1]

    def observe(self, tokens: int, sequences: int, seconds: float, cells: int, width: int = 0) -> None:
        """Take note of a step, as `Curve.observed` has it. One that was filled to a `width` tells what that takes."""
        drafted = tokens > sequences
        if self._learns(drafted=drafted):
            if width > sequences:
                tokens, sequences, cells = width, width, cells * width // sequences
            self.now = self.now.observed(tokens, sequences, seconds, cells)
            if not drafted and self._in_a_row > SETTLED and self._threads in self._measured:
                self.now = self.now.faded(self._measured[self._threads], FADES)

    def _learns(self, *, drafted: bool) -> bool:
        """Count a step, and return whether to learn from it."""
        count, every = self._counts[drafted], DRAFTED_LEARNED_EVERY if drafted else LEARNED_EVERY
        self._counts[drafted] += 1
        self._in_a_row = self._in_a_row + 1 if drafted == self._kind else 1
        self._kind = drafted
        return self._in_a_row == SETTLED or count < FIRST or (count - FIRST) % every == 0
