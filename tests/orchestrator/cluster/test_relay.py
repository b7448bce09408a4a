"""Connections between the head and the engines of a node: bytes both ways, keys, and certificates."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.cluster.relay import KEY_BYTES, Listener, connect
from orchestrator.cluster.tls import NotConnected
from tests.orchestrator.api.certificates import Pair, self_signed, signed_by
from tests.orchestrator.cluster.test_security import environment_of

ADDRESS = "127.0.0.1"
KEY = bytes(range(KEY_BYTES))
CONTENT = os.urandom(5 << 20)  # more than all buffers hold


class Ends:
    """A node's listener, and the engine's end of a connection that it expects."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.port = 0
        self.engine, self.host = socket.socketpair()
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self.port = await self.listener.open(ADDRESS)
        self.listener.expect(KEY, self.host)

    async def head(self, key: bytes = KEY) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(ADDRESS, self.port, key)
        self.writers.append(writer)
        return reader, writer

    async def engine_end(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(sock=self.engine)
        self.writers.append(writer)
        return reader, writer


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    yield ends
    for writer in ends.writers:
        writer.close()
    ends.engine.close()
    ends.host.close()
    ends.listener._server.close()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return self_signed(tmp_path_factory.mktemp("ca") / "own", "authority", extensions="authority", subject="cluster")


def use(patch: pytest.MonkeyPatch, authority: Pair, pair: Pair) -> None:
    for name, value in environment_of(authority, pair).items():
        patch.setenv(name, value)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_bytes_arrive_both_ways_until_the_engine_closes(
    ends: Ends, authority: Pair, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    if encrypted:
        use(monkeypatch, authority, signed_by(authority, "node", [ADDRESS]))
    await ends.open()
    (from_node, to_node), (from_head, to_head) = await ends.head(), await ends.engine_end()
    to_node.write(CONTENT)
    assert await from_head.readexactly(len(CONTENT)) == CONTENT
    to_head.write(CONTENT)
    to_head.close()
    assert await from_node.read() == CONTENT
    assert (to_node.get_extra_info("ssl_object") is not None) is encrypted


async def test_an_engine_is_closed_with_its_connection(ends: Ends) -> None:
    await ends.open()
    (_, to_node), (from_head, _) = await ends.head(), await ends.engine_end()
    to_node.write(b"last")
    to_node.close()
    assert await from_head.read() == b"last"


async def test_another_key_opens_nothing_and_a_key_opens_one_connection(ends: Ends) -> None:
    await ends.open()
    from_node, _ = await ends.head(bytes(KEY_BYTES))
    assert await from_node.read() == b""
    (from_first, _), (_, to_head) = await ends.head(), await ends.engine_end()
    to_head.write(b"first")
    assert await from_first.readexactly(5) == b"first"
    from_second, _ = await ends.head()
    assert await from_second.read() == b""


async def received(ends: Ends) -> bytes:
    """Return what the node sends to who has the key, until it closes the connection."""
    from_node, _ = await ends.head()
    with suppress(OSError):  # it may say that it refuses the certificate
        return await from_node.read()
    return b""


async def test_who_has_no_certificate_of_the_authority_gets_nothing(
    ends: Ends, authority: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = self_signed(tmp_path / "other", "authority", extensions="authority", subject="other")
    strange = signed_by(other, "strange", [ADDRESS])
    with monkeypatch.context() as patch:
        use(patch, authority, signed_by(authority, "node", [ADDRESS]))
        await ends.open()
        patch.setenv("RAY_USE_TLS", "0")
        assert await received(ends) == b""
        use(patch, other, strange)
        with pytest.raises(OSError, match="certificate verify failed"):
            await ends.head()
        patch.setenv("RAY_TLS_CA_CERT", str(authority.certificate))
        assert await received(ends) == b""
        patch.setenv("RAY_TLS_SERVER_KEY", "")
        with pytest.raises(NotConnected, match="RAY_TLS_SERVER_KEY: is not set; accepted"):
            await ends.head()
    ends.engine.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody was connected with it
        ends.engine.recv(1)


async def test_a_node_has_to_name_its_address(ends: Ends, authority: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, authority, signed_by(authority, "elsewhere", ["10.9.9.9"]))
    await ends.open()
    with pytest.raises(OSError, match="IP address mismatch"):
        await ends.head()
