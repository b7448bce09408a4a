"""The pool's state of one model: its replicas, its requests, what its engines have computed and how they failed."""

import asyncio
import dataclasses
import heapq
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Message, OfferedTool
from orchestrator.pool.errors import ModelBroken, ModelUnavailable, UnknownModel
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.machine import Topology, nodes_for
from orchestrator.pool.policy import (
    ANSWER_TOKENS,
    Demand,
    ModelView,
    Pace,
    ReplicaCandidate,
    ReplicaId,
    ReplicaState,
    ReplicaView,
    choose_replica,
)
from orchestrator.pool.status import ModelState, ModelStatus, ReplicaStatus
from orchestrator.registry.forms import HEAD
from orchestrator.registry.models import ModelEntry
from orchestrator.registry.options import Adapters
from orchestrator.task.events import Usage
from orchestrator.task.reuse import BLOCK, DIGEST_BYTES, MOST_BLOCKS, LossCause, with_other_engine

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0  # A model whose engines failed MAX_FAILURES times in so many seconds is broken.
MAX_FAILED_LOADS: Final = 9  # After so many failed loads in a row, requests no longer wait.
_RETIRING: Final = "the registry has changed: its engine ends when no request uses it any more"
PREFIX_BLOCK: Final = 256  # characters; a shorter prefix saves no time
MAX_PREFIX_BLOCKS: Final = 256  # hashed per prompt
MAX_REMEMBERED: Final = 4096  # blocks per engine
_ANSWERS: Final = 20  # in whose mean an answer counts

PrefixHashes = tuple[bytes, ...]


def hash_prefixes(messages: Sequence[Message], lora: Adapters = (), tools: Sequence[OfferedTool] = ()) -> PrefixHashes:
    """Return a hash for each whole block at the start of a prompt, which covers all blocks before it."""
    text = "\0".join("\0".join((message.role, *message.texts)) for message in messages)
    # Prompts with different adapters share nothing, nor do those with different tools, which most chat templates put
    # first.
    digest = "".join(map(repr, filter(None, (lora, tuple(tools))))).encode("utf-8", "surrogatepass")
    hashes: list[bytes] = []
    for start in range(0, min(len(text) - PREFIX_BLOCK + 1, MAX_PREFIX_BLOCKS * PREFIX_BLOCK), PREFIX_BLOCK):
        block = text[start : start + PREFIX_BLOCK].encode("utf-8", "surrogatepass")
        digest = blake2b(digest + block, digest_size=8).digest()
        hashes.append(digest)
    return tuple(hashes)


class SeenPrefixes:
    """The blocks that one engine has seen, since asking it costs a round trip. The least recently seen go first."""

    def __init__(self) -> None:
        # Prompts start with system prompt, persona and inputs, so an engine probably still holds the last blocks.
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def match(self, hashes: PrefixHashes) -> int:
        """Return how many blocks at the start have been seen."""
        return next((number for number, prefix in enumerate(hashes) if prefix not in self._seen), len(hashes))

    def add(self, hashes: PrefixHashes) -> None:
        for prefix in reversed(hashes):  # so that the beginning of a prompt is forgotten after its end
            self._seen[prefix] = None
            self._seen.move_to_end(prefix)
        while len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)


class ComputedPrompts:
    """Which engine of a model has computed which blocks of prompts, since an engine knows only its own.

    The oldest are forgotten first.
    """

    def __init__(self) -> None:
        # `EngineHandle.died` stands for the engine: it is enough to compare engines and to see whether one has ended.
        self._engines: OrderedDict[bytes, asyncio.Event] = OrderedDict()

    def note(self, engine: asyncio.Event, *prompts: bytes) -> None:
        """Record prompts, as in `Completion.prompt_blocks`, that the engine whose `died` is `engine` has computed."""
        for blocks in map(_blocks, prompts):
            for block in reversed(blocks):  # the start of a prompt comes last, so that it is forgotten after its end
                self._engines[block] = engine
                self._engines.move_to_end(block)
        while len(self._engines) > MOST_BLOCKS:
            self._engines.popitem(last=False)

    def compare(self, completion: Completion, engine: asyncio.Event) -> Usage:
        """Record an answer of the engine whose `died` is `engine`.

        Returns the usage, with the tokens that were expected in the cache only because another engine had them.
        """
        usage, blocks = completion.usage, _blocks(completion.prompt_blocks)
        other, shared = None, 0
        for end, block in enumerate(blocks[: (usage.prompt_tokens - 1) // BLOCK], 1):
            if (last := self._engines.get(block)) is None:
                break
            if last is not engine:
                other, shared = last, end
        self.note(engine, completion.prompt_blocks)
        if other is None:
            return usage
        cause: LossCause = "engine restarted" if other.is_set() else "other engine"
        reuse = with_other_engine(usage.reuse, usage.cached_tokens, usage.prompt_tokens, shared, cause)
        return dataclasses.replace(usage, reuse=reuse)


def _blocks(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    interactive: bool = True
    due: float = 0.0  # event loop time
    prefix_hashes: PrefixHashes = ()


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting request. `granted` gets its replica."""

    request: LeaseRequest
    since: float
    granted: "asyncio.Future[Replica]"


@dataclass(slots=True, eq=False)
class Replica:
    """One replica of a model, with or without an engine. Times are the event loop's."""

    replica_id: ReplicaId
    node: int | None = None
    machine: str = ""  # of a cluster; empty for this one
    state: ReplicaState = "absent"
    bytes: int = 0  # of the budget; 0 while absent
    engine: EngineHandle | None = None
    asked: float | None = None  # since when it should be loaded although no request waits for it
    draining: bool = False  # takes no new requests, because a request that has waited too long needs its memory
    leaving: bool = False  # takes no new requests, and stops as soon as it is idle
    pace: Pace | None = None  # of the engine; None unless other machines run the model, too
    leases: int = 0  # requests that use it
    active: int = 0  # how many of them are generating
    threads: int = 0
    begun_at: float = 0.0
    loaded_at: float = 0.0
    last_used: float = 0.0
    seen: SeenPrefixes = field(default_factory=SeenPrefixes)
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # set while absent

    def __post_init__(self) -> None:
        self.gone.set()

    @property
    def serves(self) -> bool:
        alive = self.engine is not None and not self.engine.died.is_set()
        return alive and self.state == "ready" and not self.draining and not self.leaving

    def begin(self, reserved: int, now: float) -> None:
        self.state, self.bytes, self.asked, self.begun_at = "loading", reserved, None, now
        self.gone.clear()

    def loaded(self, engine: EngineHandle, threads: int, now: float) -> None:
        self.state, self.engine, self.threads = "ready", engine, threads
        self.loaded_at = self.last_used = now

    def vacate(self) -> None:
        self.state, self.bytes, self.engine, self.threads = "absent", 0, None, 0
        self.draining = self.leaving = False
        self.pace = None
        self.seen = SeenPrefixes()
        self.gone.set()

    def grant(self, prefix_hashes: PrefixHashes) -> None:
        self.leases += 1
        if prefix_hashes:
            self.seen.add(prefix_hashes)

    def view(self, pinned: bool, needed: int, on_disk: bool) -> ReplicaView:
        """`needed` is the bytes it would take if it is absent. `on_disk`: its machine has the model's files."""
        return ReplicaView(
            replica_id=self.replica_id,
            bytes=needed if self.state == "absent" else self.bytes,
            state=self.state,
            node=self.node,
            machine=self.machine,
            on_disk=on_disk,
            # A leaving replica is not pinned, so that other models can use its bytes.
            pinned=pinned and not self.leaving,
            requests=self.leases,
            asked=self.asked,
            draining=self.draining,
            leaving=self.leaving,
            loaded_at=self.loaded_at,
            load_seconds=self.loaded_at - self.begun_at,
            last_used=self.last_used,
        )

    def status(self) -> ReplicaStatus:
        return ReplicaStatus(
            number=self.replica_id[1],
            node=self.node,
            machine=self.machine,
            state=self.state,
            bytes=self.bytes,
            requests=self.leases,
            active=self.active,
            threads=self.threads if self.engine is not None else None,
            pid=self.engine.info.pid if self.engine is not None else None,
        )


@dataclass(slots=True, eq=False)
class ManagedModel:
    entry: ModelEntry
    instances: tuple[Replica, ...]
    pinned: bool  # neither evicted nor unloaded when idle
    misplaced: str | None = None  # why it cannot run on this machine
    retiring: bool = False  # the registry has changed: its engines end and take no new requests
    # the entry to adopt when a retiring model's engines have ended; None removes the model
    successor: ModelEntry | None = None
    waiting: dict[Waiter, None] = field(default_factory=dict)  # in order of arrival
    resting: int = 0  # requests that wait until a broken model is tried again
    # Set, and then replaced, when resting requests need not wait: the entry changed, or the pool closed.
    reopened: asyncio.Event = field(default_factory=asyncio.Event)
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    failed_loads: int = 0  # in a row
    unloadable: bool = False  # the last load failed for a lasting reason, such as a missing file
    last_failure: str | None = None
    prompts: ComputedPrompts = field(default_factory=ComputedPrompts)
    answer_tokens: float = ANSWER_TOKENS  # the mean of answers, of which later ones count more
    barred: dict[str, str] = field(default_factory=dict)  # machines of the cluster that cannot have it, and why

    @classmethod
    def of(cls, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None = None) -> "ManagedModel":
        """Return a model without engines. `others` are the other machines of a cluster; None without a cluster."""
        model = cls(entry, (), entry.residency == "hot")
        model.arrange(topology, others)
        return model

    def arrange(self, topology: Topology, others: Mapping[str, Topology] | None) -> None:
        """Have a replica for each place that there is now. Those of other places stay until their engines end."""
        machines = {**({"": topology} if runs_here(self.entry) else {}), **dict(sorted((others or {}).items()))}
        places = [
            (machine, node)
            for machine, own in machines.items()
            if machine not in self.barred
            for node in _nodes(self.entry, machine, own)
        ]
        before = {(replica.machine, replica.node): replica for replica in self.instances}
        numbers = itertools.count(max((replica.replica_id[1] for replica in self.instances), default=-1) + 1)
        leaving = [replica for place, replica in before.items() if place not in places and replica.state != "absent"]
        for replica in leaving:
            replica.leaving = True
        self.instances = (
            *(before.get(place) or Replica((self.entry.id, next(numbers)), place[1], place[0]) for place in places),
            *leaving,
        )
        self.misplaced = self._why_no_place(topology, others)

    def _why_no_place(self, topology: Topology, others: Mapping[str, Topology] | None) -> str | None:
        # Requests wait for nodes that may still join.
        entry = self.entry
        if runs_here(entry) and entry.numa is not None and not _nodes(entry, "", topology):
            listed = ", ".join(str(node.id) for node in topology.nodes)
            return f"model {entry.id} is bound to NUMA node {entry.numa}; accepted on this machine: {listed}"
        if others is None and not runs_here(entry):
            listed = ", ".join(entry.nodes)
            return f"model {entry.id} runs on nodes {listed}; accepted without a cluster: {HEAD}, or no key `nodes`"
        if self.barred and not self.instances:
            return f"model {entry.id} can run nowhere: {'; '.join(self.barred.values())}"
        return None

    def bar(self, machine: str, reason: str) -> None:
        """Do not load it on this machine of the cluster again, until the machine or the entry changes."""
        self.barred[machine] = reason

    def replica(self, number: int) -> Replica:
        return next(replica for replica in self.instances if replica.replica_id[1] == number)

    @property
    def least(self) -> int:
        """The replicas that are loaded as soon as one is: those of the first machine, and as many as the entry says."""
        limits = self.entry.replicas
        if limits is not None:
            return min(limits.min, len(self.instances))
        first = self.instances[0].machine if self.instances else ""
        return sum(replica.machine == first for replica in self.instances) if self.hot else 1

    @property
    def most(self) -> int:
        return len(self.instances) if self.entry.replicas is None else self.entry.replicas.max

    def retire(self, successor: ModelEntry | None) -> None:
        """Let its engines end when unused; then adopt `successor`, or remove the model."""
        self.retiring, self.successor = True, successor
        for replica in self.instances:
            replica.asked, replica.leaving = None, replica.state != "absent"
        if successor is None:
            self.reopen()

    def reopen(self) -> None:
        self.reopened.set()
        self.reopened = asyncio.Event()

    def update(self, entry: ModelEntry) -> None:
        """Adopt an entry that is loaded in the same way as the current one."""
        if entry.residency != self.entry.residency:
            self.pinned = entry.residency == "hot"
        self.entry, self.retiring, self.successor = entry, False, None

    def become(self, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None = None) -> None:
        """Adopt an entry that is loaded differently, while there is no engine. Requests keep waiting."""
        fresh = ManagedModel.of(entry, topology, others)
        self.instances, self.misplaced, self.barred = fresh.instances, fresh.misplaced, {}
        self.failures.clear()
        self.failed_loads, self.unloadable = 0, False
        self.last_failure = None
        self.update(entry)
        self.reopen()

    @property
    def absent(self) -> bool:
        return all(replica.state == "absent" for replica in self.instances)

    @property
    def why_not(self) -> str | None:
        return self.entry.why_not or self.misplaced

    @property
    def hot(self) -> bool:
        return self.entry.residency == "hot"

    @property
    def coming(self) -> bool:
        return any(replica.state in ("ready", "loading") for replica in self.instances)

    @property
    def serves(self) -> bool:
        return any(replica.serves for replica in self.instances)

    def choose(self, prefix_hashes: PrefixHashes) -> Replica | None:
        """Return the replica that serves a request now, or None if the request must wait."""
        if len(self.instances) == 1:  # it is this one or none
            return self.instances[0] if self.instances[0].serves else None
        # While another replica may come, none gets more requests than slots: what waits inside an engine cannot move.
        candidates = (
            ReplicaCandidate(
                replica.replica_id[1],
                replica.leases,
                self.entry.slots,
                replica.seen.match(prefix_hashes),
                replica.pace,
            )
            for replica in self.instances
            if replica.serves and (self._complete or replica.leases < self.entry.slots)
        )
        number = choose_replica(candidates, len(prefix_hashes), self.answer_tokens)
        return None if number is None else self.replica(number)

    @property
    def _complete(self) -> bool:
        # no further replica may come
        states = [replica.state for replica in self.instances]
        return "loading" not in states and ("absent" not in states or len(states) - states.count("absent") >= self.most)

    def serve(self) -> None:
        """Lease replicas to waiting requests: interactive before batch, then by due time, then by age."""
        free = sum(max(0, self.entry.slots - replica.leases) for replica in self.instances if replica.serves)
        most = len(self.waiting) if self._complete else free
        for waiter in heapq.nsmallest(most, self.waiting, key=_turn):
            replica = self.choose(waiter.request.prefix_hashes)
            if replica is None:
                return
            del self.waiting[waiter]
            if not waiter.granted.done():
                replica.grant(waiter.request.prefix_hashes)
                waiter.granted.set_result(replica)

    def note_answer(self, tokens: int) -> None:
        self.answer_tokens += (tokens - self.answer_tokens) / _ANSWERS

    @property
    def clustered(self) -> bool:
        """Whether machines of a cluster have replicas."""
        return any(replica.machine for replica in self.instances)

    def refuse(self, error: Exception) -> None:
        for waiter in tuple(self.waiting):
            del self.waiting[waiter]
            if not waiter.granted.done():
                waiter.granted.set_exception(error)

    def view(self, needed: int, on_disk: Callable[[str], bool] = lambda machine: True) -> ModelView:
        """`needed` is the bytes of another engine. `on_disk` returns whether a machine has the model's files."""
        present = [replica for replica in self.instances if replica.state != "absent"]
        pinned = present[: max(1, self.least)] if self.pinned else []  # those that a cluster has in addition may stop
        return ModelView(
            slots=self.entry.slots,
            instances=tuple(
                replica.view(replica in pinned, needed, on_disk(replica.machine)) for replica in self.instances
            ),
            demand=_demand(self.waiting) if self.waiting and not self.retiring else None,
            least=self.least,
            most=self.most,
        )

    def failed(self, now: float, reason: str) -> None:
        self.failures.append(now)
        self.last_failure = reason

    def load_failed(self, now: float, reason: str, *, lasting: bool) -> None:
        self.failed(now, reason)
        self.failed_loads += 1
        self.unloadable = lasting

    def loaded(self) -> None:
        self.failed_loads, self.unloadable = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether the next load will probably fail, so that no request waits for it."""
        return self.unloadable or self.failed_loads >= MAX_FAILED_LOADS

    def broken_for(self, now: float) -> float:
        """Return the seconds until a broken model is tried again; 0 if it is not broken."""
        if len(self.failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.failures[0] + FAILURE_WINDOW - now)

    def check(self, now: float) -> None:
        """Raise UnknownModel, ModelUnavailable or ModelBroken if it cannot be loaded now."""
        if self.retiring and self.successor is None:
            raise UnknownModel(self.entry.id, f"model {self.entry.id} is no longer in the registry")
        if self.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.why_not)
        if self.broken_for(now) > 0:
            raise self.broken(now)

    def broken(self, now: float) -> ModelBroken:
        seconds = self.broken_for(now)
        how = f"its engine failed {MAX_FAILURES} times within {FAILURE_WINDOW:.0f} s"
        if self.failed_loads >= MAX_FAILED_LOADS:
            how = f"it could not be loaded {self.failed_loads} times in a row"
        elif self.unloadable:
            how = "it cannot be loaded"
        when = f"next try in {math.ceil(seconds)} s" if seconds else "the next request tries it again"
        message = f"model {self.entry.id} is broken: {how}; {when}; the last time: "
        return ModelBroken(self.entry.id, f"{message}{self.last_failure}", retry_seconds=seconds, lasting=self.hopeless)

    def status(self, now: float) -> ModelStatus:
        instances = tuple(replica.status() for replica in self.instances)
        running = [replica for replica in instances if replica.pid is not None]
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            pinned=self.pinned,
            state=self._state(now),
            bytes=sum(replica.bytes for replica in instances),
            waiting=len(self.waiting) + self.resting,
            waiting_batch=sum(not waiter.request.interactive for waiter in self.waiting),
            requests=len(self.waiting) + self.resting + sum(replica.requests for replica in instances),
            active=sum(replica.active for replica in instances),
            threads=sum(replica.threads or 0 for replica in running) if running else None,
            pid=running[0].pid if running else None,
            reason=self._reason(now),
            instances=instances,
        )

    def _reason(self, now: float) -> str | None:
        if self.retiring:
            return _RETIRING
        if self.why_not is not None:
            return self.why_not
        if not self.instances:
            return f"none of its nodes has joined: {', '.join(self.entry.nodes)}"
        return str(self.broken(now)) if self.broken_for(now) > 0 and not self.coming else self.last_failure

    def _state(self, now: float) -> ModelState:
        states = {replica.state for replica in self.instances}
        if "ready" in states:
            return "ready"
        if "loading" in states:
            return "loading"
        if self.waiting or any(replica.asked is not None for replica in self.instances):
            return "waiting"
        if "stopping" in states:
            return "stopping"
        if self.why_not is not None:
            return "unavailable"
        return "broken" if self.broken_for(now) > 0 else "unloaded"


def runs_here(entry: ModelEntry) -> bool:
    """Return whether a model may run on the head of a cluster, which is this machine."""
    return not entry.nodes or HEAD in entry.nodes


def _nodes(entry: ModelEntry, machine: str, topology: Topology) -> tuple[int | None, ...]:
    # The NUMA nodes of a machine that get a replica each; empty if the model may not run there.
    if machine and entry.nodes and machine not in entry.nodes:
        return ()
    if entry.numa is not None and all(node.id != entry.numa for node in topology.nodes):
        return ()
    return nodes_for(topology, entry.instances, entry.numa)


def _turn(waiter: Waiter) -> tuple[bool, float, float]:
    # the smallest is served first
    return not waiter.request.interactive, waiter.request.due, waiter.since


def _demand(waiting: Collection[Waiter]) -> Demand:
    return Demand(
        since=min(waiter.since for waiter in waiting),
        interactive_since=min((waiter.since for waiter in waiting if waiter.request.interactive), default=math.inf),
        due=min(waiter.request.due for waiter in waiting),
        count=len(waiting),
    )
