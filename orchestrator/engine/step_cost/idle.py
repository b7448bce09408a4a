"""Measure a loaded model in the moments when its engine has nothing else to do.

First comes the kind of attention, if it is not known yet, and then the times of steps: those of the model, and those of
its draft model. A request that arrives waits for the step that is being measured and for no more.
"""

import time
from collections.abc import Callable
from typing import Final

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.calibration import AttentionTrial, Calibration
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from orchestrator.engine.step_cost.model import StepCostModel

QUIET_SECONDS: Final = 1.0
"""How long an engine has had nothing to do before it begins to measure, in seconds: more work often follows at once."""

_LONGEST_REST: Final = 3600.0
"""The longest time, in seconds, before a model is measured again whose measured times turned out wrong."""


class StepCalibration:
    """Measures the steps of one model whenever their measured times are not known, or turned out wrong."""

    def __init__(self, llama: Llama, spec: EngineSpec, step_costs: Callable[[], LearnedStepCosts]) -> None:
        self._llama = llama
        self._spec = spec
        self._step_costs = step_costs
        self._running: Calibration | None = None
        self._rest = 0.0
        self._due = 0.0

    def wait(self, now: float) -> float | None:
        """Return for how many seconds to wait before the next step is measured; None if none has to be."""
        if self._step_costs().measured:
            return None
        if self._running is None or self._running.wait(now) is None:
            self._running = Calibration(self._llama, self._spec, self._measured)
        waits = self._running.wait(now)
        return None if waits is None else max(waits, self._due - now)

    def step(self) -> None:
        """Measure one step."""
        assert self._running is not None, "`wait` has made it"
        self._running.step()

    def interrupt(self) -> None:
        """Make way for work."""
        if self._running is not None:
            self._running.interrupt()

    def _measured(self, threads: int, costs: StepCostModel) -> None:
        self._step_costs().adopt_measured(threads, costs)
        self._running = None
        self._rest = min(max(1.0, 2 * self._rest), _LONGEST_REST)
        self._due = time.monotonic() + self._rest


class IdleMeasurements:
    """What is measured of one engine's models, in order. `trial` is about the kind of attention."""

    def __init__(self, trial: AttentionTrial, step_times: list[StepCalibration]) -> None:
        self.trial = trial
        self._step_times = step_times
        self._due = time.monotonic() + QUIET_SECONDS

    def wait(self) -> float | None:
        """Return for how many seconds to wait for work before a step is measured; None for as long as it takes."""
        now = time.monotonic()
        waits = self.trial.wait(now)
        if waits is None:
            waits = next((each for one in self._step_times if (each := one.wait(now)) is not None), None)
        return None if waits is None else max(waits, self._due - now)

    def worked(self) -> None:
        """Take note that there was work until now."""
        self._due = time.monotonic() + QUIET_SECONDS
        self.trial.worked()

    def step(self) -> None:
        """Measure the step that is due. Raises CannotLoad where the attention cannot be changed."""
        now = time.monotonic()
        if self.trial.wait(now) is not None:
            self.trial.step()
            return
        for one in self._step_times:
            if one.wait(now) is not None:
                one.step()
                return

    def interrupt(self) -> None:
        """Take back what measuring has put into the cache, since there is work to do."""
        for one in self._step_times:
            one.interrupt()
