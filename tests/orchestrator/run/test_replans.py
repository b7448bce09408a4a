"""Runs whose plan goes on after a step: how they run, end, fail, and survive. What models write is scripted."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from orchestrator.engine.client.engine import Completion, OnText, StopGenerating
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.registry.models import Registry
from orchestrator.run.effects import RunEffects
from orchestrator.run.frontdoor.planner import FrontdoorPlanner
from orchestrator.run.journal.journal import Journal
from orchestrator.run.loop import RunLoop
from orchestrator.run.record.report import Report, build_report
from orchestrator.run.record.view import RunView, accepted_in
from orchestrator.run.routing import RuleRouter
from orchestrator.run.sandbox.sandbox import Interpreters, Sandbox
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.run.services import Services
from orchestrator.run.state_folder import SystemClock
from orchestrator.run.updates import Broadcast
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    PlanFailed,
    PlanFinished,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunFinished,
    StepsPlanned,
    Usage,
)
from tests.orchestrator.run_jobs import REGISTRY

CLOCK = SystemClock()
RUN = "20260101-000000-abcdef"
FILES = ("a.txt", "b.txt", "index.txt")
SUMMARIES = {"role": "worker", "action": "Summarize {each}.", "each": ["a", "b"]}
LIST = {"role": "worker", "action": "List each file in index.txt.", "inputs": ["index.txt"], "replan": True}
JOIN = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P2"]}
AGAIN = {**JOIN, "replan": True}
LAST = {"role": "worker", "action": "Merge the results.", "inputs": ["P3", "a.txt"]}
BAD = {"role": "worker", "action": "Summarize c.txt.", "inputs": ["c.txt"]}


def plan(*parts: Mapping[str, object]) -> str:
    return json.dumps({"plan": parts}, separators=(",", ":"))


@dataclass
class Script:
    """The frontdoor writes the first plan, and after `P1` and `P3` what `rests` say; others write what they are told.

    A rest of None is never written.
    """

    first: str = plan(LIST)
    rests: dict[str, str | None] = field(default_factory=lambda: {"P1": plan(SUMMARIES, JOIN)})
    broken: str = ""
    asked: list[str] = field(default_factory=list)
    offered: list[bool] = field(default_factory=list)
    given_up: int = 0
    unanswered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set as soon as the frontdoor was asked for the rest that it never writes."""

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        system, prompt = (message.content for message in request.messages)
        usage = Usage(prompt_tokens=10, output_tokens=5, decode_seconds=0.01)
        if system != REGISTRY.roles["frontdoor"].system:
            if self.broken and self.broken in prompt:
                raise ZeroDivisionError("as the test says")
            return Completion(f"What was asked: {prompt}", "stop", usage)
        self.asked.append(prompt)
        self.offered.append('"replan": {"const": true}' in json.dumps(request.schema))
        text = self.first
        if "Plan the rest." in prompt:
            text = self.rests[max(name for name in self.rests if f"\n[{name}]\n" in prompt)] or await self.never()
        return Completion(text, "stop" if await stream(text, on_text) else "cancelled", usage)

    async def never(self) -> str:
        self.unanswered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return ""

    async def batch(self, model: str, requests: Sequence[Generation]) -> list[Completion | EngineError | PoolError]:
        return [await self.generate(model, request, None) for request in requests]

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return sum(len(message.content) for message in messages) // 4


async def stream(text: str, on_text: OnText | None) -> bool:
    """Write a text piece by piece, and let others do something after each; return whether that was to its end."""
    for index in range(0, len(text), 40):
        try:
            if on_text is not None:
                on_text(text[index : index + 40])
        except StopGenerating:
            return False
        await asyncio.sleep(0)
    return True


class Runs:
    """Runs in state folders of their own, driven as the orchestrator drives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "files"
        self.folder.mkdir()
        for name in FILES:
            (self.folder / name).write_text(f"This is {name}.")
        self._homes = (folder / f"home{number}" for number in range(1000))

    def accepted(self, most: int) -> RunAccepted:
        return RunAccepted(
            at=CLOCK.now(),
            run=RUN,
            mode="as-planned",
            request="Summarize the files that index.txt names, and compare them",
            directory=str(self.folder),
            files=FILES,
            max_replans=most,
        )

    async def begin(self, script: Script, most: int = 2, cancel_at: type[Event] | None = None) -> "Ended":
        return await self.go_on([self.accepted(most)], {}, script, cancel_at)

    async def go_on(
        self,
        past: list[Event],
        objects: dict[str, bytes],
        script: Script,
        cancel_at: type[Event] | None = None,
        registry: Registry = REGISTRY,
    ) -> "Ended":
        """Take a run up in a new folder that holds its `past` and the objects that these events name."""
        with Journal.open(next(self._homes)) as journal:
            await journal.append(RUN, past)
            for event in past:
                for digest in event.outputs.values() if isinstance(event, AttemptSucceeded) else ():
                    assert journal.put(objects[digest]) == digest
            accepted, broadcast = accepted_in(past), Broadcast()
            state = fresh_state(accepted)
            models, sessions = script, Interpreters(Sandbox.probe)
            services = Services(
                registry, models, journal, CLOCK, script.batch, sessions.open, RuleRouter(), FrontdoorPlanner()
            )
            effects = RunEffects(accepted, state, services, broadcast)
            state.handle(*past)
            for event in past:
                effects.note(event)
            loop = RunLoop(RUN, state, effects, journal, CLOCK, broadcast)
            unplanned = not any(isinstance(event, PlanFinished | PlanFailed) for event in past)
            async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                if cancel_at is not None:
                    tasks.create_task(cancel(loop, broadcast, cancel_at, script))
                await loop.drive(state.resume(), plan=unplanned)
            events = [event for _, event in journal.events(RUN)]
            digests = {d for e in events if isinstance(e, AttemptSucceeded) for d in e.outputs.values()}
            return Ended(events, build_report(RunView.of(events), journal.get), {d: journal.get(d) for d in digests})


async def cancel(loop: RunLoop, broadcast: Broadcast, moment: type[Event], script: Script) -> None:
    """Cancel the run at an event, for a plan's rest once its author is at work: the event comes before the question."""
    async for update in broadcast.watch():
        if isinstance(getattr(update, "event", None), moment):
            if moment is ReplanStarted:
                await script.unanswered.wait()
            loop.emit(CancelRequested(at=CLOCK.now()))


@dataclass
class Ended:
    events: list[Event]
    report: Report
    objects: dict[str, bytes]

    @property
    def states(self) -> dict[str, str]:
        return {row.id: row.state for row in self.report.steps}

    @property
    def replans(self) -> list[tuple[str, str, tuple[str, ...]]]:
        return [(row.after, row.outcome, row.steps) for row in self.report.replans]

    def place(self, kind: type[Event], step: str = "") -> int:
        """Return where in the journal the first event of this kind is (that concerns this step)."""
        return next(
            index
            for index, event in enumerate(self.events)
            if isinstance(event, kind) and step in ("", getattr(event, "step", ""))
        )


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


async def test_a_plan_goes_on_with_what_a_step_has_found(runs: Runs) -> None:
    script = Script()
    ended = await runs.begin(script)
    assert ended.report.status == "done"
    assert ended.report.plan_origin == "planned"
    assert ended.replans == [("S1", "planned", ("S2", "S3", "S4"))]
    assert set(ended.states.values()) == {"done"}
    assert ended.report.waves == (("S1",), ("S2", "S3"), ("S4",))
    found = ended.objects[ended.report.steps[0].outputs["s1.txt"]].decode()
    assert found.startswith("What was asked: ")
    assert script.asked[1].endswith(f'"replan":true}}]}}\n[P1]\n{found.strip()}\nPlan the rest.')
    assert ended.report.answer is not None
    assert "Compare the summaries." in ended.report.answer


async def test_the_rest_is_durable_before_its_effect_and_streams(runs: Runs) -> None:
    ended = await runs.begin(Script())
    done, begun = ended.place(AttemptSucceeded, "S1"), ended.place(ReplanStarted)
    started, finished = ended.place(AttemptStarted, "S2"), ended.place(ReplanFinished)
    assert ended.place(PlanFinished) < begun
    assert done < begun < started < finished, "S2 starts while the rest is still being written"


async def test_a_plan_may_go_on_twice(runs: Runs) -> None:
    script = Script(rests={"P1": plan(SUMMARIES, AGAIN), "P3": plan(LAST)})
    ended = await runs.begin(script)
    assert ended.replans == [("S1", "planned", ("S2", "S3", "S4")), ("S4", "planned", ("S5",))]
    assert ended.report.status == "done"
    assert '"replan":true},{' in script.asked[2], "all parts so far are told"
    assert script.offered == [True, True, False]


async def test_a_plan_that_asks_for_more_than_the_bound_ends_there(runs: Runs) -> None:
    script = Script(rests={"P1": plan(SUMMARIES, AGAIN)})
    ended = await runs.begin(script, most=1)
    assert ended.replans == [("S1", "planned", ("S2", "S3", "S4")), ("S4", "refused", ())]
    assert ended.report.replans[1].reason == "max_replans is 1"
    assert (ended.report.status, ended.report.error) == ("done", "the plan was cut short after S4: max_replans is 1")
    assert len(script.asked) == 2
    assert script.offered == [True, False]
    none = await runs.begin(script := Script(), most=0)
    assert script.offered == [False]
    assert (none.replans, none.report.status) == ([("S1", "refused", ())], "done")


async def test_nothing_may_be_left_to_do(runs: Runs) -> None:
    ended = await runs.begin(Script(rests={"P1": plan()}))
    assert (ended.replans, ended.states) == ([("S1", "planned", ())], {"S1": "done"})
    assert (ended.report.status, ended.report.error) == ("done", None)
    assert ended.report.answer == ended.objects[ended.report.artifacts["s1.txt"]].decode()


async def test_a_rest_that_is_no_good_ends_the_plan_and_the_report_says_so(runs: Runs) -> None:
    ended = await runs.begin(Script(rests={"P1": plan(SUMMARIES, BAD)}))
    assert ended.replans == [("S1", "stopped", ("S2", "S3"))]
    assert "c.txt" in ended.report.replans[0].reason
    assert ended.report.replans[0].usage.prompt_tokens == 20, "both answers were cut short, and both count"
    assert (ended.report.status, ended.report.plan_origin) == ("done", "planned")
    assert ended.states == dict.fromkeys(("S1", "S2", "S3"), "done")
    told = ended.report.to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["replans"][0]["outcome"] == "stopped"
    assert told["error"] == f"the plan was cut short after S1: {ended.report.replans[0].reason}"


async def test_a_rest_that_breaks_down_ends_the_plan(runs: Runs) -> None:
    ended = await runs.begin(Script(rests={"P3": plan()}))
    assert ended.replans == [("S1", "stopped", ())]
    assert "internal error: " in ended.report.replans[0].reason
    assert ended.report.status == "done"
    assert str(ended.report.error).startswith("the plan was cut short after S1: internal error: ")


async def test_a_plan_that_nobody_can_go_on_with_since_a_restart_ends_there(runs: Runs) -> None:
    whole = await runs.begin(Script())
    roles = {name: role for name, role in REGISTRY.roles.items() if name != "frontdoor"}
    without = replace(REGISTRY, roles=MappingProxyType(roles))
    why = f"{REGISTRY.path}: roles: there is no frontdoor; accepted: a role that plans requests"
    past = whole.events[: whole.place(AttemptSucceeded, "S1") + 1]
    ended = await runs.go_on(past, whole.objects, script := Script(), registry=without)
    assert (ended.replans, ended.states) == ([("S1", "stopped", ())], {"S1": "done"})
    assert (ended.report.status, ended.report.error) == ("done", f"the plan was cut short after S1: {why}")
    unplanned = await runs.go_on(whole.events[:1], {}, script, registry=without)
    assert (unplanned.report.status, unplanned.report.error) == ("failed", f"no plan: {why}")
    assert script.asked == []


async def test_a_plan_does_not_go_on_after_a_step_that_failed(runs: Runs) -> None:
    script = Script(broken="List each file")
    ended = await runs.begin(script)
    assert ended.report.status == "failed"
    assert ended.replans == [("S1", "cancelled", ())]
    assert len(script.asked) == 1


@pytest.mark.parametrize("moment", [ReplanStarted, StepsPlanned])
async def test_cancelling_ends_the_run_and_whoever_writes_its_plan(runs: Runs, moment: type[Event]) -> None:
    script = Script(rests={"P1": None})
    ended = await runs.begin(script, cancel_at=moment)
    assert ended.report.status == "cancelled"
    if moment is ReplanStarted:
        assert ended.replans == [("S1", "cancelled", ())]
        assert script.given_up == 1


async def test_a_run_that_is_killed_after_any_event_ends_as_if_it_had_not_been(runs: Runs) -> None:
    whole = await runs.begin(Script(rests={"P1": plan(SUMMARIES, AGAIN), "P3": plan(LAST)}))
    assert isinstance(whole.events[-1], RunFinished)
    for count in range(1, len(whole.events)):
        script = Script(rests={"P1": plan(SUMMARIES, AGAIN), "P3": plan(LAST)})
        ended = await runs.go_on(whole.events[:count], whole.objects, script)
        assert ended.events[:count] == whole.events[:count]
        succeeded = [event.step for event in ended.events if isinstance(event, AttemptSucceeded)]
        assert sorted(succeeded) == ["S1", "S2", "S3", "S4", "S5"], "no step runs twice"
        assert ended.replans == whole.replans
        assert ended.report.artifacts == whole.report.artifacts
        assert ended.report.status == "done"
        finished = sum(isinstance(event, PlanFinished | ReplanFinished) for event in whole.events[:count])
        assert len(script.asked) <= 3 - finished, "nobody is asked again for what is whole"
