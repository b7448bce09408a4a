import os
import socket
from pathlib import Path

import pytest

from orchestrator.run.steps.files import UnreadableFile, read_bytes, read_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hällo")
    (folder / "sub" / "b.txt").write_text("below")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    return folder


def test_files_are_read_by_their_relative_names(folder: Path) -> None:
    assert read_text(folder, "a.txt") == "hällo"
    assert read_text(folder, "sub/b.txt") == "below"


def test_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert read_text(tmp_path / "link", "a.txt") == "hällo"


def test_byte_order_mark_is_no_text(folder: Path) -> None:
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbfhi")
    assert read_text(folder, "bom.txt") == "hi"


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "../secret/key", "sub/../a.txt", "./a.txt", "sub//b.txt", "a.txt/", "a\0b"]
)
def test_names_that_are_not_plain_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(UnreadableFile, match="is no name under --dir"):
        read_text(folder, name)


def test_links_are_not_followed(folder: Path) -> None:
    (folder / "link").symlink_to("../secret/key")
    (folder / "inner").symlink_to("a.txt")
    (folder / "up").symlink_to("../secret")
    for name in ("link", "inner"):
        with pytest.raises(UnreadableFile, match="is a link; links are not followed"):
            read_text(folder, name)
    with pytest.raises(UnreadableFile, match="a part that is a link"):
        read_text(folder, "up/key")


def test_only_regular_files_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)  # the address of a socket has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name in ("fifo", "socket", "sub"):
            with pytest.raises(UnreadableFile, match="is no regular file"):
                read_text(folder, name)


def test_devices_are_not_even_opened() -> None:
    with pytest.raises(UnreadableFile, match="is no regular file"):
        read_text(Path("/dev"), "zero")


def test_missing_file_and_folder(folder: Path) -> None:
    for name in ("none.txt", "none/a.txt"):
        with pytest.raises(UnreadableFile, match=f"file '{name}' does not exist"):
            read_text(folder, name)
    with pytest.raises(UnreadableFile, match="does not exist"):
        read_text(folder / "gone", "a.txt")


def test_file_above_the_limit_is_refused_with_its_size(folder: Path) -> None:
    (folder / "big").write_bytes(b"x" * 101)
    assert len(read_bytes(folder, "big", limit=101)) == 101
    with pytest.raises(UnreadableFile, match="has 101 bytes; an input may have 100"):
        read_bytes(folder, "big", limit=100)


def test_file_that_is_not_text(folder: Path) -> None:
    (folder / "latin").write_bytes("hällo".encode("latin-1"))
    with pytest.raises(UnreadableFile, match=r"is not UTF-8 text \(byte 1\)"):
        read_text(folder, "latin")


def test_no_descriptor_is_left_open(folder: Path) -> None:
    (folder / "link").symlink_to("a.txt")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("a.txt", "sub/b.txt", "link", "none", "sub", "link/x"):
        try:
            read_text(folder, name)
        except UnreadableFile:
            continue
    assert len(os.listdir("/proc/self/fd")) <= before
