"""The process that is the daemon's driver of Ray: finds nodes, makes a `Host` of each, and relays engines' bytes.

`orchestrator.cluster.attachment` starts it as `python -m orchestrator.cluster.bridge CONTROL_FD DESCRIPTORS_FD`. It is
a process of its own because Ray ends its process when the control plane of the cluster is gone for a minute.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.cluster.digests import Digests, digests_of
from orchestrator.cluster.host import Beat, Begun, Host
from orchestrator.cluster.members import node_name, why_rejected
from orchestrator.cluster.messages import (
    NUMBER_BYTES,
    BridgeMessage,
    CarryPrefix,
    Connect,
    Connected,
    EngineBeat,
    EngineEnded,
    EngineRefused,
    EngineStarted,
    Failing,
    FileShipped,
    FilesRemoved,
    GiveUpPrefix,
    KillEngine,
    NodeFacts,
    NodeJoined,
    NodeLost,
    NodeRejected,
    PrefixCarried,
    StartEngine,
    decode_daemon,
    encode,
)
from orchestrator.cluster.prefixes import FolderHere, Place, PrefixError, PrefixFolder, carry
from orchestrator.cluster.store import ShippedFile
from orchestrator.engine.client.library import LibraryFailed, probe_library
from orchestrator.engine.contract import EngineSpec
from orchestrator.registry.gguf import pieces

NAMESPACE: Final = "orchestrator"
MEMBERS_SECONDS: Final = 1.0  # between two looks at Ray's list of nodes, which does not notify
BEAT_SECONDS: Final = 1.0
COPY_SECONDS: Final = 60.0  # for a chunk from one node to another; then the head sends the rest
START_SECONDS: Final = 120.0  # for Ray to start an actor, which imports this program
RETRY_SECONDS: Final = 5.0  # after an actor has ended before its first answer
MEASURED_BYTES: Final = 2 << 20  # sent to a node that joins, to know how fast it gets files
CHUNK_BYTES: Final = 8 << 20  # smaller ones take most of their time for the call
HEAD_EPOCH_BITS: Final = 42  # milliseconds since 1970 have fewer
READ_BYTES: Final = 64 << 10  # more would go through Ray's shared memory, which is slower
_PR_SET_PDEATHSIG: Final = 1


class Lost(Exception):
    """A node cannot be used any more. The message says why."""


class Unshippable(Exception):
    """A model cannot be stored on a node. The message says why."""


class Node:
    """One node from its first answer to its loss, in one epoch."""

    def __init__(self, bridge: "Bridge", epoch: int, name: str, host: Any, digests: Iterable[str]) -> None:
        self.epoch = epoch
        self.name = name
        self.host = host
        self._digests = {*digests}  # of its model files
        self._copied = False  # one of its files is being copied to another node
        self._bridge = bridge
        self._shipping = asyncio.Lock()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.tasks: dict[int, asyncio.Task[None]] = {}  # of engines
        self._doomed: set[int] = set()  # engines that are not to be started any more

    async def live(self, silence_seconds: float) -> str:
        """Return why the node was lost, once it is."""
        beats = self._bridge.tasks.create_task(self._beats(silence_seconds))
        try:
            return await self._lost
        finally:
            for task in (beats, *self.tasks.values()):
                task.cancel()

    def lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    async def _beats(self, silence_seconds: float) -> None:
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    epoch, beats = await self.host.beat.remote(self.epoch)
            except TimeoutError:
                return self.lose(f"it did not answer for {silence_seconds:g} s")
            except RayError as error:
                return self.lose(first_line(error))
            if epoch == self.epoch:
                for beat in itertools.starmap(Beat, beats):
                    self._bridge.send(EngineBeat(*beat))
            await asyncio.sleep(BEAT_SECONDS)

    def start(self, command: StartEngine, data: socket.socket) -> None:
        task = self._bridge.tasks.create_task(self._carry(command, data))
        self.tasks[command.engine] = task
        task.add_done_callback(lambda _: self._forget(command.engine))

    def _forget(self, engine: int) -> None:
        del self.tasks[engine]
        self._doomed.discard(engine)

    async def _carry(self, command: StartEngine, data: socket.socket) -> None:
        # One engine, from the shipping of its files to the end of its process.
        engine, send = command.engine, self._bridge.send
        with data:
            try:
                spec, files = await self._ship(engine, command.spec)
                started = await self.host.start.remote(self.epoch, engine, spec, files)
                if isinstance(started, str):
                    raise Unshippable(started)
            except (Unshippable, OSError) as error:
                send(EngineRefused(engine, "place", f"node {self.name}: {error}"))
                await self._release(engine)
                return
            except RayError as error:
                self.lose(first_line(error))
                return
            send(EngineStarted(engine, started))
            try:
                code, log = await self._relay(engine, data)
            except RayError as error:
                self.lose(first_line(error))
                return
        send(EngineEnded(engine, code, log))

    async def _release(self, engine: int) -> None:
        try:
            await self.host.release.remote(self.epoch, engine)
        except RayError as error:
            self.lose(first_line(error))

    async def _relay(self, engine: int, data: socket.socket) -> tuple[int, str]:
        sending = self._bridge.tasks.create_task(self._send(engine, data))
        try:
            await self._receive(engine, data)
            _, code, log = await self.host.wait.remote(self.epoch, engine)
        finally:
            sending.cancel()
            await asyncio.wait([sending])  # it still watches the descriptor of `data`, which is closed next
        return code, log

    async def _send(self, engine: int, data: socket.socket) -> None:
        # One call at a time: Ray does not keep the order of calls of an actor with coroutines.
        loop = asyncio.get_running_loop()
        try:
            while chunk := await loop.sock_recv(data, READ_BYTES):
                await self.host.write.remote(self.epoch, engine, chunk)
            await self.host.kill.remote(self.epoch, engine)  # the daemon has closed its end
        except RayError as error:
            self.lose(first_line(error))

    async def _receive(self, engine: int, data: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            epoch, chunk = await self.host.read.remote(self.epoch, engine)
            if epoch != self.epoch:
                continue  # from an earlier host of the node
            if not chunk:
                return
            with contextlib.suppress(OSError):  # the daemon has closed its end, and `_send` ends the engine
                await loop.sock_sendall(data, chunk)

    async def kill(self, engine: int) -> None:
        """End an engine. One that is not started yet ends when the daemon's end of its socket is closed."""
        self._doomed.add(engine)
        try:
            await self.host.kill.remote(self.epoch, engine)
        except RayError as error:
            self.lose(first_line(error))

    async def _ship(self, engine: int, spec: EngineSpec) -> tuple[EngineSpec, dict[str, ShippedFile]]:
        # Returns `spec` with the digests of the files that the engine gets, and those that it names.
        async with self._shipping:
            async with self._bridge.hashing:
                files = await asyncio.to_thread(self._bridge.files_of, spec)
            groups = tuple(dict.fromkeys(file.group for file in files.values()))
            await self.host.use.remote(self.epoch, engine, groups)
            for path, file in files.items():
                await self._ship_file(engine, path, file)
        named = {path: file for path, file in files.items() if path in named_files(spec)}
        return dataclasses.replace(spec, digests=digests_of(spec, lambda path: files[path].digest)), named

    async def _ship_file(self, engine: int, path: str, file: ShippedFile) -> None:
        problem = await self._send_file(engine, path, file, self._bridge.source_of(file.digest, self))
        if problem:  # what another node or an earlier epoch has left was damaged, and is gone now
            problem = await self._send_file(engine, path, file, None)
        if problem:
            raise Unshippable(problem)
        self._digests.add(file.digest)
        self._bridge.send(FileShipped(self.epoch, path))

    def offers(self, digest: str) -> bool:
        """Return whether it has a file for other nodes, and neither gets nor gives another one now."""
        return digest in self._digests and not self._copied and not self._shipping.locked()

    async def _send_file(self, engine: int, path: str, file: ShippedFile, source: "Node | None") -> str:
        # Returns why the file that has arrived is another one, or nothing.
        if source is not None:
            await self._copy(engine, file, source)
        offset = await self._begin_file(file)
        if offset is None:
            return ""
        while offset < file.bytes:
            self._check_wanted(engine)
            chunk = await asyncio.to_thread(read_chunk, path, offset)
            if not chunk:
                raise Unshippable(f"{path} has become shorter")
            await self._write(file, offset, chunk)
            offset += len(chunk)
        problem = await self.host.finish_file.remote(self.epoch, file)
        return str(problem)

    async def _begin_file(self, file: ShippedFile) -> int | None:
        # Returns how many bytes have been received; None if the file is complete.
        begun = Begun(*await self.host.begin_file.remote(self.epoch, file))
        if begun.problem:
            raise Unshippable(begun.problem)
        if begun.removed:
            self._digests.difference_update(begun.removed)
            async with self._bridge.hashing:
                removed = self._bridge.among(begun.removed)
            self._bridge.send(FilesRemoved(self.epoch, removed))
        return begun.received

    def _check_wanted(self, engine: int) -> None:
        if engine in self._doomed:
            raise Unshippable("the start was given up")

    async def _write(self, file: ShippedFile, offset: int, chunk: Any) -> None:
        # `chunk` is bytes, or a reference of Ray's to bytes on another node, which do not come here.
        if problem := await self.host.write_file.remote(self.epoch, file, offset, chunk):
            raise Unshippable(problem)

    async def _copy(self, engine: int, file: ShippedFile, source: "Node") -> None:
        # As much of the file as the source gives.
        source._copied = True
        try:
            offset = await self._begin_file(file)
            while offset is not None and offset < file.bytes:
                self._check_wanted(engine)
                size = min(CHUNK_BYTES, file.bytes - offset)
                chunk = source.host.read_file.remote(source.epoch, file.digest, offset, size)
                writing = asyncio.ensure_future(self._write(file, offset, chunk))
                ends: list[asyncio.Future[Any]] = [writing, source._lost]
                try:
                    await asyncio.wait(ends, timeout=COPY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if not writing.done():
                        return
                finally:
                    writing.cancel()
                writing.result()
                offset += size
        except RayError:
            return  # of the source; if it is this node's, the next call fails, too
        finally:
            source._copied = False


class FolderThere:
    """The `PrefixFolder` of a node as a `Place`. Chunks are references of Ray's, whose bytes do not come here."""

    def __init__(self, node: Node) -> None:
        self._host, self._epoch = node.host, node.epoch

    def read(self, name: str, offset: int, size: int) -> Any:
        return self._host.read_prefix.remote(self._epoch, name, offset, size)

    async def write(self, name: str, transfer: str, offset: int, chunk: Any) -> str:
        try:
            content = await chunk if isinstance(chunk, asyncio.Future) else chunk
        except (OSError, PrefixError) as error:
            return str(error)
        return await self._reported(self._host.write_prefix, name, transfer, offset, content)

    async def finish(self, name: str, transfer: str, digest: str) -> str:
        return await self._reported(self._host.finish_prefix, name, transfer, digest)

    async def discard(self, name: str, transfer: str) -> str:
        return await self._reported(self._host.discard_prefix, name, transfer)

    async def check(self, name: str) -> str:
        return await self._reported(self._host.check_prefix, name)

    async def _reported(self, method: Any, *arguments: Any) -> str:
        try:
            return str(await method.remote(self._epoch, *arguments))
        except RayError as error:
            return first_line(error)


class Bridge:
    """All nodes of a cluster. `send` is for the daemon."""

    def __init__(self, settings: Connect, writer: asyncio.StreamWriter, descriptors: socket.socket) -> None:
        self._settings = settings
        self._writer = writer
        self._descriptors = descriptors
        self.hashing = asyncio.Lock()  # held while `files_of` runs
        self._digests = Digests(Path(settings.digests_file))
        self._nodes: dict[int, Node] = {}  # by epoch
        self._sockets: dict[int, asyncio.Future[socket.socket]] = {}
        # Higher than those of any earlier bridge, and of any earlier head, whose clock may be ahead.
        self._epochs = itertools.count((settings.head_epoch << HEAD_EPOCH_BITS) + time.time_ns() // 1_000_000)
        self._alive: Collection[str] = ()  # nodes by Ray's id
        self._serving: set[str] = set()  # of these, those that are not to be tried now
        self._rejected: dict[str, int] = {}  # the epochs of those that were rejected
        self._library = ""
        self._here = FolderHere(PrefixFolder(Path(settings.prefixes)))
        self._carrying: dict[int, asyncio.Task[None]] = {}
        self.tasks = asyncio.TaskGroup()

    def send(self, message: BridgeMessage) -> None:
        self._writer.write(encode(message))

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Serve the daemon until it closes the connection."""
        self._library = await asyncio.to_thread(own_library)
        self.send(Connected())
        asyncio.get_running_loop().add_reader(self._descriptors, self._take_descriptor)
        async with self.tasks:
            following = self.tasks.create_task(self._follow())
            await self._command(reader)
            following.cancel()
            for node in self._nodes.values():
                node.lose("the daemon has ended")

    async def _follow(self) -> None:
        own = ray.get_runtime_context().get_node_id()
        while True:
            listed = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
            self._alive = alive = {node["NodeID"]: node for node in listed}
            for key in self._rejected.keys() - alive.keys():
                self.send(NodeLost(self._rejected.pop(key), "it has left the cluster"))
            for key, node in alive.items():
                if key != own and key not in self._serving:
                    name = node_name(node, listed)
                    self._serving.add(key)
                    self.tasks.create_task(self._serve(key, name, node["NodeManagerAddress"]))
            await asyncio.sleep(MEMBERS_SECONDS)

    async def _serve(self, key: str, name: str, address: str) -> None:
        epoch = next(self._epochs)
        host = ray.remote(Host).options(
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False),
        )
        settings = self._settings
        actor: Any = host.remote(
            epoch, name, settings.folder, settings.node_bytes, settings.silence_seconds, settings.head_epoch
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                facts = msgspec.convert(await actor.describe.remote(), NodeFacts)
        except TimeoutError:
            reason = f"this program did not start there within {START_SECONDS:g} s; it is tried again"
            self._reject(key, NodeRejected(epoch, name, address, reason))
            self._serving.discard(key)
            return
        except (RayError, msgspec.ValidationError) as error:
            reason = f"this program cannot be started there: {first_line(error)}"
            if isinstance(error, RayActorError) and not error.actor_init_failed:
                await asyncio.sleep(RETRY_SECONDS)
                self._serving.discard(key)
                reason += "; it is tried again"
            if key in self._alive:  # else the node has ended meanwhile
                self._reject(key, NodeRejected(epoch, name, address, reason))
            return
        if reason := why_rejected(facts, self._library):
            self._reject(key, NodeRejected(epoch, name, address, reason, facts.library))
            ray.kill(actor)
            return
        try:
            async with asyncio.timeout(START_SECONDS):
                rate = await measure(actor, epoch)
        except (TimeoutError, RayError) as error:
            why = first_line(error) or f"not within {START_SECONDS:g} s"
            reason = f"it did not get {MEASURED_BYTES} bytes: {why}; it is tried again"
            self._serving.discard(key)
            if key in self._alive:
                self._reject(key, NodeRejected(epoch, name, address, reason))
            return
        self._rejected.pop(key, None)
        node = self._nodes[epoch] = Node(self, epoch, name, actor, facts.digests)
        try:
            async with self.hashing:
                files = self.among(facts.digests)
            self.send(NodeJoined(epoch, name, address, facts, rate, files))
            reason = await node.live(settings.silence_seconds)
            self.send(NodeLost(epoch, reason))
        finally:
            del self._nodes[epoch]
            self._serving.discard(key)  # if it is still alive, it gets another host
            with contextlib.suppress(RayError):
                ray.kill(actor)

    def _reject(self, key: str, rejected: NodeRejected) -> None:
        self._rejected[key] = rejected.epoch
        self.send(rejected)

    async def _command(self, reader: asyncio.StreamReader) -> None:
        async for body in frames(reader):
            match decode_daemon(body):
                case StartEngine(engine, epoch) as command:
                    if (node := self._nodes.get(epoch)) is None:
                        self.send(EngineRefused(engine, "lost", "its node was lost"))
                    else:
                        node.start(command, await self._socket(engine))
                case KillEngine(engine):
                    await self._kill(engine)
                case CarryPrefix(number) as command:
                    task = self._carrying[number] = self.tasks.create_task(self._carry(command))
                    task.add_done_callback(partial(self._end_carrying, number))
                case GiveUpPrefix(number):
                    if (carrying := self._carrying.get(number)) is not None:
                        carrying.cancel()
                case Connect():
                    return

    async def _carry(self, command: CarryPrefix) -> None:
        source, target = self._place(command.source), self._place(command.target)
        problem = "one of the two nodes was lost"
        if source is not None and target is not None:
            problem = await carry(command.file, source, target)
        self.send(PrefixCarried(command.number, problem))

    def _end_carrying(self, number: int, _task: asyncio.Task[None]) -> None:
        del self._carrying[number]

    def _place(self, epoch: int) -> Place | None:
        if not epoch:
            return self._here
        node = self._nodes.get(epoch)
        return None if node is None else FolderThere(node)

    async def _kill(self, engine: int) -> None:
        node = next((node for node in self._nodes.values() if engine in node.tasks), None)
        if node is not None:
            await node.kill(engine)

    async def _socket(self, engine: int) -> socket.socket:
        future = self._sockets.setdefault(engine, asyncio.get_running_loop().create_future())
        try:
            return await future
        finally:
            del self._sockets[engine]

    def _take_descriptor(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._descriptors, NUMBER_BYTES, 1)
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptors)
            return
        received = socket.socket(fileno=descriptors[0])
        received.setblocking(False)
        engine = int.from_bytes(data, "little")
        self._sockets.setdefault(engine, asyncio.get_running_loop().create_future()).set_result(received)

    def source_of(self, digest: str, receiver: Node) -> Node | None:
        """Return a node other than `receiver` that can give it a file now."""
        return next((node for node in self._nodes.values() if node is not receiver and node.offers(digest)), None)

    def among(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Return the files of this machine that have these digests. Hold `hashing` meanwhile."""
        return self._digests.among(frozenset(digests))

    def files_of(self, spec: EngineSpec) -> dict[str, ShippedFile]:
        """Return all files of a model, the pieces of one next to each other. Blocks. Raises OSError."""
        files = {}
        for named in named_files(spec):
            parts = [str(piece) for piece in pieces(Path(named))]
            group = self._digests.of(parts[0])
            for part in parts:
                file = Path(part)
                files[part] = ShippedFile(group, file.name, self._digests.of(part), file.stat().st_size)
        return files


def named_files(spec: EngineSpec) -> tuple[str, ...]:
    drafts = () if spec.speculation is None else (spec.speculation.draft,)
    heads = () if spec.eagle is None else (spec.eagle.file,)
    return tuple(dict.fromkeys((spec.file, *drafts, *heads, *(adapter.file for adapter in spec.lora), *spec.adapters)))


def read_chunk(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(CHUNK_BYTES)


async def measure(host: Any, epoch: int) -> float:
    """Return how many bytes a second a node gets. Raises RayError."""
    content, clock, durations = bytes(MEASURED_BYTES), time.monotonic, []
    for _ in range(2):  # the first one opens connections
        start = clock()
        await host.receive.remote(epoch, content)
        durations.append(clock() - start)
    return MEASURED_BYTES / min(durations)


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def own_library() -> str:
    try:
        return probe_library().build
    except LibraryFailed as error:
        return f"none: {error}"


def connect(address: str) -> None:
    """Become a driver of the cluster. Blocks. Raises ConnectionError, RayError."""
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(4), "little")
            yield await reader.readexactly(length)


async def serve(control: socket.socket, descriptors: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=control)
    first = await anext(frames(reader), None)
    settings = None if first is None else decode_daemon(first)
    if not isinstance(settings, Connect):
        return 2
    try:
        await asyncio.to_thread(connect, settings.address)
        await Bridge(settings, writer, descriptors).run(reader)
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        accepted = "the address of a running cluster, and its token if it has one"
        writer.write(encode(Failing(f"{first_line(error)}; accepted: {accepted}")))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        return 1
    return 0


def _die_with_daemon() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(descriptors: Iterator[int]) -> int:
    _die_with_daemon()
    control, passed = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    passed.setblocking(False)
    return asyncio.run(serve(control, passed))


if __name__ == "__main__":
    code = main(map(int, sys.argv[1:3]))
    sys.stderr.flush()
    os._exit(code)  # Ray's own end of a driver waits for threads
