from pathlib import Path

import pytest

from orchestrator.journal import Home, JournalError, ObjectMissing, ObjectStore, export, publish


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


def test_export_writes_files_of_the_users_own(objects: ObjectStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = export(objects, {"a.txt": objects.put(b"one"), "sub/b.txt": objects.put(b"two")}, out)
    assert [path.relative_to(out).as_posix() for path in written] == ["a.txt", "sub/b.txt"]
    (out / "a.txt").write_bytes(b"edited by the user")
    assert objects.get(objects.put(b"one")) == b"one"
    assert sorted(path.name for path in out.rglob("*")) == ["a.txt", "b.txt", "sub"]


def test_export_replaces_a_link_and_leaves_its_target_alone(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.txt").symlink_to("precious")
    export(objects, {"a.txt": objects.put(b"new")}, tmp_path)
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../b", "nul\0"])
def test_names_that_leave_the_folder_are_refused(home: Home, objects: ObjectStore, tmp_path: Path, name: str) -> None:
    outputs = {name: objects.put(b"x")}
    with pytest.raises(JournalError, match="no name of an artifact"):
        publish(home, objects, "run1", outputs)
    with pytest.raises(JournalError, match="no name of an artifact"):
        export(objects, outputs, tmp_path)


def test_name_that_is_the_folder_of_another_is_a_clear_error(home: Home, objects: ObjectStore) -> None:
    digest = objects.put(b"x")
    with pytest.raises(JournalError, match="cannot be published"):
        publish(home, objects, "run1", {"a": digest, "a/b": digest})


def test_export_of_a_missing_object(objects: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing):
        export(objects, {"a": "0" * 64}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
