"""Give callers the models of the registry: loaded when needed, kept while in use, with a fair share of the cores."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.engine.client import Completion, Engine, OnText
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineDied
from orchestrator.events import Usage
from orchestrator.pool.cores import share_cores
from orchestrator.pool.errors import UnknownModel
from orchestrator.pool.machine import memory_budget, physical_cores
from orchestrator.pool.residency import Residency
from orchestrator.pool.seat import Seat
from orchestrator.pool.status import PoolSnapshot
from registry.models import Registry


class Pool:
    """The models of one registry. An async context manager: inside it, processes run; after it, none does.

    `budget` in bytes bounds the estimates of all loaded models together; without one it is the registry's, else most
    of the memory that is free. Engines write their logs into `log_dir`.
    """

    def __init__(
        self, registry: Registry, log_dir: Path, *, budget: int | None = None, cores: int | None = None
    ) -> None:
        self._cores = cores or physical_cores()
        self._seats = {name: Seat(entry) for name, entry in registry.models.items()}
        self._busy: dict[str, Seat] = {}
        self._log_dir = log_dir
        limits = (budget, registry.defaults.memory)
        most = next((limit for limit in limits if limit is not None), None)
        self._residency = Residency(
            self._seats.values(), memory_budget() if most is None else most, self._cores, log_dir
        )

    async def __aenter__(self) -> Self:
        """Begin to load the HOT models. One that cannot be loaded says so when it is asked for, and in `snapshot`."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        await self._residency.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all engines. What is still being generated raises EngineStopped."""
        await self._residency.close()

    async def count(self, model: str, messages: Sequence[tuple[str, str]]) -> int:
        """Return the tokens of a prompt of `messages`, (role, content) each. Loads the model if need be.

        Raises what `generate` raises.
        """
        with self._lease(model) as seat:
            engine = await self._residency.engine(seat)
            async with self._noticing_death(seat, engine):
                return await engine.count(messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text with a model, loading it if need be; its deadline and slack count from here.

        Time spent on loading is in `usage.queued_seconds`. Raises PoolError (see `orchestrator.pool.errors`) and
        EngineError: ModelLoadFailed, BadRequest and its like, EngineDied.
        """
        clock = asyncio.get_running_loop().time
        asked = clock()
        with self._lease(model) as seat:
            try:
                async with asyncio.timeout(request.deadline_seconds):
                    engine = await self._residency.engine(seat)
            except TimeoutError:
                return Completion("", "deadline", Usage(queued_seconds=clock() - asked))
            waited = clock() - asked
            async with self._noticing_death(seat, engine), self._decoding(seat):
                completion = await engine.generate(_later(request, waited), on_text)
        usage = completion.usage
        queued = dataclasses.replace(usage, queued_seconds=usage.queued_seconds + waited)
        return dataclasses.replace(completion, usage=queued)

    def snapshot(self) -> PoolSnapshot:
        """Describe every model and what they hold together."""
        now = asyncio.get_running_loop().time()
        return PoolSnapshot(
            budget=self._residency.budget,
            used=self._residency.used,
            cores=self._cores,
            models=tuple(seat.status(now) for seat in self._seats.values()),
        )

    @contextlib.contextmanager
    def _lease(self, model: str) -> Iterator[Seat]:
        """Keep a model from being evicted, from the moment it is asked for."""
        seat = self._seats.get(model)
        if seat is None:
            known = ", ".join(sorted(self._seats))
            raise UnknownModel(model, f"there is no model {model!r}; accepted: {known}")
        seat.leases += 1
        try:
            yield seat
        finally:
            seat.leases -= 1
            seat.last_used = asyncio.get_running_loop().time()
            if not seat.leases:
                self._residency.admit_waiting()

    @contextlib.asynccontextmanager
    async def _noticing_death(self, seat: Seat, engine: Engine) -> AsyncIterator[None]:
        """Let EngineDied out only when its process is gone, so that whoever asks again gets a fresh one."""
        try:
            yield
        except EngineDied:
            await engine.wait_dead()
            self._residency.bury(seat, engine)
            raise

    @contextlib.asynccontextmanager
    async def _decoding(self, seat: Seat) -> AsyncIterator[None]:
        """Count a generation, and share the cores anew when its model becomes busy or idle."""
        seat.active += 1
        try:
            if seat.active == 1:
                self._busy[seat.entry.id] = seat
                await self._share()
            yield
        finally:
            seat.active -= 1
            if not seat.active:
                del self._busy[seat.entry.id]
                await self._share()

    async def _share(self) -> None:
        shares = share_cores(self._cores, {model: seat.entry.threads for model, seat in self._busy.items()})
        for model, threads in shares.items():
            seat = self._seats[model]
            if seat.engine is not None and seat.threads != threads:
                seat.threads = threads
                with contextlib.suppress(EngineDied):
                    await seat.engine.set_threads(threads)


def _later(request: Generation, seconds: float) -> Generation:
    """Return the request as it stands after `seconds` of waiting."""
    deadline = request.deadline_seconds
    left = None if deadline is None else deadline - seconds
    return dataclasses.replace(request, deadline_seconds=left, slack=request.slack - seconds)
