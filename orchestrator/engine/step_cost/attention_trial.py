"""Measure which kind of attention is faster for a model, and store the result for later starts."""

import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from statistics import median

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import (
    ANSWER_TOKENS,
    LONG_CONTEXT,
    MICRO_BATCH_WITH_SCORES,
    should_keep_scores,
)
from orchestrator.engine.step_cost.step_timer import FIRST_PAUSE, ROUNDS, MeasuringSteps, StepTimer

TRIAL_SECONDS = 30.0  # about; a trial runs once for each model and machine
TRIAL_QUIET_SECONDS = 5.0  # A trial waits longer than a calibration, because it empties the cache.
MAX_INTERRUPTIONS = 8  # then the trial is given up


class AttentionTrial:
    """Measures which kind of attention is faster, one step at a time, unless that is known.

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
        self._before: cost_cache.Attention = "on" if llama.flash_attention == "on" else "off"
        self._times: dict[cost_cache.Attention, list[float]] = {"off": [], "on": []}
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
            seconds, disturbed = yield from self._time_answer()
            if not disturbed:
                self._times[attention].append(seconds)
                continue
            self._interruptions += 1
            if self._interruptions >= MAX_INTERRUPTIONS:
                self._switch_to(self._before)
                return
            yield FIRST_PAUSE * 2**self._interruptions
        with_scores, flash = min(self._times["off"]), min(self._times["on"])
        faster: cost_cache.Attention = "off" if should_keep_scores(with_scores, flash) else "on"
        self._switch_to(faster)
        if self._key is not None and self._spec.step_costs is not None:
            with suppress(OSError):  # with a full disk, it is measured again at the next start
                cost_cache.store_attention(Path(self._spec.step_costs), self._key, faster)

    def _switch_to(self, attention: cost_cache.Attention) -> None:
        if attention != self._llama.flash_attention:
            threads = self._llama.threads
            self._llama.set_flash_attention(self._spec, attention)
            self._llama.set_threads(threads)

    def _time_answer(self) -> Generator[float, None, tuple[float, bool]]:
        # About the seconds for a long prompt and an answer, and whether other processes used the cores.
        llama, timer = self._llama, StepTimer(self._llama)
        most = min(LONG_CONTEXT, llama.context_limit - ROUNDS)
        seconds, disturbed = 0.0, False
        while llama.held(0) < most:
            size = min(MICRO_BATCH_WITH_SCORES, llama.batch.capacity, most - llama.held(0))
            seconds += timer.time_step([(0, size)], outputs=False, keep=True)
            disturbed = disturbed or timer.disturbed
            yield 0.0
        seconds += ANSWER_TOKENS * median(timer.time_step([(0, 1)], keep=True) for _ in range(ROUNDS))
        llama.clear()
        return seconds, disturbed

    def _is_known(self) -> bool:
        folder = self._spec.step_costs
        return folder is not None and self._key is not None and bool(cost_cache.load_attention(Path(folder), self._key))

    def _is_quick(self) -> bool:
        # Whether the trial takes about `TRIAL_SECONDS`, judged by the first step of the model.
        return self._llama.warm_seconds / 8 * 2 * ROUNDS * LONG_CONTEXT < 8 * TRIAL_SECONDS


def apply_stored_attention(llama: Llama, spec: EngineSpec) -> None:
    """Switch a model to the attention that an earlier trial found faster, if any. Raises CannotLoad."""
    if spec.step_costs is None or not llama.may_keep_scores:
        return
    key = attention_key(spec, llama.info.llama_cpp, llama.threads)
    attention = None if key is None else cost_cache.load_attention(Path(spec.step_costs), key)
    if attention not in (None, llama.flash_attention):
        llama.set_flash_attention(spec, attention)


def attention_key(spec: EngineSpec, llama_cpp: str, threads: int) -> cost_cache.CacheKey | None:
    """Return the key of the stored choice, or None if the model file is gone. `llama_cpp` is llama.cpp's version."""
    return cost_cache.key_of(spec, llama_cpp, threads, "attention", spec.splits_cache)
