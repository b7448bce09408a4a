"""A router of one's own in whole runs on the embedded models: what it is told, and what follows from its choice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import Generation
from orchestrator.run.job import Job, job_of
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.view import accepted_in
from orchestrator.run.routing import Decision, DecisionContext, RuleRouter
from orchestrator.task.events import AttemptStarted, RouteCandidate, RunOptions
from tests.orchestrator.run_jobs import REGISTRY, execute, job, report_of, step


class Coder:
    """Lets the coder do every step, and remembers what it could go by."""

    def __init__(self) -> None:
        self.told: list[DecisionContext] = []

    async def choose(self, context: DecisionContext) -> Decision:
        self.told.append(context)
        ruled = await RuleRouter().choose(context)
        candidates = (*ruled.candidates, RouteCandidate("coder", None, "tiny-medium", 0.7))
        return replace(ruled, role="coder", model="tiny-medium", propensity=0.4, candidates=candidates, router="test-1")


async def test_what_a_router_chooses_is_done_and_journaled(tmp_path: Path) -> None:
    router = Coder()
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(router=router)) as orchestrator:
        run = await execute(orchestrator, job([step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])]))
    (context,) = router.told
    assert context.task is not None
    assert context.step is not None
    assert (context.role, context.objective, context.step.id) == ("worker", "a test", "S1")
    assert {"worker", "coder"} <= set(context.roles)
    assert "frontdoor" not in context.roles
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        (started,) = [event for _, event in journal.events(run) if isinstance(event, AttemptStarted)]
    assert (started.role, started.model, started.propensity) == ("coder", "tiny-medium", 0.4)
    assert (started.router, started.problem) == ("test-1", "")
    assert [one.role for one in started.candidates] == ["worker", "coder"]
    assert [(one.name, (one.bytes or 0) > 0) for one in started.inputs] == [("a.txt", True)]
    assert report_of(tmp_path / "home", run).steps[0].role == "coder"


async def test_the_options_of_a_run_reach_the_models_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Generation] = []
    generate = Engine.generate

    async def recorded(engine: Engine, request: Generation, *more: Any, **named: Any) -> Completion:
        asked.append(request)
        return await generate(engine, request, *more, **named)

    monkeypatch.setattr(Engine, "generate", recorded)
    options = RunOptions(temperature=0.25, top_p=0.75, seed=7, thinking="low")
    work = replace(job([step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])]), options=options)
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports()) as orchestrator:
        run = await execute(orchestrator, work)
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        events = [event for _, event in journal.events(run)]
    assert job_of(accepted_in(events)).options == options
    assert {event.thinking for event in events if isinstance(event, AttemptStarted)} == {"low"}
    of_step = [one for one in asked if "Summarize a.txt." in one.messages[-1].content]
    assert {(one.temperature, one.top_p, one.seed, one.thinking) for one in of_step} == {(0.25, 0.75, 7, "low")}


def test_a_job_with_other_options_or_texts_is_another_one() -> None:
    asked = Job("Go.", None, None, "as-planned", found={"a.txt": "0" * 64})
    assert asked.asks_the_same(replace(asked, key="k"))
    assert asked.asks_the_same(replace(asked, found=None)), "what its files are is not known yet"
    assert not asked.asks_the_same(replace(asked, found={}))
    assert not asked.asks_the_same(replace(asked, options=RunOptions(seed=1)))


async def test_a_chat_is_routed_by_the_same_router(tmp_path: Path) -> None:
    router = Coder()
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(router=router)) as orchestrator:
        chosen = await orchestrator.choose("worker", "hello there", persona="terse")
    assert (chosen.role, chosen.model) == ("coder", "tiny-medium")
    (context,) = router.told
    assert (context.step, context.objective, context.persona) == (None, "hello there", "terse")
