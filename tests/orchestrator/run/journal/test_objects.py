import hashlib
import os
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.run.journal.errors import JournalCorrupt, JournalError, ObjectMissing
from orchestrator.run.journal.objects import ObjectStore


@settings(max_examples=25, deadline=None)
@given(datas=st.lists(st.binary(max_size=2000), max_size=6))
def test_what_is_put_can_be_got(tmp_path_factory: pytest.TempPathFactory, datas: list[bytes]) -> None:
    store = ObjectStore(tmp_path_factory.mktemp("objects"))
    digests = [store.put(data) for data in datas]
    assert digests == [hashlib.sha256(data).hexdigest() for data in datas]
    assert [store.get(digest) for digest in digests] == datas


def test_objects_lie_where_their_digest_says_and_nothing_else_is_left(tmp_path: Path) -> None:
    digest = ObjectStore(tmp_path).put(b"hello")
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [f"{digest[:2]}/{digest[2:]}"]


def test_missing_object(tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing) as caught:
        ObjectStore(tmp_path).get("0" * 64)
    assert caught.value.digest == "0" * 64


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "0" * 63, "G" * 64, "0" * 64 + "\n"])
def test_what_is_no_digest_is_refused(tmp_path: Path, digest: str) -> None:
    with pytest.raises(JournalError, match="is no SHA-256 digest"):
        ObjectStore(tmp_path).get(digest)


def test_damaged_object_is_noticed_and_healed_by_storing_it_again(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    digest = store.put(b"the truth")
    store.path(digest).chmod(0o600)
    store.path(digest).write_bytes(b"the truth, bent")
    with pytest.raises(JournalCorrupt, match="do not have the digest"):
        store.get(digest)
    assert store.put(b"the truth") == digest
    assert store.get(digest) == b"the truth"


def test_clean_removes_what_a_killed_writer_left(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    digest = store.put(b"kept")
    (tmp_path / "unfinished" / "half").write_bytes(b"ha")
    store.clean()
    assert list((tmp_path / "unfinished").iterdir()) == []
    assert store.get(digest) == b"kept"


def test_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file, not a folder")
    with pytest.raises(JournalError, match="cannot be written"):
        ObjectStore(tmp_path / "objects").put(b"data")


def test_folder_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ab").write_text("a file, not a folder")
    with pytest.raises(JournalError, match=r"cannot be read: Not a directory: .*/ab"):
        ObjectStore(tmp_path).sizes()
    with pytest.raises(JournalError, match="cannot be read: Not a directory"):
        ObjectStore(tmp_path).size("ab" * 32)


def test_threads_may_store_the_same_object_at_once(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    data = b"x" * 100_000
    threads = [Thread(target=store.put, args=(data,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(hashlib.sha256(data).hexdigest()) == data


def test_object_that_is_stored_again_is_synced_again_only_after_it_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store = ObjectStore(tmp_path)

    def syncs_of_storing() -> int:
        before = len(synced)
        store.release([store.put(b"an answer")])
        return len(synced) - before

    assert syncs_of_storing() == 3  # the file, its name, and that of its folder
    assert syncs_of_storing() == 0
    store.sweep(set, lambda: True)
    assert syncs_of_storing() == 2
    ObjectStore(tmp_path).put(b"an answer")
    assert len(synced) == 7, "another process may have been killed before it had synced the name"
