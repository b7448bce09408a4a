"""Copying what is going to change, and putting it back byte for byte."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.procedures.checkpoints import fingerprint, restore, take
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.resources import (
    DatabaseResource,
    PathResource,
    RowsResource,
    resource_from_json,
    resource_to_json,
)
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.procedures.maintained import contents, make_world

ROOT = Path(__file__).resolve().parents[2]
NAMES = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/z"])
TREES = st.dictionaries(NAMES, st.one_of(st.none(), st.binary(max_size=20)), max_size=6)


def make_tree(folder: Path, tree: dict[str, bytes | None]) -> None:
    """Make files, and folders where the content is None, leaving out what would lie below a file."""
    for name, content in sorted(tree.items()):
        path = folder / name
        if path.parent.is_file() or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


@given(TREES, TREES)
def test_any_tree_becomes_what_it_was(before: dict[str, bytes | None], after: dict[str, bytes | None]) -> None:
    with_temporary = Path(os.environ.get("TMPDIR", "/tmp")) / f"trees-{os.getpid()}"  # noqa: S108 - a fresh folder
    root = with_temporary / os.urandom(8).hex()
    target = root / "tree"
    root.mkdir(parents=True)
    make_tree(target, before)
    found, resource = contents(root), PathResource(target)
    told = fingerprint(resource)
    digest = take([resource], root.with_suffix(".kept"))
    if target.exists():
        os.rename(target, root.with_suffix(".old"))
    make_tree(target, after)
    restore(root.with_suffix(".kept"), digest)
    restored = contents(root)
    restored.pop("tree", None)
    found.pop("tree", None)
    assert restored == found
    assert fingerprint(resource) == told


def test_large_files_that_are_only_replaced_are_shared_and_others_are_not(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (2 << 20))
    digest = take([PathResource(big, written="as a whole"), PathResource(big)], tmp_path / "kept")
    shared, copied = tmp_path / "kept" / "0" / "0", tmp_path / "kept" / "1" / "0"
    assert not copied.samefile(big)
    inode = big.stat().st_ino
    big.unlink()
    restore(tmp_path / "kept", digest)
    assert big.read_bytes() == b"x" * (2 << 20)
    assert not shared.samefile(big) or big.stat().st_ino == inode


def test_rights_times_and_links_come_back(tmp_path: Path) -> None:
    world = make_world(tmp_path / "world")
    before = contents(world / "tree")
    digest = take([PathResource(world / "tree")], tmp_path / "kept")
    (world / "tree" / "two.txt").chmod(0o755)
    (world / "tree" / "one.txt").touch()
    (world / "tree" / "link").unlink()
    (world / "tree" / "link").mkdir()
    (world / "tree" / "link" / "deep").write_text("x")
    restore(tmp_path / "kept", digest)
    assert contents(world / "tree") == before


def test_chosen_rows_come_back_and_others_stay(tmp_path: Path) -> None:
    world = make_world(tmp_path / "world")
    resource = RowsResource(world / "data.db", "things", "size > 1")
    digest = take([resource], tmp_path / "kept")
    with closing(sqlite3.connect(world / "data.db")) as connection:
        before = list(connection.execute("SELECT * FROM things WHERE size > 1 ORDER BY name"))
        connection.execute("DELETE FROM things WHERE size > 2")
        connection.execute("UPDATE things SET value = x'01' WHERE name = 'thing 9'")
        connection.execute("INSERT INTO things VALUES ('another', NULL, 50.0), ('stays', NULL, 0.0)")
        connection.commit()
        restore(tmp_path / "kept", digest)
        assert list(connection.execute("SELECT * FROM things WHERE size > 1 ORDER BY name")) == before
        assert connection.execute("SELECT count(*) FROM things WHERE name = 'stays'").fetchone() == (1,)


def test_a_database_that_was_not_there_is_removed_again(tmp_path: Path) -> None:
    resource = DatabaseResource(tmp_path / "new.db")
    digest = take([resource], tmp_path / "kept")
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.execute("CREATE TABLE a (b)")
    assert fingerprint(resource) != "absent"
    restore(tmp_path / "kept", digest)
    assert fingerprint(resource) == "absent"


def test_a_checkpoint_that_was_changed_is_not_put_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    digest = take([PathResource(tmp_path / "file")], tmp_path / "kept")
    with (tmp_path / "kept" / "manifest.json").open("a") as file:
        file.write(" ")
    with pytest.raises(StepFailed, match="not what was written"):
        restore(tmp_path / "kept", digest)


RESTORES = """\
import sys
from pathlib import Path
from orchestrator.procedures.checkpoints import restore
from orchestrator.procedures.errors import StepFailed
try:
    restore(Path(sys.argv[1]), sys.argv[2])
except StepFailed as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("name", ["absent", "file", "tree"])
def test_on_a_file_system_that_became_read_only_what_was_not_changed_counts_as_put_back(
    tmp_path: Path, sandbox: Sandbox, name: str
) -> None:
    world = tmp_path / "world"
    (world / "tree" / "inner").mkdir(parents=True)
    for path in (world / "file", world / "tree" / "inner" / "file"):
        path.write_text("x")
    digest = take([PathResource(world / name)], tmp_path / "kept")

    def restored() -> str:
        read_only = [sandbox.config.bwrap, "--dev-bind", "/", "/", "--ro-bind", str(world), str(world)]
        command = [*read_only, sys.executable, "-c", RESTORES, str(tmp_path / "kept"), digest]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stderr

    assert restored() == ""
    changed = world / name / "inner" / "file" if name == "tree" else world / name
    changed.write_text("y")
    assert "Read-only file system" in restored()


def test_what_no_checkpoint_holds_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StepFailed, match="a pipe"):
        take([PathResource(tmp_path / "pipe")], tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "resource",
    [PathResource(Path("/a"), secret=True), RowsResource(Path("/b"), "t", "x > 1"), DatabaseResource(Path("/c"))],
)
def test_a_resource_is_written_down_and_read_again(resource: PathResource | RowsResource | DatabaseResource) -> None:
    assert resource_from_json(resource_to_json(resource)) == resource
