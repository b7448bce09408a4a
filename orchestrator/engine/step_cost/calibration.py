"""Measure how long this model's steps take on this machine, step by step in moments when there is nothing else to do.

A model that was just loaded answers at once: until its steps are measured, a cost model that is assumed has to do
(`assumed_step_costs`), which the steps that are done correct. What was measured is kept in a folder, so that each model
is measured once on a machine. A step that was measured while other processes had the cores is not kept.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import (
    ANSWER_TOKENS,
    LONG_CONTEXT,
    MICRO_BATCH_WITH_SCORES,
    should_keep_scores,
)
from orchestrator.engine.step_cost.model import SIZES, Points, StepCostModel
from orchestrator.engine.worker.contention import CpuUse

ROUNDS = 3
SECONDS = 8.0
"""How long measuring may take, by the times of the steps measured so far."""
STEP_SECONDS = 0.5
"""No longer step is measured: a request that arrives meanwhile waits for it."""
ATTENTION_SECONDS = 30.0
"""How long it may take to find the faster kind of attention, once for each model and machine."""
TRIAL_QUIET_SECONDS = 5.0
"""How long there has been nothing to do before attention is measured, which makes the cache forget what it holds."""
MOST_INTERRUPTIONS = 8
"""How often that may be interrupted before it is given up."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""How long measuring waits after it was disturbed, in seconds: twice as long each time in a row."""
_SMALL = 16
"""Up to so many tokens, what a graph costs to make is no small part of a step."""

_LARGE = 256
"""Tokens of a prompt that are computed in one step."""

_DEEP = 1024
"""How many cells a token attends to when it is measured what they cost, as far as context and time allow."""

Pauses = Generator[float, None, None]
"""Does one step each time that it is resumed, and yields after how many seconds the next one may follow."""


def stored_step_costs(llama: Llama, spec: EngineSpec, threads: int | None = None) -> StepCostModel | None:
    """Return the cost model that was measured for this model, its settings and a number of threads (None: those it
    has).

    None if there is none in the folder of cost models, or one that cannot be right.
    """
    key = _step_cost_key(llama, spec, llama.threads if threads is None else threads)
    costs = None if key is None or spec.step_costs is None else cost_cache.load(Path(spec.step_costs), key)
    if costs is None or (why := costs.implausible(most=_widest(llama))) is None:
        return None if costs is None else replace(costs, pads=llama.split)
    print(f"the measured times of steps are not used: {why}", file=sys.stderr, flush=True)
    return None


def assumed_step_costs(llama: Llama) -> StepCostModel:
    """Return what is assumed of a model that was not measured, from the time of a single step."""
    seconds = llama.warm_seconds
    if seconds < STEP_SECONDS:
        stopwatch = _Stopwatch(llama)
        seconds = min(stopwatch.time_step([(0, 1)]) for _ in range(2))
    return StepCostModel.assumed(seconds, most=_widest(llama), pads=llama.split)


def measure_step_costs(llama: Llama) -> StepCostModel:
    """Return the cost model of a model that has nothing else to do, measured at once, whatever else the machine
    does."""
    calibration = Calibration(llama, EngineSpec(file=""), lambda threads, costs: None, patient=False)
    while calibration.wait(0.0) is not None:
        calibration.step()
    assert calibration.costs is not None, "a calibration that has ended has a cost model"
    return calibration.costs


class Calibration:
    """Measures the cost model of one model for the threads that it has, a step at a time.

    It leaves what the sequences hold as it is: a step adds tokens behind them and takes them back. `measured` is told
    of the cost model when it is complete, after it was put into the folder of cost models.
    """

    def __init__(
        self, llama: Llama, spec: EngineSpec, measured: Callable[[int, StepCostModel], None], *, patient: bool = True
    ) -> None:
        self.costs: StepCostModel | None = None
        self._llama = llama
        self._spec = spec
        self._measured = measured
        self._patient = patient
        self._threads, self._split = llama.threads, llama.split
        self._times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        self._stopwatch = _Stopwatch(llama)
        self._steps = self._measuring()
        self._pause = FIRST_PAUSE
        self._due = 0.0

    def wait(self, now: float) -> float | None:
        """Return for how many seconds to wait before the next step; None if nothing is left to measure now."""
        if self.costs is not None or (self._llama.threads, self._llama.split) != (self._threads, self._split):
            return None
        return max(0.0, self._due - now)

    def step(self) -> None:
        """Measure one step. It takes `STEP_SECONDS` at most, as far as that can be foretold."""
        try:
            pause = next(self._steps)
        except StopIteration:
            assert self.costs is not None, "the generator sets the cost model before it ends"
            _store_step_costs(self._llama, self._spec, self._threads, self.costs)
            self._measured(self._threads, self.costs)
        else:
            self._due = time.monotonic() + pause if pause else 0.0

    def interrupt(self) -> None:
        """Take back what a measurement of several steps has put into the cache, since there is work to do."""
        if self._stopwatch.take_back():
            self._steps.close()
            self._steps = self._measuring()  # what is in `_times` is not measured again

    def _measuring(self) -> Pauses:
        """Measure all sizes round by round, as noise comes in bursts. The small ones come first: when the time is up,
        what is left is those that would take longest."""
        many, one = _grid(_widest(self._llama)), _grid(_longest(self._llama))
        yield from self._timed("first", 1, [(0, 1)], rounds=1)  # the first of a kind allocates
        for rounds in range(1, ROUNDS + 1):
            for size in sorted({*many, *one}):
                if size in many:
                    yield from self._timed("many", size, [(seq, 1) for seq in range(size)], rounds)
                if size in one[1:]:
                    yield from self._timed("one", size, [(self._emptiest(), size)], rounds)
        first = median(self._times["many", 1])
        points = {kind: _points(kind, sizes, first, self._times) for kind, sizes in (("many", many), ("one", one))}
        prefill, per_cell = yield from self._depth(points["one"])
        self.costs = StepCostModel(points["many"], points["one"], prefill, per_cell, pads=self._split)

    def _timed(self, kind: str, size: int, shares: list[tuple[int, int]], rounds: int) -> Pauses:
        """Measure a size until it has been measured in so many rounds, if there is time for it and room in the cache.

        The second of two steps of a kind counts, as most steps follow on one of their kind: llama.cpp then has its
        graph.
        """
        times, stopwatch = self._times[kind, size], self._stopwatch
        while len(times) < rounds and self._fits(shares) and (size == 1 or stopwatch.has_time(size)):
            if size <= _SMALL and stopwatch.has_time(2 * size):
                stopwatch.time_step(shares)
            seconds = stopwatch.time_step(shares)
            if self._disturbed():
                yield self._longer_pause()
                continue
            self._pause = FIRST_PAUSE
            times.append(seconds)
            yield 0.0

    def _depth(self, one: Points) -> Generator[float, None, tuple[float, float]]:
        """Return what a prompt token costs in a large batch, and a cell for the token that attends to it."""
        llama, stopwatch = self._llama, self._stopwatch
        seq = self._emptiest()
        size = min(_LARGE, llama.batch.capacity, llama.context_limit - ROUNDS - llama.held(seq))
        fallback = max(one.seconds[-1] / one.sizes[-1], 1e-9), 0.0
        if size <= one.sizes[-1] or not stopwatch.has_time(2 * size) or not self._fits([(seq, size + ROUNDS)]):
            return fallback
        start, prefills = llama.held(seq), list[float]()
        while True:
            disturbed = False
            while not prefills or (
                llama.held(seq) - start + size <= min(_DEEP, llama.context_limit - ROUNDS - start)
                and stopwatch.has_time(2 * size)
                and self._fits([(seq, size + ROUNDS)])
            ):
                prefills.append(stopwatch.time_step([(seq, size)], outputs=False, keep=True))
                disturbed = disturbed or self._disturbed()
                yield 0.0
            depth = llama.held(seq)
            deep = [stopwatch.time_step([(seq, 1)], keep=True) for _ in range(ROUNDS)]
            disturbed = disturbed or self._disturbed()
            stopwatch.take_back()
            if not disturbed:
                return prefills[0] / size, max(0.0, (median(deep) - one.seconds[0]) / depth)
            yield self._longer_pause()
            prefills.clear()

    def _disturbed(self) -> bool:
        return self._patient and self._stopwatch.disturbed

    def _longer_pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def _emptiest(self) -> int:
        """Return the sequence that holds least."""
        return min(range(self._llama.sequences), key=self._llama.held)

    def _fits(self, shares: list[tuple[int, int]]) -> bool:
        """Return whether there is room behind what the sequences hold, in each of them and in a common pool."""
        llama = self._llama
        if any(llama.held(seq) + count > llama.context_limit for seq, count in shares):
            return False
        if llama.split:
            return True
        held = sum(map(llama.held, range(llama.sequences)))  # as if nothing were shared
        return held + sum(count for _, count in shares) <= llama.cells


class AttentionTrial:
    """Finds the kind of attention that takes less time, a step at a time, where nobody knows yet.

    It needs the model for itself: whatever the sequences hold is forgotten, and the context is made anew. `begun` says
    whether that has happened since it was last interrupted. What was measured before an interruption counts; after
    `MOST_INTERRUPTIONS` of them, by work or by other processes on the cores, it ends without a choice until the model
    is loaded again.
    """

    def __init__(self, llama: Llama, spec: EngineSpec) -> None:
        self.begun = False
        self.ended = spec.step_costs is None or not llama.may_keep_scores
        self._llama = llama
        self._spec = spec
        self._key = None if self.ended else attention_key(spec, llama.info.llama_cpp, llama.threads)
        self._threads = llama.threads
        self._before: cost_cache.Attention = "on" if llama.flash_attention == "on" else "off"
        self._times: dict[cost_cache.Attention, list[float]] = {"off": [], "on": []}
        self._interruptions = 0
        self._steps = self._measuring()
        self._due = time.monotonic() + TRIAL_QUIET_SECONDS
        if self._key is None or not self._is_quick() or self._is_known():
            self.ended = True

    def wait(self, now: float) -> float | None:
        """Return for how many seconds to wait before the next step; None if nothing is left to find out now."""
        if self.ended or self._llama.threads != self._threads:
            return None
        return max(0.0, self._due - now)

    def worked(self) -> None:
        """Take note that there was work until now."""
        self._due = time.monotonic() + TRIAL_QUIET_SECONDS

    def step(self) -> None:
        """Measure one step."""
        self.begun = True
        try:
            pause = next(self._steps)
        except StopIteration:
            self.ended = True
        except CannotLoad as error:
            print(f"the kind of attention stays as it was: {error}", file=sys.stderr, flush=True)
            self._attend(self._before)
            self.ended = True
        else:
            self._due = time.monotonic() + pause if pause else 0.0

    def interrupt(self) -> None:
        """Go back to the kind of attention that there was, since there is work to do. Raises CannotLoad."""
        if not self.ended:
            self._interruptions += 1
            self.ended = self._interruptions >= MOST_INTERRUPTIONS
            self._steps.close()
            self._steps = self._measuring()
            self._due = time.monotonic() + TRIAL_QUIET_SECONDS
            self._attend(self._before)
            self._llama.clear()
        self.begun = False

    def _measuring(self) -> Pauses:
        """Measure a long prompt and an answer with each kind: the best of some rounds, in turns."""
        self._llama.clear()
        while (attention := min(self._times, key=lambda kind: len(self._times[kind]))) and (
            len(self._times[attention]) < ROUNDS
        ):
            self._attend(attention)
            seconds, disturbed = yield from self._answer()
            if not disturbed:
                self._times[attention].append(seconds)
                continue
            self._interruptions += 1
            if self._interruptions >= MOST_INTERRUPTIONS:
                self._attend(self._before)
                return
            yield FIRST_PAUSE * 2**self._interruptions
        kept, flash = min(self._times["off"]), min(self._times["on"])
        chosen: cost_cache.Attention = "off" if should_keep_scores(kept, flash) else "on"
        self._attend(chosen)
        if self._key is not None and self._spec.step_costs is not None:
            with suppress(OSError):  # a full disk costs a measurement next time
                cost_cache.store_attention(Path(self._spec.step_costs), self._key, chosen)

    def _attend(self, attention: cost_cache.Attention) -> None:
        if attention != self._llama.flash_attention:
            threads = self._llama.threads
            self._llama.attend(self._spec, attention)
            self._llama.set_threads(threads)

    def _answer(self) -> Generator[float, None, tuple[float, bool]]:
        """Return about how long an answer to a long prompt takes, and whether other processes had the cores."""
        llama, stopwatch = self._llama, _Stopwatch(self._llama)
        most = min(LONG_CONTEXT, llama.context_limit - ROUNDS)
        seconds, disturbed = 0.0, False
        while llama.held(0) < most:
            size = min(MICRO_BATCH_WITH_SCORES, llama.batch.capacity, most - llama.held(0))
            seconds += stopwatch.time_step([(0, size)], outputs=False, keep=True)
            disturbed = disturbed or stopwatch.disturbed
            yield 0.0
        seconds += ANSWER_TOKENS * median(stopwatch.time_step([(0, 1)], keep=True) for _ in range(ROUNDS))
        llama.clear()
        return seconds, disturbed

    def _is_known(self) -> bool:
        """Return whether it was measured before."""
        folder = self._spec.step_costs
        return folder is not None and self._key is not None and bool(cost_cache.load_attention(Path(folder), self._key))

    def _is_quick(self) -> bool:
        """Return whether there is time to measure attention, by how long the first step took."""
        return self._llama.warm_seconds / 8 * 2 * ROUNDS * LONG_CONTEXT < 8 * ATTENTION_SECONDS


def apply_stored_attention(llama: Llama, spec: EngineSpec) -> None:
    """Let a model that may keep attention's scores do what was found faster here before, if that is known.

    Raises CannotLoad.
    """
    if spec.step_costs is None or not llama.may_keep_scores:
        return
    key = attention_key(spec, llama.info.llama_cpp, llama.threads)
    attention = None if key is None else cost_cache.load_attention(Path(spec.step_costs), key)
    if attention not in (None, llama.flash_attention):
        llama.attend(spec, attention)


def attention_key(spec: EngineSpec, llama_cpp: str, threads: int) -> cost_cache.CacheKey | None:
    """Return what the measured kind of attention depends on, or None where the model file is gone."""
    return _key(spec, llama_cpp, threads, "attention", spec.splits_cache)


def _step_cost_key(llama: Llama, spec: EngineSpec, threads: int) -> cost_cache.CacheKey | None:
    settings = (llama.flash_attention, spec.experts, spec.batch_invariant, llama.split, spec.slots, len(spec.lora))
    return _key(spec, llama.info.llama_cpp, threads, *settings)


def _key(spec: EngineSpec, llama_cpp: str, threads: int, *settings: object) -> cost_cache.CacheKey | None:
    try:
        return cost_cache.cache_key(
            Path(spec.file),
            llama_cpp=llama_cpp,
            threads=threads,
            cpu=cpu_model(),
            settings="/".join(map(str, (spec.kv_type_k, spec.kv_type_v, *settings))),
        )
    except OSError:
        return None


def _store_step_costs(llama: Llama, spec: EngineSpec, threads: int, costs: StepCostModel) -> None:
    """Put a cost model into the folder, unless it cannot be right; then it is measured again at the next start."""
    key = None if spec.step_costs is None else _step_cost_key(llama, spec, threads)
    if spec.step_costs is None or key is None or costs.implausible(most=_widest(llama)) is not None:
        return
    with suppress(OSError):  # a full disk costs a measurement next time
        cost_cache.store(Path(spec.step_costs), key, costs)


class _Stopwatch:
    """Times steps, each behind what the sequences hold, and takes them back."""

    def __init__(self, llama: Llama, seconds: float = SECONDS) -> None:
        self._llama = llama
        self._left = seconds
        self._token = llama.warm_seconds
        self._use = CpuUse()
        self._kept: dict[int, int] = {}

    @property
    def disturbed(self) -> bool:
        """Whether other processes had the cores during the last step."""
        return self._use.disturbed(self._llama.threads)

    def has_time(self, tokens: int) -> bool:
        """Return whether a step of so many tokens should be done within the time that is left, and soon enough."""
        return self._token * tokens < min(self._left, STEP_SECONDS)

    def time_step(self, shares: list[tuple[int, int]], *, outputs: bool = True, keep: bool = False) -> float:
        """Return the seconds of a step with `shares` (sequence, tokens); `keep` what is in the cache for now."""
        llama, batch = self._llama, self._llama.batch
        before = {seq: llama.held(seq) for seq, _ in shares}
        batch.clear()
        for seq, count in shares:
            tokens = np.arange(1, count + 1, dtype=np.int32) % llama.vocab.size
            batch.add(seq, llama.held(seq), tokens, count if outputs else 0)
        self._use.start()
        llama.decode()
        seconds = self._use.stop()
        size = sum(count for _, count in shares)
        self._left -= seconds
        self._token = min(self._token, seconds / size)
        if keep:
            self._kept = before | self._kept
        else:
            for seq, length in before.items():
                llama.truncate(seq, length)
        return seconds

    def take_back(self) -> bool:
        """Take back what was kept, and return whether there was anything."""
        kept, self._kept = self._kept, {}
        for seq, length in kept.items():
            self._llama.truncate(seq, length)
        return bool(kept)


def _widest(llama: Llama) -> int:
    """Return the most sequences that decode together in one step."""
    return min(llama.sequences, llama.micro_batch, llama.max_outputs)


def _longest(llama: Llama) -> int:
    """Return the most tokens of one sequence with logits in one step."""
    return min(llama.micro_batch, llama.max_outputs, llama.context_limit - 1)


def _grid(most: int) -> tuple[int, ...]:
    return tuple(sorted({min(size, most) for size in SIZES}))


def _points(kind: str, sizes: tuple[int, ...], first: float, times: dict[tuple[str, int], list[float]]) -> Points:
    measured = {1: first} | {size: median(times[kind, size]) for size in sizes[1:] if times[kind, size]}
    return Points(tuple(measured), tuple(measured.values()))
