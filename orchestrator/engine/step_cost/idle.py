"""Measure a loaded model while its engine has no work.

First the kind of attention, if unknown, then the step costs of the model and its draft model.
"""

import time
from collections.abc import Callable
from typing import Final

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.attention_trial import AttentionTrial
from orchestrator.engine.step_cost.calibration import Calibration, measure_step_costs
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from orchestrator.engine.step_cost.model import StepCostModel

QUIET_SECONDS: Final = 1.0  # Idle time before measuring starts, because more work often follows soon.

# Seconds between two calibrations of a model whose measured costs keep turning out wrong.
_LONGEST_REST: Final = 3600.0


class RepeatedCalibration:
    """Calibrates one model whenever it has no measured step costs."""

    def __init__(
        self,
        llama: Llama,
        spec: EngineSpec,
        step_costs: Callable[[], LearnedStepCosts],
        free_cells: Callable[[], int] | None = None,
    ) -> None:
        """`step_costs` returns the object that adopts the costs; it may change over time."""
        self._llama = llama
        self._spec = spec
        self._step_costs = step_costs
        self._free_cells = free_cells
        self._running: Calibration | None = None
        self._rest = 0.0
        self._due = 0.0

    def wait(self, now: float) -> float | None:
        """Return the seconds from `now` (monotonic) until the next step, or None."""
        if self._step_costs().measured:
            return None
        if self._running is None or self._running.wait(now) is None:
            self._running = Calibration(self._llama, self._spec, self._on_measured, self._free_cells)
        waits = self._running.wait(now)
        return None if waits is None else max(waits, self._due - now)

    def step(self) -> None:
        assert self._running is not None, "`wait` has made it"
        self._running.step()

    def interrupt(self) -> None:
        if self._running is not None:
            self._running.interrupt()

    def measure_now(self) -> None:
        """Measure the whole model at once, even if other processes use the cores."""
        self._step_costs().adopt_measured(self._llama.threads, measure_step_costs(self._llama))

    def _on_measured(self, threads: int, costs: StepCostModel) -> None:
        self._step_costs().adopt_measured(threads, costs)
        self._running = None
        self._rest = min(max(1.0, 2 * self._rest), _LONGEST_REST)
        self._due = time.monotonic() + self._rest


class IdleMeasurements:
    """All measurements of an engine's models, in order."""

    def __init__(self, trial: AttentionTrial, calibrations: list[RepeatedCalibration]) -> None:
        self.trial = trial
        self._calibrations = calibrations
        self._due = time.monotonic() + QUIET_SECONDS

    def wait(self) -> float | None:
        """Return the seconds to wait for work before the next step, or None."""
        now = time.monotonic()
        waits = self.trial.wait(now)
        if waits is None:
            waits = next(
                (seconds for calibration in self._calibrations if (seconds := calibration.wait(now)) is not None), None
            )
        return None if waits is None else max(waits, self._due - now)

    def note_work(self) -> None:
        self._due = time.monotonic() + QUIET_SECONDS
        self.trial.note_work()

    def step(self) -> None:
        """Measure the next step. Raises CannotLoad if the kind of attention cannot be changed."""
        # One step only: a request that arrives now waits for it.
        now = time.monotonic()
        if self.trial.wait(now) is not None:
            self.trial.step()
            return
        for calibration in self._calibrations:
            if calibration.wait(now) is not None:
                calibration.step()
                return

    def interrupt(self) -> None:
        for calibration in self._calibrations:
            calibration.interrupt()
