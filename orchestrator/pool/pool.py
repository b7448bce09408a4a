"""The pool: runs the models of the registry, loads them when needed, and shares memory and cores."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self
from weakref import WeakKeyDictionary

import structlog

from orchestrator.engine.client.engine import Completion, Engine, OnText
from orchestrator.engine.contract import (
    Embeddings,
    EngineStats,
    Generation,
    Message,
    OfferedTool,
    Priority,
    Ranking,
    SystemPrompt,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied, EngineError, ModelLoadFailed, NotStarted
from orchestrator.pool.decoding import Decoding
from orchestrator.pool.dispatch import BATCH_SLACK, LeaseRequest
from orchestrator.pool.errors import ModelPinned, ModelRemote, PoolClosed, PoolError, UnknownModel
from orchestrator.pool.footprint import Footprints
from orchestrator.pool.handle import EngineHandle, StartEngine
from orchestrator.pool.machine import Topology, memory_budget, read_topology
from orchestrator.pool.machines import Machine, Machines, budget_of
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.places import Place, Replica
from orchestrator.pool.policy import PoolBudget, Rules
from orchestrator.pool.prompts import PrefixHashes, hash_prefixes
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.remote.errors import RemoteFailed, RemoteResting, Unanswered
from orchestrator.pool.remote.wire import can_be_sent
from orchestrator.pool.residency import Folders, Residency
from orchestrator.pool.shipping import Carrier, NotCarried, Shipment, ship
from orchestrator.pool.status import (
    EngineState,
    MachineStatus,
    PoolSnapshot,
    RoleUse,
    engine_state,
    sum_counters,
)
from orchestrator.registry.forms import HEAD
from orchestrator.registry.models import Registry
from orchestrator.registry.thinking import Thinking
from orchestrator.registry.watch import difference
from orchestrator.task.events import Shipped, Usage
from orchestrator.task.stages import Placed, pausing, tell

COUNTERS_SECONDS: Final = 0.02  # to wait for the counters of engines that do not answer at once

log = structlog.get_logger(__name__)


class Pool:
    """The models of one registry. An async context manager: when it ends, all engines have stopped.

    `budget` is the bytes of all loaded models, by default the registry's, or else most of the free memory. Measurements
    are stored in `footprints` and `step_costs`, KV cells of prompts in `prefixes`. Many prompts start with one of
    `system_prompts`. `topology` and `rules` default to the machine's and the registry's. `start_engine` loads a model,
    by default in its own process.
    """

    def __init__(
        self,
        registry: Registry,
        log_dir: Path,
        *,
        budget: int | None = None,
        footprints: Path | None = None,
        step_costs: Path | None = None,
        prefixes: Path | None = None,
        system_prompts: Callable[[str], tuple[SystemPrompt, ...]] = lambda model: (),
        topology: Topology | None = None,
        rules: Rules | None = None,
        start_engine: StartEngine = Engine.start,
    ) -> None:
        self._registry = registry
        self._overrides = budget, rules
        self._free = memory_budget()
        self._topology = topology or read_topology()
        self._managed = {name: ManagedModel.of(entry, self._topology) for name, entry in registry.models.items()}
        self._log_dir = log_dir
        self.decoding = Decoding(self._topology)
        self._tasks = asyncio.TaskGroup()
        self._counters = _Counters(self._tasks)
        self._role_counts = _RoleCounts()
        limits = self._limits()
        this = Machine(name="", topology=self._topology, bytes=limits[0].total, start_engine=start_engine)
        self._machines = Machines(this, self.decoding)
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._residency = Residency(
            self._managed,
            self._machines,
            *limits,
            Footprints(footprints),
            Folders(log_dir, step_costs, prefixes, registry.defaults.prompt_cache),
            system_prompts,
            self._tasks,
        )

    async def __aenter__(self) -> Self:
        """Start to load the HOT models. If one cannot be loaded, its requests fail and `snapshot` has the reason."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        await self._tasks.__aenter__()
        self._turns[""] = self._tasks.create_task(self.decoding.rotate())
        self._residency.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all engines. Running generations raise EngineStopped."""
        for turns in self._turns.values():
            turns.cancel()
        try:
            await self._residency.close()
        finally:
            await self._tasks.__aexit__(None, None, None)

    def await_machines(self, carrier: Carrier | None = None) -> None:
        """Have models that run on other machines alone wait for them, for machines may join from now on.

        With a `carrier`, KV cells are shipped between machines where that takes less time than computing them.
        """
        self._machines.await_others(carrier)
        self._residency.join()

    def join(self, machine: Machine) -> None:
        """Run engines on another machine, too. No machine of this name may be here, or be leaving."""
        self._turns[machine.name] = self._tasks.create_task(self._machines.add(machine).rotate())
        self._residency.join()

    async def leave(self, name: str) -> None:
        """Start no more engines on a machine, and wait until those that it has have ended."""
        self._machines.remove(name)
        await self._residency.leave(name)
        self._turns.pop(name).cancel()

    async def count(
        self,
        model: str,
        messages: Sequence[Message],
        priority: Priority = "interactive",
        tools: Sequence[OfferedTool] = (),
        thinking: Thinking = "auto",
    ) -> int:
        """Return the prompt tokens of these messages. Loads the model if needed.

        Raises what `generate` raises, and ModelRemote.
        """
        managed = self._model_here(model)
        lease_request = LeaseRequest(interactive=priority == "interactive", due=asyncio.get_running_loop().time())
        async with self._lease(managed, lease_request) as (_, engine):
            return await engine.count(messages, tools, thinking)

    async def tokenize(self, model: str, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return the tokens of a text, see `Engine.tokenize`. Raises what `count` raises."""
        async with self._lease_now(model) as engine:
            return await engine.tokenize(text, special=special, whole=whole)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        async with self._lease_now(model) as engine:
            return await engine.detokenize(tokens)

    async def render(
        self,
        model: str,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        async with self._lease_now(model) as engine:
            return await engine.render(messages, arguments, tools)

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate text, loading the model if needed.

        Deadline and slack count from this call, without the time in which the model rests after failures. A request
        that is still queued in an engine that dies moves to the next one.

        Raises PoolError, EngineError such as ModelLoadFailed, BadRequest and EngineDied, or the errors of
        `orchestrator.pool.remote.errors`.
        """
        managed = self._model(model)
        with self._role_counts.asking(model, request.role) as answered:
            completion = await self._generate(managed, request, on_text, on_thought)
            answered(completion.usage)
        return completion

    async def _generate(
        self, managed: ManagedModel, request: Generation, on_text: OnText | None, on_thought: OnText | None
    ) -> Completion:
        clock = asyncio.get_running_loop().time
        start = clock()
        hashes = hash_prefixes(request.messages, request.lora, request.tools) if managed.places.replicated else ()
        # Calls of tools are written in the syntax of the model that runs here, which no server does.
        calls = bool(request.tools) or request.guided is not None
        lease_request = LeaseRequest(
            interactive=request.priority == "interactive",
            due=start + request.slack,
            prefix_hashes=hashes,
            servers=managed.entry.is_remote or (bool(managed.places.servers) and not calls and can_be_sent(request)),
            tools=calls,
        )
        remaining = request.deadline_seconds
        while True:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(remaining) as limit:
                        with pausing(limit):
                            place = await stack.enter_async_context(self._leased(managed, lease_request))
                        end = limit.when()
                except TimeoutError:
                    return Completion("", "deadline", Usage(queued_seconds=clock() - start))
                except (PoolError, ModelLoadFailed) as error:
                    if isinstance(error, PoolClosed) or not managed.can_do_without_engine(lease_request):
                        raise
                    end = limit.when()
                    remaining = None if end is None else end - clock()
                    lease_request = dataclasses.replace(lease_request, here=False)
                    continue
                shipped = await self._await_cells(managed, place, request, hashes, end)
                waited, remaining = clock() - start, None if end is None else end - clock()
                later = _later(request, remaining, waited)
                try:
                    completion = await self._answer(managed, place, later, lease_request, on_text, on_thought)
                except NotStarted:  # another engine can carry it out
                    remaining = None if end is None else end - clock()
                    continue
                except Unanswered as unanswered:  # try another place
                    remaining = None if end is None else end - clock()
                    lease_request = _without(place, unanswered.cause, lease_request)
                    continue
            # Loading counts as queueing.
            usage = completion.usage
            managed.dispatcher.note_answer(usage.output_tokens)
            usage = dataclasses.replace(usage, queued_seconds=usage.queued_seconds + waited, shipped=shipped)
            return dataclasses.replace(completion, usage=usage)

    async def _await_cells(
        self,
        managed: ManagedModel,
        place: Place,
        request: Generation,
        hashes: PrefixHashes,
        end: float | None,
    ) -> tuple[Shipped, ...]:
        # Wait for cells that are to come to a replica. Returns what was shipped for this request.
        if isinstance(place, RemoteModel):
            return ()
        last, engine = next((block for block in reversed(hashes) if block in place.shipments), None), place.engine
        if last is None or engine is None:
            return ()
        shipment = place.shipments[last]
        first = shipment.task is None
        if shipment.task is None:
            shipment.task = self._tasks.create_task(self._ship(managed, shipment, place, engine, request))
            shipment.task.add_done_callback(lambda _: place.note_arrival(last, shipment))
        now = asyncio.get_running_loop().time()
        await asyncio.wait([shipment.task], timeout=None if end is None else max(0.0, end - now))
        arrived = shipment.task.result() if shipment.task.done() else None
        return (arrived,) if first and arrived is not None else ()

    async def _ship(
        self, managed: ManagedModel, shipment: Shipment, replica: Replica, engine: EngineHandle, request: Generation
    ) -> Shipped | None:
        links, ends = managed.dispatcher.links, (shipment.machine, replica.machine)
        assert links is not None, "without links nothing is promised"
        model, source, target = managed.entry.id, ends[0] or HEAD, ends[1] or HEAD
        try:
            shipped = await ship(links, shipment, engine, replica.machine, request)
        except (EngineError, NotCarried, TimeoutError) as error:
            reason = str(error) or f"it took more than {shipment.seconds:.2f} s, as long as to compute them"
            log.warning("KV cells were not shipped", model=model, source=source, target=target, reason=reason)
            managed.dispatcher.pause(*ends)
            return None
        if shipped is not None:
            log.info("KV cells were shipped", model=model, target=target, **dataclasses.asdict(shipped))
        return shipped

    async def _answer(
        self,
        managed: ManagedModel,
        place: Place,
        request: Generation,
        lease_request: LeaseRequest,
        on_text: OnText | None,
        on_thought: OnText | None,
    ) -> Completion:
        # Raises NotStarted or Unanswered if another place can carry it out.
        node = place.endpoint.name if isinstance(place, RemoteModel) else place.machine
        if node:
            tell(Placed(node))
        if isinstance(place, RemoteModel):
            elsewhere = managed.has_other(place, lease_request, asyncio.get_running_loop().time())
            completion = await place.generate(request, on_text, on_thought, elsewhere=elsewhere)
            usage = completion.usage
        else:
            engine = place.engine
            assert engine is not None, "a replica that serves has an engine"
            try:
                async with self._sharing_cores(managed, place, lease_request.due):
                    completion = await engine.generate(request, on_text, on_thought)
            except NotStarted:
                await self._note_death(managed, place, engine)
                raise
            usage = managed.prompts.compare(completion, engine.died)
        return dataclasses.replace(completion, usage=dataclasses.replace(usage, nodes=(node,) if node else ()))

    async def embed(self, model: str, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises what `generate` raises, TextTooLong, ModelRemote, or BadRequest if the model is no embedder.
        """
        managed = self._model_here(model)
        lease_request = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(managed, lease_request) as (replica, engine):
            async with self._sharing_cores(managed, replica, lease_request.due):
                return await engine.embed(texts)

    async def rank(self, model: str, query: str, texts: Sequence[str]) -> Ranking:
        """Return the relevance of each text to a query. Raises what `embed` raises."""
        managed = self._model_here(model)
        lease_request = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(managed, lease_request) as (replica, engine):
            async with self._sharing_cores(managed, replica, lease_request.due):
                return await engine.rank(query, texts)

    async def generate_batch(
        self, model: str, requests: Sequence[Generation]
    ) -> list[Completion | EngineError | PoolError]:
        """Generate for all requests at the same time, and return their results or errors in order."""

        async def result_of(request: Generation) -> Completion | EngineError | PoolError:
            try:
                return await self.generate(model, request)
            except (EngineError, PoolError) as error:
                return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(result_of(request)) for request in requests]
        return [task.result() for task in tasks]

    async def load(self, model: str) -> None:
        """Load a model, and wait for it. Raises what `generate` raises."""
        managed = self._model_here(model)
        async with self._lease(managed, LeaseRequest(due=asyncio.get_running_loop().time())):
            pass

    async def unload(self, model: str) -> None:
        """Stop a model's engines after their running requests, and wait. Raises UnknownModel, ModelPinned."""
        managed = self._model_here(model)
        if managed.pinned:
            why = "HOT" if managed.entry.residency == "hot" else "pinned"
            raise ModelPinned(model, f"model {model} is {why}; accepted: unpin it first")
        await self._residency.unload(managed)

    def pin(self, model: str, pinned: bool = True) -> None:
        """Pin a model, so that it is neither evicted nor unloaded when idle; or unpin it. Raises UnknownModel."""
        # HOT models start pinned. This does not stop an unload that has started.
        self._model_here(model).pinned = pinned
        self._residency.reconsider()

    def adopt(self, registry: Registry, rewritten: Collection[Path] = ()) -> None:
        """Adopt another version of the registry. `rewritten` are model files with new content.

        Running requests end with the former version. Engines that would now be loaded differently end when unused. A
        removed model raises UnknownModel.
        """
        before, self._registry = self._registry, registry
        limits = None if registry.defaults == before.defaults else self._limits()
        folders = self._residency.folders
        self._residency.folders = dataclasses.replace(folders, prefix_bytes=registry.defaults.prompt_cache)
        self._residency.adopt(registry.models, difference(before, registry, rewritten).retired, limits)

    def _limits(self) -> tuple[PoolBudget, Rules]:
        # The free memory was read before any model was loaded: mapped files would count as free and as a model's
        # memory.
        budget, rules = self._overrides
        defaults = self._registry.defaults
        most = defaults.memory if budget is None else budget
        total = self._free if most is None else most
        return budget_of(total, self._topology), rules or Rules(idle_unload_seconds=defaults.idle_unload_seconds)

    @property
    def cores(self) -> int:
        """How many cores the machine has for models."""
        return self._topology.cores

    @property
    def resident(self) -> frozenset[str]:
        """The models that can serve a request now, including remote ones."""
        models = self._managed.items()
        return frozenset(name for name, model in models if model.places.resident or model.entry.is_remote)

    @property
    def budget(self) -> int:
        """The bytes that all loaded models may take."""
        return self._residency.budget.total

    def bytes_of(self, model: str) -> int:
        """Return the bytes that a model takes of the memory budget when it is loaded; 0 for another server's."""
        managed = self._managed.get(model)
        return 0 if managed is None else self._residency.needed(managed)

    def bytes_to_load(self, model: str) -> int:
        """Return the bytes that a model will take of the memory budget; 0 if it is loaded, or is another server's."""
        return 0 if model in self.resident else self.bytes_of(model)

    def machines(self) -> dict[str, MachineStatus]:
        """Return what each machine has for engines, by name; this one is "head"."""
        return {machine.name or HEAD: self._machine_status(machine) for machine in self._machines}

    def _machine_status(self, machine: Machine) -> MachineStatus:
        replicas = [
            (name, replica)
            for name, managed in self._managed.items()
            for replica in managed.places.replicas
            if replica.machine == machine.name
        ]
        return MachineStatus(
            cores=machine.topology.cores,
            budget=machine.bytes if machine.name else self.budget,
            used=sum(replica.bytes for _, replica in replicas),
            models=tuple(dict.fromkeys(name for name, replica in replicas if replica.state == "ready")),
        )

    def snapshot(self) -> PoolSnapshot:
        now = asyncio.get_running_loop().time()
        statuses = (managed.status(now) for managed in self._managed.values())
        return PoolSnapshot(
            budget=self.budget,
            used=self._residency.used,
            cores=self.cores,
            models=tuple(dataclasses.replace(status, roles=self._role_counts.of(status.model)) for status in statuses),
            machines={} if self._machines.others is None else self.machines(),
        )

    async def survey(self) -> PoolSnapshot:
        """Return the snapshot with engine counters, which may be older during long steps."""
        return (await self.inspect())[0]

    async def inspect(self) -> tuple[PoolSnapshot, tuple[EngineState, ...]]:
        """Return the same, and the state of each engine that has answered."""
        running = {
            name: [replica.engine for replica in managed.places.replicas if replica.engine]
            for name, managed in self._managed.items()
        }
        stats = await self._counters.of([engine for engines in running.values() for engine in engines])
        counted = {
            name: sum_counters([stats[engine] for engine in engines if engine in stats])
            for name, engines in running.items()
        }
        snapshot = self.snapshot()
        models = (dataclasses.replace(status, counters=counted.get(status.model)) for status in snapshot.models)
        states = (
            engine_state(replica.status(), name, stats[engine])
            for name, managed in self._managed.items()
            for replica in managed.places.replicas
            if (engine := replica.engine) is not None and engine in stats
        )
        return dataclasses.replace(snapshot, models=tuple(models)), tuple(states)

    def _model(self, model: str) -> ManagedModel:
        managed = self._managed.get(model)
        if managed is None or (managed.retiring and managed.successor is None):
            names = ", ".join(sorted({*self._managed} - {model}))
            raise UnknownModel(model, f"there is no model {model!r}; accepted: {names}")
        return managed

    def _model_here(self, model: str) -> ManagedModel:
        managed = self._model(model)
        if managed.entry.is_remote:
            limits = "it is neither loaded nor unloaded here, nor are its prompts counted, nor does it embed"
            raise ModelRemote(model, f"model {model} is run by another server: {limits}")
        return managed

    def _sharing_cores(
        self, managed: ManagedModel, replica: Replica, due: float
    ) -> contextlib.AbstractAsyncContextManager[None]:
        return self._machines.decoding(replica.machine).of(replica, managed.entry.options.threads, due)

    @contextlib.asynccontextmanager
    async def _lease_now(self, model: str) -> AsyncIterator[EngineHandle]:
        lease_request = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(self._model_here(model), lease_request) as (_, engine):
            yield engine

    @contextlib.asynccontextmanager
    async def _lease(
        self, managed: ManagedModel, lease_request: LeaseRequest
    ) -> AsyncIterator[tuple[Replica, EngineHandle]]:
        # `lease_request` does not accept servers.
        async with self._leased(managed, lease_request) as replica:
            assert isinstance(replica, Replica), "only an engine can carry it out"
            assert replica.engine is not None, "a replica that serves has an engine"
            yield replica, replica.engine

    @contextlib.asynccontextmanager
    async def _leased(self, managed: ManagedModel, lease_request: LeaseRequest) -> AsyncIterator[Place]:
        place = await self._residency.acquire(managed, lease_request)
        engine = place.engine if isinstance(place, Replica) else None
        try:
            yield place
        except EngineDied:
            # The process must have ended before EngineDied is raised, so that a retry gets another engine.
            if isinstance(place, Replica) and engine is not None:
                await self._note_death(managed, place, engine)
            raise
        finally:
            self._residency.release(place)

    async def _note_death(self, managed: ManagedModel, replica: Replica, engine: EngineHandle) -> None:
        await engine.wait_dead()
        managed.prompts.note(engine.died, *engine.lost_prompts)
        self._residency.on_engine_exit(replica, engine)


class _Counters:
    """The last counters of each engine. `tasks` must stay open."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._latest: WeakKeyDictionary[EngineHandle, EngineStats] = WeakKeyDictionary()
        self._pending: dict[EngineHandle, asyncio.Task[None]] = {}

    async def of(self, engines: Collection[EngineHandle]) -> Mapping[EngineHandle, EngineStats]:
        """Return each engine's latest counters; engines that have never answered are left out."""
        for engine in engines:
            if engine not in self._pending:
                self._pending[engine] = self._tasks.create_task(self._ask(engine))
        if pending := [self._pending[engine] for engine in engines]:
            await asyncio.wait(pending, timeout=COUNTERS_SECONDS)
        return {engine: stats for engine in engines if (stats := self._latest.get(engine)) is not None}

    async def _ask(self, engine: EngineHandle) -> None:
        try:
            with contextlib.suppress(EngineDied):
                self._latest[engine] = await engine.stats()
        finally:
            del self._pending[engine]


class _RoleCounts:
    """What each role has asked of each model since the pool was opened."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[str, RoleUse]] = {}

    @contextlib.contextmanager
    def asking(self, model: str, role: str) -> Iterator[Callable[[Usage], None]]:
        """Count a request while the block runs. Yields a function that counts the answer."""
        use = self._uses.setdefault(model, {}).setdefault(role, RoleUse())

        def answered(usage: Usage) -> None:
            use.answers += 1
            use.prompt_tokens += usage.prompt_tokens
            use.output_tokens += usage.output_tokens
            use.cached_tokens += usage.cached_tokens
            use.prefill_seconds += usage.prefill_seconds
            use.decode_seconds += usage.decode_seconds

        use.requests += 1
        try:
            yield answered
        finally:
            use.requests -= 1

    def of(self, model: str) -> Mapping[str, RoleUse]:
        return {role: dataclasses.replace(use) for role, use in self._uses.get(model, {}).items()}


def _without(place: Place, cause: EngineError, lease_request: LeaseRequest) -> LeaseRequest:
    # A server that has failed is left out by its circuit.
    if isinstance(cause, RemoteFailed | RemoteResting) or not isinstance(place, RemoteModel):
        return lease_request
    return dataclasses.replace(lease_request, refused_by=lease_request.refused_by | {place})


def _later(request: Generation, remaining: float | None, waited: float) -> Generation:
    # Slack shrinks while the request waits.
    slack = request.slack - waited + (BATCH_SLACK if request.priority == "batch" else 0.0)
    return dataclasses.replace(request, deadline_seconds=remaining, slack=slack)
