"""Measure a loaded model in the moments when its engine has nothing else to do.

The kind of attention is measured first, if it is not known yet, then the step costs of the model and of its draft
model. A request that arrives waits at most for the one step that is being measured.
"""

import time
from collections.abc import Callable
from typing import Final

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.attention_trial import AttentionTrial
from orchestrator.engine.step_cost.calibration import Calibration
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from orchestrator.engine.step_cost.model import StepCostModel

QUIET_SECONDS: Final = 1.0
"""How long an engine has had no work, in seconds, before it begins to measure, because more work often follows soon."""

_LONGEST_REST: Final = 3600.0
"""The longest time, in seconds, between two calibrations of a model whose measured costs keep turning out wrong."""


class RepeatedCalibration:
    """Calibrates one model whenever its step costs were not measured, or turned out wrong."""

    def __init__(self, llama: Llama, spec: EngineSpec, step_costs: Callable[[], LearnedStepCosts]) -> None:
        """`step_costs` returns what receives the measured costs, which may be another object at another time."""
        self._llama = llama
        self._spec = spec
        self._step_costs = step_costs
        self._running: Calibration | None = None
        self._rest = 0.0
        self._due = 0.0

    def wait(self, now: float) -> float | None:
        """Return how many seconds after `now` (of the monotonic clock) a step is to be measured; None if none is."""
        if self._step_costs().measured:
            return None
        if self._running is None or self._running.wait(now) is None:
            self._running = Calibration(self._llama, self._spec, self._on_measured)
        waits = self._running.wait(now)
        return None if waits is None else max(waits, self._due - now)

    def step(self) -> None:
        """Measure one step. `wait` must have returned a number before."""
        assert self._running is not None, "`wait` has made it"
        self._running.step()

    def interrupt(self) -> None:
        """Remove what measuring has put into the cache, because there is work to do."""
        if self._running is not None:
            self._running.interrupt()

    def _on_measured(self, threads: int, costs: StepCostModel) -> None:
        self._step_costs().adopt_measured(threads, costs)
        self._running = None
        self._rest = min(max(1.0, 2 * self._rest), _LONGEST_REST)
        self._due = time.monotonic() + self._rest


class IdleMeasurements:
    """All measurements of one engine's models, in the order in which they are done."""

    def __init__(self, trial: AttentionTrial, calibrations: list[RepeatedCalibration]) -> None:
        self.trial = trial
        self._calibrations = calibrations
        self._due = time.monotonic() + QUIET_SECONDS

    def wait(self) -> float | None:
        """Return for how many seconds to wait for work before a step is measured; None if there is none to measure."""
        now = time.monotonic()
        waits = self.trial.wait(now)
        if waits is None:
            waits = next((each for one in self._calibrations if (each := one.wait(now)) is not None), None)
        return None if waits is None else max(waits, self._due - now)

    def note_work(self) -> None:
        """Note that there was work until now, so that the next step waits for quiet."""
        self._due = time.monotonic() + QUIET_SECONDS
        self.trial.note_work()

    def step(self) -> None:
        """Measure the step that is due. Raises CannotLoad where the kind of attention cannot be changed."""
        now = time.monotonic()
        if self.trial.wait(now) is not None:
            self.trial.step()
            return
        for one in self._calibrations:
            if one.wait(now) is not None:
                one.step()
                return

    def interrupt(self) -> None:
        """Remove what calibrations have put into the cache, because there is work to do."""
        for one in self._calibrations:
            one.interrupt()
