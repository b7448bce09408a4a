"""The pool: runs the models of the registry, loads them when needed, and shares memory and cores among them."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from orchestrator.engine.client.engine import Completion, Engine, OnText
from orchestrator.engine.contract import (
    Embeddings,
    Generation,
    Message,
    OfferedTool,
    Priority,
    Ranking,
    SystemPrompt,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied, EngineError, NotStarted
from orchestrator.engine.waits import pausing
from orchestrator.pool.admission import PoolBudget
from orchestrator.pool.decoding import Decoding
from orchestrator.pool.errors import ModelPinned, PoolError, UnknownModel
from orchestrator.pool.footprint import Footprints
from orchestrator.pool.handle import EngineHandle, StartEngine
from orchestrator.pool.machine import memory_budget, read_topology
from orchestrator.pool.managed_model import LeaseRequest, ManagedModel, Replica
from orchestrator.pool.placement import Topology
from orchestrator.pool.policy import Rules
from orchestrator.pool.prefix_hashes import hash_prefixes
from orchestrator.pool.remotes import Remotes
from orchestrator.pool.residency import Folders, Residency
from orchestrator.pool.status import Counters, PoolSnapshot, RoleCounts, sum_counters
from orchestrator.task.events import Usage
from registry.diff import difference
from registry.models import Registry
from registry.thinking import Thinking

_OF_A_NODE: Final = 0.9
"""The share of a node's memory that engines bound to it may take."""
BATCH_SLACK: Final = 300.0
"""How many seconds of slack the requests of a batch get in an engine besides their own, so that interactive ones, which
come later and whose steps wait for each other, need not queue behind a whole fan-out. An engine bounds what slack is
worth: this comes to 27 seconds, after which an older request of a batch goes first."""


class Pool:
    """The models of one registry. An async context manager: when it ends, all engines have been stopped.

    `budget` is how many bytes all loaded models together may take, by estimate or measurement; without it the
    registry's budget counts, or else most of the free memory. Engines write their logs into `log_dir`. What they
    take is remembered in the file `footprints`, how long their steps take in the folder `step_costs`, and in `prefixes`
    what they have computed of prompts that begin with the system messages which `system_prompts` gives for a model;
    without these, for the life of the pool or the engine. `topology` and `rules` are the machine's and the registry's
    unless given. `start_engine` loads a model: as a process of its own, unless another way is given.
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
        self._given = budget, rules
        self._free = memory_budget()
        self._topology = topology or read_topology()
        here = {name: entry for name, entry in registry.models.items() if entry.remote is None}
        self._managed = {name: ManagedModel.of(entry, self._topology) for name, entry in here.items()}
        self._remotes = Remotes(registry.models.values())
        self._log_dir = log_dir
        self._decoding = Decoding(self._topology)
        self._tasks = asyncio.TaskGroup()
        self._counters = Counters(self._tasks)
        self._role_counts = RoleCounts()
        self._residency = Residency(
            self._managed,
            self._topology,
            *self._limits(),
            Footprints(footprints),
            Folders(log_dir, step_costs, prefixes),
            system_prompts,
            self._decoding,
            self._tasks,
            start_engine,
        )

    async def __aenter__(self) -> Self:
        """Begin to load the HOT models. Requests for one that cannot be loaded fail, and `snapshot` has the reason."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        await self._tasks.__aenter__()
        self._turns = self._tasks.create_task(self._decoding.rotate())
        self._residency.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all engines. Generations that are still running raise EngineStopped."""
        self._turns.cancel()
        try:
            await self._residency.close()
            await self._remotes.close()
        finally:
            await self._tasks.__aexit__(None, None, None)

    async def count(
        self,
        model: str,
        messages: Sequence[Message],
        priority: Priority = "interactive",
        tools: Sequence[OfferedTool] = (),
        thinking: Thinking = "auto",
    ) -> int:
        """Return how many tokens the prompt of these messages has. Loads the model if needed.

        The model's chat template is given `tools` and `thinking`, as in `Generation`.

        Raises what `generate` raises, and ModelRemote, since only its server can count the tokens of a remote model.
        """
        managed = self._model(model)
        wanted = LeaseRequest(interactive=priority == "interactive", due=asyncio.get_running_loop().time())
        async with self._lease(managed, wanted) as (_, engine):
            return await engine.count(messages, tools, thinking)

    async def tokenize(self, model: str, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return the tokens of a text in a model's vocabulary, see `Engine.tokenize`. Loads the model if needed.

        Raises what `count` raises. So do `detokenize` and `render`.
        """
        async with self._lease_now(model) as engine:
            return await engine.tokenize(text, special=special, whole=whole)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Return the text of tokens of a model's vocabulary, see `Engine.detokenize`."""
        async with self._lease_now(model) as engine:
            return await engine.detokenize(tokens)

    async def render(
        self,
        model: str,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        """Return the prompt that a model's chat template makes of messages and tools, see `Engine.render`."""
        async with self._lease_now(model) as engine:
            return await engine.render(messages, arguments, tools)

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate text with a model, loading it if needed. The request's deadline and slack count from this call.

        Requests of a batch are served after interactive ones when models have to make room for each other. Time spent
        on loading is in `usage.queued_seconds`. Time in which the model rests after failures does not count towards the
        deadline. A request that was still queued in an engine that died moves on to the next one.

        Raises PoolError (see `orchestrator.pool.errors`) and EngineError: ModelLoadFailed, BadRequest and its like,
        EngineDied; a remote model's are in `orchestrator.pool.remote.errors`.
        """
        server = self._remotes.get(model) or self._model(model)
        with self._role_counts.asking(model, request.role) as answered:
            if isinstance(server, ManagedModel):
                completion = await self._generate_here(server, request, on_text, on_thought)
            else:
                completion = await server.generate(request, on_text, on_thought)
            answered(completion.usage)
        return completion

    async def _generate_here(
        self, managed: ManagedModel, request: Generation, on_text: OnText | None, on_thought: OnText | None
    ) -> Completion:
        clock = asyncio.get_running_loop().time
        asked = clock()
        hashes = hash_prefixes(request.messages, request.lora, request.tools) if len(managed.instances) > 1 else ()
        wanted = LeaseRequest(
            interactive=request.priority == "interactive", due=asked + request.slack, prefix_hashes=hashes
        )
        left = request.deadline_seconds
        while True:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(left) as limit:
                        with pausing(limit):
                            replica, engine = await stack.enter_async_context(self._lease(managed, wanted))
                        end = limit.when()
                except TimeoutError:
                    return Completion("", "deadline", Usage(queued_seconds=clock() - asked))
                waited, left = clock() - asked, None if end is None else end - clock()
                later = _later(request, left, waited)
                try:
                    async with self._decoding.of(replica, managed.entry.options.threads, wanted.due):
                        completion = await engine.generate(later, on_text, on_thought)
                except NotStarted:  # another engine can carry it out
                    left = None if end is None else end - clock()
                    await self._note_death(replica, engine)
                    continue
            usage = completion.usage
            queued = dataclasses.replace(usage, queued_seconds=usage.queued_seconds + waited)
            return dataclasses.replace(completion, usage=queued)

    async def embed(self, model: str, texts: Sequence[str]) -> Embeddings:
        """Make a vector of each text with the model of the registry's role `embedder`, loading it if needed.

        Raises what `generate` raises; BadRequest for a model that writes, TextTooLong, and ModelRemote.
        """
        managed = self._model(model)
        wanted = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(managed, wanted) as (replica, engine):
            async with self._decoding.of(replica, managed.entry.options.threads, wanted.due):
                return await engine.embed(texts)

    async def rank(self, model: str, query: str, texts: Sequence[str]) -> Ranking:
        """Say how relevant each text is to a query with the model of the role `reranker`, loading it if needed.

        Raises what `embed` raises.
        """
        managed = self._model(model)
        wanted = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(managed, wanted) as (replica, engine):
            async with self._decoding.of(replica, managed.entry.options.threads, wanted.due):
                return await engine.rank(query, texts)

    @property
    def decoding(self) -> Decoding:
        """The cores that engines decode on, and lend to jobs of the sandbox."""
        return self._decoding

    async def generate_batch(
        self, model: str, requests: Sequence[Generation]
    ) -> list[Completion | EngineError | PoolError]:
        """Generate for all requests at the same time, and return their results in order.

        If one fails, its error is its result, and the others go on.
        """

        async def one(request: Generation) -> Completion | EngineError | PoolError:
            try:
                return await self.generate(model, request)
            except (EngineError, PoolError) as error:
                return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in requests]
        return [task.result() for task in tasks]

    async def load(self, model: str) -> None:
        """Load a model, and wait until it is loaded. Raises what `generate` raises if it cannot be loaded."""
        managed = self._model(model)
        async with self._lease(managed, LeaseRequest(due=asyncio.get_running_loop().time())):
            pass

    async def unload(self, model: str) -> None:
        """Stop a model's engines when their running requests have ended, and wait for that.

        Later requests wait, and load the model again. Raises UnknownModel, ModelPinned.
        """
        managed = self._model(model)
        if managed.pinned:
            raise ModelPinned(model, f"model {model} is {'HOT' if managed.hot else 'pinned'}; accepted: unpin it first")
        await self._residency.unload(managed)

    def pin(self, model: str, pinned: bool = True) -> None:
        """Pin a model, so that once it is loaded it is neither evicted nor unloaded when idle; or unpin it.

        An unload that has begun is not stopped by that. HOT models are pinned from the start. Raises UnknownModel.
        """
        self._model(model).pinned = pinned
        self._residency.reconsider()

    def adopt(self, registry: Registry, rewritten: Collection[Path] = ()) -> None:
        """Adopt another version of the registry. `rewritten` are model files whose content has changed.

        Running requests end with the former version. Waiting and later requests use the new one. Engines that the new
        version would load in another way end when no request uses them. A removed model raises UnknownModel.
        """
        before, self._registry = self._registry, registry
        for remote in self._remotes.adopt(registry.models.values()):
            self._tasks.create_task(remote.retire())
        here = {name: entry for name, entry in registry.models.items() if entry.remote is None}
        limits = None if registry.defaults == before.defaults else self._limits()
        self._residency.adopt(here, difference(before, registry, rewritten).retired, limits)

    def _limits(self) -> tuple[PoolBudget, Rules]:
        """Return how much memory the models may take together, and the rules of the policy.

        The free memory was read before any model was loaded: mapped files would count as free and as a model's memory.
        """
        budget, rules = self._given
        defaults = self._registry.defaults
        most = defaults.memory if budget is None else budget
        total = self._free if most is None else most
        return _budget(total, self._topology), rules or Rules(idle_unload_seconds=defaults.idle_unload_seconds)

    @property
    def resident(self) -> frozenset[str]:
        """The models that can serve a request without being loaded: those with an engine, and remote ones."""
        loaded = (name for name, managed in self._managed.items() if any(one.serves for one in managed.instances))
        return frozenset({*loaded, *self._remotes})

    def snapshot(self) -> PoolSnapshot:
        """Describe every model, and the memory that all of them hold together."""
        now = asyncio.get_running_loop().time()
        statuses = (*(managed.status(now) for managed in self._managed.values()), *self._remotes.statuses(now))
        return PoolSnapshot(
            budget=self._residency.budget.total,
            used=self._residency.used,
            cores=self._topology.cores,
            models=tuple(dataclasses.replace(one, roles=self._role_counts.of(one.model)) for one in statuses),
        )

    async def survey(self) -> PoolSnapshot:
        """Describe the same with the engines' counters. For an engine in a long step they may be older."""
        running = {
            name: [one.engine for one in managed.instances if one.engine] for name, managed in self._managed.items()
        }
        stats = await self._counters.of([engine for engines in running.values() for engine in engines])
        counted = {
            name: sum_counters([stats[one] for one in engines if one in stats]) for name, engines in running.items()
        }
        found = self.snapshot()
        models = (dataclasses.replace(one, counters=counted.get(one.model)) for one in found.models)
        return dataclasses.replace(found, models=tuple(models))

    def _model(self, model: str) -> ManagedModel:
        managed = self._managed.get(model)
        if managed is None or (managed.retiring and managed.successor is None):
            self._remotes.refuse(model)
            known = ", ".join(sorted({*self._managed, *self._remotes} - {model}))
            raise UnknownModel(model, f"there is no model {model!r}; accepted: {known}")
        return managed

    @contextlib.asynccontextmanager
    async def _lease_now(self, model: str) -> AsyncIterator[EngineHandle]:
        """Lease an engine of a model for something short. Raises UnknownModel and ModelRemote."""
        wanted = LeaseRequest(due=asyncio.get_running_loop().time())
        async with self._lease(self._model(model), wanted) as (_, engine):
            yield engine

    @contextlib.asynccontextmanager
    async def _lease(self, managed: ManagedModel, wanted: LeaseRequest) -> AsyncIterator[tuple[Replica, EngineHandle]]:
        """Lease an engine of a model. EngineDied is raised after its process has ended, so a retry gets another."""
        replica = await self._residency.acquire(managed, wanted)
        engine = replica.engine
        assert engine is not None, "a replica that serves has an engine"
        try:
            yield replica, engine
        except EngineDied:
            await self._note_death(replica, engine)
            raise
        finally:
            self._residency.release(replica)

    async def _note_death(self, replica: Replica, engine: EngineHandle) -> None:
        await engine.wait_dead()
        self._residency.on_engine_exit(replica, engine)


def _budget(total: int, topology: Topology) -> PoolBudget:
    """Return the budget for the whole machine, and for each node if there are several."""
    if len(topology.nodes) < 2:
        return PoolBudget(total)
    return PoolBudget(total, {node.id: int(node.memory * _OF_A_NODE) for node in topology.nodes})


def _later(request: Generation, left: float | None, waited: float) -> Generation:
    """Return the request with `left` seconds to its deadline, less slack by what it waited, and its class's slack."""
    slack = request.slack - waited + (BATCH_SLACK if request.priority == "batch" else 0.0)
    return dataclasses.replace(request, deadline_seconds=left, slack=slack)
