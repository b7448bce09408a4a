"""The real residency in virtual time. Its engines are simulated: loads and stops take a set time, or a test ends them.

Every engine checks, when it is started or stopped, that this may be.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orchestrator.bench.simulate.clock import VirtualTimeLoop
from orchestrator.bench.simulate.engines import SimulatedEngine, model_info, words
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.errors import (
    EngineDied,
    EngineError,
    EngineStopped,
    LoadFailure,
    MachineLost,
    ModelLoadFailed,
)
from orchestrator.pool.decoding import Decoding
from orchestrator.pool.dispatch import LeaseRequest
from orchestrator.pool.errors import PoolError
from orchestrator.pool.footprint import Footprints
from orchestrator.pool.machine import Node, Topology
from orchestrator.pool.machines import Machine, Machines
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.places import Replica
from orchestrator.pool.policy import PoolBudget, Rules
from orchestrator.pool.residency import Folders, Residency
from orchestrator.registry.memory import MemoryEstimate
from orchestrator.registry.models import ModelEntry
from orchestrator.registry.options import LoadOptions
from orchestrator.task.stages import waiting_for_models

SLOTS = 2
TWO_NODES = Topology((Node(0, ((0,),), 1 << 34), Node(1, ((1,),), 1 << 34)))


def entry(name: str, size: int, *, instances: int = 1, residency: str = "warm") -> ModelEntry:
    """Return a model, of which an engine takes `size` bytes."""
    return ModelEntry(
        id=name,
        file=Path(name),
        description="",
        residency=residency,  # type: ignore[arg-type]
        options=LoadOptions(context=1024, slots=SLOTS),
        instances=instances,
        memory=MemoryEstimate(weights=size, kv_cache=0, compute=0, process=0),
    )


@dataclass(eq=False)
class Request:
    """A request for an engine: it waits, has one, or was refused."""

    model: str
    since: float
    interactive: bool
    task: asyncio.Task[None] | None = None
    replica: Replica | None = None
    error: Exception | None = None


class HeldEngine(SimulatedEngine):
    """An engine whose process ends when the fixture says so, once it was stopped."""

    def __init__(self, spec: EngineSpec, fixture: "ResidencyFixture") -> None:
        super().__init__(spec, model_info(spec, 0.0), lambda load: 0.1, lambda request: words("x"))
        self.fixture = fixture
        self.ended: asyncio.Future[None] = fixture.loop.create_future()

    async def stop(self) -> None:
        """End when the fixture says so. Nobody uses it, and it is not pinned, unless all are stopped."""
        managed, replica = self.fixture.place_of(self)
        if not self.fixture.closing:
            assert replica.leases == 0, f"{managed.entry.id} is stopped while it is in use"
            assert replica.leaving or not managed.pinned, f"{managed.entry.id} is stopped though it is pinned"
            await self.fixture.take(self.ended, self.fixture.stop_seconds)
        self.die(EngineStopped("the engine was stopped"))


class ResidencyFixture:
    """Models under one budget, in bytes. A context manager: at its end every engine is stopped.

    `load_seconds` and `stop_seconds` are None where a test ends loads and stops.
    """

    def __init__(
        self,
        entries: list[ModelEntry],
        budget: int,
        rules: Rules,
        load_seconds: float | None = None,
        stop_seconds: float | None = None,
    ) -> None:
        self.loop = VirtualTimeLoop()
        self.managed_models = {one.id: ManagedModel.of(one, TWO_NODES) for one in entries}
        self.budget, self.rules = budget, rules
        here = Machine(name="", topology=TWO_NODES, bytes=budget, start_engine=self._start)
        self.machines = Machines(here, Decoding(TWO_NODES))
        self.load_seconds, self.stop_seconds = load_seconds, stop_seconds
        self.requests: list[Request] = []
        self.loading: list[asyncio.Future[None]] = []
        self.engines: list[HeldEngine] = []
        self.loads = 0
        self.closing = False
        self._tasks: asyncio.TaskGroup
        self._begun: list[asyncio.Task[None]] = []
        self._end = asyncio.Event()
        self._main = self.loop.create_task(self._live())
        self.run(0)

    @property
    def now(self) -> float:
        """The virtual time."""
        return self.loop.time()

    def run(self, seconds: float) -> None:
        """Let everything happen that does within so many seconds."""
        self.loop.run_for(seconds)
        if self._main.done():
            self._main.result()

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self.residency = Residency(
                self.managed_models,
                self.machines,
                PoolBudget(self.budget),
                self.rules,
                Footprints(),
                Folders(Path("logs")),
                lambda model: (),
                self._tasks,
            )
            self.residency.open()
            await self._end.wait()
            self.closing = True
            await self.residency.close()

    def close(self) -> None:
        """Stop all engines, and end what a test has begun, whatever state it is in."""
        try:
            if not self._main.done():
                self._end.set()
                self.closing = True
                for engine in self.stopping:
                    engine.ended.set_result(None)
                for task in self._begun:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait([self._main]))
            self._main.result()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_for(0)
            self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin with something that goes on beside the rest."""
        task = self._tasks.create_task(work)
        self._begun.append(task)
        return task

    def do(self, action: Callable[[], None]) -> None:
        """Do something within the loop, and let everything happen that follows at once."""

        async def act() -> None:
            action()

        self.begin(act())
        self.run(0)

    async def take(self, ended: asyncio.Future[None], seconds: float | None) -> None:
        """Wait for so many seconds, or until a test ends it."""
        if seconds is None:
            await ended
        else:
            await asyncio.sleep(seconds)

    async def _start(self, spec: EngineSpec) -> HeldEngine:
        assert self.residency.used <= self.budget, "what is loaded fits"
        self.loads += 1
        ended: asyncio.Future[None] = self.loop.create_future()
        self.loading.append(ended)
        try:
            await self.take(ended, self.load_seconds)
        finally:
            self.loading.remove(ended)
        self.engines.append(engine := HeldEngine(spec, self))
        return engine

    # What a test lets happen

    def join(self, name: str, size: int = 100) -> None:
        """Let a machine join that has one core and `size` bytes for engines."""
        topology = Topology.flat(1, 1 << 34)
        machine = Machine(name=name, topology=topology, bytes=size, start_engine=self._start)

        def join() -> None:
            self.machines.add(machine)
            self.residency.join()

        self.do(join)

    def leave(self, name: str) -> asyncio.Task[None]:
        """Let a machine leave, with the engines that have been loaded there."""
        self.machines.remove(name)
        leaving = self.begin(self.residency.leave(name))
        self.run(0)
        for engine in [engine for engine in self.engines if not engine.died.is_set()]:
            if self.place_of(engine)[1].machine == name:
                engine.die(MachineLost("as the test says"))
        self.run(0)
        return leaving

    def ask(self, model: str, interactive: bool) -> Request:
        """Ask for a model."""
        request = Request(model, self.now, interactive)
        self.requests.append(request)
        request.task = self.begin(self._ask(request))
        self.run(0)
        return request

    async def _ask(self, request: Request) -> None:
        wanted = LeaseRequest(interactive=request.interactive, due=request.since)
        try:
            with waiting_for_models(lambda wait: None):
                replica = await self.residency.acquire(self.managed_models[request.model], wanted)
                assert isinstance(replica, Replica)
                request.replica = replica
        except (PoolError, EngineError) as error:
            request.error = error

    def give_back(self, request: Request) -> None:
        """Be done with an engine."""
        assert request.replica is not None
        replica = request.replica
        self.requests.remove(request)
        self.do(lambda: self.residency.release(replica))

    def fail_load(self, ended: asyncio.Future[None], kind: LoadFailure = "died") -> None:
        """Let a load fail."""
        ended.set_exception(ModelLoadFailed("file", kind, "as the test says"))
        self.run(0)

    def kill(self, engine: HeldEngine) -> None:
        """Let an engine's process die."""
        engine.die(EngineDied("as the test says"))
        self.run(0)

    # What there is

    @property
    def waiting(self) -> list[Request]:
        """The requests that have no engine yet."""
        return [one for one in self.requests if one.task is not None and not one.task.done()]

    @property
    def served(self) -> list[Request]:
        """The requests that have an engine."""
        return [one for one in self.requests if one.replica is not None]

    @property
    def running(self) -> list[HeldEngine]:
        """The engines that have not died and were not stopped."""
        alive = (engine for engine in self.engines if not engine.died.is_set())
        return [engine for engine in alive if self.place_of(engine)[1].state == "ready"]

    @property
    def stopping(self) -> list[HeldEngine]:
        """The engines that were stopped, and whose processes have not ended."""
        alive = (engine for engine in self.engines if not engine.died.is_set() and not engine.ended.done())
        return [engine for engine in alive if self.place_of(engine)[1].state == "stopping"]

    def place_of(self, engine: SimulatedEngine) -> tuple[ManagedModel, Replica]:
        """Return what an engine is one of."""
        return next((managed, one) for managed, one in self._instances() if one.engine is engine)

    def _instances(self) -> Iterator[tuple[ManagedModel, Replica]]:
        return ((managed, one) for managed in self.managed_models.values() for one in managed.places.replicas)

    def check(self) -> None:
        """Say what must hold whenever nothing is happening."""
        assert self.residency.used <= self.budget
        for managed, one in self._instances():
            assert one.leases == sum(request.replica is one for request in self.requests)
            free = one.serves and one.leases < managed.entry.slots
            assert not (managed.dispatcher.waiting and free), "nobody waits for an engine that has a free slot"
            assert not (one.draining and managed.pinned and not one.leaving), "what is pinned is not drained"
        for request in self.waiting:
            managed = self.managed_models[request.model]
            assert managed.dispatcher.waiting or managed.resting, "whoever waits is known to"
        if any(one.draining for _, one in self._instances()):
            overdue = (self.rules.patience, self.rules.batch_patience)
            asked = (
                one.preload_since for _, one in self._instances() if one.preload_since is not None
            )  # a HOT model to be loaded again
            assert any(self.now >= request.since + overdue[not request.interactive] for request in self.waiting) or any(
                self.now >= since + self.rules.patience for since in asked
            ), "only who has waited for too long makes others run dry"
