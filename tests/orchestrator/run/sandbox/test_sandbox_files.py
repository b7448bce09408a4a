import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.sandbox.errors import InvalidJob
from orchestrator.run.sandbox.files import check_names, collect_files, write_files
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK, python, shell


async def test_files_go_in_and_come_out(sandbox: Sandbox) -> None:
    files = {"a.txt": b"first", "deep/er/b.txt": b"second", "unwanted": b"-"}
    job = shell("cat a.txt deep/er/b.txt >c.txt; echo more >>a.txt", files=files, keep=("a.txt", "*/b.txt", "c.txt"))
    outcome = await sandbox.run(job)
    assert outcome.files == {"a.txt": b"firstmore\n", "deep/er/b.txt": b"second", "c.txt": b"firstsecond"}
    assert not outcome.cut


async def test_only_regular_files_come_out(sandbox: Sandbox) -> None:
    code = "ln -s /etc/passwd link; mkfifo pipe; mkdir folder; ln -s / root; ln -s real also; echo x >real"
    outcome = await sandbox.run(shell(code, keep=("*",)))
    assert outcome.files == {"real": b"x\n"}


async def test_what_is_too_large_stays_inside(sandbox: Sandbox) -> None:
    size = QUICK.disk // 2 + 1
    code = f"for name in 'ab':\n    with open(name, 'wb') as file:\n        file.truncate({size})"
    outcome = await sandbox.run(python(code, keep=("a", "b")))
    assert {name: len(content) for name, content in outcome.files.items()} == {"a": size}
    assert outcome.cut


async def test_two_jobs_share_nothing(sandbox: Sandbox) -> None:
    first = await sandbox.run(shell("ls -A . /tmp; touch here /tmp/there"))
    second = await sandbox.run(shell("ls -A . /tmp"))
    assert second.stdout == first.stdout, "and not more: an installation below /tmp is seen there by both"
    assert b"here" not in second.stdout


def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    work.mkdir()
    (outside / "secret").write_text("secret")
    (work / "folder").symlink_to(outside)
    descriptor = os.open(work, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            write_files(descriptor, {"folder/x": b""}, None)
        assert collect_files(descriptor, ("*",), 1000).files == {}
    finally:
        os.close(descriptor)
    assert [path.name for path in outside.iterdir()] == ["secret"]


@given(st.text(st.sampled_from("ab./\0~ \n"), max_size=8))
def test_an_accepted_name_stays_inside(name: str) -> None:
    try:
        check_names({name: b""}, 1)
    except InvalidJob:
        return
    assert os.path.normpath(os.path.join("/place", name)) == f"/place/{name}"
    assert "\0" not in name
