"""The daemon's router learns from its own runs: exactly once each, across restarts, and better than wrong rules."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.models import ModelShape, write_bert
from orchestrator.app import attached
from orchestrator.memrl.endpoints import ask_graph
from orchestrator.memrl.episodes import Action, Outcome, Reward, Situation
from orchestrator.memrl.learning import FOLDER, POLICY, learning_of
from orchestrator.memrl.lessons import Lesson, lessons_of
from orchestrator.memrl.memory import DATABASE, Memory
from orchestrator.memrl.policy import Policy
from orchestrator.memrl.rollouts import RolloutTask, family_tasks, train, write_page
from orchestrator.memrl.router import Learned, candidates
from orchestrator.memrl.routers import choices_of, evaluate
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.routing import DecisionContext, by_rules
from orchestrator.service.configuration import Configuration, MemorySettings
from orchestrator.service.extent import Extent
from orchestrator.service.service import Service
from orchestrator.task.events import AttemptFailed, AttemptStarted, AttemptSucceeded, Event, RatingGiven
from orchestrator.task.lexical import LEARNING_DIMENSIONS, NAME, embed
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.run_jobs import job, step

TINY = Path(__file__).parents[2] / "registry" / "tiny"
EARLIER = Path(__file__).parents[1] / "data" / "memory-without-quality.db.gz"
SHORT = [step("S1", "Summarize a.txt.", ["a.txt"], ["s1"])]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A registry whose rules are wrong: the worker's model is the smallest one, and a larger one is there too."""
    path = tmp_path / "registry.yaml"
    small, large = (
        {"file": str(TINY / f"{name}.gguf"), "threads": 1, "residency": "hot"} for name in ("small", "large")
    )
    roles = {"worker": {"model": "small", "tier": "C", "max_tokens": 128}}
    document = {
        "defaults": {"context": 2048, "slots": 16},
        "models": {"small": small, "large": large},
        "roles": roles,
        "personas": "personas.yaml",
    }
    path.write_text(json.dumps(document))
    (tmp_path / "personas.yaml").write_text("personas: {}")
    return load_registry(path)


@pytest.fixture
def judging(registry: Registry) -> Registry:
    """The same registry with a judge, the larger model."""
    path = registry.path
    document = json.loads(path.read_text())
    document["roles"]["judge"] = {"model": "large", "tier": "B"}
    path.write_text(json.dumps(document))
    return load_registry(path)


@asynccontextmanager
async def serving(tmp_path: Path, registry: Registry, **memory: object) -> AsyncIterator[Service]:
    settings = Configuration(memory=MemorySettings.model_validate(memory))
    async with attached().service(tmp_path / "home", registry, settings) as service:
        await learning_of(service).caught_up()
        yield service


async def done(service: Service) -> str:
    run = (await service.submit(job(SHORT))).run
    async for _ in service.watch(run):
        pass
    async with asyncio.timeout(60):
        while run in service.running:  # noqa: ASYNC110 (the queue tells nobody)
            await asyncio.sleep(0.01)
    await learning_of(service).caught_up()
    return run


async def test_each_outcome_is_learned_from_once_also_after_a_restart(tmp_path: Path, registry: Registry) -> None:
    async with serving(tmp_path, registry) as service:
        run = await done(service)
        status = learning_of(service).status()
        assert (status.outcomes, status.use, status.configured, status.problem) == (1, "shadow", "auto", "")
        assert status.stats is not None
        assert status.stats.episodes == 1
    async with serving(tmp_path, registry) as service:
        again = learning_of(service).status()
        assert again.outcomes == 1
        assert again.stats is not None
        assert (again.stats.outcomes, again.stats.revised) == (1, 0)
        learned = learning_of(service).learned
        assert learned is not None
        before = worth(learned)
        await service.rate(run, 0.0, "ann")
        await learning_of(service).caught_up()
        rated = learning_of(service).status()
        assert rated.stats is not None
        assert (rated.outcomes, rated.stats.outcomes, rated.stats.revised) == (1, 1, 1)
        assert rated.stats.q_mean < again.stats.q_mean
        assert worth(learned) < before
        counted = learned.policy._tallies[()][:2]
        assert counted == pytest.approx((1.0, 0.0), abs=0.06), "a person's word stands alone, but for the stage's part"
        (episode,) = learned.memory.episodes([1])
        assert (episode.action, episode.outcome.source, episode.outcome.by) == (
            Action("worker", "", "small"),
            "person",
            "ann",
        )
        assert episode.situation.task_type is None, "a default of a field is nothing that was said"


def worth(learned: Learned) -> float:
    """Return what the policy expects of the action of `SHORT`'s step, without what similar episodes say."""
    about = learned.memory.episodes([1])[0].situation
    vector = embed([about.text], LEARNING_DIMENSIONS)[0]
    return learned.policy.estimate(about, vector, (), [Action("worker", "", "small")])[0].worth


async def test_runs_that_ended_without_a_daemon_are_learned_from_at_its_start(
    tmp_path: Path, registry: Registry
) -> None:
    async with serving(tmp_path, registry, use="off") as service:
        await done(service)
        assert learning_of(service).status().stats is None
    async with serving(tmp_path, registry) as service:
        assert learning_of(service).status().outcomes == 1


async def test_a_command_opens_no_empty_memory_and_the_next_one_learns_from_its_run(
    tmp_path: Path, registry: Registry
) -> None:
    home = tmp_path / "home"
    async with attached().service(home, registry, Configuration(), Extent.RUNS) as service:
        await done(service)
        assert not (home / FOLDER).exists()
    async with attached().service(home, registry, Configuration(), Extent.RUNS) as service:
        await service.open()
        await learning_of(service).caught_up()
        assert learning_of(service).status().outcomes == 1


async def test_a_policy_that_cannot_be_used_learns_again_from_the_episodes(tmp_path: Path, registry: Registry) -> None:
    async with serving(tmp_path, registry) as service:
        await done(service)
    home = tmp_path / "home"
    memory = Memory.open(home / FOLDER, NAME, LEARNING_DIMENSIONS)
    memory.keep_blob(POLICY, Policy(LEARNING_DIMENSIONS + 1).to_bytes())
    memory.close()
    async with serving(tmp_path, registry) as service:
        status = learning_of(service).status()
        assert (status.outcomes, status.problem) == (1, "")
        assert status.stats is not None
        assert status.stats.outcomes == 1
        learned = learning_of(service).learned
        assert learned is not None
        kept = learned.memory.blob(POLICY)
        assert kept is not None
        assert Policy.from_bytes(kept, LEARNING_DIMENSIONS).observed == 1


async def test_tasks_that_come_often_and_fail_get_a_persona_that_the_router_may_choose(
    tmp_path: Path, registry: Registry
) -> None:
    async with serving(tmp_path, registry, use="on", personas=1) as service:
        learned, orchestrator = learning_of(service).learned, service.orchestrator
        assert learned is not None
        assert await learning_of(service).propose_persona(orchestrator, learned) is None, "there are no tasks yet"
        for number in range(30):
            fail(learned, f"Extract the invoice total of record {number}.", number)
        assert await learning_of(service).propose_persona(orchestrator, learned) == "extract-invoice-total"
        (made,) = orchestrator.personas.made
        assert (made.maker, made.retired) == ("memory", None)
        assert made.text.startswith("You are an expert in tasks of this kind: extract, invoice, total, record.")
        assert "exactly the form" in made.text
        assert made.description == "for tasks of the role worker that came 30 times, with a Q of 0.00"
        task = task_from({"objective": "x", "plan": {"steps": [step("S1", "Extract the invoice total.", [], ["o"])]}})
        asked = DecisionContext(
            registry=orchestrator.registry, role="worker", roles=("worker",), task=task, step=task.plan.steps[0]
        )
        assert made.name in {one.persona for one in candidates(asked, by_rules(asked))}
        for number in range(30):
            fail(learned, f"Write a letter to customer {number}.", 100 + number)
        assert await learning_of(service).propose_persona(orchestrator, learned) is None, "there is room for one only"
        await orchestrator.personas.retire(made.name)
        assert await learning_of(service).propose_persona(orchestrator, learned) == "write-letter-customer"


def fail(learned: Learned, text: str, number: int) -> None:
    """Teach the memory that an attempt has not had the right form."""
    learned.memory.observe(
        Situation(task_type=None, kind="generate", role="worker", text=text),
        embed([text], LEARNING_DIMENSIONS)[0],
        Action("worker", "", "small"),
        outcome=Outcome(success=0.0, source="gate", by="schema", failure="SCHEMA"),
        reward=Reward(total=0.0),
        propensity=1.0,
        at=float(number),
        key=("R", "S1", number),
    )


async def test_in_the_shadow_no_persona_is_proposed_as_nobody_would_try_it(tmp_path: Path, registry: Registry) -> None:
    async with serving(tmp_path, registry, use="shadow") as service:
        learned = learning_of(service).learned
        assert learned is not None
        for number in range(30):
            fail(learned, f"Extract the invoice total of record {number}.", number)
        assert await learning_of(service).propose_persona(service.orchestrator, learned) is None
        assert not service.orchestrator.personas.made


async def test_another_embedder_of_the_registry_makes_all_vectors_anew(tmp_path: Path, registry: Registry) -> None:
    async with serving(tmp_path, registry) as service:
        await done(service)
        before = learning_of(service).status().stats
    assert before is not None
    assert (before.episodes, before.embedder) == (1, NAME)
    write_bert(tmp_path / "bert.gguf", ModelShape(context=64, pooling="mean"))
    document = json.loads(registry.path.read_text())
    document["models"]["bert"] = {"file": "bert.gguf", "threads": 1, "context": 64}
    document["roles"]["embedder"] = {"model": "bert", "tier": "D"}
    registry.path.write_text(json.dumps(document))
    async with serving(tmp_path, load_registry(registry.path)) as service:
        status = learning_of(service).status()
        assert status.stats is not None
        assert (status.stats.episodes, status.stats.embedder, status.stats.lacking) == (1, "bert/bert.gguf", 0)
        assert (status.problem, status.outcomes) == ("", 1), "the policy has learned again from the episode"
        learned = learning_of(service).learned
        assert learned is not None
        text = learned.memory.episodes([1])[0].situation.text
        (near,) = learned.memory.retrieve((await learned.embed([text]))[0], 1)
        assert (near.episode.id, near.similarity) == (1, pytest.approx(1.0, abs=0.01))


async def test_the_memory_of_an_earlier_version_is_gone_on_with(tmp_path: Path, registry: Registry) -> None:
    """It was written when outcomes had no quality, vectors had 1,024 numbers and the policy's bytes another version."""
    folder = tmp_path / "home" / FOLDER
    folder.mkdir(parents=True)
    (folder / DATABASE).write_bytes(gzip.decompress(EARLIER.read_bytes()))
    async with serving(tmp_path, registry) as service:
        status = learning_of(service).status()
        assert (status.outcomes, status.problem) == (3, ""), "the policy has learned again from the three episodes"
        assert (status.judge_agreed, status.judge_compared) == (3, 4)
        assert status.stats is not None
        assert (status.stats.episodes, status.stats.outcomes, status.stats.unused) == (3, 5, 1)
        assert (status.stats.revised, status.stats.lacking, status.stats.problems) == (1, 0, ())
        (taught,) = status.callers
        assert (taught.caller, taught.outcomes, taught.drawn, status.ready) == ("", 5, 5, 5)
        learned = learning_of(service).learned
        assert learned is not None
        memory = learned.memory
        first, second, third = memory.episodes([1, 2, 3])
        assert (first.q, first.count, first.outcome.quality) == (pytest.approx(0.5285), 3, 1.0)
        assert second.action == Action("coder", "terse", "large")
        assert (third.outcome.source, third.outcome.by) == ("person", "ann")
        near = memory.retrieve(embed([first.situation.text], LEARNING_DIMENSIONS)[0], 1)
        assert [one.episode.id for one in near] == [1]
        again = memory.observe(
            third.situation,
            embed([third.situation.text], LEARNING_DIMENSIONS)[0],
            third.action,
            outcome=replace(third.outcome, success=0.0, quality=0.5),
            reward=Reward(total=0.0),
            propensity=1.0,
            at=1.8e9,
            key=("run-4", "S1", 1),
        )
        assert (again.how, again.q) == ("revised", pytest.approx(0.35))
        counted = await ask_graph(memory, service.orchestrator.sandbox, "MATCH (a:Attempt) RETURN count(*)")
        assert counted.rows == [[6]]
        await done(service)
        assert learning_of(service).status().outcomes == 4


async def test_a_damaged_memory_keeps_nothing_from_going_on(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "home" / "memory").mkdir(parents=True)
    (tmp_path / "home" / "memory" / "memory.db").write_bytes(b"no database" * 1000)
    async with serving(tmp_path, registry) as service:
        assert "the memory cannot be opened" in learning_of(service).status().problem
        run = await done(service)
        assert (await service.row(run)).status == "done"


async def test_the_judge_s_word_counts_by_its_agreement_with_checkers(tmp_path: Path, judging: Registry) -> None:
    tasks = [judged(one) for one in family_tasks(7, 1, ["extract"])]
    async with serving(tmp_path, judging, use="shadow") as service:
        await train(service, tasks[:6], 6, lambda made, total: None)
        status = learning_of(service).status()
        with JournalReader.open_to_read(tmp_path / "home") as journal:
            same = [agrees([event for _, event in journal.events(row.run)]) for row in journal.runs()]
        assert (status.judge_compared, status.judge_agreed) == (6, sum(same))
        assert status.judge_weight == pytest.approx(max(0.0, 2 * (3 + sum(same)) / (5 + 6) - 1))
        run = (await service.submit(Job(None, tasks[6].task, None, "as-planned"))).run
        async for _ in service.watch(run):
            pass
        learning_of(service).notice()
        await learning_of(service).caught_up()
        learned = learning_of(service).learned
        assert learned is not None
        counted = [one for one in lessons_in(tmp_path / "home", run, status.judge_weight) if one.outcome.weight]
        assert counted
        for lesson in counted:
            assert (lesson.outcome.source, lesson.outcome.weight) == ("judge", status.judge_weight)
            note = learned.memory._store.noted(lesson.key)
            assert note is not None
            assert note.size == pytest.approx(learned.memory.settings.alpha * status.judge_weight)


def judged(one: RolloutTask) -> RolloutTask:
    """Return the same task with a judge at its step, which no gate looks at otherwise."""
    document = one.task.model_dump(mode="json", exclude_unset=True)
    (only,) = document["plan"]["steps"]
    document["plan"]["steps"] = [{**only, "gates": ["judge"]}]
    return replace(one, task=task_from(document))


def agrees(events: list[Event]) -> bool:
    """Return whether the judge said of the last answer of a run what its checker has said."""
    (rating,) = (event for event in events if isinstance(event, RatingGiven))
    last = [event for event in events if isinstance(event, AttemptSucceeded | AttemptFailed)][-1]
    (judge,) = (gate for gate in last.gates if gate.gate == "judge")
    return judge.passed == (rating.score >= 0.5)


def lessons_in(home: Path, run: str, weight: float) -> list[Lesson]:
    with JournalReader.open_to_read(home) as journal:
        return lessons_of([event for _, event in journal.events(run)], weight)[0]


@pytest.mark.slow
async def test_what_was_learned_chooses_better_than_rules_that_are_wrong(tmp_path: Path, registry: Registry) -> None:
    tasks = list(family_tasks(60, 1, ["extract"]))
    async with serving(tmp_path, registry, use="on", explore=0.5) as service:
        points = await train(service, tasks, 6, lambda made, total: None)
        later = list(family_tasks(12, 2, ["extract"]))
        async with asyncio.timeout(100):
            found = [
                await service.submit(Job(None, one.task, None, "as-planned", priority="interactive")) for one in later
            ]
            for one in found:
                async for _ in service.watch(one.run):
                    pass
    with JournalReader.open_to_read(tmp_path / "home") as journal:
        events = [[event for _, event in journal.events(one.run)] for one in found]
        logged = [choice for row in journal.runs() for choice in choices_of([e for _, e in journal.events(row.run)])]
    firsts = [next(event for event in own if isinstance(event, AttemptStarted)) for own in events]
    share = sum(one.model == "large" for one in firsts) / len(firsts)
    assert share > 0.8, "the rules choose the small model"
    advice = firsts[0].advice
    assert advice is not None
    assert (advice.followed, advice.model, advice.rules) == (True, "large", "worker on small")
    assert advice.estimates[0].worth > next(one.worth for one in advice.estimates if one.model == "small")
    assert "chosen by memory" in firsts[0].reason
    assert points[-1].followed > points[0].followed
    judged, ruled = (evaluate(router, logged).estimates["self-normalised"] for router in ("best", "rules"))
    assert judged.value > ruled.value
    assert judged.effective > 10
    write_page(tmp_path / "page.html", points)
    assert "<svg" in (tmp_path / "page.html").read_text()
