import asyncio
import re
import time
from pathlib import Path

import pytest

from orchestrator.run.gates.contract import RunJob
from orchestrator.run.gates.shares import JobRunner
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.task.events import FailureKind
from tests.orchestrator.run.steps.tools.tool_fixture import ToolFixture

SHIP = "name: Koldin\nweight: 12 t\n"
CODE = "def twice(x):\n    return 2 * x\n"
TEST = "from work import twice\n\n\ndef test_twice():\n    assert twice(2) == {}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    (place / "deep").mkdir(parents=True)
    (place / "ship.txt").write_text(SHIP)
    (place / "deep" / "train.txt").write_text("name: Marvon\nspeed: 200\n")
    (place / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    return place


@pytest.fixture
def run(sandbox: Sandbox) -> RunJob:
    async def here() -> Sandbox:
        return sandbox

    return JobRunner(here, limit=2).run


async def test_what_can_be_read_is_the_folder_the_inputs_and_what_was_written(folder: Path) -> None:
    fixture = ToolFixture(folder, {"note": "from a step"}, ("o.txt",))
    assert await fixture.call("list_files") == ["deep/train.txt", "note", "picture.png", "ship.txt"]
    assert await fixture.call("list_files", pattern="*.txt") == ["deep/train.txt", "ship.txt"]
    assert await fixture.call("read_file", name="ship.txt") == SHIP
    assert await fixture.call("read_file", name="ship.txt", start=6, length=6) == "Koldin"
    assert await fixture.call("read_file", name="note") == "from a step"
    await fixture.call("write_artifact", name="o.txt", text="first")
    await fixture.call("write_artifact", name="o.txt", text="second")
    assert await fixture.call("read_file", name="o.txt") == "second"
    assert fixture.workspace.written == {"o.txt": "second"}
    assert [call.outcome for call in fixture.calls] == ["done"] * 8


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "deep/../ship.txt", "", "deep"])
async def test_nothing_else_can_be_read(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("TOPSECRET")
    fixture = ToolFixture(folder)
    (folder / "link").symlink_to(folder.parent / "secret")
    with pytest.raises(ToolError):
        await fixture.call("read_file", name=name)
    assert "TOPSECRET" not in str(fixture.calls)


async def test_a_file_that_is_swapped_for_a_link_is_not_followed(folder: Path) -> None:
    fixture = ToolFixture(folder)
    (folder.parent / "secret").write_text("TOPSECRET")
    (folder / "ship.txt").unlink()
    (folder / "ship.txt").symlink_to(folder.parent / "secret")
    with pytest.raises(ToolError, match="links are not followed"):
        await fixture.call("read_file", name="ship.txt")
    assert "TOPSECRET" not in str(await fixture.call("search", query="secret"))


@pytest.mark.parametrize(
    ("granted", "name", "arguments", "why"),
    [
        (("search",), "read_file", {"name": "ship.txt"}, "this step has no tool 'read_file'; accepted: search"),
        ((), "shell", {"command": "id"}, "accepted: none"),
        (("read_file",), "read_file", {}, "'name' is a required property"),
        (("read_file",), "read_file", {"name": "a", "mode": "w"}, "mode"),
        (("search",), "search", {"query": "x", "limit": "many"}, "/limit: 'many' is not of type 'integer'"),
        (("search",), "search", ["x"], "is not of type 'object'"),
    ],
)
async def test_rights_and_arguments_are_checked_before_anything_is_done(
    folder: Path, granted: tuple[str, ...], name: str, arguments: object, why: str
) -> None:
    fixture = ToolFixture(folder, granted=granted)
    with pytest.raises(ToolError, match=r"accepted|takes") as caught:
        await fixture.toolbox.call(name, arguments)
    assert why in str(caught.value)
    assert caught.value.kind is FailureKind.SCHEMA
    assert [(call.tool, call.outcome, call.message) for call in fixture.calls] == [(name, "refused", str(caught.value))]


async def test_only_outputs_can_be_written(folder: Path) -> None:
    fixture = ToolFixture(folder, outputs=("o.txt",))
    with pytest.raises(ToolError, match=r"'ship.txt' is no output of this step; accepted: o.txt"):
        await fixture.call("write_artifact", name="ship.txt", text="x")
    assert (folder / "ship.txt").read_text() == SHIP
    assert fixture.calls[0].outcome == "failed"


async def test_search_is_over_all_texts(folder: Path) -> None:
    fixture = ToolFixture(folder, {"report": "The Velmar is a bridge."})
    found = await fixture.call("search", query="weight of the Koldin", limit=1)
    assert isinstance(found, list)
    assert [(hit["name"], "Koldin" in hit["passage"]) for hit in found] == [("ship.txt", True)]
    bridge = await fixture.call("search", query="bridge", files="rep*")
    assert isinstance(bridge, list)
    assert [hit["name"] for hit in bridge] == ["report"]


async def test_notes_by_tool(folder: Path) -> None:
    fixture = ToolFixture(folder)
    assert await fixture.call("notes", change="add", text="remember") == "N1"
    listed = await fixture.call("notes", change="edit", id="N1", text="remember this")
    assert listed == [{"id": "N1", "text": "remember this", "step": "S1"}]
    assert await fixture.call("notes", change="drop", id="N1") == []
    with pytest.raises(ToolError, match="to edit a note takes id and text; missing: text"):
        await fixture.call("notes", change="edit", id="N1")


async def test_without_a_sandbox_nothing_is_run(folder: Path) -> None:
    with pytest.raises(ToolError, match="no sandbox") as caught:
        await ToolFixture(folder).call("shell", command="id")
    assert caught.value.kind is FailureKind.INFRASTRUCTURE


async def test_grep_finds_lines_and_is_stopped_where_a_pattern_explodes(
    folder: Path, run: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = ToolFixture(folder, {"trap": "a" * 40 + "b"}, run=run)
    assert await fixture.call("grep", pattern="^name: (K|M)", files="*.txt") == [
        {"name": "deep/train.txt", "line": 1, "text": "name: Marvon"},
        {"name": "ship.txt", "line": 1, "text": "name: Koldin"},
    ]
    with pytest.raises(ToolError, match="not a regular expression"):
        await fixture.call("grep", pattern="(")
    monkeypatch.setattr("orchestrator.run.steps.tools.files.GREP_SECONDS", 2.0)
    with pytest.raises(ToolError, match="took more than"):
        await fixture.call("grep", pattern="(a+)+$", files="trap")


async def test_a_pattern_that_takes_long_to_compile_is_compiled_in_the_sandbox(folder: Path, run: RunJob) -> None:
    pattern = "(?i)" + "[\x01-\uffff]" * 150
    begun = time.thread_time()
    re.compile(pattern)
    compiling = time.thread_time() - begun
    begun = time.thread_time()
    assert await ToolFixture(folder, run=run).call("grep", pattern=pattern, files="*.txt") == []
    assert time.thread_time() - begun < compiling / 2


async def test_shell_sees_what_it_was_given_and_nothing_else(folder: Path, run: RunJob) -> None:
    fixture = ToolFixture(folder, {"in.txt": "b\na\n", "two words": "x"}, ("made",), run=run)
    told = await fixture.toolbox.call("shell", {"command": "sort in.txt; ls; id -u", "files": ["in.txt"]})
    assert told.failure is None
    assert told.text is not None
    assert told.text.split()[:3] == ["a", "b", "in.txt"]
    assert told.text.split()[3] != "0"
    failed = await fixture.toolbox.call("shell", {"command": "cat ship.txt; exit 3"})
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.message) == (FailureKind.CODE, "it ended with exit code 3")
    assert "No such file" in failed.failure.evidence
    slow = await fixture.toolbox.call("shell", {"command": "sleep 60", "seconds": 1, "files": []})
    assert slow.failure is not None
    assert slow.failure.kind is FailureKind.TIMEOUT
    assert [call.outcome for call in fixture.calls] == ["done", "failed", "failed"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("work.py", "import os\nos._exit(0)\n"),
        ("conftest.py", "def pytest_collection_modifyitems(items):\n    items.clear()\n"),
        ("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    ],
)
async def test_what_a_model_wrote_decides_nothing_about_the_tests(
    folder: Path, run: RunJob, name: str, text: str
) -> None:
    fixture = ToolFixture(folder, {"test_work.py": TEST.format(5)}, ("work.py", name), run=run)
    await fixture.call("write_artifact", name="work.py", text=CODE)
    await fixture.call("write_artifact", name=name, text=text)
    told = await fixture.toolbox.call("run_tests", {"seconds": 300})
    assert told.failure is not None
    assert told.failure.kind is FailureKind.CODE


@pytest.mark.parametrize(("expected", "passes"), [(4, True), (5, False)])
async def test_tests_are_run(folder: Path, run: RunJob, expected: int, passes: bool) -> None:
    fixture = ToolFixture(folder, {"test_work.py": TEST.format(expected)}, ("work.py",), run=run)
    await fixture.call("write_artifact", name="work.py", text=CODE)
    told = await fixture.toolbox.call("run_tests", {"seconds": 300})
    assert (told.failure is None) == passes == (told.value["exit_code"] == 0)
    assert told.text is not None
    assert ("1 passed" if passes else "1 failed") in told.text


async def test_what_a_call_waits_for_the_sandbox_and_for_a_core_is_no_work(folder: Path) -> None:
    async def waiting(_job: SandboxJob) -> JobOutcome:
        await asyncio.sleep(0.2)  # until it is the job's turn
        return JobOutcome(exit_code=0, seconds=0.1, cpu_seconds=0.03)

    fixture = ToolFixture(folder, run=waiting)
    await fixture.call("shell", command="true")
    await fixture.call("list_files")
    shell, listed = fixture.calls
    assert shell.work_seconds is not None
    assert 0.03 <= shell.work_seconds <= shell.seconds - 0.2 + 0.03 + 0.01
    assert (listed.work_seconds, listed.awaited_seconds) == (None, 0.0), "all of its time is work"
