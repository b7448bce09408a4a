"""What the bridge has one node do, through the `Host` there: start engines, connect with them, store model files."""

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from ray.exceptions import RayError

from orchestrator.cluster.digests import ModelFiles, digests_of, named_files
from orchestrator.cluster.driver import first_line
from orchestrator.cluster.host import Beat, Begun
from orchestrator.cluster.messages import (
    BridgeMessage,
    EngineBeat,
    EngineEnded,
    EngineRefused,
    EngineStarted,
    Exposed,
    FileShipped,
    FilesRemoved,
    StartEngine,
)
from orchestrator.cluster.prefixes import CHUNK_BYTES, PrefixError
from orchestrator.cluster.relay import KEY_BYTES, Stream, carry, carry_and_close, connect
from orchestrator.cluster.store import ShippedFile
from orchestrator.cluster.tls import NotConnected
from orchestrator.engine.contract import EngineSpec

BEAT_SECONDS: Final = 1.0
COPY_SECONDS: Final = 60.0  # for a chunk from one node to another; then the head sends the rest
EXPOSURE_SECONDS: Final = 30.0  # between two looks at who could connect with Ray on a machine
MEASURED_BYTES: Final = 2 << 20  # sent to a node that joins, to know how fast it gets files


class Unusable(Exception):
    """A model cannot run on a node. The message says why."""


class RayNode:
    """One node from its first answer to its loss, in one epoch. `host` is the handle of its actor.

    The head connects to its engines at `port` of `address`. `digests` are those of the model files that it has, `send`
    is for the daemon, and `source_of` returns another node that can give a file now. Its work runs in `tasks`.
    """

    def __init__(
        self,
        epoch: int,
        name: str,
        host: Any,
        address: str,
        port: int,
        digests: Iterable[str],
        files: ModelFiles,
        send: Callable[[BridgeMessage], None],
        source_of: Callable[[str, "RayNode"], "RayNode | None"],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.epoch = epoch
        self.name = name
        self.host = host
        self._address = address
        self._port = port
        self._digests = {*digests}
        self._files = files
        self._report = send
        self._source_of = source_of
        self._tasks = tasks
        self._copied = False  # one of its files is being copied to another node
        self._shipping = asyncio.Lock()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.engines: dict[int, asyncio.Task[None]] = {}
        self._doomed: set[int] = set()  # engines that are not to be started any more

    async def live(self, silence_seconds: float) -> str:
        """Return why the node was lost, once it is."""
        beats = self._tasks.create_task(self._beats(silence_seconds))
        exposure = self._tasks.create_task(self._exposure())
        try:
            return await self._lost
        finally:
            for task in (beats, exposure, *self.engines.values()):
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
                    self._report(EngineBeat(*beat))
            await asyncio.sleep(BEAT_SECONDS)

    async def _exposure(self) -> None:
        try:
            await report_exposure(self.epoch, lambda: self.host.exposed.remote(self.epoch, self._address), self._report)
        except RayError as error:
            self.lose(first_line(error))

    def start(self, command: StartEngine, data: socket.socket) -> None:
        task = self._tasks.create_task(self._run(command, data))
        self.engines[command.engine] = task
        task.add_done_callback(lambda _: self._forget(command.engine))

    def _forget(self, engine: int) -> None:
        del self.engines[engine]
        self._doomed.discard(engine)

    async def _run(self, command: StartEngine, data: socket.socket) -> None:
        # One engine, from the shipping of its files to the end of its process.
        engine, key = command.engine, secrets.token_bytes(KEY_BYTES)
        with data:
            try:
                spec, files = await self._ship(engine, command.spec)
                started = await self.host.start.remote(self.epoch, engine, spec, files, key)
                if isinstance(started, str):
                    raise Unusable(started)
                from_engine, to_engine = await self._connect(key)
            except (Unusable, OSError) as error:
                self._report(EngineRefused(engine, "place", f"node {self.name}: {error}"))
                await self._give_up(engine)
                return
            except RayError as error:
                self.lose(first_line(error))
                return
            from_daemon, to_daemon = await asyncio.open_connection(sock=data.dup())
        self._report(EngineStarted(engine, started))
        with contextlib.closing(to_daemon):  # only once it is known whether the engine has ended or the node was lost
            sending = self._tasks.create_task(carry_and_close(from_daemon, to_engine))
            try:
                with contextlib.closing(to_engine):
                    await carry(from_engine, to_daemon)
                _, code, log = await self.host.wait.remote(self.epoch, engine)
            except RayError as error:
                return self.lose(first_line(error))
            finally:
                sending.cancel()
        self._report(EngineEnded(engine, code, log))

    async def _connect(self, key: bytes) -> Stream:
        try:  # if the node does not answer, it is lost long before this fails
            return await connect(self._address, self._port, key)
        except (OSError, NotConnected) as error:
            accepted = "accepted: a network in which this machine reaches all ports of its nodes"
            raise Unusable(f"port {self._port} cannot be connected to: {error}; {accepted}") from error

    async def _give_up(self, engine: int) -> None:
        try:
            await self.host.give_up.remote(self.epoch, engine)
        except RayError as error:
            self.lose(first_line(error))

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
            files = await self._files.of(spec)
            groups = tuple(dict.fromkeys(file.group for file in files.values()))
            await self.host.use.remote(self.epoch, engine, groups)
            for path, file in files.items():
                await self._ship_file(engine, path, file)
        named = {path: file for path, file in files.items() if path in named_files(spec)}
        return dataclasses.replace(spec, digests=digests_of(spec, lambda path: files[path].digest)), named

    async def _ship_file(self, engine: int, path: str, file: ShippedFile) -> None:
        problem = await self._send_file(engine, path, file, self._source_of(file.digest, self))
        if problem:  # what another node or an earlier epoch has left was damaged, and is gone now
            problem = await self._send_file(engine, path, file, None)
        if problem:
            raise Unusable(problem)
        self._digests.add(file.digest)
        self._report(FileShipped(self.epoch, path))

    def offers(self, digest: str) -> bool:
        """Return whether it has a file for other nodes, and neither gets nor gives another one now."""
        return digest in self._digests and not self._copied and not self._shipping.locked()

    async def _send_file(self, engine: int, path: str, file: ShippedFile, source: "RayNode | None") -> str:
        # Returns why the file that has arrived is another one, or nothing.
        if source is not None:
            await self._copy(engine, file, source)
        offset = await self._begin_file(file)
        if offset is None:
            return ""
        while offset < file.bytes:
            self._check_wanted(engine)
            chunk = await asyncio.to_thread(_read_chunk, path, offset)
            if not chunk:
                raise Unusable(f"{path} has become shorter")
            await self._write(file, offset, chunk)
            offset += len(chunk)
        problem = await self.host.finish_file.remote(self.epoch, file)
        return str(problem)

    async def _begin_file(self, file: ShippedFile) -> int | None:
        # Returns how many bytes have been received; None if the file is complete.
        begun = Begun(*await self.host.begin_file.remote(self.epoch, file))
        if begun.problem:
            raise Unusable(begun.problem)
        if begun.removed:
            self._digests.difference_update(begun.removed)
            self._report(FilesRemoved(self.epoch, await self._files.among(begun.removed)))
        return begun.received

    def _check_wanted(self, engine: int) -> None:
        if engine in self._doomed:
            raise Unusable("the start was given up")

    async def _write(self, file: ShippedFile, offset: int, chunk: Any) -> None:
        # `chunk` is bytes, or a reference of Ray's to bytes on another node, which do not come here.
        if problem := await self.host.write_file.remote(self.epoch, file, offset, chunk):
            raise Unusable(problem)

    async def _copy(self, engine: int, file: ShippedFile, source: "RayNode") -> None:
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

    def __init__(self, node: RayNode) -> None:
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


async def report_exposure(
    epoch: int, look: Callable[[], Awaitable[Sequence[str]]], send: Callable[[BridgeMessage], None]
) -> None:
    """Send the result of `exposed` on a machine, and again when it has changed. Raises what `look` does."""
    before: tuple[str, ...] | None = None
    while True:
        places = tuple(await look())
        if places != before:
            send(Exposed(epoch, before := places))
        await asyncio.sleep(EXPOSURE_SECONDS)


async def measure(host: Any, epoch: int) -> float:
    """Return how many bytes a second a node gets. Raises RayError."""
    content, clock, durations = bytes(MEASURED_BYTES), time.monotonic, []
    for _ in range(2):  # the first one opens connections
        start = clock()
        await host.receive.remote(epoch, content)
        durations.append(clock() - start)
    return MEASURED_BYTES / min(durations)


def _read_chunk(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(CHUNK_BYTES)
