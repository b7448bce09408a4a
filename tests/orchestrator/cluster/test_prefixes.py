"""Files of KV cells on their way from one folder to another, without Ray."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cluster.prefixes import CHUNK_BYTES, FolderHere, PrefixError, PrefixFolder, carry
from orchestrator.engine.contract import PrefixFile

NAME = "0123456789abcdef" * 2 + ".kv"
CELLS = bytes(range(256)) * 40_000  # more than a chunk


def written(folder: Path, cells: bytes = CELLS) -> PrefixFile:
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(cells)
    (folder / NAME).write_bytes(cells + digest.digest())
    return PrefixFile(NAME, 300, len(cells) + 32, digest.hexdigest())


@pytest.fixture
def ends(tmp_path: Path) -> tuple[FolderHere, FolderHere]:
    return FolderHere(PrefixFolder(tmp_path / "a")), FolderHere(PrefixFolder(tmp_path / "b"))


async def test_a_file_arrives_as_it_was(tmp_path: Path, ends: tuple[FolderHere, FolderHere]) -> None:
    file = written(tmp_path / "a")
    assert file.bytes > CHUNK_BYTES
    assert await carry(file, *ends) == ""
    arrived = tmp_path / "b" / NAME
    assert arrived.read_bytes() == (tmp_path / "a" / NAME).read_bytes()
    assert arrived.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "b").iterdir()] == [NAME]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[CHUNK_BYTES // 2] ^= 1
    path.write_bytes(content)


def replace_by_another(path: Path) -> None:
    written(path.parent, CELLS[::-1])


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "reason", "stays"),
    [
        (flip, "is damaged", False),
        (replace_by_another, "is damaged", True),  # it is not what was announced, but whole
        (shorten, "ends before byte", True),
        (Path.unlink, "No such file", False),
    ],
)
async def test_what_is_not_what_was_announced_is_refused_and_leaves_nothing(
    tmp_path: Path,
    ends: tuple[FolderHere, FolderHere],
    change: Callable[[Path], None],
    reason: str,
    stays: bool,
) -> None:
    file = written(tmp_path / "a")
    change(tmp_path / "a" / NAME)
    assert reason in await carry(file, *ends)
    assert not [*(tmp_path / "b").glob("*")]
    assert (tmp_path / "a" / NAME).exists() == stays


async def test_a_transfer_that_is_given_up_leaves_nothing(tmp_path: Path, ends: tuple[FolderHere, FolderHere]) -> None:
    file = written(tmp_path / "a")
    source, target = ends
    begun = asyncio.Event()

    class Standstill(FolderHere):
        def read(self, name: str, offset: int, size: int) -> asyncio.Future[bytes]:
            if not offset:
                return super().read(name, offset, size)
            begun.set()
            return asyncio.get_running_loop().create_future()

    carrying = asyncio.create_task(carry(file, Standstill(PrefixFolder(tmp_path / "a")), target))
    await begun.wait()
    assert [*(tmp_path / "b").iterdir()]
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert not [*(tmp_path / "b").iterdir()]
    assert await carry(file, source, target) == ""


@pytest.mark.parametrize("name", ["../secret", "a.kv", NAME + ".part", ""])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    folder = PrefixFolder(tmp_path)
    with pytest.raises(PrefixError, match="names no file of KV cells"):
        folder.read(name, 0, 1)
    with pytest.raises(PrefixError, match="names no file of KV cells"):
        folder.write(name, "0" * 32, 0, b"x")
    with pytest.raises(PrefixError, match="names no transfer"):
        folder.write(NAME, "../x", 0, b"x")
    assert not [*tmp_path.iterdir()]


def test_chunks_come_in_order(tmp_path: Path) -> None:
    folder, transfer = PrefixFolder(tmp_path), "0" * 32
    folder.write(NAME, transfer, 0, b"abc")
    with pytest.raises(PrefixError, match="accepted: 3"):
        folder.write(NAME, transfer, 4, b"e")
    folder.write(NAME, transfer, 3, b"d")
    with pytest.raises(PrefixError, match="is damaged"):
        folder.finish(NAME, transfer, hashlib.sha256(b"abcd").hexdigest())
