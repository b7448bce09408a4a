"""What runs on a node, without Ray: model files by chunks, real engines, epochs, and a caller that is silent."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.cluster.host import Host, StaleEpoch
from orchestrator.cluster.members import node_name, why_rejected
from orchestrator.cluster.messages import NodeFacts
from orchestrator.cluster.relay import KEY_BYTES, READ_BYTES, Stream, connect
from orchestrator.cluster.store import ModelStore, ShippedFile, StoreError
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.protocol import VERSION, Frames, Load, Ready, Shutdown, decode_reply, encode
from tests.orchestrator.run_jobs import ON_DEMAND

SMALL = Path(__file__).parents[3] / "registry" / "tiny" / "small.gguf"
CONTENT = bytes(range(256)) * 40
ADDRESS = "127.0.0.1"
KEY = bytes(range(KEY_BYTES))


def shipped(content: bytes = CONTENT, name: str = "m.gguf") -> ShippedFile:
    digest = hashlib.sha256(content).hexdigest()
    return ShippedFile(digest, name, digest, len(content))


def test_a_file_is_received_in_chunks_and_continued_after_a_break(tmp_path: Path) -> None:
    file, first = shipped(), ModelStore(tmp_path, 0)
    assert first.begin(file) == 0
    first.write(file, 0, CONTENT[:3000])
    second = ModelStore(tmp_path, 0)
    assert second.begin(file) == 3000
    assert second.digests() == ()
    with pytest.raises(StoreError, match="accepted: 3000"):
        second.write(file, 2999, CONTENT[2999:])
    second.write(file, 3000, CONTENT[3000:])
    second.finish(file)
    assert second.path(file).read_bytes() == CONTENT
    assert second.digests() == (file.digest,)
    assert second.begin(file) is None
    assert second.read(file.digest, 100, 5000) == CONTENT[100:5100]
    with pytest.raises(StoreError, match="ends before byte"):
        second.read(file.digest, 0, len(CONTENT) + 1)
    with pytest.raises(StoreError, match="no file has the SHA-256 0000"):
        second.read("0000", 0, 1)


def test_a_damaged_file_is_received_again_from_its_start(tmp_path: Path) -> None:
    file, store = shipped(), ModelStore(tmp_path, 0)
    store.begin(file)
    store.write(file, 0, CONTENT[:-1] + b"x")
    with pytest.raises(StoreError, match=f"should be {file.digest}"):
        store.finish(file)
    assert store.begin(file) == 0
    store.write(file, 0, CONTENT + b"longer")
    assert store.begin(file) == 0


def stored(store: ModelStore, file: ShippedFile, content: bytes, *used: str) -> tuple[str, ...]:
    """Store a file as a host does. Returns the digests of those that made room."""
    received = store.begin(file)
    assert received is not None
    removed = store.make_room(file, file.bytes - received, used)
    store.write(file, received, content[received:])
    store.finish(file)
    return removed


def test_files_make_room_the_least_recently_used_first_but_not_those_in_use(tmp_path: Path) -> None:
    contents = {name: bytes([number]) * 1000 for number, name in enumerate("abcd")}
    files = {name: shipped(content, f"{name}.gguf") for name, content in contents.items()}
    markers = 3 * 64
    store = ModelStore(tmp_path, 3000 + markers)
    for at, name in enumerate("abc"):
        assert stored(store, files[name], contents[name]) == ()
        os.utime(tmp_path / files[name].group, (at, at))
    store.touch([files["a"].group])
    in_use = files["b"].group
    assert stored(store, files["d"], contents["d"], in_use) == (files["c"].digest,)
    assert not (tmp_path / files["c"].group).exists()
    assert {*store.digests()} == {files[name].digest for name in "abd"}
    groups = [files[name].group for name in "abd"]
    with pytest.raises(StoreError, match=r"c\.gguf needs 1000 B .* engines use: a\.gguf, b\.gguf, d\.gguf; accepted: "):
        store.make_room(files["c"], 1000, groups)
    assert len(store.digests()) == 3


def test_a_file_beyond_the_limit_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, len(CONTENT) + 100)
    stored(store, shipped(), CONTENT)
    other = shipped(CONTENT * 2, "other.gguf")
    with pytest.raises(StoreError, match=r"other\.gguf needs 20\.0 KiB more .* accepted: more node_bytes"):
        store.make_room(other, other.bytes, ())
    with pytest.raises(StoreError, match=r"of which .* are or can be made free; accepted: "):
        ModelStore(tmp_path, 0).make_room(other, 1 << 60, ())
    assert store.digests() == (shipped().digest,)


def test_a_node_of_another_version_is_rejected_with_both_versions() -> None:
    assert why_rejected(NodeFacts(protocol=VERSION, library="0.5"), "0.5") == ""
    older = why_rejected(NodeFacts(protocol=VERSION - 1, library="0.5"), "0.5")
    assert f"version {VERSION - 1} of the protocol; accepted: {VERSION}" in older
    other = why_rejected(NodeFacts(protocol=VERSION, library="0.4"), "0.5")
    assert "llama.cpp is 0.4; accepted: 0.5" in other


def test_nodes_have_the_names_that_they_were_given_else_their_hosts() -> None:
    def node(number: int, name: str = "10.0.0.1", host: str = "big") -> dict[str, str]:
        return {
            "NodeID": f"{number}abcdefgh",
            "NodeName": name,
            "NodeManagerHostname": host,
            "NodeManagerAddress": "10.0.0.1",
        }

    alone, given = node(1), node(2, name="east")
    assert node_name(alone, [alone]) == "big"
    assert node_name(given, [alone, given]) == "east"
    twins = [node(3), node(4)]
    assert [node_name(twin, twins) for twin in twins] == ["big-3abcde", "big-4abcde"]


class Loaded:
    """A host with an engine that has loaded the smallest embedded model."""

    def __init__(self, folder: Path, silence_seconds: float = 60.0, node_bytes: int = 0, head_epoch: int = 0) -> None:
        self.abandoned = asyncio.Event()
        self.host = Host(7, "n", str(folder), node_bytes, silence_seconds, head_epoch, self.abandoned.set)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> EngineSpec:
        """Start the process of the engine number 1, and return what Load gets."""
        await self.host.describe()
        self.port = await self.host.listen(7, ADDRESS)
        entry = ON_DEMAND.models["tiny-small"]
        assert entry.file == SMALL
        content = SMALL.read_bytes()
        file = shipped(content, entry.file.name)
        await self.host.use(7, 1, (file.group,))
        assert await self.host.begin_file(7, file) == (0, "", ())
        assert await self.host.write_file(7, file, 0, content) == ""
        assert await self.host.finish_file(7, file) == ""
        spec = EngineSpec(file=str(entry.file), context=256, slots=1, threads=1, name=entry.id)
        there = await self.host.start(7, 1, spec, {str(entry.file): file}, KEY)
        assert isinstance(there, EngineSpec)
        assert hashlib.sha256(await asyncio.to_thread(Path(there.file).read_bytes)).hexdigest() == file.digest
        return there

    async def connect(self, key: bytes) -> Stream:
        reader, writer = await connect(ADDRESS, self.port, key)
        self._writers.append(writer)
        return reader, writer

    async def load(self) -> int:
        """Return the process id of the engine."""
        there = await self.start()
        self.reader, self.writer = await self.connect(KEY)
        self.writer.write(encode(Load(VERSION, there)))
        frames = Frames()
        while True:
            data = await self.reader.read(READ_BYTES)
            assert data
            for reply in map(decode_reply, frames.feed(data)):
                if isinstance(reply, Ready):
                    return reply.info.pid

    async def close(self) -> None:
        """End all connections, as the end of the process would."""
        for writer in self._writers:
            writer.close()
        if self.port:
            self.host._listener._server.close()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[..., Loaded]]:
    """Hosts in one folder."""
    hosts: list[Loaded] = []

    def open_host(**settings: Any) -> Loaded:
        hosts.append(Loaded(tmp_path, **settings))
        return hosts[-1]

    yield open_host
    for host in hosts:
        await host.close()


async def test_an_engine_is_started_relayed_and_killed(opened: Callable[..., Loaded]) -> None:
    loaded = opened()
    pid = await loaded.load()
    epoch, beats = await loaded.host.beat(7)
    (beat,) = beats
    assert (epoch, beat.engine) == (7, 1)
    assert beat.resident > beat.shared > 0
    assert beat.states
    await loaded.host.kill(7, 1)
    while await loaded.reader.read(READ_BYTES):
        pass
    assert (await loaded.host.wait(7, 1))[:2] == (7, -9)
    assert not psutil.pid_exists(pid)
    assert await loaded.host.beat(7) == (7, [])


async def test_the_file_of_an_engine_stays_until_the_engine_has_ended(opened: Callable[..., Loaded]) -> None:
    content = SMALL.read_bytes()
    other = shipped(CONTENT, "other.gguf")
    loaded = opened(node_bytes=len(content) + 1000)
    await loaded.load()
    refused = await loaded.host.begin_file(7, other)
    assert f"engines use: {SMALL.name}; accepted" in refused.problem
    await loaded.host.kill(7, 1)
    await loaded.host.wait(7, 1)
    assert await loaded.host.begin_file(7, other) == (0, "", (hashlib.sha256(content).hexdigest(),))


async def test_a_key_opens_one_connection_and_no_other_one_opens_any(opened: Callable[..., Loaded]) -> None:
    loaded = opened()
    pid = await loaded.load()
    for key in (KEY, bytes(KEY_BYTES)):
        reader, writer = await loaded.connect(key)
        writer.write(encode(Shutdown()))
        assert await reader.read(READ_BYTES) == b""
    assert psutil.pid_exists(pid)
    loaded.writer.write(encode(Shutdown()))
    assert (await loaded.host.wait(7, 1))[:2] == (7, 0)


async def test_an_engine_ends_with_its_connection(opened: Callable[..., Loaded]) -> None:
    loaded = opened()
    await loaded.load()
    loaded.writer.close()
    assert (await loaded.host.wait(7, 1))[:2] == (7, 0)


async def test_an_engine_that_nobody_connects_to_is_given_up(opened: Callable[..., Loaded]) -> None:
    loaded = opened()
    await loaded.start()
    assert len((await loaded.host.beat(7))[1]) == 1
    await loaded.host.give_up(7, 1)
    assert await loaded.host.beat(7) == (7, [])
    reader, _ = await loaded.connect(KEY)
    assert await reader.read(READ_BYTES) == b""


async def test_another_epoch_is_refused(opened: Callable[..., Loaded]) -> None:
    loaded = opened()
    await loaded.load()
    for call in (loaded.host.beat(6), loaded.host.listen(8, ADDRESS), loaded.host.wait(8, 1), loaded.host.kill(6, 1)):
        with pytest.raises(StaleEpoch, match="epoch 7"):
            await call
    assert len((await loaded.host.beat(7))[1]) == 1
    await loaded.host.kill(7, 1)
    await loaded.host.wait(7, 1)


async def test_engines_of_an_earlier_head_end_and_it_gets_no_host_any_more(opened: Callable[..., Loaded]) -> None:
    earlier = opened(head_epoch=2)
    pid = await earlier.load()
    await earlier.host.beat(7)
    later = opened(head_epoch=3)
    await later.host.describe()
    with pytest.raises(StaleEpoch, match="a later head"):
        await earlier.host.beat(7)
    assert earlier.abandoned.is_set()
    assert (await earlier.host.wait(7, 1))[:2] == (7, -9)
    assert not psutil.pid_exists(pid)
    with pytest.raises(StaleEpoch, match="later head than the one of epoch 2; accepted: "):
        await opened(head_epoch=2).host.describe()
    assert (await later.host.beat(7))[0] == 7


async def test_engines_end_when_their_caller_is_silent(opened: Callable[..., Loaded]) -> None:
    loaded = opened(silence_seconds=0.5)
    loading = asyncio.create_task(loaded.load())
    while not loading.done():
        await loaded.host.beat(7)
        await asyncio.wait([loading], timeout=0.1)
    assert (await loaded.host.wait(7, 1))[:2] == (7, -9)
    assert loaded.abandoned.is_set()
