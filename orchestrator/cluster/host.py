"""What runs on a node: starts engine processes, has them connected with the head, and stores model files.

Ray makes an actor of `Host`. It imports nothing of Ray, and every result is of plain values. Whoever uses it names the
epoch that the host was made with; results carry it, so that those of an earlier host can be told apart. A host whose
caller has been silent for too long ends its engines, and itself.
"""

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from orchestrator.cluster.exposure import exposed
from orchestrator.cluster.messages import NodeFacts
from orchestrator.cluster.prefixes import PrefixFolder, reported
from orchestrator.cluster.relay import Listener
from orchestrator.cluster.store import ModelStore, ShippedFile, StoreError
from orchestrator.engine.client.library import LibraryFailed, probe_library
from orchestrator.engine.client.spawn import EngineProcess, launch
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.protocol import VERSION
from orchestrator.files import replace_file, user_folder
from orchestrator.pool.machine import memory_budget, read_topology
from orchestrator.registry.options import Adapters


class StaleEpoch(Exception):
    """The caller means an earlier host of this node, or a later one."""


class Begun(NamedTuple):
    """How the shipping of a file begins."""

    received: int | None  # bytes; None if the file is complete
    problem: str  # why it cannot be stored, or nothing
    removed: tuple[str, ...]  # digests of files that had to make room


class Beat(NamedTuple):
    """What an engine's process does; see `messages.EngineBeat`."""

    engine: int
    worked: bool
    states: str
    resident: int
    shared: int


class Host:
    """The engines and model files of one node. Use it in one event loop, whose thread lives as long as the engines.

    `folder` is for all nodes of the user, empty for the default one; `name` is the node's. `silence_seconds` after
    the last `beat` the engines are killed, and `abandoned` is called; also as soon as the node has a host of a later
    head, one with a higher `head_epoch`.
    """

    def __init__(
        self,
        epoch: int,
        name: str,
        folder: str,
        node_bytes: int,
        silence_seconds: float,
        head_epoch: int = 0,
        abandoned: Callable[[], object] = lambda: os._exit(1),
    ) -> None:
        self._epoch = epoch
        root = Path(folder).expanduser() if folder else user_folder(os.environ, "XDG_CACHE_HOME", ".cache")
        self._folder = (root if folder else root / "orchestrator" / "nodes") / name
        self._store = ModelStore(self._folder / "models", node_bytes)
        self._prefixes = PrefixFolder(self._folder / "prefixes")
        self._head = HeadMark(self._folder / "head", head_epoch)
        self._listener = Listener()
        self._silence_seconds = silence_seconds
        self._abandoned = abandoned
        self._engines: dict[int, EngineProcess] = {}
        self._used: dict[int, tuple[str, ...]] = {}  # the groups of files of engines that run or will start
        self._timer: asyncio.TimerHandle | None = None
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1 for actors that reserve no cores

    async def describe(self) -> dict[str, Any]:
        """Return `NodeFacts` as plain values, which any version of the caller can read."""
        facts = await asyncio.to_thread(self._facts)
        self._hear()
        plain: dict[str, Any] = msgspec.to_builtins(facts)
        return plain

    def _facts(self) -> NodeFacts:
        for name in ("models", "logs", "curves", "prefixes"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        self._head.set()
        try:
            library = probe_library().build
        except LibraryFailed as error:
            library = f"none: {error}"
        return NodeFacts(
            protocol=VERSION,
            library=library,
            topology=read_topology(),
            bytes=memory_budget(),
            processor=cpu_model(),
            digests=self._store.digests(),
        )

    async def listen(self, epoch: int, address: str) -> int:
        """Return the port of this address of the node to which the head connects. Raises OSError, NotConnected."""
        self._check(epoch)
        return await self._listener.open(address)

    async def exposed(self, epoch: int, address: str) -> tuple[str, ...]:
        """Return where Ray accepts connections on the node though it has this address; see `exposure`."""
        self._check(epoch)
        return await exposed(address)

    # Model files

    async def use(self, epoch: int, engine: int, groups: tuple[str, ...]) -> None:
        """Keep these groups of files until `give_up`, or until the engine that will start has ended."""
        self._check(epoch)
        self._used[engine] = groups
        await asyncio.to_thread(self._store.touch, groups)

    async def give_up(self, epoch: int, engine: int) -> None:
        """Let the files of an engine make room for others, after ending it if it was started."""
        self._check(epoch)
        if engine in self._engines:
            await self.kill(epoch, engine)
            await self.wait(epoch, engine)
        else:
            await self._release(engine)

    async def _release(self, engine: int) -> None:
        await asyncio.to_thread(self._store.touch, self._used.pop(engine, ()))

    async def begin_file(self, epoch: int, file: ShippedFile) -> Begun:
        """Return how much of a file has been received, after making room for the rest of it."""
        self._check(epoch)
        used = {group for groups in self._used.values() for group in groups}
        try:
            received = await asyncio.to_thread(self._store.begin, file)
            if received is None:
                return Begun(None, "", ())
            removed = await asyncio.to_thread(self._store.make_room, file, file.bytes - received, used)
        except (StoreError, OSError) as error:
            return Begun(None, str(error), ())
        return Begun(received, "", removed)

    async def write_file(self, epoch: int, file: ShippedFile, offset: int, chunk: bytes) -> str:
        """Add a chunk to a file. Returns why that is not possible, or nothing."""
        self._check(epoch)
        try:
            await asyncio.to_thread(self._store.write, file, offset, chunk)
        except (StoreError, OSError) as error:
            return str(error)
        return ""

    async def read_file(self, epoch: int, digest: str, offset: int, size: int) -> bytes:
        """Return a chunk of a file that is complete, for another node. Raises StoreError, OSError."""
        self._check(epoch)
        return await asyncio.to_thread(self._store.read, digest, offset, size)

    async def finish_file(self, epoch: int, file: ShippedFile) -> str:
        """Verify a file. Returns why it cannot be used, or nothing."""
        self._check(epoch)
        try:
            await asyncio.to_thread(self._store.finish, file)
        except (StoreError, OSError) as error:
            return str(error)
        return ""

    # Files with KV cells, see `PrefixFolder`. Those that write return why that failed, or nothing.

    async def receive(self, epoch: int, content: bytes) -> None:
        """Do nothing with these bytes: how long they take says how fast files arrive."""
        self._check(epoch)
        self._hear()

    async def read_prefix(self, epoch: int, name: str, offset: int, size: int) -> bytes:
        """Return a chunk of a file. Raises PrefixError, OSError."""
        self._check(epoch)
        return await asyncio.to_thread(self._prefixes.read, name, offset, size)

    async def write_prefix(self, epoch: int, name: str, transfer: str, offset: int, chunk: bytes) -> str:
        self._check(epoch)
        return await reported(self._prefixes.write, name, transfer, offset, chunk)

    async def finish_prefix(self, epoch: int, name: str, transfer: str, digest: str) -> str:
        self._check(epoch)
        return await reported(self._prefixes.finish, name, transfer, digest)

    async def discard_prefix(self, epoch: int, name: str, transfer: str) -> str:
        self._check(epoch)
        return await reported(self._prefixes.discard, name, transfer)

    async def check_prefix(self, epoch: int, name: str) -> str:
        self._check(epoch)
        return await reported(self._prefixes.check, name)

    # Engines

    async def start(
        self, epoch: int, engine: int, spec: EngineSpec, files: dict[str, ShippedFile], key: bytes
    ) -> EngineSpec | str:
        """Start the process of an engine, to which the head connects with `key`.

        `files` are those of `spec` by their names there, and are in the store.
        Returns what Load gets: `spec` with the files and folders of this node. Or why the process cannot be started.
        """
        self._check(epoch)
        here = self._translate(engine, spec, {name: str(self._store.path(file)) for name, file in files.items()})
        try:
            process = launch(here)
        except OSError as error:
            return f"the engine process cannot be started: {error}"
        self._engines[engine] = process
        self._listener.expect(key, process.socket)
        return here

    def _translate(self, engine: int, spec: EngineSpec, paths: dict[str, str]) -> EngineSpec:
        def here(lora: Adapters) -> Adapters:
            return tuple(dataclasses.replace(adapter, file=paths[adapter.file]) for adapter in lora)

        return dataclasses.replace(
            spec.with_draft_files(paths),
            file=paths[spec.file],
            lora=here(spec.lora),
            adapters=tuple(paths[adapter] for adapter in spec.adapters),
            system_prompts=tuple(prompt._replace(lora=here(prompt.lora)) for prompt in spec.system_prompts),
            digests={paths[file]: digest for file, digest in spec.digests.items()},
            step_costs=str(self._folder / "curves") if spec.step_costs is not None else None,
            prefixes=str(self._folder / "prefixes") if spec.prefixes is not None else None,
            log_file=str(self._folder / "logs" / f"{spec.shown_name}#{engine}.log"),
        )

    async def wait(self, epoch: int, engine: int) -> tuple[int, int, str]:
        """Return the epoch, the return code and the end of the log, when an engine's process has ended."""
        self._check(epoch)
        process = self._engines[engine]
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(process.ended, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.ended)
        result = self._epoch, process.exit_code(), process.log_tail()
        self._engines.pop(engine, None)
        process.socket.close()
        process.release()
        await self._release(engine)
        return result

    async def kill(self, epoch: int, engine: int) -> None:
        self._check(epoch)
        if (process := self._engines.get(engine)) is not None:
            process.kill()

    # Signs of life

    async def beat(self, epoch: int) -> tuple[int, list[Beat]]:
        """Return the epoch, and what each engine's process does."""
        self._check(epoch)
        if self._head.is_stale():
            self._abandon()
            raise StaleEpoch("this node has a host of a later head")
        self._hear()
        return self._epoch, [
            Beat(engine, process.worked(), "".join(sorted(process.states())), *_memory(process.process.pid))
            for engine, process in self._engines.items()
        ]

    def _hear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._silence_seconds, self._abandon)

    def _abandon(self) -> None:
        for process in self._engines.values():
            process.kill()
        self._abandoned()

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise StaleEpoch(f"this host has epoch {self._epoch}, and was addressed as epoch {epoch}")


class HeadMark:
    """A file of a node that says in which epoch the latest head is that has used the node."""

    def __init__(self, path: Path, epoch: int) -> None:
        self._path = path
        self._epoch = epoch  # 0 if there is only one head, which needs no mark

    def set(self) -> None:
        """Raises StaleEpoch if there has been a later head."""
        if self.is_stale():
            wrong = f"there has been a later head than the one of epoch {self._epoch}"
            raise StaleEpoch(f"{wrong}; accepted: that one, or no file {self._path}")
        if self._epoch:
            replace_file(self._path, str(self._epoch))

    def is_stale(self) -> bool:
        """Return whether there has been a later head."""
        if not self._epoch:
            return False
        try:
            return int(self._path.read_text("ascii")) > self._epoch
        except FileNotFoundError:
            return False


def _memory(pid: int) -> tuple[int, int]:
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0, 0
    return memory.rss, memory.shared
