"""Personas that are made while runs go on: by users and by plans, kept across restarts, and retired."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import InputError
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import PersonaUse
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.personas import PersonaProposal, checked_proposal, useless_personas
from orchestrator.run.planning import Accept, PlanContext, Planned, PlannedPart
from orchestrator.task.events import AttemptStarted, PlanPersona, RunAccepted, StepsPlanned, Usage
from orchestrator.task.personas import MAX_IN_USE, MadePersona
from orchestrator.task.taskir.models import Step
from tests.orchestrator.run.test_planners import Stored
from tests.orchestrator.run_jobs import ON_DEMAND, RECORDS, REGISTRY, execute, job, report_of, step

POEM = PersonaProposal(name="poet", text="Write in verse, and let every line rhyme.", by="ann")
HISTORIAN = PlanPersona("harbour-historian", "You know ships, tides and trade.")
DAY = 86_400.0
STILL = Ports(follows_registry=False)


class Historian(Stored):
    """Plans one step for every request, for which it defines a persona."""

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        fields = {"actor": "worker", "action": "Summarize a.txt.", "inputs": ("a.txt",), "max_tokens": 96}
        made = Step.model_validate({"id": "S1", "outputs": ("s1",), "persona": HISTORIAN.name, **fields})
        accept(PlannedPart((made,), personas=(HISTORIAN,)))
        return Planned("planned", "", Usage())


@pytest.fixture
async def orchestrator(tmp_path: Path) -> AsyncIterator[Orchestrator]:
    async with Orchestrator.open(tmp_path / "home", ON_DEMAND, STILL) as opened:
        yield opened


async def test_a_user_s_persona_is_used_at_once_and_its_text_is_kept(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    assert (await orchestrator.personas.add(POEM)).new
    run = await execute(orchestrator, job([step("S1", "Summarize a.txt.", ["a.txt"], ["s1"], persona="poet")]))
    assert report_of(tmp_path / "home", run).steps[0].persona == "poet"
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        (started,) = [event for _, event in journal.events(run) if isinstance(event, AttemptStarted)]
        assert journal.get(started.prompts.persona).decode() == POEM.text
        (use,) = journal.persona_uses()
    assert (use.persona, use.role, use.attempts, use.succeeded) == ("poet", "worker", 1, 1)


async def test_personas_outlive_the_process_and_the_retired_ones_are_gone(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path / "home", ON_DEMAND, STILL) as first:
        await first.personas.add(POEM)
        await first.personas.add(replace(POEM, name="pirate", text="Talk like a pirate at sea."))
        await first.personas.retire("pirate")
        assert "pirate" not in first.registry.personas
    async with Orchestrator.open(tmp_path / "home", ON_DEMAND, STILL) as second:
        assert second.registry.personas["poet"].text == POEM.text
        assert "pirate" not in second.registry.personas
        assert {persona.name: persona.retired is None for persona in second.personas.made} == {
            "poet": True,
            "pirate": False,
        }


async def test_a_plan_s_persona_is_used_by_its_step_and_kept(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=Historian())) as orchestrator:
        run = await execute(orchestrator, Job("tell of the harbour", None, RECORDS, "as-planned"))
        again = await execute(orchestrator, Job("tell of the harbour", None, RECORDS, "as-planned"))
    for name in (run, again):
        report = report_of(tmp_path / "home", name)
        assert (report.status, report.steps[0].persona) == ("done", HISTORIAN.name)
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        (planned,) = [event for _, event in journal.events(run) if isinstance(event, StepsPlanned)]
        (kept,) = journal.personas()
    assert planned.personas == (HISTORIAN,)
    assert (kept.name, kept.maker, kept.by) == (HISTORIAN.name, "plan", run)


async def test_a_plan_whose_process_ended_before_its_persona_was_stored_goes_on(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path / "home", REGISTRY, Ports(planner=Historian())) as first:
        run = await execute(first, Job("tell of the harbour", None, RECORDS, "as-planned"))
        events = [event for _, event in first.journal.events(run)]
        accepted = events[0]
        assert isinstance(accepted, RunAccepted)
        fresh = [replace(accepted, run="again"), *events[1:4]]
        assert isinstance(fresh[-1], StepsPlanned)
        await first.journal.append("again", fresh)
    async with Orchestrator.open(tmp_path / "other", ON_DEMAND, replace(STILL, planner=Historian())) as second:
        await second.journal.append("again", fresh)
    async with Orchestrator.open(tmp_path / "other", REGISTRY, Ports(planner=Historian())) as third:
        assert not third.personas.made
        await third.resume("again")
        async for _ in third.watch("again"):
            pass
        assert [persona.name for persona in third.personas.made] == [HISTORIAN.name]
    assert report_of(tmp_path / "other", "again").steps[0].persona == HISTORIAN.name


@pytest.mark.parametrize(
    ("proposal", "told"),
    [
        (replace(POEM, name="terse"), "persona.name: 'terse' is the name of the persona terse already"),
        (replace(POEM, name="coder"), "persona.name: 'coder' is the name of the role coder already"),
        (replace(POEM, name="tiny-large"), "persona.name: 'tiny-large' is the name of the model tiny-large already"),
        (replace(POEM, text="x" * (1 << 20)), "persona.text: has 1,048,576 characters; accepted: 1 to 4,000"),
    ],
)
async def test_what_cannot_be_added_changes_nothing(
    orchestrator: Orchestrator, proposal: PersonaProposal, told: str
) -> None:
    with pytest.raises(InputError) as refused:
        await orchestrator.personas.add(proposal)
    assert str(refused.value).startswith(told)
    assert not orchestrator.personas.made


async def test_near_duplicates_are_merged_unless_they_are_to_be_distinct(orchestrator: Orchestrator) -> None:
    await orchestrator.personas.add(POEM)
    nearly = replace(POEM, name="bard", text="Write in verse and let every line rhyme!")
    placed = await orchestrator.personas.add(nearly)
    assert (placed.name, placed.new) == ("poet", False)
    assert (await orchestrator.personas.add(replace(nearly, distinct=True))).name == "bard"


async def test_only_what_was_made_at_run_time_can_be_retired(orchestrator: Orchestrator) -> None:
    with pytest.raises(InputError, match="the persona terse stands in the registry's file of personas"):
        await orchestrator.personas.retire("terse")
    with pytest.raises(InputError, match="there is no persona 'tercet'"):
        await orchestrator.personas.retire("tercet")


def test_there_is_a_limit() -> None:
    made = [MadePersona(name=f"p{n}", text=f"Text {n}.", maker="user", made=1.0) for n in range(MAX_IN_USE)]
    with pytest.raises(InputError, match="there are 200 personas that were made at run time"):
        checked_proposal(POEM, made, REGISTRY, 1.0)


def test_a_plan_s_persona_that_brings_nothing_is_retired() -> None:
    plan = MadePersona(name="poor", text="t", maker="plan", made=100 * DAY)
    made = [
        plan,
        replace(plan, name="good"),
        replace(plan, name="old", made=1.0),
        replace(plan, name="x", maker="user"),
        replace(plan, name="proposed", maker="memory"),
    ]
    uses = [
        PersonaUse("poor", "worker", 20, 8, 12, 101 * DAY),
        PersonaUse("good", "worker", 20, 17, 3, 101 * DAY),
        PersonaUse("x", "worker", 20, 0, 20, 101 * DAY),
        PersonaUse("proposed", "worker", 30, 15, 15, 101 * DAY),
    ]
    gone = useless_personas(made, uses, lambda role: 0.8, 102 * DAY)
    assert {one.name: one.why_retired for one in gone} == {
        "poor": "40% of 20 attempts succeeded, of others by these roles 80%",
        "old": "not used for 30 days",
        "proposed": "50% of 30 attempts succeeded, of others by these roles 80%",
    }


async def test_a_plan_s_persona_takes_the_name_of_a_retired_one_with_another_text(orchestrator: Orchestrator) -> None:
    book = orchestrator.personas
    (first,) = book.define("R1", [HISTORIAN])
    await book.keep([first])
    await orchestrator.personas.retire(HISTORIAN.name)
    assert book.define("R1", [HISTORIAN]) == [], "a run that is resumed does not undo that it was retired"
    (again,) = book.define("R2", [replace(HISTORIAN, text="Speak of harbours as of old friends.")])
    assert orchestrator.registry.personas[HISTORIAN.name].text == again.text == "Speak of harbours as of old friends."
