"""The state of the pool, as the API and the command line show it, with the counters of its engines."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from weakref import WeakKeyDictionary

from orchestrator.engine.contract import NOT_SET_UP, EngineStats
from orchestrator.engine.errors import EngineDied
from orchestrator.pool.handle import EngineHandle
from orchestrator.task.events import Usage

PATIENCE_SECONDS: Final = 0.02
"""How long `Counters.of` waits for engines that do not answer at once."""

ModelState = Literal["unavailable", "unloaded", "waiting", "loading", "ready", "stopping", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of a model."""

    number: int
    node: int | None
    """The NUMA node that it is bound to; None for no binding."""
    state: Literal["absent", "loading", "ready", "stopping"]
    bytes: int
    """What it holds of the memory budget."""
    requests: int
    """How many requests use it."""
    active: int
    """How many of them are generating."""
    threads: int | None
    """How many threads compute; 0 while it waits for its turn, None without a process."""
    pid: int | None
    """The id of its process, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounters:
    """The sums of the counters of a model's engines since they were loaded: see EngineStats.

    `speculation` says whether the first engine drafts, and why; it is None if the registry asks for no speculation.
    """

    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    preempted: int
    drafted: int
    accepted: int
    saved_seconds: float
    speculation: str | None
    llama_seconds: float
    own_seconds: float
    queued: int = 0
    """Sequences that wait inside of an engine now."""
    used_cells: int = 0
    """KV cells that are held or reserved now, in tokens."""
    cells: int = 0
    """The size of the KV caches, in tokens."""


@dataclass(slots=True, kw_only=True)
class RoleUse:
    """What one role has asked of a model since the pool was opened."""

    requests: int = 0
    """How many of its requests use the model or wait for it now."""
    answers: int = 0
    """How many were answered."""
    prompt_tokens: int = 0
    """The tokens of the answered prompts, those from the cache included."""
    output_tokens: int = 0
    """The tokens of the answers."""
    cached_tokens: int = 0
    """The tokens of the answered prompts that came from the cache."""
    prefill_seconds: float = 0.0
    """From the end of the queue to the first tokens of the answers, summed."""
    decode_seconds: float = 0.0
    """From the first tokens of the answers to their ends, summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model; numbers are sums over its replicas."""

    model: str
    residency: str
    pinned: bool
    """Whether it is neither evicted nor unloaded when idle."""
    state: ModelState
    bytes: int
    """What it holds of the memory budget."""
    waiting: int
    """How many requests wait for an engine."""
    requests: int
    """How many requests use it or wait for it."""
    active: int
    """How many requests are generating."""
    threads: int | None
    """How many threads compute; None without a process."""
    pid: int | None
    """The id of its first engine's process, or None."""
    reason: str | None
    """Why it is unavailable, or how its engine failed last; None if neither is so."""
    instances: tuple[ReplicaStatus, ...]
    roles: Mapping[str, RoleUse] = field(default_factory=dict)
    """What each role has asked of it. Requests without a role are under the empty name."""
    counters: ModelCounters | None = None
    """The sums of its engines' counters. Only `Pool.survey` asks for them; elsewhere this is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The pool at one moment: the bytes that models may take and have taken, physical cores, and every model."""

    budget: int
    used: int
    cores: int
    models: tuple[ModelStatus, ...]


class Counters:
    """The last counters of each engine. `tasks` has to be open as long as this is used."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._latest: WeakKeyDictionary[EngineHandle, EngineStats] = WeakKeyDictionary()
        self._pending: dict[EngineHandle, asyncio.Task[None]] = {}

    async def of(self, engines: Collection[EngineHandle]) -> Mapping[EngineHandle, EngineStats]:
        """Return each engine's counters: the present ones, or the last known ones if it does not answer at once.

        Engines that have never answered are left out.
        """
        for engine in engines:
            if engine not in self._pending:
                self._pending[engine] = self._tasks.create_task(self._ask(engine))
        if asked := [self._pending[engine] for engine in engines]:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
        return {engine: stats for engine in engines if (stats := self._latest.get(engine)) is not None}

    async def _ask(self, engine: EngineHandle) -> None:
        try:
            with contextlib.suppress(EngineDied):
                self._latest[engine] = await engine.stats()
        finally:
            del self._pending[engine]


class RoleCounts:
    """Counts what each role asks of each model."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[str, RoleUse]] = {}

    @contextlib.contextmanager
    def asking(self, model: str, role: str) -> Iterator[Callable[[Usage], None]]:
        """Count a request for as long as the block lasts. The block gets a function that counts the answer."""
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
        """Return what each role has asked of a model."""
        return {role: replace(use) for role, use in self._uses.get(model, {}).items()}


def sum_counters(counted: Sequence[EngineStats]) -> ModelCounters | None:
    """Return the sums of the counters of a model's engines; None if there are none."""
    if not counted:
        return None
    return ModelCounters(
        prompt_tokens=sum(one.prompt_tokens for one in counted),
        reused_tokens=sum(one.reused_tokens for one in counted),
        output_tokens=sum(one.output_tokens for one in counted),
        preempted=sum(one.preempted for one in counted),
        drafted=sum(one.drafted for one in counted),
        accepted=sum(one.accepted for one in counted),
        saved_seconds=sum(one.saved_seconds for one in counted),
        speculation=None if counted[0].speculation == NOT_SET_UP else counted[0].speculation,
        llama_seconds=sum(one.llama_seconds for one in counted),
        own_seconds=sum(one.own_seconds for one in counted),
        queued=sum(one.queued for one in counted),
        used_cells=sum(one.used_cells for one in counted),
        cells=sum(one.cells for one in counted),
    )
