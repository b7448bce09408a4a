import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.objects import ObjectStore, publish


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def objects(home: Home) -> ObjectStore:
    home.create()
    return ObjectStore(home.objects)


def test_artifacts_appear_under_their_names(home: Home, objects: ObjectStore) -> None:
    folder = publish(home, objects, "run1", {"report.md": objects.put(b"# hi"), "sub/a.txt[0]": objects.put(b"a")})
    assert folder == home.path / "runs" / "run1" / "artifacts"
    assert (folder / "report.md").read_bytes() == b"# hi"
    assert (folder / "sub" / "a.txt[0]").read_bytes() == b"a"


def test_a_later_writer_of_a_name_replaces_it(home: Home, objects: ObjectStore) -> None:
    publish(home, objects, "run1", {"a": objects.put(b"one")})
    folder = publish(home, objects, "run1", {"a": objects.put(b"two")})
    assert (folder / "a").read_bytes() == b"two"
    assert len(objects.put(b"one")) == 64


def test_an_object_with_all_its_links_is_copied(
    home: Home, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", link)
    for _ in range(2):
        folder = publish(home, objects, "run1", {"sub/a": objects.put(b"one")})
        assert (folder / "sub" / "a").read_bytes() == b"one"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../b", "nul\0"])
def test_names_that_leave_the_folder_are_refused(home: Home, objects: ObjectStore, name: str) -> None:
    outputs = {name: objects.put(b"x")}
    with pytest.raises(JournalError, match="no name of an artifact"):
        publish(home, objects, "run1", outputs)


def test_name_that_is_the_folder_of_another_is_a_clear_error(home: Home, objects: ObjectStore) -> None:
    digest = objects.put(b"x")
    with pytest.raises(JournalError, match="cannot be published"):
        publish(home, objects, "run1", {"a": digest, "a/b": digest})


def test_equal_artifacts_that_are_made_at_once_are_all_published(tmp_path: Path) -> None:
    """Each writer replaces the object of the others by the same bytes, while they link to it."""
    home = Home(tmp_path)
    objects = ObjectStore(home.objects)

    def make(number: int, data: bytes, barrier: Barrier) -> Path:
        barrier.wait()
        digest = objects.put(data)
        return publish(home, objects, "R", {f"{data.decode()}-{number}": digest}) / f"{data.decode()}-{number}"

    with ThreadPoolExecutor(8) as threads:
        for turn in range(40):
            barrier = Barrier(8)
            made = [threads.submit(make, number, f"equal{turn}".encode(), barrier) for number in range(8)]
            assert {one.result().read_bytes() for one in made} == {f"equal{turn}".encode()}
