"""Measure what both kinds of attention take with a model, and store the result for later starts."""

import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from statistics import median

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import (
    LONG_CONTEXT,
    MICRO_BATCH_WITH_SCORES,
    Attention,
    AttentionCosts,
    MeasuredAttention,
    first_attention,
)
from orchestrator.engine.step_cost.step_timer import FIRST_PAUSE, ROUNDS, MeasuringSteps, StepTimer

TRIAL_SECONDS = 30.0  # about; a trial runs once for each model and machine
TRIAL_QUIET_SECONDS = 5.0  # A trial waits longer than a calibration, because it empties the cache.
MAX_INTERRUPTIONS = 8  # then the trial is given up


class AttentionTrial:
    """Measures both kinds of attention, one step at a time, unless they are known. Then chooses one to start with.

    A trial empties the cache and rebuilds the context. Times from before an interruption count. After
    `MAX_INTERRUPTIONS`, by work or by other processes, the trial ends without a choice.
    """

    def __init__(self, llama: Llama, spec: EngineSpec) -> None:
        self.begun = False  # whether the trial has emptied the cache since its last interruption
        self.ended = spec.step_costs is None or not llama.may_keep_scores
        self._llama = llama
        self._spec = spec
        self._key = None if self.ended else attention_key(spec, llama.info.llama_cpp, llama.threads)
        self._threads = llama.threads
        self._before: Attention = "on" if llama.flash_attention == "on" else "off"
        self._times: dict[Attention, list[AttentionCosts]] = {"off": [], "on": []}
        self._interruptions = 0
        self._steps = self._measuring()
        self._due = time.monotonic() + TRIAL_QUIET_SECONDS
        if self._key is None or not self._is_quick() or self._is_known():
            self.ended = True

    def wait(self, now: float) -> float | None:
        """Return the seconds from `now` (monotonic) until the next step; None if the trial has ended or must wait."""
        if self.ended or self._llama.threads != self._threads:
            return None
        return max(0.0, self._due - now)

    def note_work(self) -> None:
        self._due = time.monotonic() + TRIAL_QUIET_SECONDS

    def step(self) -> None:
        self.begun = True
        try:
            pause = next(self._steps)
        except StopIteration:
            self.ended = True
        except CannotLoad as error:
            print(f"the kind of attention stays as it was: {error}", file=sys.stderr, flush=True)
            self._switch_to(self._before)
            self.ended = True
        else:
            self._due = time.monotonic() + pause if pause else 0.0

    def interrupt(self) -> None:
        """Return to the attention from before the trial, because there is work. Raises CannotLoad."""
        if not self.ended:
            self._interruptions += 1
            self.ended = self._interruptions >= MAX_INTERRUPTIONS
            self._steps.close()
            self._steps = self._measuring()
            self._due = time.monotonic() + TRIAL_QUIET_SECONDS
            self._switch_to(self._before)
            self._llama.clear()
        self.begun = False

    def _measuring(self) -> MeasuringSteps:
        # Both kinds in turns; the best of `ROUNDS` counts.
        self._llama.clear()
        while (attention := min(self._times, key=lambda kind: len(self._times[kind]))) and (
            len(self._times[attention]) < ROUNDS
        ):
            self._switch_to(attention)
            costs, disturbed = yield from self._time_steps()
            if not disturbed:
                self._times[attention].append(costs)
                continue
            self._interruptions += 1
            if self._interruptions >= MAX_INTERRUPTIONS:
                self._switch_to(self._before)
                return
            yield FIRST_PAUSE * 2**self._interruptions
        flash, scores = _best(self._times["on"]), _best(self._times["off"])
        measured = MeasuredAttention(first_attention(flash, scores), flash, scores)
        self._switch_to(measured.attention)
        if self._key is not None and self._spec.step_costs is not None:
            with suppress(OSError):  # with a full disk, it is measured again at the next start
                cost_cache.store_attention(Path(self._spec.step_costs), self._key, measured)

    def _switch_to(self, attention: Attention) -> None:
        if attention != self._llama.flash_attention:
            self._llama.set_attention(self._spec, attention)

    def _time_steps(self) -> Generator[float, None, tuple[AttentionCosts, bool]]:
        # Also returns whether other processes used the cores.
        llama, timer = self._llama, StepTimer(self._llama)
        width = min(self._spec.slots, llama.micro_batch, llama.max_outputs)
        decoded: list[float] = []
        disturbed = False
        for size in (1, width):
            shares, times = [(seq, 1) for seq in range(size)], list[float]()
            for _ in range(1 + ROUNDS):  # the first step of a kind allocates memory
                times.append(timer.time_step(shares))
                disturbed = disturbed or timer.disturbed
                yield 0.0
            decoded.append(median(times[1:]))
        most = min(LONG_CONTEXT, llama.context_limit - ROUNDS)
        prompt = 0.0
        while llama.held(0) < most:
            size = min(MICRO_BATCH_WITH_SCORES, llama.batch.capacity, most - llama.held(0))
            prompt += timer.time_step([(0, size)], outputs=False, keep=True)
            disturbed = disturbed or timer.disturbed
            yield 0.0
        deep = median(timer.time_step([(0, 1)], keep=True) for _ in range(ROUNDS))
        llama.clear()
        first, widest = decoded
        return AttentionCosts(prompt / most, first, widest, width, max(0.0, deep - first) / most), disturbed

    def _is_known(self) -> bool:
        folder = self._spec.step_costs
        return folder is not None and self._key is not None and bool(cost_cache.load_attention(Path(folder), self._key))

    def _is_quick(self) -> bool:
        # Whether the trial takes about `TRIAL_SECONDS`, judged by the first step of the model.
        return self._llama.warm_seconds / 8 * 2 * ROUNDS * LONG_CONTEXT < 8 * TRIAL_SECONDS


def apply_stored_attention(llama: Llama, spec: EngineSpec) -> None:
    """Switch a model to the attention that it used last, or that a trial chose, if any. Raises CannotLoad."""
    measured = measured_attention(llama, spec)
    if measured is not None and measured.attention != llama.flash_attention:
        llama.set_attention(spec, measured.attention)


def measured_attention(llama: Llama, spec: EngineSpec) -> MeasuredAttention | None:
    """Return what was measured of both kinds of attention, or None if nothing was or the kind is settled."""
    key = attention_key(spec, llama.info.llama_cpp, llama.info.threads)
    if spec.step_costs is None or not llama.may_keep_scores or key is None:
        return None
    return cost_cache.load_attention(Path(spec.step_costs), key)


def note_attention(llama: Llama, spec: EngineSpec) -> None:
    """Record the kind of attention in use as the one to start with next time."""
    measured = measured_attention(llama, spec)
    key = attention_key(spec, llama.info.llama_cpp, llama.info.threads)
    if measured is None or key is None or spec.step_costs is None:
        return
    attention: Attention = "off" if llama.flash_attention == "off" else "on"
    with suppress(OSError):  # with a full disk, the next start begins with the kind before
        cost_cache.store_attention(Path(spec.step_costs), key, replace(measured, attention=attention))


def attention_key(spec: EngineSpec, llama_cpp: str, threads: int) -> cost_cache.CacheKey | None:
    """Return the key of the stored choice, or None if the model file is gone. `llama_cpp` is llama.cpp's version."""
    return cost_cache.key_of(spec, llama_cpp, threads, "attention", spec.splits_cache)


def _best(rounds: list[AttentionCosts]) -> AttentionCosts:
    # Noise only makes steps slower, so the least of each cost counts.
    return AttentionCosts(*map(min, zip(*map(astuple, rounds), strict=True)))
