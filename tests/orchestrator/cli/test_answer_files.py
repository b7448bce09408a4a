"""A file that is only in the text of a direct answer is a result: shown, exported and applied like a declared one."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.bench.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from orchestrator.bench.simulate.engines import SimulatedMachine, words
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from tests.orchestrator.cli.cli_command import Cli, make_command
from tests.orchestrator.cli.kill_writes import contents
from tests.orchestrator.run_jobs import REGISTRY, execute, report_of

REQUEST = "Can you give me back the whole parts.json so that it's valid again? We need the same as TOML, too."
BEFORE = {"parts.json": '{\r\n  "bolts": 12\r\n  "nuts": 40\r\n}\r\n', "notes.md": "Count the bolts.\n"}
TOML = "bolts = 12\nnuts = 40"
ANSWER = f"""A comma was missing in parts.json:

```json
{{
  "bolts": 12,
  "nuts": 40
}}
```

And parts.toml:

```toml
{TOML}
```"""
AFTER = BEFORE | {"parts.json": '{\r\n  "bolts": 12,\r\n  "nuts": 40\r\n}\r\n', "parts.toml": TOML}
NEW = {name: text for name, text in AFTER.items() if BEFORE.get(name) != text}


@dataclass(frozen=True)
class Answered:
    """A finished run with a direct answer about the files of `folder`, which is as it was."""

    command: Cli
    home: Path
    folder: Path
    run: str


@pytest.fixture(scope="session")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    """The run, in a folder that no test may change."""
    place = tmp_path_factory.mktemp("answer_files")
    home, folder = place / "home", place / "user"
    folder.mkdir()
    for name, text in BEFORE.items():
        (folder / name).write_bytes(text.encode())
    machine = SimulatedMachine(lambda file: lambda load: 0.1, lambda request: words(ANSWER))

    async def main() -> str:
        running = virtual_loop()
        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
        async with Orchestrator.open(home, REGISTRY, ports) as orchestrator:
            return await execute(orchestrator, Job(REQUEST, None, folder, "direct"))

    run: str = run_virtually(main)
    return Answered(make_command(home), home, folder, run)


@pytest.fixture
def answered(run_once: Answered, tmp_path: Path) -> Answered:
    """The run, with a copy of its folder that a test may change."""
    folder = tmp_path / "user"
    shutil.copytree(run_once.folder, folder)
    return Answered(run_once.command, run_once.home, folder, run_once.run)


def raw(folder: Path) -> dict[str, str]:
    """Return the files of a folder with the line ends that they have."""
    return {name: (folder / name).read_bytes().decode() for name in contents(folder)}


def test_the_files_are_results_and_the_answer_is_its_text_alone(run_once: Answered) -> None:
    report = report_of(run_once.home, run_once.run)
    assert (report.status, report.answer, report.doubt) == ("done", ANSWER, "")
    assert [result.name for result in report.results] == ["s1.txt", "parts.json", "parts.toml"]
    assert raw(run_once.folder) == BEFORE
    shown = run_once.command("show", run_once.run).out
    assert f"New versions (parts.json): `orchestrator diff {run_once.run}` shows them" in shown
    assert shown.count('"bolts": 12') == 1


def test_the_files_are_exported(run_once: Answered, tmp_path: Path) -> None:
    run_once.command("export", run_once.run, tmp_path / "out")
    assert raw(tmp_path / "out") == NEW | {"s1.txt": ANSWER}


def test_a_diff_shows_only_what_has_changed(run_once: Answered) -> None:
    shown = run_once.command("diff", run_once.run, "--json").json
    diffs = {file["name"]: file for file in shown["files"]}
    assert [diffs[name]["state"] for name in ("parts.json", "parts.toml")] == ["changed", "new"]
    changed = [line for line in diffs["parts.json"]["diff"].splitlines()[3:] if line[0] in "+-"]
    assert changed == ['-  "bolts": 12', '+  "bolts": 12,']


def test_the_files_are_applied(answered: Answered) -> None:
    applied = answered.command("apply", answered.run, "--dir", answered.folder)
    assert (applied.code, applied.err) == (0, "")
    assert raw(answered.folder) == AFTER | {"s1.txt": ANSWER}


@pytest.mark.parametrize(
    ("name", "message"),
    [("parts.json", "was changed since the run read it"), ("parts.toml", "exists, and did not when the run wrote")],
)
def test_no_file_is_applied_over_what_the_run_has_not_seen(answered: Answered, name: str, message: str) -> None:
    (answered.folder / name).write_text("mine")
    before = raw(answered.folder)
    refused = answered.command("apply", answered.run, "--dir", answered.folder)
    assert refused.code != 0
    assert f"{name}: {message}" in refused.err
    assert raw(answered.folder) == before
