"""The process that is the daemon's driver of Ray: finds nodes, makes a `Host` of each, and relays engines' bytes.

`orchestrator.cluster.nodes` starts it as `python -m orchestrator.cluster.bridge CONTROL_FD DESCRIPTORS_FD`. It is a
process of its own because Ray ends its process when the control plane of the cluster is gone for a minute.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.cluster.digests import ModelFiles
from orchestrator.cluster.driver import connect, control_plane_problem, first_line, is_same_cluster, own_address
from orchestrator.cluster.exposure import exposed
from orchestrator.cluster.host import Host
from orchestrator.cluster.members import node_name, why_rejected
from orchestrator.cluster.messages import (
    NUMBER_BYTES,
    BridgeMessage,
    CarryPrefix,
    Connect,
    Connected,
    ControlPlane,
    EngineRefused,
    Failing,
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
from orchestrator.cluster.prefixes import FolderHere, Place, PrefixFolder, carry
from orchestrator.cluster.ray_node import FolderThere, RayNode, measure, report_exposure
from orchestrator.cluster.tls import NotConnected
from orchestrator.engine.client.library import LibraryFailed, probe_library

MEMBERS_SECONDS: Final = 1.0  # between two looks at Ray's list of nodes, which does not notify
START_SECONDS: Final = 120.0  # for Ray to start an actor, which imports this program
RETRY_SECONDS: Final = 5.0  # after an actor has ended before its first answer
HEAD_EPOCH_BITS: Final = 42  # milliseconds since 1970 have fewer
_PR_SET_PDEATHSIG: Final = 1


class Bridge:
    """All nodes of a cluster. `send` is for the daemon."""

    def __init__(self, settings: Connect, writer: asyncio.StreamWriter, descriptors: socket.socket) -> None:
        self._settings = settings
        self._writer = writer
        self._descriptors = descriptors
        self._files = ModelFiles(Path(settings.digests_file))
        self._nodes: dict[int, RayNode] = {}  # by epoch
        self._sockets: dict[int, asyncio.Future[socket.socket]] = {}
        # Higher than those of any earlier bridge, and of any earlier head, whose clock may be ahead.
        self._epochs = itertools.count((settings.head_epoch << HEAD_EPOCH_BITS) + time.time_ns() // 1_000_000)
        self._alive: Collection[str] = ()  # nodes by Ray's id
        self._serving: set[str] = set()  # of these, those that are not to be tried now
        self._rejected: dict[str, int] = {}  # the epochs of those that were rejected
        self._library = ""
        self._here = FolderHere(PrefixFolder(Path(settings.prefixes)))
        self._carrying: dict[int, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()

    def _send(self, message: BridgeMessage) -> None:
        self._writer.write(encode(message))

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Serve the daemon until it closes the connection."""
        self._library = await asyncio.to_thread(own_library)
        self._send(Connected())
        asyncio.get_running_loop().add_reader(self._descriptors, self._take_descriptor)
        async with self._tasks:
            here = partial(exposed, own_address())
            following = [
                self._tasks.create_task(self._follow()),
                self._tasks.create_task(report_exposure(0, here, self._send)),
            ]
            await self._command(reader)
            for task in following:
                task.cancel()
            for node in self._nodes.values():
                node.lose("the daemon has ended")

    async def _follow(self) -> None:
        context = ray.get_runtime_context()
        own, address, problem = context.get_node_id(), context.gcs_address, ""
        while True:
            before, problem = problem, await asyncio.to_thread(control_plane_problem, address)
            if problem != before:
                self._send(ControlPlane(problem))
            if problem:  # Ray would wait for it
                await asyncio.sleep(MEMBERS_SECONDS)
                continue
            if before:
                await self._check_cluster(address)
            listed = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
            self._alive = alive = {node["NodeID"]: node for node in listed}
            if own not in alive:
                await self._end(
                    "Ray has ended on this machine; accepted: it is started here, too (`orchestrator cluster start`)"
                )
            for key in self._rejected.keys() - alive.keys():
                self._send(NodeLost(self._rejected.pop(key), "it has left the cluster"))
            for key, node in alive.items():
                if key != own and key not in self._serving:
                    name = node_name(node, listed)
                    self._serving.add(key)
                    self._tasks.create_task(self._serve(key, name, node["NodeManagerAddress"]))
            await asyncio.sleep(MEMBERS_SECONDS)

    async def _check_cluster(self, address: str) -> None:
        try:
            same = await asyncio.to_thread(is_same_cluster, address)
        except RayError as error:
            await self._end(first_line(error))
        if not same:
            reason = f"the control plane at {address} was started again, and has forgotten its nodes"
            await self._end(
                f"{reason}; accepted: nodes that are started again, too (`ray stop`, `orchestrator cluster start`)"
            )

    async def _end(self, reason: str) -> NoReturn:
        self._send(Failing(reason))
        await self._writer.drain()
        os._exit(1)  # an orderly end would call the control plane, and wait for it or be aborted

    async def _serve(self, key: str, name: str, address: str) -> None:
        epoch = next(self._epochs)
        actor = self._start_host(key, epoch, name)
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
                port = await actor.listen.remote(epoch, address)
                rate = await measure(actor, epoch)
        except (TimeoutError, RayError) as error:
            why = first_line(error) or f"not within {START_SECONDS:g} s"
            reason = f"it cannot be connected to: {why}; it is tried again"
            self._serving.discard(key)
            if key in self._alive:
                self._reject(key, NodeRejected(epoch, name, address, reason))
            return
        self._rejected.pop(key, None)
        node = self._nodes[epoch] = RayNode(
            epoch, name, actor, address, port, facts.digests, self._files, self._send, self._source_of, self._tasks
        )
        try:
            files = await self._files.among(facts.digests)
            self._send(NodeJoined(epoch, name, address, facts, rate, files))
            reason = await node.live(self._settings.silence_seconds)
            self._send(NodeLost(epoch, reason))
        finally:
            del self._nodes[epoch]
            self._serving.discard(key)  # if it is still alive, it gets another host
            with contextlib.suppress(RayError):
                ray.kill(actor)

    def _start_host(self, key: str, epoch: int, name: str) -> Any:
        # Returns the handle of the actor, which may fail to start.
        settings = self._settings
        host = ray.remote(Host).options(
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False),
        )
        return host.remote(
            epoch, name, settings.folder, settings.node_bytes, settings.silence_seconds, settings.head_epoch
        )

    def _reject(self, key: str, rejected: NodeRejected) -> None:
        self._rejected[key] = rejected.epoch
        self._send(rejected)

    async def _command(self, reader: asyncio.StreamReader) -> None:
        async for body in frames(reader):
            match decode_daemon(body):
                case StartEngine(engine, epoch) as command:
                    if (node := self._nodes.get(epoch)) is None:
                        self._send(EngineRefused(engine, "lost", "its node was lost"))
                    else:
                        node.start(command, await self._socket(engine))
                case KillEngine(engine):
                    await self._kill(engine)
                case CarryPrefix(number) as command:
                    task = self._carrying[number] = self._tasks.create_task(self._carry(command))
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
        self._send(PrefixCarried(command.number, problem))

    def _end_carrying(self, number: int, _task: asyncio.Task[None]) -> None:
        del self._carrying[number]

    def _place(self, epoch: int) -> Place | None:
        if not epoch:
            return self._here
        node = self._nodes.get(epoch)
        return None if node is None else FolderThere(node)

    async def _kill(self, engine: int) -> None:
        node = next((node for node in self._nodes.values() if engine in node.engines), None)
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

    def _source_of(self, digest: str, receiver: RayNode) -> RayNode | None:
        return next((node for node in self._nodes.values() if node is not receiver and node.offers(digest)), None)


def own_library() -> str:
    try:
        return probe_library().build
    except LibraryFailed as error:
        return f"none: {error}"


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
    except (NotConnected, RayError, RuntimeError) as error:
        writer.write(encode(Failing(first_line(error))))
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
