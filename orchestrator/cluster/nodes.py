"""Have the daemon's pool use the nodes of a Ray cluster, through a process that is a part of the cluster."""

import asyncio
import contextlib
import dataclasses
import itertools
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast
from weakref import WeakKeyDictionary

import structlog

from orchestrator.cluster.carrier import PrefixCarrier
from orchestrator.cluster.digests import ModelFiles
from orchestrator.cluster.environment import ray_environment
from orchestrator.cluster.listening import NoLibrary
from orchestrator.cluster.messages import (
    NUMBER_BYTES,
    BridgeMessage,
    Connect,
    Connected,
    ControlPlane,
    DaemonMessage,
    EngineBeat,
    EngineEnded,
    EngineRefused,
    EngineStarted,
    Exposed,
    Failing,
    FileShipped,
    FilesRemoved,
    KillEngine,
    NodeJoined,
    NodeLost,
    NodeRejected,
    PrefixCarried,
    StartEngine,
    decode_bridge,
    encode,
)
from orchestrator.cluster.process import NodeProcess, Refused
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.errors import LoadFailure, ModelLoadFailed
from orchestrator.engine.protocol import Frames, ProtocolError
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.machines import Machine
from orchestrator.pool.pool import Pool
from orchestrator.registry.forms import HEAD
from orchestrator.registry.models import ModelEntry
from orchestrator.registry.watch import files_of
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import Journal
from orchestrator.service.attachments import NodeStatus, StandbyStatus, server_nodes
from orchestrator.service.configuration import ClusterSettings
from orchestrator.service.service import Service

PROGRAM: Final = "orchestrator.cluster.bridge"
LOG: Final = "cluster.log"  # of the bridge, in the folder of logs
CONNECTING: Final = "it is being connected to"
FIRST_PAUSE: Final = 1.0  # seconds until a bridge that has ended is started again
LONGEST_PAUSE: Final = 30.0

log = structlog.get_logger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A node that the bridge has named, in one epoch."""

    joined: NodeJoined
    files: set[str]
    processes: dict[int, NodeProcess] = dataclasses.field(default_factory=dict)  # by the engine's number
    machine: Machine | None = None  # once the pool uses it
    lost: str | None = None
    exposed: tuple[str, ...] | None = None  # None before the first message about it


class RayCluster:
    """The nodes of a service's daemon. An async context manager, which outlives the pool that uses the nodes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: asyncio.TaskGroup
        self._ending: set[asyncio.Task[None]] = set()  # tasks that the end of the context cancels
        self._pool: Pool | None = None
        self._nodes: dict[int, Node] = {}  # by epoch, those that can be used
        self._rejected: dict[str, NodeRejected] = {}  # by name
        self._gone: dict[str, tuple[NodeJoined, str]] = {}  # by name, lost nodes and why
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # of joining and leaving, by name
        self._numbers = itertools.count(1)
        self._loaded: WeakKeyDictionary[EngineHandle, NodeProcess] = WeakKeyDictionary()
        self._connection: _Connection | None = None
        self._carrier = PrefixCarrier(self._send, self._epoch)
        self._problem: str | None = None
        self._exposed: tuple[str, ...] | None = None  # on this machine
        self.head_epoch = 0  # higher than those of earlier heads; 0 without a standby
        self.changed = asyncio.Event()  # set, and then replaced, when `nodes` has changed

    @property
    def _settings(self) -> ClusterSettings:
        return self._service.configuration.cluster

    async def __aenter__(self) -> Self:
        """Start to connect."""
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._problem = CONNECTING
        self._begin(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool = None
        for task in self._ending:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._nodes.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @property
    def standby(self) -> StandbyStatus | None:
        return None

    @property
    def why_not_acting(self) -> str | None:
        return None

    def open_journal(self, home: Path) -> Journal:
        return Journal.open(home)

    def serve(self, pool: Pool) -> None:
        """Have this pool use the nodes that are here and those that join, until the next call."""
        self._pool = pool
        pool.await_machines(self._carrier)
        for node in self._nodes.values():
            self._begin(self._join(node))

    def _change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """Why the cluster cannot be used now, or None."""
        return self._problem

    def nodes(self) -> list[NodeStatus]:
        """Return this machine and all nodes, by name."""
        if self._pool is None:
            return []
        machines = self._pool.machines()
        head = NodeStatus(name=HEAD, state="ready", machine=machines[HEAD], exposed=self._exposed)
        statuses = {HEAD: head}
        for joined, reason in self._gone.values():
            statuses[joined.name] = NodeStatus(name=joined.name, address=joined.address, state="lost", reason=reason)
        for rejected in self._rejected.values():
            statuses[rejected.name] = NodeStatus(
                name=rejected.name,
                address=rejected.address,
                state="rejected",
                reason=rejected.reason,
                library=rejected.library,
            )
        for node in self._nodes.values():
            joined, facts = node.joined, node.joined.facts
            statuses[joined.name] = NodeStatus(
                name=joined.name,
                address=joined.address,
                state="ready",
                epoch=joined.epoch,
                library=facts.library,
                processor=facts.processor,
                machine=machines.get(joined.name),
                exposed=node.exposed,
            )
        machines_first = [statuses[name] for name in sorted(statuses, key=lambda name: (name != HEAD, name))]
        return [*machines_first, *server_nodes(self._pool)]

    # The bridge

    async def _run(self) -> None:
        pause, home = FIRST_PAUSE, Home(self._service.home)
        while True:
            reason = ended = f"its process ended; its log is in {home.logs / LOG}"
            try:
                async with _Connection.open(self._settings, home, self.head_epoch) as connection:
                    self._connection = connection
                    async for message in connection.messages():
                        if isinstance(message, Connected):
                            pause = FIRST_PAUSE
                        if isinstance(message, Failing):
                            reason = message.reason
                        if isinstance(message, ControlPlane):
                            reason = message.problem or ended
                        self._handle(message)
            except (OSError, ProtocolError, NoLibrary) as error:
                reason = str(error)
            self._connection = self._exposed = None
            self._carrier.lose()
            self._problem = reason
            self._change()
            log.warning("the cluster is gone", reason=reason, seconds=pause)
            for epoch in tuple(self._nodes):
                self._lose(epoch, f"the connection to the cluster was lost: {reason}")
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _handle(self, message: BridgeMessage) -> None:
        match message:  # Failing has the reason of what follows
            case Connected():
                self._problem = None
                self._change()
            case ControlPlane(problem):
                self._problem = problem or None
                log.warning("Ray's control plane", problem=problem or "it answers again")
                self._change()
            case NodeJoined(epoch, name):
                node = self._nodes[epoch] = Node(message, {*message.files})
                self._rejected.pop(name, None)
                self._gone.pop(name, None)
                log.info("a node has joined", node=name, address=message.address, epoch=epoch)
                self._begin(self._join(node))
            case NodeRejected(_, name, _, reason):
                self._rejected[name] = message
                log.warning("a node was rejected", node=name, reason=reason)
                self._change()
            case NodeLost(epoch, reason):
                self._lose(epoch, reason)
            case Exposed(0, places):
                self._exposed = places
                self._change()
            case Exposed() | FileShipped() | FilesRemoved():
                self._note_fact(message)
            case PrefixCarried():
                self._carrier.note(message)
            case EngineStarted() | EngineRefused() | EngineBeat() | EngineEnded():
                self._note_engine(message)

    def _note_fact(self, message: Exposed | FileShipped | FilesRemoved) -> None:
        node = self._nodes.get(message.epoch)
        if node is None:
            return
        match message:
            case Exposed(_, places):
                node.exposed = places
                self._change()
            case FileShipped(_, file):
                node.files.add(file)
            case FilesRemoved(_, files):
                node.files.difference_update(files)

    def _note_engine(self, message: EngineStarted | EngineRefused | EngineBeat | EngineEnded) -> None:
        node = next((node for node in self._nodes.values() if message.engine in node.processes), None)
        if node is None:
            return  # its node was lost, and so was the engine for us
        process = node.processes[message.engine]
        match message:
            case EngineStarted(_, spec):
                process.start(spec)
            case EngineRefused(engine, kind, reason):
                del node.processes[engine]
                process.refuse(cast(LoadFailure, kind), reason)
            case EngineBeat():
                process.note_beat(message)
            case EngineEnded(engine):
                del node.processes[engine]
                process.note_end(message)

    async def _join(self, node: Node) -> None:
        async with self._turns[node.joined.name]:
            if node.lost is not None or self._pool is None:
                return
            facts = node.joined.facts
            assert facts.topology is not None, "a node that has joined describes itself"
            node.machine = Machine(
                name=node.joined.name,
                topology=facts.topology,
                bytes=facts.bytes,
                start_engine=partial(self._start, node),
                measure=self._measure,
                on_disk=partial(_on_disk, node),
                bytes_per_second=node.joined.bytes_per_second,
            )
            self._pool.join(node.machine)
            self._change()

    def _lose(self, epoch: int, reason: str) -> None:
        node = self._nodes.pop(epoch, None)
        if node is None:
            self._rejected = {name: other for name, other in self._rejected.items() if other.epoch != epoch}
            self._change()
            return
        node.lost = reason
        self._gone[node.joined.name] = node.joined, reason
        log.warning("a node was lost", node=node.joined.name, reason=reason, engines=len(node.processes))
        for process in node.processes.values():
            process.lose(reason)
        self._begin(self._leave(node))

    async def _leave(self, node: Node) -> None:
        async with self._turns[node.joined.name]:
            if self._pool is not None and node.machine is not None:
                await self._pool.leave(node.joined.name)
            self._change()

    def _send(self, message: DaemonMessage) -> bool:
        if self._connection is not None:
            self._connection.send(message)
        return self._connection is not None

    def _epoch(self, name: str) -> int | None:
        return next((epoch for epoch, node in self._nodes.items() if node.joined.name == name), None)

    # Engines

    async def start_engine(self, spec: EngineSpec) -> EngineHandle:
        """Start an engine on this machine, whose stored prompts those of other machines can use, too."""
        try:
            digests = await self._files.digests_of(spec)
        except OSError:  # the engine will say which file cannot be read
            digests = {}
        return await Engine.start(dataclasses.replace(spec, digests=digests))

    @cached_property
    def _files(self) -> ModelFiles:
        return ModelFiles(_digests_file(Home(self._service.home)))

    async def _start(self, node: Node, spec: EngineSpec) -> EngineHandle:
        if (problem := spec.problem()) is not None:
            raise ModelLoadFailed(spec.file, "settings", problem)
        if spec.llama_library is not None:
            reason = f"node {node.joined.name} has no llama_library of the registry's; accepted: nodes: [head]"
            raise ModelLoadFailed(spec.file, "place", reason)
        if self._connection is None or node.lost is not None:
            raise ModelLoadFailed(spec.file, "lost", f"node {node.joined.name} was lost: {node.lost}")
        engine, connection = next(self._numbers), self._connection
        ours, theirs = socket.socketpair()
        process = NodeProcess(node.joined.name, ours, lambda: connection.send(KillEngine(engine)))
        node.processes[engine] = process
        with theirs:
            connection.send(StartEngine(engine, node.joined.epoch, spec))
            connection.pass_socket(engine, theirs)
        try:
            there = await process.started
        except BaseException as error:
            node.processes.pop(engine, None)
            process.abandon()
            if isinstance(error, Refused):
                raise ModelLoadFailed(spec.file, error.kind, str(error)) from error
            raise
        adapters = dict(zip(spec.adapters, there.adapters, strict=True))
        loaded = await Engine.load(there, process, adapters)
        self._loaded[loaded] = process
        return loaded

    def _measure(self, engine: EngineHandle, estimate: int) -> int | None:
        process = self._loaded.get(engine)
        return None if process is None else process.bytes(estimate)


def _on_disk(node: Node, entry: ModelEntry) -> bool:
    return {str(file) for file in files_of(entry)} <= node.files


class _Connection:
    """A bridge process, and the messages to and from it."""

    def __init__(self, control: socket.socket, descriptors: socket.socket) -> None:
        self._control = control
        self._descriptors = descriptors
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, settings: ClusterSettings, home: Home, head_epoch: int) -> AsyncIterator["_Connection"]:
        """Start a process; it has ended when the context ends. Raises NoLibrary, OSError."""
        environ = await asyncio.to_thread(ray_environment)
        control, theirs = socket.socketpair()
        descriptors, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection = cls(control, descriptors)
        with descriptors, control:
            with theirs, passed:
                process = _start_bridge(home, theirs.fileno(), passed.fileno(), environ)
            try:
                connection._reader, connection._writer = await asyncio.open_connection(sock=control)
                connection.send(
                    Connect(
                        settings.ray,
                        settings.folder,
                        settings.node_bytes,
                        settings.silence_seconds,
                        str(_digests_file(home)),
                        str(home.prefixes),
                        head_epoch,
                    )
                )
                yield connection
            finally:
                connection._writer.close()
                process.kill()  # its driver and so its hosts end with it
                await asyncio.to_thread(process.wait)

    def send(self, message: DaemonMessage) -> None:
        self._writer.write(encode(message))

    def pass_socket(self, engine: int, passed: socket.socket) -> None:
        socket.send_fds(self._descriptors, [engine.to_bytes(NUMBER_BYTES, "little")], [passed.fileno()])

    async def messages(self) -> AsyncIterator[BridgeMessage]:
        """Yield messages until the process ends. Raises ProtocolError, OSError."""
        frames = Frames()
        while data := await self._reader.read(1 << 16):
            for body in frames.feed(data):
                yield decode_bridge(body)


def _digests_file(home: Home) -> Path:
    folder = home.path / "cluster"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "digests.json"


def _start_bridge(home: Home, control: int, descriptors: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    home.logs.mkdir(parents=True, exist_ok=True)
    with open(home.logs / LOG, "ab") as output:
        return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", PROGRAM, str(control), str(descriptors)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(control, descriptors),
            env=environ,
            start_new_session=True,
        )
