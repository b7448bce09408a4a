"""Which files of a folder a run may read, and what is told of those that it may not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job, check_job_given, list_files
from orchestrator.task.taskir.parse import task_from
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.run_jobs import step


def test_files_are_listed_that_a_document_can_name(tmp_path: Path) -> None:
    long = "x" * 101
    for name in ("b.txt", "a.txt", ".hidden", "new\nline", "sub/c d.txt", f"{long}/{long}", "bell\a/e.txt", "\u2028"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).touch()
    (tmp_path / os.fsdecode(b"f\xe9")).mkdir()
    (tmp_path / os.fsdecode(b"f\xe9/in.txt")).touch()
    (tmp_path / "link.txt").symlink_to("a.txt")
    assert list_files(tmp_path) == ("a.txt", "b.txt", "sub/c d.txt")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        list_files(tmp_path / "none")


@pytest.fixture
def open_to_others() -> Iterator[Path]:
    """A folder that every user may enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Be no longer root, who may read everything."""
    known = os.geteuid()
    os.seteuid(known or 12345)
    try:
        yield
    finally:
        os.seteuid(known)


@pytest.mark.parametrize(
    ("mode", "below"),
    [(0o333, "."), (0o444, "."), (0o444, "sub"), (0o777, "x" * 256)],
    ids=["not to be listed", "not to be entered", "in one not to be entered", "too long a name"],
)
def test_a_folder_that_cannot_be_read_is_refused(open_to_others: Path, mode: int, below: str) -> None:
    folder = open_to_others / "folder"
    (folder / "sub").mkdir(parents=True)
    folder.chmod(mode)
    with bound_by_permissions(), pytest.raises(InputError, match=r"cannot be read: .*; accepted: a folder that"):
        list_files(folder / below)


def test_what_may_not_be_looked_at_in_a_folder_is_left_out(open_to_others: Path) -> None:
    for name, mode in (("entered", 0o777), ("listed", 0o444), ("neither", 0o000)):
        (open_to_others / name).mkdir()
        (open_to_others / name / "a.txt").touch()
        (open_to_others / name).chmod(mode)
    with bound_by_permissions():
        assert list_files(open_to_others) == ("entered/a.txt",)


def test_paths_that_cannot_be_read_are_reported_when_a_job_comes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("read")
    (tmp_path / ".hidden").write_text("read, too")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    registry = load_registry(find_registry(environment={}))

    def problems(*names: str, directory: Path | None = tmp_path) -> tuple[str, ...]:
        steps = [step("S1", "Summarize it.", [], ["o"])]
        inputs = [{"type": "path", "value": name} for name in names]
        task = task_from({"objective": "x", "inputs": inputs, "plan": {"steps": steps}})
        try:
            check_job_given(Job(None, task, directory, "as-planned"), registry, {"from an earlier run": "digest"})
        except InvalidTask as error:
            return tuple(problem.where for problem in error.problems)
        return ()

    assert problems("a.txt", ".hidden", "from an earlier run") == ()
    assert problems("a.txt", "binary", "none.txt", "../a.txt") == tuple(f"/inputs/{at}/value" for at in (1, 2, 3))
    assert problems("from an earlier run", "a.txt", directory=None) == ("/inputs/1/value",), "no folder has it"


@pytest.mark.parametrize(
    ("request_text", "unreadable"),
    [
        ("Summarize a.txt.", ()),
        ("Summarize a.txt and photo.dat.", ("photo.dat",)),
        ("Summarize a.txt and write the summary to photo.dat.", ()),
        ("Summarize a.txt, but not photo.dat.", ()),
        ("Compare photo.dat with locked.txt.", ("photo.dat", "locked.txt")),
    ],
)
def test_files_that_a_request_names_are_read_when_it_comes(
    open_to_others: Path, request_text: str, unreadable: tuple[str, ...]
) -> None:
    (open_to_others / "a.txt").write_text("read")
    (open_to_others / "photo.dat").write_bytes(b"\xff\xd8")
    (open_to_others / "locked.txt").touch(0o000)
    registry = load_registry(find_registry(environment={}))
    job = Job(request_text, None, open_to_others, "as-planned")
    with bound_by_permissions():
        try:
            check_job_given(job, registry, {})
            problems: tuple[str, ...] = ()
        except InputError as error:
            problems = tuple(problem.what for problem in error.problems)
    assert [problem.split("'")[1] for problem in problems] == [*unreadable]
    assert all(("is not UTF-8" if "photo" in problem else "may not be read") in problem for problem in problems)


def test_a_link_that_a_request_names_is_refused_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("read")
    (tmp_path / "linked.txt").symlink_to("notes.txt")
    (tmp_path / "below").symlink_to(tmp_path)
    registry = load_registry(find_registry(environment={}))
    for name, reason in (("linked.txt", "is a link"), ("below/notes.txt", "has a part that is a link")):
        with pytest.raises(InputError, match=f"file '{name}' {reason}.*; links are not followed"):
            check_job_given(Job(f"Summarize {name}.", None, tmp_path, "as-planned"), registry, {})
