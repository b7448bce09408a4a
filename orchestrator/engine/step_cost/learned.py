"""Learn what a model's steps cost with each number of threads, and notice when what is believed is wrong.

There are two ways to learn. While the cost model is about right, a small part of each observed error corrects it
(`StepCostModel.observed`). When steps repeatedly take far longer or far less than the cost model says, or are no slower
for a token than narrower ones for which it leaves sequences out, it is in doubt: it is scaled to what was just
observed, or replaced by an assumed cost model if its shape is impossible. For a while some steps are then decoded at
other widths only to find out how long these take. So a measurement from one bad moment decides for some dozens of steps
at most. Steps during which other processes had the cores teach nothing, unless that never ends.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from orchestrator.engine.step_cost.model import Points, StepCostModel, best_decode_width, enough_rate

LEARNED_EVERY = 17
"""Of so many steps, one is learned from: learning from all would take longer than it is worth. The number is prime, so
that all kinds of steps are learned from where they alternate."""

DRAFTED_LEARNED_EVERY = 5
"""The same for steps with drafts, which are counted separately. They are rarer and longer than others, and if they are
believed to take a few per cent too long, drafts that would pay are not made."""

LEARN_ALL_FIRST = 64
"""At first all of so many steps are learned from, because what was measured in isolation may be off by a tenth under
load."""

FADE_RATE = 0.01
"""By this fraction the costs of steps with drafts return to their measured shape with each step without drafts that is
learned from while nothing is drafted. Otherwise costs that were observed in a bad moment could prevent all further
drafts, and nothing better would ever be learned."""

SETTLED = 2
"""Whenever the kind of step changes, with or without drafts, the step of this number in a row is learned from. Where
most steps have drafts, the others show what drafts save. The first of a kind takes longer, because llama.cpp prepares
its graph anew."""

MISFIT_RATIO = 1.6
"""A step does not fit the cost model if it takes this many times as long as expected, or this many times less."""

_MISFITS = 5
"""After so many steps of one size in a row that do not fit, the cost model is in doubt, ..."""

_MISFITS_APART = 16
"""... or after two of them with at least so many steps between them, because these are not from one bad moment."""

_MAX_DISTURBED = 64
"""After so many steps in a row with other processes on the cores, steps count nevertheless: the machine is always
so."""

_WIDEST_EVERY = 64
"""In two of so many steps all running sequences decode together where the cost model says that fewer are better,
because only this shows when that has changed. For the first of the two llama.cpp prepares its graph anew; the second
shows the time."""

_CONTRADICTIONS = 2
"""After so many of these steps in a row in which all together made enough tokens a second, the cost model is in doubt:
one size that was measured in a bad moment can leave sequences out for as long as the model is kept."""

_PROBE_EVERY = 8
"""While the cost model is in doubt, two of so many steps have a width of which nothing was observed yet."""

_EVIDENCE = 3
"""How many times of a kind of step are kept while the cost model is in doubt. Their median counts."""

_TRUSTED = 2
"""How often a width has to be observed before the cost model is trusted there."""

_CONFIRMED = 3
"""The shape of a cost model is confirmed when the times of so many widths are the same multiple of it, ..."""

_ALIKE = 1.25
"""... which means that the largest multiple is at most this many times the smallest one."""


class LearnedStepCosts:
    """The step costs of one model, learned separately for each number of threads."""

    def __init__(
        self,
        threads: int,
        costs: StepCostModel,
        *,
        widest: int = 1,
        trusted: bool = True,
        known: Callable[[int], StepCostModel | None] = lambda threads: None,
    ) -> None:
        """Begin with `costs` for `threads` threads.

        `widest` is the largest number of sequences in a step. With `trusted` False, `costs` are only assumed, and are
        in doubt from the first step on. `known` returns the costs that were measured earlier with a number of threads,
        or None.
        """
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
        """Whether the costs in use come from a measurement that nothing has contradicted since."""
        return self._learner.measured is not None

    def for_threads(self, threads: int) -> StepCostModel:
        """Return what steps cost with so many threads if that is known, or else what they cost now."""
        return self._learners.get(threads, self._learner).costs

    def for_new_layout(self, threads: int, *, pads: bool) -> "LearnedStepCosts":
        """Return what to begin with when the cache gets another layout, in which the engine pads steps or not."""
        return LearnedStepCosts(threads, replace(self.current, pads=pads), widest=self._widest)

    def use_threads(self, threads: int) -> None:
        """Switch to another number of threads. Until steps were done with them, they are expected to take as long."""
        self._threads = threads
        if threads not in self._learners:
            measured = self._load(threads)
            begun = measured or self.current
            self._learners[threads] = _Learner(begun, self._widest, measured=measured)
        self._learner = self._learners[threads]

    def adopt_measured(self, threads: int, measured: StepCostModel) -> None:
        """Replace what is believed for a number of threads by what was just measured with them."""
        learner = _Learner(measured, self._widest, measured=measured)
        self._learners[threads] = learner
        if threads == self._threads:
            self._learner = learner

    def next_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many of the running sequences to decode in the next step; `depths` are the cells of each.

        Mostly that is the best width. Now and then it is another one, whose time is not known well.
        """
        return self._learner.next_decode_width(depths)

    def best_decode_width(self, depths: Sequence[int]) -> int:
        """Return `model.best_decode_width`. It may be that of sequences with fewer cells, see `_Learner`."""
        return self._learner.best_decode_width(depths)

    def observe(
        self, tokens: int, sequences: int, seconds: float, cells: int, width: int = 0, *, disturbed: bool = False
    ) -> None:
        """Learn from a step, whose parameters are those of `StepCostModel.observed`.

        A `width` larger than `sequences` says that the step was padded to it. A step is `disturbed` if other processes
        had the cores during part of it.
        """
        if width > sequences:
            tokens, sequences, cells = width, width, cells * width // sequences
        self._learner.observe(tokens, sequences, seconds, cells, disturbed=disturbed)


class _Learner:
    """What is known for one number of threads. `measured` is what was measured, None where it was only assumed."""

    def __init__(self, costs: StepCostModel, widest: int, *, measured: StepCostModel | None) -> None:
        self._widest = widest
        self.costs = self._shape = self._plausible(costs)
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
        self._probe_width = 0
        self._compared = (0, 0)
        self._contradictions: list[float] = []
        self._best_widths: dict[int, int] = {}
        self._best_widths_of = costs

    # Widths

    def next_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many of the running sequences to decode in the next step."""
        running = len(depths)
        self._steps += 1
        if self._doubted:
            if self._steps % _PROBE_EVERY < SETTLED:
                if self._steps % _PROBE_EVERY == 0:
                    self._probe_width = self._untried(running)
                if 0 < self._probe_width <= running:
                    return self._probe_width
        elif self._steps % _WIDEST_EVERY < SETTLED:
            self._compared = (running, self.best_decode_width(depths))
            return running
        return self.best_decode_width(depths)

    def best_decode_width(self, depths: Sequence[int]) -> int:
        """Return `model.best_decode_width`, computed anew only when the costs or the number of sequences change.

        It takes as long as much else in a step, and otherwise hardly changes.
        """
        if self._best_widths_of is not self.costs:
            self._best_widths_of = self.costs
            self._best_widths.clear()
        running = len(depths)
        if running not in self._best_widths:
            self._best_widths[running] = best_decode_width(self.costs, depths)
        return self._best_widths[running]

    def _untried(self, running: int) -> int:
        """Return the width that was observed least, the largest of several; 0 where all were observed enough."""
        widths = {*(size for size in self.costs.decode.sizes if size <= running), running}
        least = min(widths, key=lambda width: (len(self._seen[False, width]), -width))
        return least if len(self._seen[False, least]) < _TRUSTED else 0

    # Learning

    def observe(self, tokens: int, sequences: int, seconds: float, cells: int, *, disturbed: bool) -> None:
        drafted = tokens > sequences
        if not self._learns(drafted=drafted):
            return
        if disturbed and self._disturbed_in_a_row < _MAX_DISTURBED:
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
            if len(misfits) >= _MISFITS or misfits[-1][0] - misfits[0][0] >= _MISFITS_APART:
                self._doubt(kind, [seconds for _, seconds in misfits])
                return
        if not drafted and self._steps % _WIDEST_EVERY == 1:
            self._compare_with_narrower(tokens, seconds, cells)
            if self._doubted:
                return
        self.costs = self.costs.observed(tokens, sequences, seconds, cells)
        if not drafted and self._in_a_row > SETTLED and self.measured is not None:
            self.costs = self.costs.faded(self.measured, FADE_RATE)

    def _compare_with_narrower(self, tokens: int, seconds: float, cells: int) -> None:
        """Doubt the cost model if steps of all sequences keep making enough tokens a second not to leave any out."""
        running, narrow = self._compared
        if not 0 < narrow < running == tokens:
            return
        best, alone = (n / self.costs.seconds(n, n, cells * n // tokens) for n in (narrow, 1))
        if tokens / seconds < enough_rate(best, alone):
            self._contradictions.clear()
            return
        self._contradictions.append(seconds)
        if len(self._contradictions) >= _CONTRADICTIONS:
            self._doubt((False, tokens), self._contradictions)

    def _learns(self, *, drafted: bool) -> bool:
        """Count a step, and return whether to learn from it."""
        self._close_look -= 1
        count, every = self._counts[drafted], DRAFTED_LEARNED_EVERY if drafted else LEARNED_EVERY
        self._counts[drafted] += 1
        self._in_a_row = self._in_a_row + 1 if drafted == self._kind else 1
        self._kind = drafted
        probed = self._steps % (_PROBE_EVERY if self._doubted else _WIDEST_EVERY) == 1
        return (
            self._doubted
            or probed
            or self._close_look > 0
            or self._in_a_row == SETTLED
            or count < LEARN_ALL_FIRST
            or (count - LEARN_ALL_FIRST) % every == 0
        )

    def _plausible(self, costs: StepCostModel) -> StepCostModel:
        """Return `costs`, or if they are implausible, assumed costs with the same time for a single token."""
        if costs.implausible(most=self._widest) is None:
            return costs
        return StepCostModel.assumed(costs.verify.seconds[0], most=self._widest, pads=costs.pads)

    def _doubt(self, kind: tuple[bool, int], times: Sequence[float]) -> None:
        """Begin anew with the shape of the costs, if it is plausible, scaled to the `times` that a kind just took."""
        self.measured, self._doubted, self._collected = None, True, 0
        self._shape = self._plausible(self.costs)
        self._seen.clear()
        for seconds in times:
            self._keep(kind, seconds)
        self._misfits.clear()
        self._contradictions = []
        self._counts = {False: 0, True: 0}
        self._steps = 0
        self._rebuild()

    def _collect(self, tokens: int, drafted: bool, seconds: float, cells: int) -> None:
        """Take a step into account while the costs are in doubt, and end the doubt when enough was observed."""
        attention = min(self.costs.per_cell * cells, seconds / 2)
        self._keep((drafted, tokens), seconds - attention)
        self._rebuild()
        self._collected += 1
        if self._collected >= LEARN_ALL_FIRST or self._confirmed() or self._all_tried():
            self._doubted = False
            self._seen.clear()

    def _all_tried(self) -> bool:
        """Return whether every width was observed often enough."""
        return all(len(self._seen[False, size]) >= _TRUSTED for size in self.costs.decode.sizes)

    def _confirmed(self) -> bool:
        """Return whether the times of several widths have the shape that was believed."""
        scales = [
            median(times[-_EVIDENCE:]) / _at(self._shape.decode, tokens)
            for (drafted, tokens), times in self._seen.items()
            if not drafted and len(times) >= _TRUSTED
        ]
        return len(scales) >= _CONFIRMED and max(scales) <= _ALIKE * min(scales)

    def _keep(self, kind: tuple[bool, int], seconds: float) -> None:
        times = self._seen[kind]
        times.append(seconds)
        del times[: -2 * _EVIDENCE]

    def _rebuild(self) -> None:
        """Make the costs from the times that were observed, and elsewhere from the shape that was believed."""
        shape = self._shape
        seen = {key: median(times[-_EVIDENCE:]) for key, times in self._seen.items() if times}
        plain = {tokens: seconds for (drafted, tokens), seconds in seen.items() if not drafted}
        drafts = {tokens: seconds for (drafted, tokens), seconds in seen.items() if drafted}
        scale = _scale(shape.decode, plain) or _scale(shape.verify, drafts)
        first = plain.get(1, scale * shape.verify.seconds[0])
        decode = _fitted(shape.decode, first, plain)
        verify = _fitted(shape.verify, first, drafts)
        self.costs = StepCostModel(decode, verify, shape.prefill * scale, shape.per_cell * scale, shape.pads)


def _scale(shape: Points, seen: dict[int, float]) -> float:
    """Return how many times as long as `shape` says the observed steps took: the median; 0 if none were observed."""
    ratios = [seconds / _at(shape, tokens) for tokens, seconds in seen.items()]
    return median(ratios) if ratios else 0.0


def _fitted(shape: Points, first: float, seen: dict[int, float]) -> Points:
    """Return points of the sizes of `shape` that agree with the observed times `seen`, and follow `shape` elsewhere.

    `first` is the time of a step of one token. Between two sizes that were observed a point is scaled in proportion,
    and beyond them by the nearest one, so that sizes that are nearly known do not look far better or worse than those
    that are known.
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
