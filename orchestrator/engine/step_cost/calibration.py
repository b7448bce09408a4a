"""Measure how long the steps of a model take on this machine, one step at a time while the engine is idle.

Until then, an assumed cost model (`assumed_step_costs`) is corrected by observed steps. Results are stored, so each
model is measured once per machine.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.model import SIZES, Points, StepCostModel, wasteful_widths
from orchestrator.engine.step_cost.step_timer import FIRST_PAUSE, ROUNDS, STEP_SECONDS, MeasuringSteps, StepTimer

SECONDS = 8.0  # for all measured steps together
LONGEST_PAUSE = 60.0  # seconds; each disturbance in a row doubles the wait
_SMALL = 16  # up to this many tokens, preparing llama.cpp's graph is a large part of a step

_LARGE = 256  # prompt tokens in a step that measures `prefill`

_DEEP = 1024  # cells that a token attends to when `per_cell` is measured, if context and time allow


def stored_step_costs(llama: Llama, spec: EngineSpec, threads: int | None = None) -> StepCostModel | None:
    """Return the stored costs for `threads` threads (None: the model's), or None.

    Implausible costs are reported and ignored.
    """
    key = _step_cost_key(llama, spec, llama.threads if threads is None else threads)
    costs = None if key is None or spec.step_costs is None else cost_cache.load(Path(spec.step_costs), key)
    if costs is None or (why := costs.implausible(most=widest(llama))) is None:
        return None if costs is None else replace(costs, pads=llama.split)
    print(f"the measured times of steps are not used: {why}", file=sys.stderr, flush=True)
    return None


def store_step_costs(llama: Llama, spec: EngineSpec, threads: int, costs: StepCostModel) -> None:
    """Store measured costs, unless they are implausible or the folder cannot be written."""
    key = None if spec.step_costs is None else _step_cost_key(llama, spec, threads)
    if spec.step_costs is None or key is None or costs.implausible(most=widest(llama)) is not None:
        return
    # Then the next start measures again.
    with suppress(OSError):
        cost_cache.store(Path(spec.step_costs), key, costs)


def assumed_step_costs(llama: Llama) -> StepCostModel:
    """Return assumed costs, from the time of a step of one token."""
    seconds = llama.warm_seconds
    if seconds < STEP_SECONDS:
        timer = StepTimer(llama)
        seconds = min(timer.time_step([(0, 1)]) for _ in range(2))
    return StepCostModel.assumed(seconds, most=widest(llama), pads=llama.split)


def measure_step_costs(llama: Llama) -> StepCostModel:
    """Return the costs of an idle model, measured now, even if other processes use the cores."""
    calibration = Calibration(llama, EngineSpec(file=""), lambda threads, costs: None, patient=False)
    while calibration.wait(0.0) is not None:
        calibration.step()
    assert calibration.costs is not None, "a calibration that has ended has a cost model"
    return calibration.costs


class Calibration:
    """Measures the step costs of one model with its current threads, one step at a time.

    Each step removes its tokens again. The complete cost model is stored, then passed to `on_measured` with the
    threads. If `patient`, disturbed steps are repeated. `free_cells` counts the free cells of a pool.
    """

    def __init__(
        self,
        llama: Llama,
        spec: EngineSpec,
        on_measured: Callable[[int, StepCostModel], None],
        free_cells: Callable[[], int] | None = None,
        *,
        patient: bool = True,
    ) -> None:
        self.costs: StepCostModel | None = None
        self._llama = llama
        self._spec = spec
        self._on_measured = on_measured
        # By default as if sequences shared no cells.
        self._free_cells = free_cells or (lambda: llama.cells - sum(map(llama.held, range(llama.sequences))))
        self._patient = patient
        self._threads, self._split = llama.threads, llama.split
        self._context = llama.threads, llama.split, llama.flash_attention
        self._times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        self._timer = StepTimer(llama, SECONDS)
        self._steps = self._measuring()
        self._pause = FIRST_PAUSE
        self._due = 0.0

    def wait(self, now: float) -> float | None:
        """Return the seconds from `now` (monotonic) until the next step.

        None if it is complete, or obsolete because threads, cache layout or kind of attention have changed.
        """
        llama = self._llama
        if self.costs is not None or (llama.threads, llama.split, llama.flash_attention) != self._context:
            return None
        return max(0.0, self._due - now)

    def step(self) -> None:
        try:
            pause = next(self._steps)
        except StopIteration:
            assert self.costs is not None, "the generator sets the cost model before it ends"
            store_step_costs(self._llama, self._spec, self._threads, self.costs)
            self._on_measured(self._threads, self.costs)
        else:
            self._due = time.monotonic() + pause if pause else 0.0

    def interrupt(self) -> None:
        if self._timer.take_back():
            self._steps.close()
            self._steps = self._measuring()  # sizes in `_times` are not measured again

    def _measuring(self) -> MeasuringSteps:
        # Noise comes in bursts, so all sizes are measured in several rounds. Small sizes come first: if time runs out,
        # only the slowest are missing.
        widths, lengths = _grid(widest(self._llama)), _grid(_longest(self._llama))
        yield from self._timed("first", 1, self._decoding(1), rounds=1)  # the first step of a kind allocates memory
        for rounds in range(1, ROUNDS + 1):
            for size in sorted({*widths, *lengths}):
                if size in widths:
                    yield from self._timed("decode", size, self._decoding(size), rounds)
                if size in lengths[1:]:
                    yield from self._timed("verify", size, [(self._emptiest(), size)], rounds)
        # Widths that would leave sequences out get twice as many rounds.
        for rounds in range(ROUNDS + 1, 2 * ROUNDS + 1):
            for size in wasteful_widths({size: self._times["decode", size] for size in widths}):
                yield from self._timed("decode", size, self._decoding(size), rounds)
        first = median(self._times["decode", 1])
        decode = _points("decode", widths, first, self._times)
        verify = _points("verify", lengths, first, self._times)
        prefill, per_cell = yield from self._depth(verify)
        self.costs = StepCostModel(decode, verify, prefill, per_cell, pads=self._split)

    def _timed(self, kind: str, size: int, shares: list[tuple[int, int]], rounds: int) -> MeasuringSteps:
        # The second of two equal steps counts: most steps follow a step of their kind, whose graph llama.cpp can reuse.
        times, timer = self._times[kind, size], self._timer
        while len(times) < rounds and self._fits(shares) and (size == 1 or timer.has_time(size)):
            if size <= _SMALL and timer.has_time(2 * size):
                timer.time_step(shares)
            seconds = timer.time_step(shares)
            if self._disturbed():
                yield self._longer_pause()
                continue
            self._pause = FIRST_PAUSE
            times.append(seconds)
            yield 0.0

    def _depth(self, verify: Points) -> Generator[float, None, tuple[float, float]]:
        # The seconds of a prompt token in a large batch, and per attended cell.
        llama, timer = self._llama, self._timer
        seq = self._emptiest()
        size = min(_LARGE, llama.batch.capacity, llama.context_limit - ROUNDS - llama.held(seq))
        fallback = max(verify.seconds[-1] / verify.sizes[-1], 1e-9), 0.0
        if size <= verify.sizes[-1] or not timer.has_time(2 * size) or not self._fits([(seq, size + ROUNDS)]):
            return fallback
        start, prefills = llama.held(seq), list[float]()
        while True:
            disturbed = False
            while not prefills or (
                llama.held(seq) - start + size <= min(_DEEP, llama.context_limit - ROUNDS - start)
                and timer.has_time(2 * size)
                and self._fits([(seq, size + ROUNDS)])
            ):
                prefills.append(timer.time_step([(seq, size)], outputs=False, keep=True))
                disturbed = disturbed or self._disturbed()
                yield 0.0
            depth = llama.held(seq)
            deep = [timer.time_step([(seq, 1)], keep=True) for _ in range(ROUNDS)]
            disturbed = disturbed or self._disturbed()
            timer.take_back()
            if not disturbed:
                return prefills[0] / size, max(0.0, (median(deep) - verify.seconds[0]) / depth)
            yield self._longer_pause()
            prefills.clear()

    def _disturbed(self) -> bool:
        return self._patient and self._timer.disturbed

    def _longer_pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def _decoding(self, size: int) -> list[tuple[int, int]]:
        seqs = list(range(self._llama.sequences))
        if not self._llama.can_cut_back:
            seqs.sort(key=lambda seq: self._llama.held(seq) > 0)
        return [(seq, 1) for seq in seqs[:size]]

    def _emptiest(self) -> int:
        return min(range(self._llama.sequences), key=self._llama.held)

    def _fits(self, shares: list[tuple[int, int]]) -> bool:
        llama = self._llama
        if any(llama.held(seq) + count > llama.context_limit for seq, count in shares):
            return False
        if not llama.can_cut_back and any(llama.held(seq) for seq, _ in shares):
            return False  # the tokens could not be removed again
        if llama.split:
            return True
        return sum(count for _, count in shares) <= self._free_cells()


def _step_cost_key(llama: Llama, spec: EngineSpec, threads: int) -> cost_cache.CacheKey | None:
    settings = (llama.flash_attention, spec.experts, llama.row_multiple, llama.split, spec.slots, len(spec.lora))
    return cost_cache.key_of(spec, llama.info.llama_cpp, threads, *settings)


def widest(llama: Llama) -> int:
    """Return the most sequences that decode in one step; in a split cache also those that pad it."""
    return min(llama.sequences if llama.split else llama.info.slots, llama.micro_batch, llama.max_outputs)


def _longest(llama: Llama) -> int:
    # tokens of one sequence with logits in one step
    return min(llama.micro_batch, llama.max_outputs, llama.context_limit - 1)


def _grid(most: int) -> tuple[int, ...]:
    return tuple(sorted({min(size, most) for size in SIZES}))


def _points(kind: str, sizes: tuple[int, ...], first: float, times: dict[tuple[str, int], list[float]]) -> Points:
    measured = {1: first} | {size: median(times[kind, size]) for size in sizes[1:] if times[kind, size]}
    return Points(tuple(measured), tuple(measured.values()))
