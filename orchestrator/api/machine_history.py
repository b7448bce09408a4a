"""Keep who used the cores in the last hour, in memory: what a reader sees who opens the view of the machine."""

import asyncio
import time
from collections import deque
from dataclasses import asdict
from typing import Final

import psutil
import structlog
from pydantic import BaseModel, Field

from orchestrator.pool.pool import Pool
from orchestrator.pool.processor_times import ProcessorTimes
from orchestrator.pool.status import PoolSnapshot

PERIOD_SECONDS: Final = 5.0
SAMPLES: Final = 720

log = structlog.get_logger(__name__)


class ProcessorLine(BaseModel):
    """Seconds of processor time so far. The difference of two answers says how many cores were used."""

    engines: dict[str, float] = Field(description="by model, of the engines that run now")
    daemon: float
    programs: float = Field(description="gates, tools and code, with those that have ended")


class ProcessorSample(BaseModel):
    """Who had used the cores up to a moment."""

    at: float = Field(description="seconds of a clock that never runs backwards")
    processor_seconds: ProcessorLine


class MachineHistory:
    """The last `SAMPLES` samples, `PERIOD_SECONDS` apart. A new daemon has none."""

    def __init__(self) -> None:
        self._times = ProcessorTimes()
        self._samples: deque[ProcessorSample] = deque(maxlen=SAMPLES)

    async def record(self, pool: Pool) -> None:
        """Add samples until it is cancelled."""
        while True:
            try:
                self.add(await self.measure(pool.snapshot()))
            except (OSError, psutil.Error) as error:  # such as no free descriptor, which may pass
                log.warning("the use of the cores could not be measured", error=str(error))
            await asyncio.sleep(PERIOD_SECONDS)

    async def measure(self, snapshot: PoolSnapshot) -> ProcessorSample:
        """Return who has used the cores until now. `snapshot` has the processes of the models."""
        replicas = ((model.model, replica) for model in snapshot.models for replica in model.instances)
        here = ((model, replica) for model, replica in replicas if not replica.machine)  # and not on another node
        models = {replica.pid: model for model, replica in here if replica.pid is not None}
        # A thread may have to wait, so the time is that of the reading.
        at, seconds = await asyncio.to_thread(lambda: (time.monotonic(), self._times.read(models)))
        return ProcessorSample(at=at, processor_seconds=ProcessorLine(**asdict(seconds)))

    def add(self, sample: ProcessorSample) -> None:
        self._samples.append(sample)

    def after(self, at: float) -> tuple[ProcessorSample, ...]:
        """Return the samples after a moment, oldest first."""
        return tuple(sample for sample in self._samples if sample.at > at)
