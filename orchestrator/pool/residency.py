"""Load models, and unload them: one engine process each, within the memory budget.

A load is a task of its own that every caller who wants the model waits for. Loads wait for room in the order in which
they were asked for; nobody overtakes, so none starves behind smaller ones.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from orchestrator.engine.client import Engine
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.errors import EngineError, EngineStopped
from orchestrator.pool.admission import Admitted, MustWait, NeverFits, admit
from orchestrator.pool.errors import ModelTooLarge, PoolClosed, PoolError
from orchestrator.pool.seat import Abandoned, Outcome, Seat
from registry.memory import size
from registry.models import ModelEntry

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    """A load that waits for room. The answer is the engines that have to be stopped first, or Abandoned."""

    seat: Seat
    room: "asyncio.Future[tuple[Engine, ...] | Abandoned]"


class Residency:
    """Which models are loaded. Enter it to begin, leave it to stop every process."""

    def __init__(self, seats: Collection[Seat], budget: int, cores: int, log_dir: Path) -> None:
        self.budget = budget
        self._seats = {seat.entry.id: seat for seat in seats}
        self._cores = cores
        self._log_dir = log_dir
        self._queue: deque[_Ticket] = deque()
        self._engines: set[Engine] = set()
        self._tasks = asyncio.TaskGroup()
        self._closed = False

    async def open(self) -> None:
        """Begin to load the HOT models, and return without waiting for them."""
        await self._tasks.__aenter__()
        for seat in self._seats.values():
            if seat.pinned and seat.entry.why_not is None:
                self._begin(seat)

    async def close(self) -> None:
        """Stop every engine, loading ones too, and wait until their processes are gone."""
        self._closed = True
        for seat in self._seats.values():
            if seat.load is not None:
                seat.load.cancel()
        try:
            await _stop(self._engines)
        finally:
            await self._tasks.__aexit__(None, None, None)

    @property
    def used(self) -> int:
        """The bytes that are taken, or promised to a model that is being loaded."""
        return sum(seat.bytes for seat in self._seats.values())

    async def engine(self, seat: Seat) -> Engine:
        """Return the engine of a model, loaded if need be. The caller counts in `seat.leases`.

        Raises ModelUnavailable, ModelBroken, ModelTooLarge, PoolClosed or the engine's ModelLoadFailed.
        """
        while True:
            if self._closed:
                raise PoolClosed(seat.entry.id, f"model {seat.entry.id}: the pool has stopped")
            if seat.engine is not None and not seat.engine.died.is_set():
                return seat.engine
            load = seat.load or self._begin(seat)
            await asyncio.wait([load])  # a caller that gives up leaves the load to the others
            outcome = PoolClosed(seat.entry.id, "the pool has stopped") if load.cancelled() else load.result()
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, Engine):
                return outcome

    def bury(self, seat: Seat, engine: Engine) -> None:
        """Take notice that an engine has died. The next caller gets a fresh one."""
        if seat.engine is not engine:
            return
        seat.vacate()
        if not isinstance(engine.failure, EngineStopped):
            seat.failed(_now(), str(engine.failure))
            log.warning("an engine died", model=seat.entry.id, pid=engine.info.pid, reason=str(engine.failure))
        self.admit_waiting()

    def admit_waiting(self) -> None:
        """Let those loads begin that there is room for. Call it whenever a model has become idle."""
        while self._queue:
            ticket = self._queue[0]
            if not self._answer(ticket):
                return
            self._queue.popleft()

    def _answer(self, ticket: _Ticket) -> bool:
        """Answer the load that has waited longest, or return False if it has to wait on."""
        seat = ticket.seat
        if ticket.room.done():
            return True
        if not seat.leases and not seat.pinned:
            ticket.room.set_result(Abandoned())
            return True
        wanted = _wanted(seat)
        residents = [other.resident() for other in self._seats.values() if other.bytes]
        match admit(wanted, residents, self.budget):
            case NeverFits(pinned, short):
                ticket.room.set_exception(_too_large(seat.entry, wanted, self.budget, pinned, short))
            case Admitted(evicted):
                seat.bytes = wanted
                engines = [self._seats[model].vacate() for model in evicted]
                ticket.room.set_result(tuple(engine for engine in engines if engine is not None))
                for model in evicted:
                    log.info("a model makes room", model=model, wanted_by=seat.entry.id)
            case MustWait():
                return False
        return True

    def _begin(self, seat: Seat) -> "asyncio.Task[Outcome]":
        seat.check(_now())
        seat.load = self._tasks.create_task(self._load(seat))
        return seat.load

    async def _load(self, seat: Seat) -> Outcome:
        """Make room and start the engine. Errors are returned: they belong to those who asked, however many."""
        outcome: Outcome = Abandoned()
        try:
            outcome = await self._start(seat)
        except PoolError as error:
            outcome = error
        except EngineError as error:
            outcome = error
            seat.failed(_now(), str(error))
            log.warning("a model could not be loaded", model=seat.entry.id, reason=str(error))
        finally:
            seat.load = None
            if not isinstance(outcome, Engine):
                seat.vacate()
                if not self._closed:
                    self.admit_waiting()
        return outcome

    async def _start(self, seat: Seat) -> Engine | Abandoned:
        room = await self._room(seat)
        if isinstance(room, Abandoned):
            return room
        await _stop(room)
        threads = min(seat.entry.threads or self._cores, self._cores)
        engine = await Engine.start(engine_spec(seat.entry, threads, self._log_dir))
        seat.engine, seat.threads, seat.last_used = engine, threads, _now()
        self._engines.add(engine)
        self._tasks.create_task(self._watch(seat, engine))
        log.info("a model was loaded", model=seat.entry.id, pid=engine.info.pid, seconds=engine.info.load_seconds)
        return engine

    async def _room(self, seat: Seat) -> tuple[Engine, ...] | Abandoned:
        ticket = _Ticket(seat, asyncio.get_running_loop().create_future())
        self._queue.append(ticket)
        self.admit_waiting()
        return await ticket.room

    async def _watch(self, seat: Seat, engine: Engine) -> None:
        await engine.wait_dead()
        self._engines.discard(engine)
        self.bury(seat, engine)


def engine_spec(entry: ModelEntry, threads: int, log_dir: Path) -> EngineSpec:
    """Translate a registry entry for the engine."""
    return EngineSpec(
        file=str(entry.file),
        context=entry.context,
        slots=entry.slots,
        threads=threads,
        kv_type_k=entry.kv_type_k,
        kv_type_v=entry.kv_type_v,
        flash_attention=entry.flash_attention,
        mmap=entry.mmap,
        mlock=entry.mlock,
        exact=entry.exact,
        experts=entry.experts,
        log_file=str(log_dir / f"{entry.id}.log"),
    )


async def _stop(engines: Iterable[Engine]) -> None:
    async with asyncio.TaskGroup() as stopping:
        for engine in tuple(engines):
            stopping.create_task(engine.stop())


def _wanted(seat: Seat) -> int:
    assert seat.entry.memory is not None, "a model without a header is not loaded"
    return seat.entry.memory.total


def _too_large(entry: ModelEntry, wanted: int, budget: int, pinned: int, short: int) -> ModelTooLarge:
    held = f", of which HOT models keep {size(pinned)}" if pinned else ""
    what = (
        f"model {entry.id} needs {size(wanted)} ({entry.memory}); the budget is {size(budget)}{held}: "
        f"{size(short)} too little; accepted: fewer slots than {entry.slots}, a context below {entry.context}, "
        "or more memory under defaults in the registry"
    )
    return ModelTooLarge(entry.id, what, wanted=wanted, budget=budget, pinned=pinned)


def _now() -> float:
    return asyncio.get_running_loop().time()
