"""Find out by measuring which kind of attention takes less time for one model, and remember it for later starts."""

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

TRIAL_SECONDS = 30.0
"""About how long a trial may take; it is done once for each model on a machine."""
TRIAL_QUIET_SECONDS = 5.0
"""How long there has been no work before a trial begins, because it empties the cache."""
MAX_INTERRUPTIONS = 8
"""After how many interruptions a trial is given up."""


class AttentionTrial:
    """Finds the kind of attention that takes less time, one step at a time, where that is not known yet.

    A trial needs the model for itself: it empties the cache and makes the context anew. What was measured before an
    interruption counts. After `MAX_INTERRUPTIONS` interruptions, by work or by other processes on the cores, the trial
    ends without a choice until the model is loaded again.
    """

    def __init__(self, llama: Llama, spec: EngineSpec) -> None:
        self.begun = False
        """Whether the cache was emptied for the trial since it was last interrupted."""
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
        """Return how many seconds after `now` (of the monotonic clock) the next step is due.

        Returns None if the trial has ended, or waits for the number of threads that it began with.
        """
        if self.ended or self._llama.threads != self._threads:
            return None
        return max(0.0, self._due - now)

    def note_work(self) -> None:
        """Note that there was work until now, so that the next step waits for `TRIAL_QUIET_SECONDS`."""
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
            self._switch_to(self._before)
            self.ended = True
        else:
            self._due = time.monotonic() + pause if pause else 0.0

    def interrupt(self) -> None:
        """Return to the kind of attention from before the trial, because there is work to do. Raises CannotLoad."""
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
        """Measure a long prompt and an answer with each kind in turns, and compare the best of some rounds."""
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
        kept, flash = min(self._times["off"]), min(self._times["on"])
        chosen: cost_cache.Attention = "off" if should_keep_scores(kept, flash) else "on"
        self._switch_to(chosen)
        if self._key is not None and self._spec.step_costs is not None:
            with suppress(OSError):  # with a full disk, it is measured again at the next start
                cost_cache.store_attention(Path(self._spec.step_costs), self._key, chosen)

    def _switch_to(self, attention: cost_cache.Attention) -> None:
        if attention != self._llama.flash_attention:
            threads = self._llama.threads
            self._llama.set_flash_attention(self._spec, attention)
            self._llama.set_threads(threads)

    def _time_answer(self) -> Generator[float, None, tuple[float, bool]]:
        """Return about how long an answer to a long prompt takes, and whether other processes had the cores."""
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
        """Return whether the choice was made before and stored."""
        folder = self._spec.step_costs
        return folder is not None and self._key is not None and bool(cost_cache.load_attention(Path(folder), self._key))

    def _is_quick(self) -> bool:
        """Return whether the trial fits into about `TRIAL_SECONDS`, by how long the first step of the model took."""
        return self._llama.warm_seconds / 8 * 2 * ROUNDS * LONG_CONTEXT < 8 * TRIAL_SECONDS


def apply_stored_attention(llama: Llama, spec: EngineSpec) -> None:
    """Switch a model that may choose its attention to the kind that an earlier trial found faster here, if any did.

    Raises CannotLoad.
    """
    if spec.step_costs is None or not llama.may_keep_scores:
        return
    key = attention_key(spec, llama.info.llama_cpp, llama.threads)
    attention = None if key is None else cost_cache.load_attention(Path(spec.step_costs), key)
    if attention not in (None, llama.flash_attention):
        llama.set_flash_attention(spec, attention)


def attention_key(spec: EngineSpec, llama_cpp: str, threads: int) -> cost_cache.CacheKey | None:
    """Return the key under which the choice of attention is stored, or None where the model file is gone.

    `llama_cpp` is llama.cpp's version.
    """
    return cost_cache.key_of(spec, llama_cpp, threads, "attention", spec.splits_cache)
