"""The places where a model runs: its replicas, on the machines and NUMA nodes that may have one, and its servers."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.machine import Topology, nodes_for
from orchestrator.pool.policy import ReplicaId, ReplicaState, ReplicaView
from orchestrator.pool.prompts import PrefixHash, PrefixHashes, SeenPrefixes
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.replica_choice import Pace
from orchestrator.pool.shipping import Shipment
from orchestrator.pool.status import ReplicaStatus
from orchestrator.registry.forms import HEAD
from orchestrator.registry.models import ModelEntry


@dataclass(slots=True, eq=False)
class Replica:
    """One replica of a model, with or without an engine. Times are the event loop's."""

    replica_id: ReplicaId
    node: int | None = None
    machine: str = ""  # of a cluster; empty for this one
    state: ReplicaState = "absent"
    bytes: int = 0  # of the budget; 0 while absent
    engine: EngineHandle | None = None
    preload_since: float | None = None  # since when it should be loaded although no request waits for it
    draining: bool = False  # takes no new requests, because a request that has waited too long needs its memory
    leaving: bool = False  # takes no new requests, and stops as soon as it is idle
    pace: Pace | None = None  # of the engine; None unless other machines or servers run the model, too
    leases: int = 0  # requests that use it
    active: int = 0  # how many of them are generating
    threads: int = 0
    started_at: float = 0.0
    loaded_at: float = 0.0
    last_used: float = 0.0
    prefixes: SeenPrefixes = field(default_factory=SeenPrefixes)
    # Cells that will come from other machines, by the hash of the last block of each prefix.
    shipments: dict[PrefixHash, Shipment] = field(default_factory=dict)
    vacant: asyncio.Event = field(default_factory=asyncio.Event)  # set while absent

    def __post_init__(self) -> None:
        self.vacant.set()

    @property
    def serves(self) -> bool:
        alive = self.engine is not None and not self.engine.died.is_set()
        return alive and self.state == "ready" and not self.draining and not self.leaving

    def start_loading(self, reserved: int, now: float) -> None:
        self.state, self.bytes, self.preload_since, self.started_at = "loading", reserved, None, now
        self.vacant.clear()

    def finish_loading(self, engine: EngineHandle, threads: int, now: float) -> None:
        self.state, self.engine, self.threads = "ready", engine, threads
        self.loaded_at = self.last_used = now

    def vacate(self) -> None:
        self.state, self.bytes, self.engine, self.threads = "absent", 0, None, 0
        self.draining = self.leaving = False
        self.pace = None
        self.prefixes = SeenPrefixes()
        self.shipments = {}
        self.vacant.set()

    def grant(self, prefix_hashes: PrefixHashes) -> None:
        self.leases += 1
        if prefix_hashes:
            self.prefixes.add(prefix_hashes)

    def note_arrival(self, last: PrefixHash, shipment: Shipment) -> None:
        """Let requests no longer wait for cells, which have come or will not come."""
        if self.shipments.get(last) is shipment:
            del self.shipments[last]

    def view(self, pinned: bool, needed: int, on_disk: bool) -> ReplicaView:
        """Return what the policy sees. `needed`: its bytes if absent. `on_disk`: its machine has the model's files."""
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
            preload_since=self.preload_since,
            draining=self.draining,
            leaving=self.leaving,
            loaded_at=self.loaded_at,
            load_seconds=self.loaded_at - self.started_at,
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


Place = Replica | RemoteModel


@dataclass(slots=True, eq=False)
class Places:
    """The replicas and servers of a model, as its entry wants them on the machines that there are."""

    entry: ModelEntry
    replicas: tuple[Replica, ...] = ()
    servers: tuple[RemoteModel, ...] = ()
    former_servers: list[RemoteModel] = field(default_factory=list)  # that the entry has no more, to be retired
    misplaced: str | None = None  # why it cannot run on this machine
    # By name, the machines of a cluster that cannot load it, and why; until they leave or the entry changes.
    barred: dict[str, str] = field(default_factory=dict)

    def adopt(self, entry: ModelEntry) -> None:
        """Adopt an entry and its servers. `former_servers` get those that it has no more. Replicas stay as they are."""
        self.entry = entry
        before = {server.endpoint: server for server in self.servers}
        fresh = (endpoint for endpoint in entry.servers if endpoint not in before)
        servers = before | {endpoint: RemoteModel(entry, endpoint) for endpoint in fresh}
        self.servers = tuple(servers[endpoint] for endpoint in entry.servers)
        for server in self.servers:
            server.entry = entry
        self.former_servers += (before[endpoint] for endpoint in before if endpoint not in entry.servers)

    def arrange(self, topology: Topology, others: Mapping[str, Topology] | None) -> None:
        """Have a replica wherever one may be now. Replicas elsewhere stay until their engines end.

        `topology` is this machine's, `others` are those of the other machines of a cluster; None without a cluster.
        """
        if self.entry.is_remote:
            self.replicas, self.misplaced = (), None
            return
        machines = {**({"": topology} if _runs_here(self.entry) else {}), **dict(sorted((others or {}).items()))}
        wanted = [
            (machine, node)
            for machine, own in machines.items()
            if machine not in self.barred
            for node in _nodes(self.entry, machine, own)
        ]
        before = {(replica.machine, replica.node): replica for replica in self.replicas}
        numbers = itertools.count(max((replica.replica_id[1] for replica in self.replicas), default=-1) + 1)
        leaving = [replica for where, replica in before.items() if where not in wanted and replica.state != "absent"]
        for replica in leaving:
            replica.leaving = True
        self.replicas = (
            *(before.get(where) or Replica((self.entry.id, next(numbers)), where[1], where[0]) for where in wanted),
            *leaving,
        )
        self.misplaced = self._why_no_place(topology, others)

    def arrange_afresh(self, topology: Topology, others: Mapping[str, Topology] | None) -> None:
        """Have other replicas, as for a new model, while there is no engine."""
        self.replicas, self.barred = (), {}
        self.arrange(topology, others)

    def _why_no_place(self, topology: Topology, others: Mapping[str, Topology] | None) -> str | None:
        # Requests wait for nodes that may still join.
        entry = self.entry
        if _runs_here(entry) and entry.numa is not None and not _nodes(entry, "", topology):
            listed = ", ".join(str(node.id) for node in topology.nodes)
            return f"model {entry.id} is bound to NUMA node {entry.numa}; accepted on this machine: {listed}"
        if others is None and not _runs_here(entry):
            listed = ", ".join(entry.nodes)
            return f"model {entry.id} runs on nodes {listed}; accepted without a cluster: {HEAD}, or no key `nodes`"
        if self.barred and not self.replicas:
            return f"model {entry.id} can run nowhere: {'; '.join(self.barred.values())}"
        return None

    def replica(self, number: int) -> Replica:
        return next(replica for replica in self.replicas if replica.replica_id[1] == number)

    @property
    def ready_servers(self) -> list[RemoteModel]:
        return [server for server in self.servers if server.ready]

    @property
    def least(self) -> int:
        """The replicas that are loaded as soon as one is: those of the first machine, and as many as the entry says."""
        limits = self.entry.replicas
        if limits is not None:
            return min(limits.min, len(self.replicas))
        first = self.replicas[0].machine if self.replicas else ""
        return sum(replica.machine == first for replica in self.replicas) if self.entry.residency == "hot" else 1

    @property
    def most(self) -> int:
        """The most replicas that are loaded at a time."""
        return len(self.replicas) if self.entry.replicas is None else self.entry.replicas.max

    @property
    def complete(self) -> bool:
        """Whether no further replica may come."""
        states = [replica.state for replica in self.replicas]
        return "loading" not in states and ("absent" not in states or len(states) - states.count("absent") >= self.most)

    @property
    def clustered(self) -> bool:
        """Whether it has several places, not all of them on this machine."""
        return self.replicated and (bool(self.servers) or any(replica.machine for replica in self.replicas))

    @property
    def replicated(self) -> bool:
        return len(self.replicas) + len(self.servers) > 1

    @property
    def absent(self) -> bool:
        """Whether no engine holds memory."""
        return all(replica.state == "absent" for replica in self.replicas)

    @property
    def loaded_or_loading(self) -> bool:
        return any(replica.state in ("ready", "loading") for replica in self.replicas)

    @property
    def resident(self) -> bool:
        """Whether a request can be carried out without a load."""
        return any(replica.serves for replica in self.replicas) or bool(self.ready_servers)


def _runs_here(entry: ModelEntry) -> bool:
    # This machine is the head of a cluster.
    return not entry.nodes or HEAD in entry.nodes


def _nodes(entry: ModelEntry, machine: str, topology: Topology) -> tuple[int | None, ...]:
    # The NUMA nodes of a machine that get a replica each; empty if the model may not run there.
    if machine and entry.nodes and machine not in entry.nodes:
        return ()
    if entry.numa is not None and all(node.id != entry.numa for node in topology.nodes):
        return ()
    return nodes_for(topology, entry.instances, entry.numa)
