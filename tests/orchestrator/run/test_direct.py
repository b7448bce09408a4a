"""Requests that one step answers: when it is chosen, what is journaled, and what it makes up for."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import pytest_asyncio

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import InputError, Problem
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart
from orchestrator.run.record.report import Report
from orchestrator.task.events import Event, PlanFinished, PlanReplaced, RunAccepted, Usage
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run_jobs import RECORDS, REGISTRY, execute, job, report_of, step

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHOLE = "Summarize a.txt."
WIDE = "Summarize a.txt and b.txt, then compare the summaries."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("direct") / "home"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orchestrator(home: Path) -> AsyncIterator[Orchestrator]:
    async with Orchestrator.open(home, REGISTRY) as opened:
        yield opened


def events_of(home: Path, run: str) -> list[Event]:
    with JournalReader.open_to_read(home) as journal:
        return [event for _, event in journal.events(run)]


def free(request: str, folder: Path | None = RECORDS) -> Job:
    """Return the job of a request whose mode nobody has forced."""
    return Job(request, None, folder, "as-planned", any_mode=True)


def unmeasured(quality: float | None) -> Registry:
    roles = {**REGISTRY.roles, "frontdoor": replace(REGISTRY.roles["frontdoor"], plan_quality=quality)}
    return replace(REGISTRY, roles=MappingProxyType(roles))


async def test_a_request_with_nothing_to_split_is_answered_without_the_frontdoor(
    orchestrator: Orchestrator, home: Path
) -> None:
    run = await execute(orchestrator, free(WHOLE))
    report = report_of(home, run)
    assert (report.status, report.mode, report.plan_origin) == ("done", "direct", "direct")
    assert report.plan_usage == Usage(), "no model was asked for a plan"
    (row,) = report.steps
    assert (row.action, row.role, row.outputs.keys()) == (WHOLE, "worker", {"s1.txt"})
    assert report.why_direct == "the request has nothing to split"
    assert report.mode_choice is not None
    assert report.mode_choice.forecast is not None
    assert report.mode_choice.forecast.direct_seconds > 0
    assert report.critical_path.critical_steps == 1, "planning is none of them"


async def test_a_request_with_parts_is_planned_and_compared(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, free(WIDE))
    report = report_of(home, run)
    assert (report.mode, report.plan_origin) == ("as-planned", "planned")
    assert report.width == 2
    assert report.forecast is not None
    assert report.forecast.plan_seconds
    assert report.why_direct == ""


async def test_a_forecast_without_data_is_assumed(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path / "home", REGISTRY) as opened:
        runs = [await execute(opened, free(request)) for request in (WHOLE, WHOLE, WIDE)]
    first, second, wide = (report_of(tmp_path / "home", run).forecast for run in runs)
    assert first is not None
    assert second is not None
    assert wide is not None
    assert [first.direct_assumed, second.direct_assumed] == [True, False]
    assert (wide.direct_assumed, wide.plan_assumed) == (False, False)


@pytest.mark.parametrize(
    ("quality", "reason"),
    [
        (None, "the plans of the frontdoor's model have not been measured"),
        (0.22, "only 22% of the frontdoor's plans are right, and 90% are needed"),
    ],
)
async def test_a_frontdoor_that_is_not_known_to_plan_well_is_not_asked(
    tmp_path: Path, quality: float | None, reason: str
) -> None:
    async with Orchestrator.open(tmp_path / "home", unmeasured(quality)) as opened:
        planned = await opened.plan(free(WIDE))
        forced = await opened.plan(Job(WIDE, None, RECORDS, "as-planned"))
    assert (planned.mode, planned.reason) == ("direct", reason)
    assert [one.inputs for one in planned.task.plan.steps] == [("a.txt", "b.txt")]
    assert len(forced.task.plan.steps) == 3, "the user may have it asked anyway"


async def test_what_does_not_fit_into_the_context_is_planned(orchestrator: Orchestrator, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 3000)
    (tmp_path / "b.txt").write_text("short")
    assert (await orchestrator.plan(free("Summarize a.txt.", tmp_path))).mode != "direct"
    assert (await orchestrator.plan(free("Summarize b.txt.", tmp_path))).mode == "direct"


async def test_the_user_may_want_a_direct_answer_of_any_request(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, Job(WIDE, None, RECORDS, "direct"))
    report = report_of(home, run)
    assert (report.status, report.mode, len(report.steps)) == ("done", "direct", 1)
    assert report.mode_choice is None
    assert report.why_direct == "", "the user wanted it"


async def test_a_document_has_its_plan_and_no_direct_answer(orchestrator: Orchestrator) -> None:
    asked = job([step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])], mode="direct")
    with pytest.raises(InputError, match="mode: direct is for requests in words, and a document has its plan"):
        await orchestrator.submit(asked)


async def test_a_registry_without_a_frontdoor_answers_directly(tmp_path: Path) -> None:
    roles = {name: role for name, role in REGISTRY.roles.items() if name != "frontdoor"}
    registry = replace(REGISTRY, roles=MappingProxyType(roles))
    async with Orchestrator.open(tmp_path / "home", registry) as opened:
        run = await execute(opened, free(WIDE))
        forced = await execute(opened, Job(WHOLE, None, RECORDS, "direct"))
        planned = await opened.plan(free(WHOLE))
        with pytest.raises(InputError, match="there is no frontdoor"):
            await opened.submit(Job(WHOLE, None, RECORDS, "as-planned"))
    report = report_of(tmp_path / "home", run)
    assert (report.status, report.mode, len(report.steps)) == ("done", "direct", 1)
    assert report.why_direct == planned.reason == "no plan can be made: there is no frontdoor"
    assert report_of(tmp_path / "home", forced).status == "done"


async def test_a_registry_that_can_do_no_steps_refuses_requests(tmp_path: Path) -> None:
    registry = replace(REGISTRY, roles=MappingProxyType({"frontdoor": REGISTRY.roles["frontdoor"]}))
    async with Orchestrator.open(tmp_path / "home", registry) as opened:
        with pytest.raises(InputError, match="roles: none can do steps"):
            await opened.submit(free(WHOLE))


class Planning:
    """Has these steps for every request."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps

    def why_not(self, registry: Registry) -> Problem | None:
        return None

    def planned_by(self, registry: Registry) -> PlannedBy:
        return PlannedBy("frontdoor", "tiny-large")

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        accept(PlannedPart(self._steps))
        return Planned("planned", "", Usage())

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        raise NotImplementedError


def planned_step(number: int, **fields: object) -> Step:
    return Step.model_validate(
        {"id": f"S{number}", "actor": "worker", "outputs": (f"s{number}",), "max_tokens": 48, **fields}
    )


async def run_of(home: Path, request: str, steps: Sequence[Step], mode: Mode = "as-planned") -> tuple[Report, str]:
    async with Orchestrator.open(home, REGISTRY, Ports(planner=Planning(*steps))) as opened:
        run = await execute(opened, Job(request, None, RECORDS, mode))
    return report_of(home, run), run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a text, and a list that cannot be read."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("A fox lives in the wood.")
    (folder / "b.bin").write_bytes(b"\xff\xfe\x00")
    return folder


EACH_OF_NONE = (
    planned_step(1, action="Summarize a.txt.", inputs=("a.txt",)),
    planned_step(2, action="Summarize it.", foreach="b.bin"),
)


async def test_a_list_that_cannot_be_read_does_not_fail_the_request(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "home"
    async with Orchestrator.open(home, REGISTRY, Ports(planner=Planning(*EACH_OF_NONE))) as opened:
        run = await execute(opened, Job(WHOLE, None, folder, "as-planned"))
    report = report_of(home, run)
    assert report.status == "done"
    assert [row.state for row in report.steps] == ["done", "failed", "done"]
    assert report.answered_by == "S3"
    assert report.steps[2].action == WHOLE
    assert report.answer == (home / "runs" / run / "artifacts" / "s3.txt").read_text().strip()
    assert str(report.error).startswith("the plan failed (S2: ")
    assert str(report.error).endswith("), and S3 answered the request directly")
    (replaced,) = [event for event in events_of(home, run) if isinstance(event, PlanReplaced)]
    assert "b.bin" in replaced.reason


async def test_a_file_that_cannot_be_read_does_not_fail_the_request(tmp_path: Path, folder: Path) -> None:
    reading = planned_step(1, action="Read b.bin.", inputs=("b.bin",))
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=Planning(reading))) as opened:
        run = await execute(opened, Job(WHOLE, None, folder, "as-planned"))
    report = report_of(tmp_path / "home", run)
    assert (report.status, report.answered_by) == ("done", "S2")


async def test_code_that_no_attempt_gets_through_the_gates_is_tried_as_a_whole(tmp_path: Path) -> None:
    wrong = planned_step(1, action="Say hello.", outputs=("part1.py",), gates=("format",))
    report, _ = await run_of(tmp_path / "home", WHOLE, [wrong])
    assert (report.status, report.answered_by) == ("done", "S2")
    assert report.steps[1].role == "architect", "models failed at the plan, so the strongest answers"


async def test_a_run_that_was_interrupted_at_its_direct_answer_ends_with_it(tmp_path: Path, folder: Path) -> None:
    ports = Ports(planner=Planning(*EACH_OF_NONE))
    async with Orchestrator.open(tmp_path / "home", REGISTRY, ports) as opened:
        run = await opened.submit(Job(WHOLE, None, folder, "as-planned"))
        async for update in opened.watch(run):
            if isinstance(getattr(update, "event", None), PlanReplaced):
                break
    async with Orchestrator.open(tmp_path / "home", REGISTRY, ports) as opened:
        await opened.resume(run)
        async for _ in opened.watch(run):
            pass
    report = report_of(tmp_path / "home", run)
    assert (report.status, report.answered_by) == ("done", "S3")
    assert sum(isinstance(event, PlanReplaced) for event in events_of(tmp_path / "home", run)) == 1


async def test_the_choice_is_in_the_journal(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, free("Summarize d.txt."))
    accepted, *others = events_of(home, run)
    assert isinstance(accepted, RunAccepted)
    assert accepted.mode == "direct"
    assert accepted.mode_choice is not None
    assert (accepted.mode_choice.reason, accepted.mode_choice.propensity) == ("the request has nothing to split", 1.0)
    (finished,) = [event for event in others if isinstance(event, PlanFinished)]
    assert (finished.origin, finished.reason) == ("direct", "")
