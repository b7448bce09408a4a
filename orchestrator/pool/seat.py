"""Hold what the pool knows of one model: its engine, who uses it, and how it has failed."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.client import Engine
from orchestrator.engine.errors import EngineError
from orchestrator.pool.admission import Resident
from orchestrator.pool.errors import ModelBroken, ModelUnavailable, PoolError
from orchestrator.pool.status import ModelStatus, State
from registry.models import ModelEntry

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A load was given up before it began, since nobody wanted the model any more."""


Outcome = Engine | EngineError | PoolError | Abandoned


@dataclass(slots=True, eq=False)
class Seat:
    """One model of the registry. `leases` counts the callers that use it or wait for it, `active` its generations.

    `bytes` is what it holds of the budget, 0 when it is neither loaded nor loading. Times are the event loop's.
    """

    entry: ModelEntry
    engine: Engine | None = None
    load: asyncio.Task[Outcome] | None = None
    bytes: int = 0
    leases: int = 0
    active: int = 0
    threads: int = 0
    last_used: float = 0.0
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    last_failure: str | None = None

    @property
    def pinned(self) -> bool:
        """HOT models stay."""
        return self.entry.residency == "hot"

    def resident(self) -> Resident:
        """Return what admission has to know of it."""
        in_use = self.leases > 0 or self.engine is None
        return Resident(self.entry.id, self.bytes, self.pinned, in_use, self.last_used)

    def vacate(self) -> Engine | None:
        """Give its engine and its bytes up, and return the engine."""
        engine, self.engine, self.bytes = self.engine, None, 0
        return engine

    def failed(self, now: float, reason: str) -> None:
        """Note that the engine died, or could not be started."""
        self.failures.append(now)
        self.last_failure = reason

    def broken_for(self, now: float) -> float:
        """Return for how many seconds the model still counts as broken; 0 if it does not."""
        if len(self.failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.failures[0] + FAILURE_WINDOW - now)

    def check(self, now: float) -> None:
        """Raise ModelUnavailable or ModelBroken if there is no point in loading it."""
        if self.entry.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.entry.why_not)
        seconds = self.broken_for(now)
        if seconds > 0:
            what = (
                f"model {self.entry.id} is broken: its engine failed {MAX_FAILURES} times within "
                f"{FAILURE_WINDOW:.0f} s; next try in {seconds:.0f} s; the last time: {self.last_failure}"
            )
            raise ModelBroken(self.entry.id, what, failures=MAX_FAILURES, retry_seconds=seconds)

    def status(self, now: float) -> ModelStatus:
        """Describe it."""
        engine = self.engine
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            state=self._state(now),
            bytes=self.bytes,
            requests=self.leases,
            active=self.active,
            threads=self.threads if engine is not None else None,
            pid=engine.info.pid if engine is not None else None,
            reason=self.entry.why_not or self.last_failure,
        )

    def _state(self, now: float) -> State:
        if self.engine is not None:
            return "ready"
        if self.load is not None:
            return "loading" if self.bytes else "waiting"
        if self.entry.why_not is not None:
            return "unavailable"
        return "broken" if self.broken_for(now) > 0 else "unloaded"
