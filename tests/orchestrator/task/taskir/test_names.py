"""Names that look the same are found, whichever way their characters are composed."""

import unicodedata
from pathlib import Path

import pytest

from orchestrator.run.frontdoor.references import FileNames
from orchestrator.run.steps.files import UnreadableFile, read_text
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.analysis import Source, analyze
from orchestrator.task.taskir.models import Step, find_name

COMPOSED = unicodedata.normalize("NFC", "résumé.txt")
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)
BOTH = [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)]


def test_the_name_itself_comes_first() -> None:
    assert COMPOSED != DECOMPOSED
    for name in (COMPOSED, DECOMPOSED):
        assert find_name(name, {COMPOSED, DECOMPOSED}) == name
    assert find_name("resume.txt", {COMPOSED}) is None
    assert find_name("résumé", {COMPOSED}) is None


@pytest.mark.parametrize(("file", "name"), BOTH)
def test_files_are_found_both_ways(tmp_path: Path, file: str, name: str) -> None:
    folder = tmp_path / file.removesuffix(".txt")
    folder.mkdir()
    (folder / file).write_text("Ana arrived.")
    written = f"{name.removesuffix('.txt')}/{name}"
    listed = f"{file.removesuffix('.txt')}/{file}"
    assert read_text(tmp_path, written) == "Ana arrived."
    step = Step(id="S1", actor="worker", action="Summarize it.", inputs=(written,), outputs=("o",))
    assert analyze([step], labels=(), files=[listed], mode="as-planned").sources["S1"] == {written: Source("file")}
    assert Workspace(tmp_path, [listed], {}, ()).read(written) == "Ana arrived."
    assert FileNames([listed]).find(written) == (listed,)
    assert FileNames([listed]).mentioned(f"Summarize {written}, please.") == (listed,)


def test_a_link_that_looks_the_same_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / DECOMPOSED).symlink_to(tmp_path / "secret")
    with pytest.raises(UnreadableFile, match="links are not followed"):
        read_text(tmp_path, COMPOSED)
