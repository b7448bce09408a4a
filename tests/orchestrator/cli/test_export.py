"""Artifacts are exported into the folder that was named, and never anywhere else."""

from pathlib import Path

import pytest

from orchestrator.cli.export import ExportFailed, check_target, export
from orchestrator.errors import InputError


def test_artifacts_replace_files_of_their_names_and_leave_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "mine.txt").write_text("mine")
    export(tmp_path, {"a.txt": b"new", "sub/dir/b.txt": b"b", "S2[0]": b""})
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"a.txt": b"new", "mine.txt": b"mine", "sub/dir/b.txt": b"b", "S2[0]": b""}


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "/out.txt", "..", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ExportFailed, match="cannot be written"):
        export(folder, {name: b"x"})
    assert list(tmp_path.rglob("*")) == [folder]


def test_links_in_the_folder_lead_nowhere(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    victim = elsewhere / "victim.txt"
    victim.write_text("safe")
    (folder / "sub").symlink_to(elsewhere)
    with pytest.raises(ExportFailed, match="sub"):
        export(folder, {"sub/victim.txt": b"x"})
    (folder / "victim.txt").symlink_to(victim)
    export(folder, {"victim.txt": b"x"})
    assert victim.read_text() == "safe"
    assert not (folder / "victim.txt").is_symlink()


def test_a_failed_write_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ExportFailed, match="a: cannot be written"):
        export(tmp_path, {"a": b"x"})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_target_that_cannot_be_used_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--out"):
        check_target(tmp_path / "file")
    with pytest.raises(InputError, match="--out"):
        check_target(tmp_path / "file" / "below")
    check_target(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
