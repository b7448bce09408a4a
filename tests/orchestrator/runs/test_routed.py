"""A router of one's own in whole runs on the embedded models: what it is told, and what follows from its choice."""

from dataclasses import replace
from pathlib import Path

from orchestrator.events import AttemptStarted, RouteCandidate
from orchestrator.journal import JournalReader
from orchestrator.routing import Decision, DecisionContext, RuleRouter
from orchestrator.runs import Orchestrator, Ports
from registry.load import find_registry, load_registry
from tests.orchestrator.run_jobs import execute, job, report_of, step

REGISTRY = load_registry(find_registry(environment={}))


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


async def test_a_chat_is_routed_by_the_same_router(tmp_path: Path) -> None:
    router = Coder()
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(router=router)) as orchestrator:
        chosen = await orchestrator.choose("worker", "hello there", persona="terse")
    assert (chosen.role, chosen.model) == ("coder", "tiny-medium")
    (context,) = router.told
    assert (context.step, context.objective, context.persona) == (None, "hello there", "terse")
