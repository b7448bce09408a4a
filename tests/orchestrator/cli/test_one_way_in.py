"""A daemon and the command's own process answer what commands ask in the same way."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app import ROOT
from orchestrator.cli.client import ask
from orchestrator.cli.foreground import RunClient
from orchestrator.cli.models import memory_for_models
from orchestrator.cli.settings import Settings
from orchestrator.cli.state_folder import vacuumed
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.updates import EventUpdate
from orchestrator.service.callers import user_key
from orchestrator.service.extent import Extent
from orchestrator.service.retention import VacuumRequest, VacuumResult
from orchestrator.task.events import RatingGiven, RunFinished
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.api.daemon_process import RECORDS, running_daemon
from tests.orchestrator.cli.cli_command import FANOUT, REQUEST, make_command

STEP = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s"]}
TASK = task_from({"objective": "a test", "plan": {"steps": [{**STEP, "max_tokens": 64}]}})
JOB = Job(None, TASK, RECORDS, "as-planned")
KEYS = {
    *("dry_run", "mode", "reason", "steps", "goes_on_after", "has_data", "edges", "waves", "width", "critical_path"),
    *("task", "warnings", "run_seconds", "range_seconds", "direct_seconds", "direct_has_data", "prompt_tokens"),
    *("output_tokens", "bytes_to_load", "memory_bytes", "memory_budget"),
}  # of a dry run


@pytest.fixture(scope="module", params=["embedded", "daemon"])
def options(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of a command whose state folder a daemon owns, or nobody."""
    home = tmp_path_factory.mktemp(request.param) / "home"
    settings = Settings(None, home, ROOT)
    if request.param == "embedded":
        yield settings
        return
    with running_daemon(home):
        yield settings


async def executed(opened: RunClient, job: Job) -> tuple[str, list[str]]:
    """Have a job run to its end, and return its run and the kinds of its events."""
    run = await opened.submit(job)
    async with aclosing(opened.watch(run)) as updates:
        events = [update.event async for update in updates if isinstance(update, EventUpdate)]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].status == "done"
    return run, [event.kind for event in events]


async def test_jobs_are_run_watched_and_planned(options: Settings) -> None:
    async with RunClient(options) as opened:
        run, kinds = await executed(opened, JOB)
        assert kinds[0] == "run_accepted"
        assert kinds.count("attempt_started") == 1
        with pytest.raises(InputError, match="has ended: done; accepted: a run that was interrupted"):
            await opened.resume(run)
        await opened.cancel(run)
        planned = await opened.plan(Job("Summarize a.txt", None, RECORDS, "as-planned"))
        assert planned.task.plan.steps
        with pytest.raises(InputError, match="request"):
            await opened.submit(Job(" ", None, None, "as-planned"))


async def test_jobs_are_predicted(options: Settings) -> None:
    async with RunClient(options) as opened:
        task = await opened.forecast(JOB)
        assert task["report"]["waves"] == [["S1"]]
        assert 0 < task["memory_bytes"] <= task["memory_budget"]
        assert task["direct_seconds"] is None
        with pytest.raises(InputError, match="mode: direct is for requests in words"):
            await opened.forecast(replace(JOB, mode="direct"))
        planned = await opened.forecast(Job(REQUEST, None, RECORDS, "as-planned"))
        assert planned["report"]["waves"] == [["S1", "S2", "S3", "S4"], ["S5"]]
        assert planned["direct_seconds"] > 0


def test_dry_runs_are_printed(options: Settings, tmp_path: Path) -> None:
    command = make_command(options.home)
    told = command("run", FANOUT, "--dir", RECORDS, "--dry-run", "--json").json
    assert told["waves"] == [["S1", "S4", "S5"], ["S2"], ["S3"]]
    assert told.keys() == KEYS
    assert "S1 → S2  data  names.json\n" in command("run", FANOUT, "--dir", RECORDS, "--dry-run").out
    wrong = tmp_path / "task.json"
    wrong.write_text(FANOUT.read_text().replace('"worker"', '"wizard"', 1))
    refused = command("run", wrong, "--dir", RECORDS, "--dry-run")
    assert (refused.code, refused.out) == (2, "")
    assert f'{wrong}: /plan/steps/0/actor: unknown role "wizard"' in refused.err
    missing = command("run", "Summarize aa.txt", "--dir", RECORDS, "--dry-run")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err.startswith("error: request: aa.txt is not among the files of the request")


def test_ended_runs_are_rated_and_removed(options: Settings) -> None:
    async def run_one() -> str:
        async with RunClient(options) as opened:
            return (await executed(opened, JOB))[0]

    run = asyncio.run(run_one())
    body = {"score": 0.5, "step": "S1", "note": "so so"}
    made = ask(options, "POST", f"/v1/runs/{run}/ratings", json=body)
    assert made == {**body, "run_id": run, "at": made["at"], "by": user_key()}
    with JournalReader.open_to_read(options.home) as journal:
        assert journal.events(run)[-1][1] == RatingGiven(
            at=made["at"], score=0.5, by=user_key(), step="S1", note="so so"
        )
    with pytest.raises(InputError, match="has no step 'S9'"):
        ask(options, "POST", f"/v1/runs/{run}/ratings", json={**body, "step": "S9"})
    with pytest.raises(OrchestratorError, match="nobody"):
        ask(options, "POST", "/v1/runs/nobody/ratings", json=body)

    foreseen = vacuumed(options, VacuumRequest(runs=1, dry_run=True))
    assert isinstance(foreseen, VacuumResult)
    assert foreseen.dry_run
    assert run not in foreseen.runs
    done = vacuumed(options, VacuumRequest(days=1e-12))
    assert run in done.runs
    assert done.runs_left == 0
    with JournalReader.open_to_read(options.home) as journal:
        (outcome,) = [one for one in journal.outcomes() if one.run == run]
    assert [(rating.score, rating.note) for rating in outcome.ratings] == [(0.5, "so so")]


def test_backups_that_are_not_there_and_memory_that_is(options: Settings) -> None:
    with pytest.raises(InputError, match="'gone' was not found"):
        ask(options, "POST", "/v1/backups/gone/restore", extent=Extent.NOTHING)
    assert memory_for_models(options, None) > 0


def api_answer(options: Settings, method: str, path: str, **more: Any) -> dict[str, Any]:
    """Return the answer of the API that a daemon has; without one, of the same service in this process."""
    return ask(options, method, path, extent=Extent.DAEMON, with_registry=True, **more)


def without(value: Any, names: tuple[str, ...]) -> Any:
    """Return JSON without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: without(field, names) for name, field in value.items() if name not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def stored_run(options: Settings) -> str:
    """A run that has ended, in a state folder with a backup, a persona and a retired one."""

    async def run_job() -> str:
        async with RunClient(options) as opened:
            return (await executed(opened, JOB))[0]

    run = asyncio.run(run_job())
    for name, text in (("poet", "Let every line rhyme."), ("clerk", "Write like an official form, in numbered parts.")):
        ask(options, "POST", "/v1/personas", with_registry=True, json={"name": name, "text": text})
    ask(options, "DELETE", "/v1/personas/clerk", with_registry=True)
    ask(options, "POST", "/v1/backups")
    return run


@pytest.mark.parametrize(
    ("words", "path", "api_only"),
    [
        ("runs", "/v1/runs", ("before", "position", "figures")),
        ("show RUN", "/v1/runs/RUN", ("position",)),
        ("show RUN S1 --attempt 1", "/v1/runs/RUN/steps/S1/attempts/1", ("reasoning", "prompt")),
        ("explain RUN S1", "/v1/runs/RUN/steps/S1", ()),
        ("result RUN", "/v1/runs/RUN/result", ()),
        ("personas list", "/v1/personas", ()),
        ("personas list --retired", "/v1/personas?retired=true", ()),
        ("personas show poet", "/v1/personas/poet", ()),
        ("personas show clerk", "/v1/personas/clerk", ()),
        ("backup --list", "/v1/backups", ()),
    ],
)
def test_a_command_and_the_api_show_the_same(
    options: Settings, stored_run: str, words: str, path: str, api_only: tuple[str, ...]
) -> None:
    shown = make_command(options.home)(*words.replace("RUN", stored_run).split(), "--json").json
    answered = api_answer(options, "GET", path.replace("RUN", stored_run))
    assert next(iter(shown.values())), "there is something to show"
    assert shown == without(answered, api_only)


def test_a_command_and_the_api_list_the_same_models_and_roles(options: Settings, stored_run: str) -> None:
    shown = make_command(options.home)("models", "--json").json
    answered = api_answer(options, "GET", "/v1/registry")
    assert shown["registry"] == answered["path"]
    assert without(shown["models"], ("file", "servers")) == answered["models"]
    assert shown["roles"] == answered["roles"]
    assert {row["name"]: row["text"] for row in shown["personas"]} == {
        row["name"]: row["text"] for row in answered["personas"]
    }


def test_a_command_and_the_api_check_the_installation_alike(options: Settings) -> None:
    shown = json.loads(make_command(options.home)("doctor", "--json").out)["checks"]
    answered = api_answer(options, "GET", "/v1/doctor")["checks"]
    assert [check["name"] for check in shown] == [check["name"] for check in answered]


def test_a_command_and_the_api_check_a_task_alike(options: Settings, stored_run: str, tmp_path: Path) -> None:
    command, file = make_command(options.home), tmp_path / "task.json"
    fanout = json.loads(FANOUT.read_text())
    first, *others = fanout["plan"]["steps"]
    for persona, is_valid in (("poet", True), ("clerk", False)):
        plan = {**fanout["plan"], "steps": [{**first, "persona": persona}, *others]}
        task = {**fanout, "gates": ["schema", "lint"], "plan": plan}
        file.write_text(json.dumps(task))
        checked = command("validate", file, "--dir", RECORDS, "--json").json
        body = {"task": task, "directory": str(RECORDS)}
        if is_valid:
            forecast = api_answer(options, "POST", "/v1/forecasts", json=body)
            report = forecast["report"]
            assert checked == {
                "valid": True,
                "steps": len(report["steps"]),
                "waves": report["waves"],
                "width": report["width"],
                "gates": {
                    step["id"]: {gate["gate"]: gate["idle"] or None for gate in step["gates"]}
                    for step in report["steps"]
                },
                "warnings": forecast["warnings"],
            }
        else:
            with pytest.raises(InputError) as refused:
                api_answer(options, "POST", "/v1/forecasts", json=body)
            assert [problem["where"] for problem in checked["problems"]] == [f"{file}: /plan/steps/0/persona"]
            assert [problem["what"] for problem in checked["problems"]] == [
                problem.what for problem in refused.value.problems
            ]
