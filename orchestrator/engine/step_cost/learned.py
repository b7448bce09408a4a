"""Learn what a model's steps cost with each number of threads, and detect a wrong cost model.

A part of each observed error corrects the cost model. The model is in doubt if steps repeatedly do not fit it, or if
full steps are as fast per token as the narrower ones it prefers. It is then scaled to the last observations, and some
steps have other widths, to measure these. So a wrong measurement affects some dozens of steps at most.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from orchestrator.engine.step_cost.model import Points, StepCostModel, best_decode_width, enough_rate

# One of this many steps is learned from; learning from all costs more than it is worth. A prime, so that no pattern of
# alternating kinds is missed.
LEARNED_EVERY = 17

# The same for steps with drafts. They are rarer, and if they look a few per cent too slow, drafts that pay off stop.
DRAFTED_LEARNED_EVERY = 5

# All of the first steps are learned from, because isolated measurements may be off by a tenth under load.
LEARN_ALL_FIRST = 64

# While nothing is drafted, the costs of drafted steps return to their measured shape by this fraction per learned step.
# Otherwise one bad moment could prevent all further drafts, and with them all further observations.
FADE_RATE = 0.01

# Learn from the n-th consecutive step of a kind (with or without drafts); the first ones pay for a graph rebuild. If
# most steps have drafts, the others show what drafts save.
SETTLED = 2

MISFIT_RATIO = 1.6  # A step does not fit if it takes more than this times the expected time, or less than the inverse.

_MISFITS = 5  # The model is in doubt after this many misfits of one size in a row, ...

_MISFITS_APART = 16  # ... or after two with at least this many steps between them: these are not from one bad moment.

_MAX_DISTURBED = 64  # After this many disturbed steps in a row, steps count nevertheless: the machine is always busy.

# In two of this many steps, all running sequences decode together even if fewer look faster, to notice when that has
# changed. The first of the two rebuilds llama.cpp's graph; the second is timed.
_WIDEST_EVERY = 64

# The model is in doubt after this many full steps in a row were fast enough: otherwise one size measured in a bad
# moment could leave sequences out for good.
_CONTRADICTIONS = 2

_PROBE_EVERY = 8  # while in doubt, two of this many steps have an unobserved width

_EVIDENCE = 3  # times stored per kind of step while in doubt; their median counts

_TRUSTED = 2  # observations after which the model is trusted at a width

_CONFIRMED = 3  # The shape of a model is confirmed if the times of this many widths are the same multiple of it, ...

_ALIKE = 1.25  # ... that is, if the largest multiple is at most this times the smallest.


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
        """Start with `costs` for `threads` threads.

        `widest` is the most sequences in a step. If not `trusted`, `costs` are in doubt. `known` returns stored costs
        by threads, or None.
        """
        self._threads = threads
        self._widest = widest
        self._load = known
        self._learners = {threads: _Learner(costs, widest, measured=costs if trusted else None)}
        self._learner = self._learners[threads]

    @property
    def current(self) -> StepCostModel:
        return self._learner.costs

    @property
    def measured(self) -> bool:
        """Whether the current costs are measured and not contradicted since."""
        return self._learner.measured is not None

    def for_threads(self, threads: int) -> StepCostModel:
        """Return the costs with this number of threads, or the current costs."""
        return self._learners.get(threads, self._learner).costs

    def for_new_layout(self, threads: int, *, pads: bool) -> "LearnedStepCosts":
        # The costs are kept; `pads` says whether the engine pads steps in the new layout.
        return LearnedStepCosts(threads, replace(self.current, pads=pads), widest=self._widest)

    def use_threads(self, threads: int) -> None:
        # Without a measurement, the current costs are assumed.
        self._threads = threads
        if threads not in self._learners:
            measured = self._load(threads)
            costs = measured or self.current
            self._learners[threads] = _Learner(costs, self._widest, measured=measured)
        self._learner = self._learners[threads]

    def adopt_measured(self, threads: int, measured: StepCostModel) -> None:
        learner = _Learner(measured, self._widest, measured=measured)
        self._learners[threads] = learner
        if threads == self._threads:
            self._learner = learner

    def next_decode_width(self, depths: Sequence[int]) -> int:
        """Return how many sequences to decode next; `depths` are their cells.

        Usually the best width, sometimes one whose time is uncertain.
        """
        return self._learner.next_decode_width(depths)

    def best_decode_width(self, depths: Sequence[int]) -> int:
        """Return `model.best_decode_width`, which may be cached from other depths."""
        return self._learner.best_decode_width(depths)

    def observe(
        self, tokens: int, sequences: int, seconds: float, cells: int, width: int = 0, *, disturbed: bool = False
    ) -> None:
        """Learn from a step, see `StepCostModel.observed`; padded if `width` exceeds `sequences`.

        `disturbed`: other processes used the cores.
        """
        if width > sequences:
            tokens, sequences, cells = width, width, cells * width // sequences
        self._learner.observe(tokens, sequences, seconds, cells, disturbed=disturbed)


class _Learner:
    # `measured` is None if the costs are only assumed.
    def __init__(self, costs: StepCostModel, widest: int, *, measured: StepCostModel | None) -> None:
        self._widest = widest
        self.costs = self._shape = self._plausible(costs)
        self.measured = measured if self.costs is costs else None
        self._doubted = self.measured is None
        self._collected = 0
        self._counts = {False: 0, True: 0}
        self._kind, self._in_a_row = False, SETTLED
        self._misfits: dict[tuple[bool, int], list[tuple[int, float]]] = {}
        self._times: defaultdict[tuple[bool, int], list[float]] = defaultdict(list)
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
        # Cached until the costs or the number of sequences change: it takes as long as much else in a step, and
        # otherwise hardly changes.
        if self._best_widths_of is not self.costs:
            self._best_widths_of = self.costs
            self._best_widths.clear()
        running = len(depths)
        if running not in self._best_widths:
            self._best_widths[running] = best_decode_width(self.costs, depths)
        return self._best_widths[running]

    def _untried(self, running: int) -> int:
        widths = {*(size for size in self.costs.decode.sizes if size <= running), running}
        least = min(widths, key=lambda width: (len(self._times[False, width]), -width))
        # The least observed width, the largest of several; 0 if all were observed enough.
        return least if len(self._times[False, least]) < _TRUSTED else 0

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
        running, narrow = self._compared
        if not 0 < narrow < running == tokens:
            return
        # Doubt the model if full steps repeatedly produce enough tokens per second not to leave any sequence out.
        best, alone = (n / self.costs.seconds(n, n, cells * n // tokens) for n in (narrow, 1))
        if tokens / seconds < enough_rate(best, alone):
            self._contradictions.clear()
            return
        self._contradictions.append(seconds)
        if len(self._contradictions) >= _CONTRADICTIONS:
            self._doubt((False, tokens), self._contradictions)

    def _learns(self, *, drafted: bool) -> bool:
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
        if costs.implausible(most=self._widest) is None:
            return costs
        # Only the time of a single token is kept of impossible costs.
        return StepCostModel.assumed(costs.verify.seconds[0], most=self._widest, pads=costs.pads)

    def _doubt(self, kind: tuple[bool, int], times: Sequence[float]) -> None:
        # Start again from the plausible shape, scaled to the times just observed.
        self.measured, self._doubted, self._collected = None, True, 0
        self._shape = self._plausible(self.costs)
        self._times.clear()
        for seconds in times:
            self._keep(kind, seconds)
        self._misfits.clear()
        self._contradictions = []
        self._counts = {False: 0, True: 0}
        self._steps = 0
        self._rebuild()

    def _collect(self, tokens: int, drafted: bool, seconds: float, cells: int) -> None:
        # The cost of cells is separated out, because the points are for a nearly empty cache.
        attention = min(self.costs.per_cell * cells, seconds / 2)
        self._keep((drafted, tokens), seconds - attention)
        self._rebuild()
        self._collected += 1
        if self._collected >= LEARN_ALL_FIRST or self._confirmed() or self._all_tried():
            self._doubted = False
            self._times.clear()

    def _all_tried(self) -> bool:
        return all(len(self._times[False, size]) >= _TRUSTED for size in self.costs.decode.sizes)

    def _confirmed(self) -> bool:
        scales = [
            median(times[-_EVIDENCE:]) / _at(self._shape.decode, tokens)
            for (drafted, tokens), times in self._times.items()
            if not drafted and len(times) >= _TRUSTED
        ]
        return len(scales) >= _CONFIRMED and max(scales) <= _ALIKE * min(scales)

    def _keep(self, kind: tuple[bool, int], seconds: float) -> None:
        times = self._times[kind]
        times.append(seconds)
        del times[: -2 * _EVIDENCE]

    def _rebuild(self) -> None:
        # Observed times, and the believed shape for all other sizes.
        shape = self._shape
        medians = {key: median(times[-_EVIDENCE:]) for key, times in self._times.items() if times}
        plain = {tokens: seconds for (drafted, tokens), seconds in medians.items() if not drafted}
        drafts = {tokens: seconds for (drafted, tokens), seconds in medians.items() if drafted}
        scale = _scale(shape.decode, plain) or _scale(shape.verify, drafts)
        first = plain.get(1, scale * shape.verify.seconds[0])
        decode = _fitted(shape.decode, first, plain)
        verify = _fitted(shape.verify, first, drafts)
        self.costs = StepCostModel(decode, verify, shape.prefill * scale, shape.per_cell * scale, shape.pads)


def _scale(shape: Points, observed: dict[int, float]) -> float:
    # How many times as long as `shape` says the observed steps took.
    ratios = [seconds / _at(shape, tokens) for tokens, seconds in observed.items()]
    return median(ratios) if ratios else 0.0


def _fitted(shape: Points, first: float, observed: dict[int, float]) -> Points:
    # `first` is the time of a step of one token. Unobserved sizes are scaled like their observed neighbours, so that
    # they do not look far better or worse than these.
    scales = {1: first / shape.seconds[0]} | {size: seconds / _at(shape, size) for size, seconds in observed.items()}
    times = [seconds * _scale_at(scales, size) for size, seconds in zip(shape.sizes, shape.seconds, strict=True)]
    return Points(shape.sizes, (first, *times[1:]))


def _scale_at(scales: dict[int, float], size: int) -> float:
    if size in scales:
        return scales[size]
    below = max((point for point in scales if point < size), default=None)
    above = min((point for point in scales if point > size), default=None)
    if below is None or above is None:
        return scales[above if below is None else below]  # type: ignore[index]
    way = (size - below) / (above - below)
    return scales[below] + way * (scales[above] - scales[below])


def _at(shape: Points, size: int) -> float:
    at, way, beyond = shape.place(size)
    times = shape.seconds
    step = (times[-1] - times[-2]) / (shape.sizes[-1] - shape.sizes[-2]) if len(times) > 1 else times[0]
    return times[at] + (way * (times[at + 1] - times[at]) if way else beyond * step)
