"""Whole runs on the embedded models: what runs when, what survives, and what is told of it."""

import asyncio
import itertools
import json
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.errors import InputError
from orchestrator.run.job import Job
from orchestrator.run.journal.errors import UnknownRun
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.repeated import Repeat
from orchestrator.run.scheduler.queue import FIRST
from orchestrator.run.updates import EventUpdate, Progress
from orchestrator.task.events import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    RunAccepted,
    StepExpanded,
    StepsPlanned,
)
from orchestrator.task.taskir.parse import task_from
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.forked_engines import children_of_tests
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, execute, job, report_of, step

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMMARIES = [step(f"S{n}", f"Summarize {name}.txt.", [f"{name}.txt"], [f"s{n}"]) for n, name in enumerate("abcd", 1)]
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
LONG = step("S1", "List numbers.", [], ["n.json"], output_schema=NUMBERS, max_tokens=1500)
"""An answer that takes a second or more."""
COMPARISON = step("S5", "Compare the summaries.", ["s1", "s2", "s3", "s4"], ["comparison"])
MORE = [step(f"S{n}", "Summarize the comparison.", ["comparison"], [f"s{n}"]) for n in range(6, 10)]
LAST = LONG | {"id": "S6", "depends_on": ["S5"]}
"""Steps after all others, for tests that act long before a run has ended, however late they are told of its events."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of all tests that do not begin with an empty one."""
    return tmp_path_factory.mktemp("orchestrator") / "home"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orchestrator(home: Path) -> AsyncIterator[Orchestrator]:
    """One orchestrator for all these tests, whose engine has answered others before."""
    async with Orchestrator.open(home, REGISTRY) as opened:
        yield opened


def runs(home: Path) -> list[str]:
    with JournalReader.open_to_read(home) as journal:
        return [row.run for row in journal.runs()]


async def test_a_fan_out_runs_at_once_and_its_join_afterwards(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, job([*SUMMARIES, COMPARISON]))
    report = report_of(home, run)
    rows = {row.id: row for row in report.steps}
    assert report.status == "done"
    assert report.waves == (("S1", "S2", "S3", "S4"), ("S5",))
    begun = [rows[f"S{n}"].started for n in range(1, 5)]
    ended = [rows[f"S{n}"].finished for n in range(1, 5)]
    assert max(filter(None, begun)) < min(filter(None, ended)), "the four summaries overlap"
    assert rows["S5"].started is not None
    assert rows["S5"].started >= max(filter(None, ended))
    folder = home / "runs" / run / "artifacts"
    assert sorted(path.name for path in folder.iterdir()) == ["comparison", "s1", "s2", "s3", "s4"]
    assert report.answer == (folder / "comparison").read_text()


async def test_a_joining_step_reads_the_originals_if_its_document_says_so(
    orchestrator: Orchestrator, home: Path
) -> None:
    steps = [*SUMMARIES[:2], COMPARISON | {"id": "S3", "inputs": ["s1", "s2"]}]
    task = task_from({"objective": "a test", "plan": {"steps": steps, "context": "sources"}})
    run = await execute(orchestrator, Job(None, task, RECORDS, "as-planned"))
    with JournalReader.open_to_read(home) as journal:
        accepted, *events = [event for _, event in journal.events(run)]
    assert isinstance(accepted, RunAccepted)
    assert accepted.task == task, "the document stays as it is"
    assert accepted.sizes.keys() >= {"a.txt", "b.txt"}
    reads = {event.step: set(event.reads) for event in events if isinstance(event, AttemptSucceeded)}
    assert reads == {"S1": {"a.txt"}, "S2": {"b.txt"}, "S3": {"a.txt", "b.txt"}}
    assert report_of(home, run).graph.steps["S3"].inputs == ("a.txt", "b.txt", "s1", "s2")


async def test_a_run_takes_over_the_finished_steps_of_another_and_outlives_it(tmp_path: Path) -> None:
    joined = step("S3", "Compare the summaries.", ["s1", "s2"], ["both"])
    async with Orchestrator.open(tmp_path, REGISTRY) as opened:
        work = job([*SUMMARIES[:2], joined])
        first = await execute(opened, work)
        second = await execute(opened, replace(work, repeats=Repeat(first, "S3")))
        await opened.delete(first)
        opened.journal.sweep()
        report = opened.views.report(second)
        texts = {name: opened.journal.get(digest) for name, digest in report.artifacts.items()}
    assert report.status == "done"
    assert [row.reused for row in report.steps] == [first, first, None]
    folder = tmp_path / "runs" / second / "artifacts"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == texts


async def test_a_step_whose_file_was_changed_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    shutil.copytree(RECORDS, folder)
    async with Orchestrator.open(tmp_path / "home", REGISTRY) as opened:
        work = job([*SUMMARIES[:2], step("S3", "Compare the summaries.", ["s1", "s2"], ["both"])], folder=folder)
        first = await execute(opened, work)
        (folder / "b.txt").write_text("name: Other\n")
        second = await execute(opened, replace(work, repeats=Repeat(first, "S3")))
        report = opened.views.report(second)
    assert [row.reused for row in report.steps] == [first, None, None]


async def test_what_goes_first_is_remembered_by_a_run_that_waits(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path, REGISTRY) as opened:
        run = await opened.accept(job(SUMMARIES[:2]))
        await opened.prioritise(run, "S2")
    async with Orchestrator.open(tmp_path, REGISTRY) as opened:
        await opened.resume(run)
        started = [
            update.event
            async for update in opened.watch(run)
            if isinstance(update, EventUpdate) and isinstance(update.event, AttemptStarted)
        ]
    assert {event.step: event.slack for event in started}["S2"] == FIRST
    assert {event.step: event.slack for event in started}["S1"] >= 0


async def test_figures_of_a_run_are_those_of_its_steps(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, job([*SUMMARIES, COMPARISON]))
    told = report_of(home, run).to_json()
    path = told["critical_path"]
    took = {row["id"]: row["finished"] - row["started"] for row in told["steps"]}
    usages = [attempt["usage"] for row in told["steps"] for attempt in row["attempts"]]
    assert path["steps"][-1] == "S5"
    assert path["work_seconds"] == pytest.approx(sum(usage["work_seconds"] for usage in usages))
    assert path["serial_seconds"] == pytest.approx(sum(usage["alone_seconds"] for usage in usages))
    assert all(0 < usage["packed_seconds"] <= usage["alone_seconds"] for usage in usages)
    assert path["seconds"] == pytest.approx(sum(took[name] for name in path["steps"]))
    assert path["concurrency"] == pytest.approx(path["work_seconds"] / told["wall_seconds"])
    assert path["concurrency"] < 1, "there is one engine, and waiting for it is no work"
    assert path["bound"] == pytest.approx(path["serial_seconds"] / path["best_seconds"])
    assert path["critical_steps"] == 2
    assert json.loads(json.dumps(told)) == told


async def test_modes_give_the_same_artifacts(orchestrator: Orchestrator, home: Path) -> None:
    steps = [*SUMMARIES[:2], step("S3", "Summarize c.txt.", ["c.txt"], ["s3"], depends_on=["S1"])]
    runs = {mode: await execute(orchestrator, job(steps, mode=mode)) for mode in ("as-planned", "discover", "serial")}
    reports = {mode: report_of(home, run) for mode, run in runs.items()}
    assert len({tuple(report.artifacts.items()) for report in reports.values()}) == 1
    assert reports["as-planned"].width == 2
    assert reports["discover"].width == 3
    times = [(row.started, row.finished) for row in reports["serial"].steps]
    serial = sorted((began, ended) for began, ended in times if began is not None and ended is not None)
    assert len(serial) == 3
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(serial))


async def test_foreach_runs_once_for_each_item_of_a_list(orchestrator: Orchestrator, home: Path) -> None:
    listing = step("S1", "List each name in stock.txt.", ["stock.txt"], ["names.json"], output_schema=name_list())
    each = step("S2", "Summarize the item.", ["stock.txt"], ["told"], foreach="names.json")
    run = await execute(orchestrator, job([listing, each]))
    report = report_of(home, run)
    assert report.status == "done"
    folder = home / "runs" / run / "artifacts"
    names = json.loads((folder / "names.json").read_text())
    told = json.loads((folder / "told").read_text())
    assert len(names) > 0
    assert told == [(folder / f"told[{index}]").read_text() for index in range(len(names))]
    assert [row.id for row in report.steps if row.parent] == [f"S2[{index}]" for index in range(len(names))]


async def test_foreach_makes_a_new_version_of_its_list_which_later_steps_read(
    orchestrator: Orchestrator, home: Path, tmp_path: Path
) -> None:
    records = [(RECORDS / name).read_text() for name in ("a.txt", "b.txt")]
    original = json.dumps(records)
    (tmp_path / "reports.json").write_text(original)
    each = step("S1", "Summarize the item.", [], ["reports.json"], foreach="reports.json")
    again = step("S2", "Copy the item.", [], ["copies"], foreach="reports.json")
    run = await execute(orchestrator, job([each, again], folder=tmp_path))
    report = report_of(home, run)
    assert report.status == "done", report.error
    folder = home / "runs" / run / "artifacts"
    summaries = json.loads((folder / "reports.json").read_text())
    assert [summary.partition(":")[0] for summary in summaries] == ["Zilthir", "Koldin"]
    assert report.graph.before["S2"] == ("S1",)
    (result,) = [result for result in report.results if result.name == "reports.json"]
    with JournalReader.open_to_read(home) as journal:
        assert journal.get(result.original or "").decode() == original
    assert not result.has_changed
    assert (tmp_path / "reports.json").read_text() == original


async def test_an_output_with_the_label_of_an_input_is_a_new_version_of_it(
    orchestrator: Orchestrator, home: Path
) -> None:
    note = {"type": "text", "label": "note", "value": (RECORDS / "a.txt").read_text()}
    steps = [step("S1", "Summarize the note.", ["note"], ["note"]), step("S2", "Summarize the note.", ["note"], ["s"])]
    run = await execute(orchestrator, job(steps, inputs=[note]))
    report = report_of(home, run)
    assert report.status == "done", report.error
    sizes = {row.id: row.attempts[0].usage.prompt_tokens for row in report.steps}
    assert sizes["S2"] < sizes["S1"], "the summary is shorter than the note"


def name_list() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 8}


async def test_a_text_that_is_no_list_is_asked_for_again_as_one(orchestrator: Orchestrator, home: Path) -> None:
    text = step("S1", "Summarize a.txt.", ["a.txt"], ["names"])
    each = step("S2", "Summarize the item.", [], ["told"], foreach="names")
    run = await execute(orchestrator, job([text, each]))
    report = report_of(home, run)
    assert report.status == "done"
    with JournalReader.open_to_read(home) as journal:
        (expanded,) = [event for _, event in journal.events(run) if isinstance(event, StepExpanded)]
    children = [row.id for row in report.steps if row.parent]
    assert children == [f"S2[{index}]" for index in range(expanded.count)]
    assert expanded.read_as == "asked"
    assert expanded.count == len(expanded.items) > 0
    assert expanded.usage.output_tokens > 0


@pytest.mark.parametrize("value", ['{"name": "Brim"}', "It is one sentence, and there is no list in it at all."])
async def test_a_text_of_the_user_that_is_no_list_is_one_item(
    orchestrator: Orchestrator, home: Path, value: str
) -> None:
    given = {"type": "text", "label": "items", "value": value}
    each = step("S1", "Summarize the item.", [], ["told"], foreach="items")
    run = await execute(orchestrator, job([each], inputs=[given]))
    assert report_of(home, run).status == "done"
    with JournalReader.open_to_read(home) as journal:
        (expanded,) = [event for _, event in journal.events(run) if isinstance(event, StepExpanded)]
    assert (expanded.read_as, expanded.count, expanded.items) == ("whole", 1, ())


async def test_an_empty_list_is_done_with_an_empty_list(orchestrator: Orchestrator, home: Path) -> None:
    empty = {"type": "text", "label": "items", "value": "[]"}
    each = step("S1", "Summarize the item.", [], ["told"], foreach="items")
    run = await execute(orchestrator, job([each], inputs=[empty]))
    assert report_of(home, run).status == "done"
    assert (home / "runs" / run / "artifacts" / "told").read_text() == "[]"


async def test_a_failure_takes_only_its_dependants_along(
    orchestrator: Orchestrator, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "files" / "good.txt").write_text((RECORDS / "a.txt").read_text())
    steps = [
        step("S1", "Summarize binary.", ["binary"], ["bad"]),
        step("S2", "Summarize the text.", ["bad"], ["worse"]),
        step("S3", "Summarize good.txt.", ["good.txt"], ["fine"]),
    ]
    run = await execute(orchestrator, job(steps, folder=tmp_path / "files"))
    report = report_of(home, run)
    states = {row.id: row.state for row in report.steps}
    assert report.status == "failed"
    assert states == {"S1": "failed", "S2": "cancelled", "S3": "done"}
    assert "S1" in (report.steps[1].cause or "")
    assert list(report.artifacts) == ["fine"]
    assert report.answer is None


async def test_a_killed_engine_costs_an_attempt_and_not_the_run(orchestrator: Orchestrator, home: Path) -> None:
    run = await orchestrator.submit(job([*SUMMARIES, COMPARISON]))
    failed = False
    async for update in orchestrator.watch(run):
        failed = failed or (isinstance(update, EventUpdate) and isinstance(update.event, AttemptFailed))
        if (
            isinstance(update, Progress) and update.output_tokens and not failed
        ):  # one that is told late may be of an attempt that has ended
            for engine in children_of_tests():
                engine.send_signal(signal.SIGKILL)
    report = report_of(home, run)
    outcomes = [attempt.outcome for row in report.steps for attempt in row.attempts]
    assert report.status == "done"
    assert "infrastructure" in outcomes
    assert all(row.attempts[-1].outcome == "done" for row in report.steps)


async def test_watchers_learn_what_steps_wait_for(orchestrator: Orchestrator, home: Path) -> None:
    """There are more steps than an engine has slots, and their prompts begin with different words."""
    texts = [{"type": "text", "label": f"t{n}", "value": f"Store {n} sells tea. " * (20 + n)} for n in range(18)]
    steps = [step(f"S{n}", f"Summarize t{n}.", [f"t{n}"], [f"o{n}"], max_tokens=24) for n in range(18)]
    run, heard = await orchestrator.submit(job(steps, inputs=texts)), list[Progress]()
    read = set[tuple[str, int]]()  # attempts whose prompts were shown as being read
    async for update in orchestrator.watch(run):
        if isinstance(update, Progress):
            heard.append(update)
            read |= {(update.step, update.attempt)} if update.prompt_tokens else set()
        elif isinstance(update, EventUpdate) and isinstance(update.event, AttemptFailed | AttemptSucceeded):
            if (update.event.step, update.event.number) in read and any(progress.output_tokens for progress in heard):
                await orchestrator.cancel(run)  # else the model fails at these texts until all roles have tried
    usages = {
        (row.id, attempt.number): attempt.usage
        for row in report_of(home, run).steps
        for attempt in row.attempts
        if attempt.outcome != "cancelled"
    }
    assert read & usages.keys()
    for progress in (progress for progress in heard if progress.prompt_tokens):
        assert 0 <= progress.read_tokens <= progress.prompt_tokens
        assert progress.wait == f"read {progress.read_tokens} of {progress.prompt_tokens} tokens"
        if usage := usages.get((progress.step, progress.attempt)):
            assert progress.prompt_tokens == usage.prompt_tokens
    assert any(progress.ahead is not None for progress in heard)
    assert any(progress.output_tokens and not progress.wait for progress in heard)


async def test_cancelling_ends_a_run_in_order(orchestrator: Orchestrator, home: Path) -> None:
    run = await orchestrator.submit(job([*SUMMARIES, COMPARISON, LAST]))
    async for update in orchestrator.watch(run):
        if isinstance(update, EventUpdate) and isinstance(update.event, AttemptStarted):
            await orchestrator.cancel(run)
    report = report_of(home, run)
    assert report.status == "cancelled"
    assert {row.state for row in report.steps} <= {"cancelled", "done"}
    assert report.steps[-1].state == "cancelled"
    await orchestrator.cancel(run)


async def test_what_a_cancelled_attempt_has_written_counts(orchestrator: Orchestrator, home: Path) -> None:
    run = await orchestrator.submit(job([LONG]))
    async for update in orchestrator.watch(run):
        if isinstance(update, Progress) and update.output_tokens:
            await orchestrator.cancel(run)
    (row,) = report_of(home, run).steps
    (attempt,) = row.attempts
    assert attempt.outcome == "cancelled"
    assert 0 < attempt.usage.output_tokens < 1500
    assert attempt.usage.estimated_tokens == attempt.usage.output_tokens, "the engine does not say how many they were"


async def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Orchestrator.open(home, REGISTRY) as first:
        run = await first.submit(job([*SUMMARIES, COMPARISON, *MORE], mode="serial"))
        async for update in first.watch(run):
            if isinstance(update, EventUpdate) and isinstance(update.event, AttemptSucceeded):
                break
    done_before = [row.id for row in report_of(home, run).steps if row.state == "done"]
    assert done_before
    async with Orchestrator.open(home, REGISTRY) as second:
        assert await second.resume(run) == run
        async for _ in second.watch(run):
            pass
        with pytest.raises(InputError, match="has ended: done"):
            await second.resume(run)
    report = report_of(home, run)
    assert report.status == "done"
    assert {row.state for row in report.steps} == {"done"}
    assert all(len(row.attempts) == 1 for row in report.steps if row.id in done_before)


async def test_a_request_is_planned_and_run(orchestrator: Orchestrator, home: Path) -> None:
    asked = Job("Summarize a, b, c and d, then compare them", None, RECORDS, "as-planned")
    run = await execute(orchestrator, asked)
    report = report_of(home, run)
    assert report.plan_origin == "planned"
    assert [row.depends_on for row in report.steps] == [(), (), (), (), ("S1", "S2", "S3", "S4")]
    assert report.status == "done"


async def test_steps_start_while_the_plan_is_still_written(orchestrator: Orchestrator) -> None:
    asked = Job("Summarize a, b, c and d, then compare them", None, RECORDS, "as-planned")
    for _ in range(5):  # where others use the cores, the rest of a plan may be there when its beginning is read
        run = await orchestrator.submit(asked)
        kinds = [u.event.kind async for u in orchestrator.watch(run) if isinstance(u, EventUpdate)]
        if kinds.index("attempt_started") < kinds.index("plan_finished"):
            return
    pytest.fail("the plan was always finished first")


async def test_a_plan_can_be_had_without_running_it(orchestrator: Orchestrator, home: Path) -> None:
    before = runs(home)
    planned = await orchestrator.plan(Job("Summarize a and b, then compare them", None, RECORDS, "as-planned"))
    assert [step.inputs for step in planned.task.plan.steps[:2]] == [("a.txt",), ("b.txt",)]
    assert runs(home) == before


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([step("S1", "x", ["s2"], ["s1"]), step("S2", "x", ["s1"], ["s2"])], "S1"),
        ([step("S1", "x", ["nowhere.txt"], ["s1"])], "nowhere.txt"),
        ([{**step("S1", "x", [], ["s1"]), "actor": "wroker"}], "worker"),
        ([{**step("S1", "x", [], ["s1"]), "kind": "tool", "tools": ["read_fil"]}], "read_file"),
        ([{**step("S1", "x", [], ["s1"]), "persona": "tabel"}], "table"),
    ],
)
async def test_what_cannot_run_is_refused_and_leaves_nothing(
    orchestrator: Orchestrator, home: Path, steps: list[dict[str, Any]], told: str
) -> None:
    before = runs(home)
    with pytest.raises(InvalidTask, match=told):
        await orchestrator.submit(job(steps))
    assert runs(home) == before


async def test_an_unknown_run_cannot_be_resumed(orchestrator: Orchestrator) -> None:
    with pytest.raises(UnknownRun):
        await orchestrator.resume("20260101-000000-abcdef")


async def test_late_watchers_see_everything(orchestrator: Orchestrator) -> None:
    run = await execute(orchestrator, job(SUMMARIES[:1]))
    async with asyncio.timeout(60):
        events = [u.event async for u in orchestrator.watch(run) if isinstance(u, EventUpdate)]
    assert events[0].kind == "run_accepted"
    assert events[-1].kind == "run_finished"
    assert any(isinstance(event, StepsPlanned) for event in events)
