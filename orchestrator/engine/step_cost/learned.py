"""Keep what a model's steps cost with each number of threads, learn it from the steps that are done, and notice when
what was believed is wrong.

There are two ways to learn. While the cost model is about right, a small part of each observed error corrects it
(`StepCostModel.observed`). When steps take far longer or far less than the cost model says, again and again, the cost
model is in doubt: it is scaled to what was just seen, or replaced by what is assumed of any model where its shape is
impossible, and for a while some steps are decoded at other widths only to find out how long these take. What was
measured in one bad moment therefore decides for some dozens of steps at most. Steps during which other processes held
the cores teach nothing, unless that never ends.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from orchestrator.engine.step_cost.model import Points, StepCostModel, best_decode_width

LEARNED_EVERY = 17
"""A cost model learns from the first of so many steps: to learn from all takes longer than what there is to learn. A
prime, so that it sees all kinds of steps where they alternate."""

DRAFTED_LEARNED_EVERY = 5
"""Steps with drafts are counted by themselves. They are rarer and longer than others, and where a few per cent too much
are expected of them, drafts that would pay are not made."""

LEARN_ALL_FIRST = 64
"""It learns from all of so many of them at first: what was measured alone may be a tenth off when there is work."""

FADE_RATE = 0.01
"""With each plain step that is learned from while nothing is drafted, steps with drafts get so much of their measured
shape back. They may have been seen at a bad time, and then nothing would be drafted, and nothing better learned of
them, ever again."""

SETTLED = 2
"""The step of a kind, in a row, from which is learned each time that the kind changes: where most steps have drafts,
the others say what they save. llama.cpp lays the first one out anew, which takes longer."""

MISFIT_RATIO = 1.6
"""A step that takes so many times as long as expected, or so small a part of it, does not fit the cost model."""

_MISFITS = 5
"""After so many steps of one size in a row that do not fit, the cost model is in doubt, ..."""

_APART = 16
"""... or after two of them with so many steps between them: those did not come from the same bad moment."""

_TOLERATED = 64
"""After so many steps in a row with other processes on the cores, what is seen counts: the machine is always so."""

_WIDEST_EVERY = 64
"""All that run decode together in two of so many steps, where the cost model says that fewer are better: only this
tells when that is no longer so. The first of the two is laid out anew by llama.cpp; the second tells the time."""

_TRIED_EVERY = 8
"""While the cost model is in doubt, two of so many steps have a width of which nothing was seen yet."""

_EVIDENCE = 3
"""How many times are kept of a kind of step while the cost model is in doubt; their median counts."""

_TRUSTED = 2
"""So often a width has to be seen before the cost model is trusted there."""

_CONFIRMED = 3
"""The shape of a cost model is confirmed by so many widths whose times are the same multiple of it, ..."""

_ALIKE = 1.25
"""... which means that the largest multiple is at most so many times the smallest one."""


class LearnedStepCosts:
    """The cost models of one model. `now` is that of the threads in use.

    `known` returns the cost model that was measured earlier for a number of threads, or None. `widest` is the largest
    number of sequences in a step. With `trusted` False, `costs` are only assumed, and is checked from the first step
    on.
    """

    def __init__(
        self,
        threads: int,
        costs: StepCostModel,
        *,
        widest: int = 1,
        trusted: bool = True,
        known: Callable[[int], StepCostModel | None] = lambda threads: None,
    ) -> None:
        self._threads = threads
        self._widest = widest
        self._load = known
        self._learners = {threads: _Learner(costs, widest, measured=costs if trusted else None)}
        self._learner = self._learners[threads]

    @property
    def current(self) -> StepCostModel:
        """What steps cost with the threads in use."""
        return self._learner.costs

    @property
    def measured(self) -> bool:
        """Whether the cost model in use comes from a measurement that nothing has contradicted since."""
        return self._learner.measured is not None

    def for_threads(self, threads: int) -> StepCostModel:
        """Return what steps cost with so many threads, as far as it is known; else what they cost now."""
        return self._learners.get(threads, self._learner).costs

    def for_new_layout(self, threads: int, *, pads: bool) -> "LearnedStepCosts":
        """Return those to begin with when the cells of the cache lie otherwise, which `pads` steps or not."""
        return LearnedStepCosts(threads, replace(self.current, pads=pads), widest=self._widest)

    def use_threads(self, threads: int) -> None:
        """Go over to so many threads. Until steps were done with them, they are expected to take as long."""
        self._threads = threads
        if threads not in self._learners:
            measured = self._load(threads)
            begun = measured or self.current
            self._learners[threads] = _Learner(begun, self._widest, measured=measured)
        self._learner = self._learners[threads]

    def adopt_measured(self, threads: int, measured: StepCostModel) -> None:
        """Take over what was measured with so many threads just now, in place of what was believed."""
        learner = _Learner(measured, self._widest, measured=measured)
        self._learners[threads] = learner
        if threads == self._threads:
            self._learner = learner

    def next_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many of the running sequences to decode in the next step; `depths` are the cells of each.

        Mostly that is the favoured width. Now and then it is another one, whose time is not known well.
        """
        return self._learner.next_decode_width(depths)

    def observe(
        self, tokens: int, sequences: int, seconds: float, cells: int, width: int = 0, *, disturbed: bool = False
    ) -> None:
        """Take note of a step, as `StepCostModel.observed` has it. One that was padded to a `width` tells what that
        takes.

        A step is `disturbed` if other processes had the cores for a part of it.
        """
        if width > sequences:
            tokens, sequences, cells = width, width, cells * width // sequences
        self._learner.observe(tokens, sequences, seconds, cells, disturbed=disturbed)


class _Learner:
    """What is known with one number of threads. `measured` is what was measured, None where it was only assumed."""

    def __init__(self, costs: StepCostModel, widest: int, *, measured: StepCostModel | None) -> None:
        self._widest = widest
        self.costs = self._shape = self._possible(costs)
        self.measured = measured if self.costs is costs else None
        self._doubted = self.measured is None
        self._collected = 0
        self._counts = {False: 0, True: 0}
        self._kind, self._in_a_row = False, SETTLED
        self._misfits: dict[tuple[bool, int], list[tuple[int, float]]] = {}
        self._seen: defaultdict[tuple[bool, int], list[float]] = defaultdict(list)
        self._close_look = 0
        self._disturbed_in_a_row = 0
        self._steps = 0
        self._tried = 0
        self._best_width = (costs, 0), 0

    # Widths

    def next_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many of the running sequences to decode in the next step."""
        running = len(depths)
        self._steps += 1
        if self._doubted:
            if self._steps % _TRIED_EVERY < SETTLED:
                if self._steps % _TRIED_EVERY == 0:
                    self._tried = self._untried(running)
                if 0 < self._tried <= running:
                    return self._tried
        elif self._steps % _WIDEST_EVERY < SETTLED:
            return running
        return self.best_decode_width(depths)

    def best_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many running sequences to decode in one step, as `model.best_decode_width` has it.

        That takes as long as much else in a step, and hardly changes while nothing is learned and as many run: until
        then it is what it was.
        """
        asked = self.costs, len(depths)
        if asked != self._best_width[0]:
            self._best_width = asked, best_decode_width(self.costs, depths)
        return self._best_width[1]

    def _untried(self, running: int) -> int:
        """Return the width of which least was seen, the widest of several; 0 where enough was seen of all."""
        widths = {*(size for size in self.costs.many.sizes if size <= running), running}
        least = min(widths, key=lambda width: (len(self._seen[False, width]), -width))
        return least if len(self._seen[False, least]) < _TRUSTED else 0

    # Learning

    def observe(self, tokens: int, sequences: int, seconds: float, cells: int, *, disturbed: bool) -> None:
        drafted = tokens > sequences
        if not self._learns(drafted=drafted):
            return
        if disturbed and self._disturbed_in_a_row < _TOLERATED:
            self._disturbed_in_a_row += 1
            return
        if not disturbed:
            self._disturbed_in_a_row = 0
        if self._doubted:
            self._collect(tokens, drafted, seconds, cells)
            return
        kind = drafted, tokens
        if 1 / MISFIT_RATIO < seconds / self.costs.seconds(tokens, sequences, cells) < MISFIT_RATIO:
            self._misfits.pop(kind, None)
        else:
            misfits = self._misfits.setdefault(kind, [])
            misfits.append((sum(self._counts.values()), seconds))
            self._close_look = _MISFITS
            if len(misfits) >= _MISFITS or misfits[-1][0] - misfits[0][0] >= _APART:
                self._doubt(kind)
                return
        self.costs = self.costs.observed(tokens, sequences, seconds, cells)
        if not drafted and self._in_a_row > SETTLED and self.measured is not None:
            self.costs = self.costs.faded(self.measured, FADE_RATE)

    def _learns(self, *, drafted: bool) -> bool:
        """Count a step, and return whether to learn from it."""
        self._close_look -= 1
        count, every = self._counts[drafted], DRAFTED_LEARNED_EVERY if drafted else LEARNED_EVERY
        self._counts[drafted] += 1
        self._in_a_row = self._in_a_row + 1 if drafted == self._kind else 1
        self._kind = drafted
        tried = self._steps % (_TRIED_EVERY if self._doubted else _WIDEST_EVERY) == 1
        return (
            self._doubted
            or tried
            or self._close_look > 0
            or self._in_a_row == SETTLED
            or count < LEARN_ALL_FIRST
            or (count - LEARN_ALL_FIRST) % every == 0
        )

    def _possible(self, costs: StepCostModel) -> StepCostModel:
        """Return the cost model, or where it is impossible one that is assumed and takes as long for a single token."""
        if costs.implausible(most=self._widest) is None:
            return costs
        return StepCostModel.assumed(costs.one.seconds[0], most=self._widest, pads=costs.pads)

    def _doubt(self, kind: tuple[bool, int]) -> None:
        """Begin anew with the shape of the cost model, if that is possible, and with what was just seen."""
        self.measured, self._doubted, self._collected = None, True, 0
        self._shape = self._possible(self.costs)
        self._seen.clear()
        for _, seconds in self._misfits[kind]:
            self._keep(kind, seconds)
        self._misfits.clear()
        self._counts = {False: 0, True: 0}
        self._steps = 0
        self._rebuild()

    def _collect(self, tokens: int, drafted: bool, seconds: float, cells: int) -> None:
        """Make the cost model of what was seen, until enough was."""
        attention = min(self.costs.per_cell * cells, seconds / 2)
        self._keep((drafted, tokens), seconds - attention)
        self._rebuild()
        self._collected += 1
        if self._collected >= LEARN_ALL_FIRST or self._confirmed() or self._all_tried():
            self._doubted = False
            self._seen.clear()

    def _all_tried(self) -> bool:
        """Return whether enough was seen of all widths."""
        return all(len(self._seen[False, size]) >= _TRUSTED for size in self.costs.many.sizes)

    def _confirmed(self) -> bool:
        """Return whether what was seen of several widths has the shape that was believed."""
        scales = [
            median(times[-_EVIDENCE:]) / _at(self._shape.many, tokens)
            for (drafted, tokens), times in self._seen.items()
            if not drafted and len(times) >= _TRUSTED
        ]
        return len(scales) >= _CONFIRMED and max(scales) <= _ALIKE * min(scales)

    def _keep(self, kind: tuple[bool, int], seconds: float) -> None:
        times = self._seen[kind]
        times.append(seconds)
        del times[: -2 * _EVIDENCE]

    def _rebuild(self) -> None:
        """Make the cost model anew: the times that were seen, and between and beyond them the shape that was
        believed."""
        shape = self._shape
        seen = {key: median(times[-_EVIDENCE:]) for key, times in self._seen.items() if times}
        plain = {tokens: seconds for (drafted, tokens), seconds in seen.items() if not drafted}
        drafts = {tokens: seconds for (drafted, tokens), seconds in seen.items() if drafted}
        scale = _scale(shape.many, plain) or _scale(shape.one, drafts)
        first = plain.get(1, scale * shape.one.seconds[0])
        many = _fitted(shape.many, first, plain)
        one = _fitted(shape.one, first, drafts)
        self.costs = StepCostModel(many, one, shape.prefill * scale, shape.per_cell * scale, shape.pads)


def _scale(shape: Points, seen: dict[int, float]) -> float:
    """Return how many times as long as the shape says what was seen took: the median; 0 where nothing was seen."""
    ratios = [seconds / _at(shape, tokens) for tokens, seconds in seen.items()]
    return median(ratios) if ratios else 0.0


def _fitted(shape: Points, first: float, seen: dict[int, float]) -> Points:
    """Return points of the sizes of `shape` that go through what was seen, and follow the shape elsewhere.

    `first` is the time of a step of one token. Away from what was seen a point takes the scale of the nearest size that
    was seen, so that what is nearly known does not look far better or worse than what is known.
    """
    scales = {1: first / shape.seconds[0]} | {size: seconds / _at(shape, size) for size, seconds in seen.items()}
    times = [seconds * _scale_at(scales, size) for size, seconds in zip(shape.sizes, shape.seconds, strict=True)]
    return Points(shape.sizes, (first, *times[1:]))


def _scale_at(scales: dict[int, float], size: int) -> float:
    if size in scales:
        return scales[size]
    below = max((known for known in scales if known < size), default=None)
    above = min((known for known in scales if known > size), default=None)
    if below is None or above is None:
        return scales[above if below is None else below]  # type: ignore[index]
    way = (size - below) / (above - below)
    return scales[below] + way * (scales[above] - scales[below])


def _at(shape: Points, size: int) -> float:
    at, way, beyond = shape.place(size)
    times = shape.seconds
    step = (times[-1] - times[-2]) / (shape.sizes[-1] - shape.sizes[-2]) if len(times) > 1 else times[0]
    return times[at] + (way * (times[at + 1] - times[at]) if way else beyond * step)
