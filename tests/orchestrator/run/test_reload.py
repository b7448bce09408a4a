"""A registry that is edited while an orchestrator uses it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from orchestrator.registry.load import load_registry
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.task.events import AttemptStarted
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.run_jobs import execute, job, report_of, step

TINY = Path(__file__).parents[3] / "registry" / "tiny"
HELPER = "  helper: {model: large, tier: C, system: Do the task.}\n"
TEXT = f"""\
defaults: {{context: 2048}}
models:
  large: {{file: {TINY / "large.gguf"}, threads: 1}}
roles:
  worker: {{model: large, tier: C, system: Do the task.}}
"""
SUMMARY = step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])
HELPED = SUMMARY | {"actor": "helper"}


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
async def orchestrator(tmp_path: Path, registry: Path) -> AsyncIterator[Orchestrator]:
    async with Orchestrator.open(tmp_path / "home", load_registry(registry)) as opened:
        yield opened


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not holds():  # noqa: ASYNC110 (the watch tells nobody but the log)
            await asyncio.sleep(0.05)


async def test_an_edit_is_adopted_while_the_engine_stays(
    orchestrator: Orchestrator, registry: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidTask, match='unknown role "helper"'):
        await orchestrator.submit(job([HELPED]))
    await execute(orchestrator, job([SUMMARY]))
    engines = psutil.Process().children()
    _write(registry, TEXT + HELPER)
    await _until(lambda: orchestrator.registry_status.adopted == 1)
    run = await execute(orchestrator, job([HELPED]))
    assert report_of(tmp_path / "home", run).status == "done"
    assert psutil.Process().children() == engines


async def test_an_edit_with_a_mistake_is_shown_and_the_former_registry_stays(
    orchestrator: Orchestrator, registry: Path, tmp_path: Path
) -> None:
    _write(registry, (TEXT + HELPER).replace("worker: {model: large, tier: C", "worker: {model: lage, tier: C"))
    await _until(lambda: bool(orchestrator.registry_status.problems))
    problem = str(orchestrator.registry_status.problems[0])
    assert "roles.worker.model: there is no model 'lage'; accepted: large?" in problem
    with pytest.raises(InvalidTask, match='unknown role "helper"'):
        await orchestrator.submit(job([HELPED]))
    run = await execute(orchestrator, job([SUMMARY]))
    assert report_of(tmp_path / "home", run).status == "done"
    _write(registry, TEXT + HELPER)
    await _until(lambda: not orchestrator.registry_status.problems)
    run = await execute(orchestrator, job([HELPED]))
    assert report_of(tmp_path / "home", run).status == "done"


async def test_a_run_in_progress_keeps_the_role_that_was_removed(registry: Path, tmp_path: Path) -> None:
    _write(registry, TEXT + HELPER)
    async with Orchestrator.open(tmp_path / "home", load_registry(registry)) as first:
        run = await first.submit(job([HELPED]))
    async with Orchestrator.open(tmp_path / "home", load_registry(registry)) as second:
        _write(registry, TEXT)
        await _until(lambda: second.registry_status.adopted == 1)
        with pytest.raises(InvalidTask, match='unknown role "helper"'):
            await second.submit(job([HELPED]))
        with JournalReader.open_to_read(tmp_path / "home") as journal:
            assert [row.run for row in journal.unfinished()] == [run]
        await second.resume(run)
        async for _ in second.watch(run):
            pass
    assert report_of(tmp_path / "home", run).status == "done"


async def test_a_run_whose_role_is_gone_since_a_restart_fails_and_says_why(registry: Path, tmp_path: Path) -> None:
    _write(registry, TEXT + HELPER)
    async with Orchestrator.open(tmp_path / "home", load_registry(registry)) as first:
        lost = [await first.accept(job([HELPED])) for _ in range(2)]
    _write(registry, TEXT)
    async with Orchestrator.open(tmp_path / "home", load_registry(registry)) as second:
        for run in lost:
            await second.resume(run)
            async for _ in second.watch(run):
                pass
            report = report_of(tmp_path / "home", run)
            assert report.status == "failed"
            (attempt,) = report.steps[0].attempts
            assert (attempt.role, attempt.outcome) == ("helper", "infrastructure")
            assert f"{registry}: roles: there is no 'helper' any more, which step S1 needs" in str(report.error)
            assert "accepted: helper put back and the run tried again; now there are: worker" in str(report.error)


def test_what_only_a_former_registry_has_stays_beside_the_new_one(registry: Path) -> None:
    registry.write_text(TEXT + HELPER)
    former = load_registry(registry)
    registry.write_text(TEXT.replace("Do the task.", "Do it."))
    now = load_registry(registry)
    both = now.with_entries_of(former)
    assert list(both.roles) == ["worker", "helper"]
    assert both.roles["worker"].system == "Do it."
    assert both.roles["helper"] == former.roles["helper"]
    assert (both.models, both.personas, both.defaults) == (now.models, now.personas, now.defaults)
    assert replace(both, roles=now.roles) == now


async def test_an_attempt_names_the_versions_of_its_prompts(
    orchestrator: Orchestrator, registry: Path, tmp_path: Path
) -> None:
    def used(run: str) -> tuple[bytes, str]:
        with JournalReader.open_to_read(tmp_path / "home") as journal:
            (event,) = [event for _, event in journal.events(run) if isinstance(event, AttemptStarted)]
            return journal.get(event.prompts.system), event.prompts.persona

    before = await execute(orchestrator, job([SUMMARY]))
    _write(registry, TEXT.replace("Do the task.", "Do the task well."))
    await _until(lambda: orchestrator.registry.roles["worker"].system == "Do the task well.")
    after = await execute(orchestrator, job([SUMMARY]))
    assert used(before) == (b"Do the task.", "")
    assert used(after) == (b"Do the task well.", "")
    assert report_of(tmp_path / "home", after).steps[0].attempts[0].prompts.system
    assert await asyncio.to_thread(orchestrator.journal.sweep) == [], "what attempts name is kept"
