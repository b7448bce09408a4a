"""The answer of a planned request is compared with it, and a doubtful one is written once more, on real models."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import Problem
from orchestrator.registry.models import Registry
from orchestrator.run.effects import check_answer
from orchestrator.run.job import Job
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart
from orchestrator.run.record.attempt_answers import attempt_answer
from orchestrator.run.record.report import Report
from orchestrator.run.record.view import RunView
from orchestrator.service.retention import Retention, vacuum
from orchestrator.task.events import (
    AnswerChecked,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanOrigin,
    RunFinished,
    Usage,
)
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.run_jobs import ON_DEMAND, RECORDS, execute, job, report_of, step


class OnePlan:
    """Has these steps for every request."""

    def __init__(self, *steps: dict[str, object], origin: PlanOrigin = "planned") -> None:
        self._steps = tuple(Step.model_validate(one) for one in steps)
        self._origin = origin

    def why_not(self, registry: Registry) -> Problem | None:
        return None

    def planned_by(self, registry: Registry) -> PlannedBy:
        return PlannedBy("store", "none")

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        accept(PlannedPart(self._steps))
        return Planned(self._origin, "", Usage())

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        raise NotImplementedError


async def run_of(home: Path, asked: Job, planner: OnePlan) -> tuple[Report, list[Event]]:
    """Return the report and the events of a run, with the reports of the folder being those of the example."""
    async with Orchestrator.open(home, ON_DEMAND, Ports(planner=planner)) as orchestrator:
        run = await execute(orchestrator, asked)
    with JournalReader.open_to_read(home) as journal:
        return report_of(home, run), [event for _, event in journal.events(run)]


SUMMARY = step("S1", "Summarize a.txt.", ["a.txt"], ["s1.txt"])


def asked(request: str) -> Job:
    return Job(request, None, RECORDS, "as-planned")


async def test_a_doubtful_answer_is_written_once_more_and_marked(tmp_path: Path) -> None:
    report, events = await run_of(tmp_path, asked("Give me 12 tips about a.txt."), OnePlan(SUMMARY))
    assert report.status == "done"
    assert report.doubt.startswith("You asked for 12 tips; the answer has ")
    (row,) = report.steps
    assert [attempt.outcome for attempt in row.attempts] == ["done", "done"]
    assert row.attempts[1].reason.startswith("repair of the answer: You asked for 12 tips; ")
    assert [len(event.doubts) for event in events if isinstance(event, AnswerChecked)] == [1, 1]
    assert [event.doubt for event in events if isinstance(event, RunFinished)] == [report.doubt]
    with JournalReader.open_to_read(tmp_path) as journal:
        assert journal.run(report.run_id).doubt == report.doubt


async def test_of_two_answers_with_the_same_doubt_the_first_one_stands(tmp_path: Path) -> None:
    report, events = await run_of(tmp_path, asked("Give me 12 tips about a.txt."), OnePlan(SUMMARY))
    first, second = [event for event in events if isinstance(event, AttemptSucceeded)]
    published = (tmp_path / "runs" / report.run_id / "artifacts" / "s1.txt").read_text()
    assert report.artifacts == first.outputs
    assert report.answer == published.strip()
    if first.outputs != second.outputs:
        assert [event.restored for event in events if isinstance(event, AnswerChecked)] == [{}, {"S1": first.outputs}]


async def test_a_repair_stands_in_place_of_what_is_no_answer(tmp_path: Path) -> None:
    _, events = await run_of(tmp_path, asked("Give me 12 tips about a.txt."), OnePlan(SUMMARY))
    tips = "1. Water it.\n2. Weed it."
    texts = {"void": "Please provide the text.", "tips": tips, "others": "1. Feed it.\n2. Wait."}

    def restored(first: str, second: str) -> Mapping[str, Mapping[str, str]]:
        # the same run with other answers
        answers, outputs = iter((first, second)), list[Event]()
        for event in events:
            if isinstance(event, AttemptSucceeded):
                outputs.append(replace(event, outputs={"s1.txt": next(answers)}))
            elif isinstance(event, AnswerChecked):
                checked = check_answer(RunView.of(outputs), lambda name: texts[name].encode(), bytes.decode, {})
                outputs.append(checked)
            else:
                outputs.append(event)
        return [event.restored for event in outputs if isinstance(event, AnswerChecked)][-1]

    assert restored("void", "tips") == {}, "there is one doubt about each, but two tips are better than none"
    assert restored("tips", "void") == {"S1": {"s1.txt": "tips"}}
    assert restored("tips", "others") == {"S1": {"s1.txt": "tips"}}


async def test_an_answer_without_doubt_is_left_alone(tmp_path: Path) -> None:
    report, events = await run_of(tmp_path, asked("Summarize a.txt."), OnePlan(SUMMARY))
    assert (report.status, report.doubt, len(report.steps[0].attempts)) == ("done", "", 1)
    assert [event.doubts for event in events if isinstance(event, AnswerChecked)] == [()]


async def test_the_answer_of_an_order_to_the_installation_is_not_compared(tmp_path: Path) -> None:
    planner = OnePlan(SUMMARY, origin="procedure")
    report, events = await run_of(tmp_path, asked("Give me 12 tips about a.txt."), planner)
    assert report.doubt == ""
    assert not [event for event in events if isinstance(event, AnswerChecked)]


async def test_a_document_is_checked_only_if_it_asks_for_it(tmp_path: Path) -> None:
    steps = [SUMMARY]
    for check in (False, True):
        document = {"objective": "Give me 12 tips about a.txt.", "plan": {"steps": steps, "check_answer": check}}
        asked_task = Job(None, task_from(document), RECORDS, "as-planned")
        report, events = await run_of(tmp_path / str(check), asked_task, OnePlan())
        assert bool(report.doubt) == check
        assert sum(isinstance(event, AttemptStarted) for event in events) == 1 + check


async def test_the_answer_has_the_wanted_outputs_in_their_order(tmp_path: Path) -> None:
    more = step("S2", "Summarize b.txt.", ["b.txt", "s1.txt"], ["s2.txt"])
    document = {"objective": "Say it shortly.", "plan": {"steps": [SUMMARY, more], "wanted": ["s2.txt", "s1.txt"]}}
    report, _ = await run_of(tmp_path, Job(None, task_from(document), RECORDS, "as-planned"), OnePlan())
    assert report.answer is not None
    assert report.answer.startswith("[s2.txt]\n")
    assert "\n\n[s1.txt]\n" in report.answer


async def test_an_answer_of_one_output_has_its_name_only_if_the_request_names_it(tmp_path: Path) -> None:
    plain, _ = await run_of(tmp_path / "plain", job([SUMMARY]), OnePlan())
    document = {"objective": "Write s1.txt.", "plan": {"steps": [SUMMARY]}}
    named, _ = await run_of(tmp_path / "named", Job(None, task_from(document), RECORDS, "as-planned"), OnePlan())
    assert named.answer == f"[s1.txt]\n{plain.answer}"


async def test_code_corrects_what_leaves_no_choice_and_says_so(tmp_path: Path) -> None:
    people = {"people": [{"name": "Ada"}, {"name": "Zoe"}]}
    write = step("S1", "List the people.", ["a.txt"], ["people.json"], output_schema={"const": people})
    document = {
        "objective": "Make people.json from a.txt: a list with an object per person.",
        "plan": {"steps": [write], "check_answer": True},
    }
    asked_task = Job(None, task_from(document), RECORDS, "as-planned")
    report, events = await run_of(tmp_path, asked_task, OnePlan())
    assert (report.status, report.doubt, len(report.steps[0].attempts)) == ("done", "", 1)
    assert [correction.text for correction in report.corrections] == [
        "You asked for a list in people.json; it is an object."
    ]
    published = (tmp_path / "runs" / report.run_id / "artifacts" / "people.json").read_text()
    assert json.loads(published) == people["people"]
    with Journal.open(tmp_path) as journal:
        assert journal.get(report.artifacts["people.json"]).decode() == published
        (written,) = [event.outputs for event in events if isinstance(event, AttemptSucceeded)]
        assert json.loads(journal.get(written["people.json"])) == people, "what the model wrote is kept"
        assert json.loads(attempt_answer(journal, report.steps[0], 1).answer) == people
        vacuum(journal, Retention(), 1e9)
        assert journal.get(report.artifacts["people.json"]).decode() == published
