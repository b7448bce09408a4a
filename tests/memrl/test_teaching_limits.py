"""What one caller can teach: little by force, little alone, and enough together with others."""

import math
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

from orchestrator.memrl.episodes import Action, Situation
from orchestrator.memrl.learning import READY_OUTCOMES, Learning, ReadingProgress, teach
from orchestrator.memrl.lessons import Lesson, lessons_of
from orchestrator.memrl.memory import Memory
from orchestrator.memrl.policy import Estimate, Policy
from orchestrator.memrl.reward import FULL_BY_ACTION, READY_BY_CALLER, Contribution, readiness
from orchestrator.memrl.router import Learned, Vector, settle
from orchestrator.service.configuration import MemorySettings
from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    RatingGiven,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepsPlanned,
    Usage,
)
from orchestrator.task.lexical import LEARNING_DIMENSIONS, NAME, embed
from orchestrator.task.taskir.parse import task_from

OWNER = "user:owner"
TRUSTED = frozenset(("", OWNER))
RULED, OTHER = (Action("worker", "", model) for model in ("small", "large"))
EVE_210 = ["token:eve"] * 210
TASKS = ("Extract the invoice total", "Summarize the minutes", "Write a shell script", "Translate the letter")

Advice = tuple[Action, dict[Action, Estimate]]


async def _embed(texts: Sequence[str]) -> Vector:
    return embed(texts, LEARNING_DIMENSIONS)


class Installation:
    """A memory, and runs of one step that teach it."""

    def __init__(self, learned: Learned) -> None:
        self.learned = learned
        self._runs = 0
        self._lessons: list[Lesson] = []

    def run(
        self,
        *owners: str,
        model: str = "small",
        unforced: float | None = None,
        passed: bool = True,
        rating: tuple[float, str] | None = None,
        types: Sequence[str] = ("doc",),
    ) -> None:
        """Have a run for each of the owners, whose tests passed or failed, and its `rating`: score, and who gave it.

        `types` are the types of the tasks, in turn.
        """
        for owner in owners:
            self._runs += 1
            kind = types[self._runs % len(types)]
            events = _events(self._runs, owner, model, unforced, passed, kind)
            self._lessons += lessons_of(events, 0.2)[0]
            if rating is not None:
                rated = RatingGiven(at=10.0, score=rating[0], by=rating[1])
                self._lessons += lessons_of([*events, rated], 0.2, rating=rated)[0]

    def learn(self) -> None:
        """Learn from the runs since the last time."""
        vectors = embed([lesson.situation.text for lesson in self._lessons], LEARNING_DIMENSIONS)
        teach(self.learned, self._lessons, vectors, ReadingProgress(), TRUSTED)
        self._lessons.clear()

    @property
    def contributions(self) -> list[Contribution]:
        self.learn()
        return self.learned.memory.contributions()

    @property
    def ready(self) -> int:
        return readiness(self.contributions, TRUSTED)

    def advice(self) -> Advice:
        """Return what would be done for another caller if advice was followed, and what is expected of each action."""
        self.learn()
        text = f"Work\n{TASKS[0]} of 12345."
        situation = Situation(task_type="doc", kind="generate", role="worker", text=text)
        vector = embed([situation.text], LEARNING_DIMENSIONS)[0]
        near = self.learned.memory.retrieve(vector, 100, 0.1)
        rng = np.random.default_rng(0)
        choice = self.learned.policy.choose(situation, vector, near, (RULED, OTHER), rng=rng, explore=False)
        settled = settle(choice, RULED, (RULED, OTHER), use="on")
        return settled.action, {one.action: one for one in choice.estimates}


def _events(number: int, owner: str, model: str, unforced: float | None, passed: bool, kind: str) -> list[Event]:
    step = {
        "id": "S1",
        "actor": "worker",
        "action": f"{TASKS[number % len(TASKS)]} of {number * 7919}.",
        "outputs": ["o"],
    }
    task = task_from({"task_type": kind, "objective": "Work", "priority": "batch", "plan": {"steps": [step]}})
    forced = None if unforced is None else model
    usage = Usage(10, 4, 5)
    ends: list[Event] = [
        AttemptSucceeded(at=4.0, step="S1", number=1, outputs={"o": "d"}, gates=(GateResult("unit", "passed"),)),
        RunFinished(at=5.0, status="done"),
    ]
    if not passed:
        failed = (GateResult("unit", "failed"),)
        failure = Failure(FailureKind.CODE, "x")
        ends = [
            AttemptFailed(at=4.0, step="S1", number=1, failure=failure, gates=failed),
            RunFinished(at=5.0, status="failed"),
        ]
    return [
        RunAccepted(at=1.0, run=f"R{number}", mode="as-planned", task=task, owner=owner, model=forced),
        RunBegun(at=1.0),
        StepsPlanned(at=1.0, steps=task.plan.steps),
        PlanFinished(at=1.0, origin="taskir"),
        AttemptStarted(
            at=2.0, step="S1", number=1, role="worker", persona=None, model=model, reason="r", unforced=unforced
        ),
        AttemptGenerated(at=3.0, step="S1", number=1, usage=usage),
        *ends,
    ]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    memory = Memory.open(tmp_path, NAME, LEARNING_DIMENSIONS)
    yield Installation(Learned(memory, Policy(LEARNING_DIMENSIONS), _embed, Lock()))
    memory.close()


@pytest.fixture
def used(installation: Installation) -> Installation:
    """An installation that its owner has used for a while: the rules' model is right more often than the other one."""
    for number in range(50):
        installation.run(OWNER, passed=number % 5 > 0)
        installation.run(OWNER, passed=number % 5 > 2, model="large")
    return installation


@pytest.mark.parametrize("rater", ["token:eve", "token:accomplice"])
def test_forced_runs_teach_what_the_router_would_have_done_and_do_not_make_it_ready(
    used: Installation, rater: str
) -> None:
    before, ready = used.advice(), used.ready
    used.run(*EVE_210, model="large", unforced=0.0, rating=(1.0, rater))
    used.run(*EVE_210, unforced=0.0, rating=(0.0, rater), passed=False)
    assert (used.ready, used.advice()) == (ready, before)
    assert used.learned.policy.observed == 100
    # as if one of a hundred such choices was the router's own
    used.run(*EVE_210, model="large", unforced=0.01, rating=(1.0, rater))
    assert used.ready == ready < READY_OUTCOMES
    moved(before, used.advice(), 0.1)


def moved(before: Advice, after: Advice, most: float) -> None:
    """Check that another caller gets the same advice, and how far what is expected of the actions has moved."""
    assert after[0] == before[0]
    for action in (RULED, OTHER):
        assert after[1][action].worth == pytest.approx(before[1][action].worth, abs=most)


@pytest.mark.parametrize(
    ("passed", "rating", "types"),
    [(True, (0.0, "token:eve"), ["doc"]), (False, None, ["doc"]), (False, None, ["doc", "code", "chat", "ingest"])],
    ids=["rates them as bad", "gives impossible tests", "gives impossible tests of all types"],
)
def test_one_caller_alone_neither_makes_the_router_ready_nor_turns_its_advice(
    used: Installation, passed: bool, rating: tuple[float, str] | None, types: list[str]
) -> None:
    before, ready = used.advice(), used.ready
    used.run(*EVE_210, passed=passed, rating=rating, types=types)
    assert used.ready == ready + READY_BY_CALLER < READY_OUTCOMES
    moved(before, used.advice(), 0.25)
    (owner, eve) = used.contributions
    assert (owner.caller, owner.outcomes, owner.counted) == (OWNER, 100, owner.told)
    assert (eve.caller, eve.outcomes, eve.drawn) == ("token:eve", 210, 210)
    assert eve.counted < owner.counted / 4


def test_whoever_has_taught_much_cannot_weaken_what_others_have_taught(used: Installation) -> None:
    used.run(*EVE_210[:50], rating=(0.0, "token:eve"))
    before = used.advice()
    used.run(*[OWNER] * 20, rating=(0.0, "token:eve"))
    by_owner = next(one for one in used.contributions if one.caller == OWNER)
    assert by_owner.outcomes == 120, "the tests' word counts more than what is left of the rating's"
    assert used.advice()[1][RULED].worth > before[1][RULED].worth


def test_the_owner_alone_and_several_callers_make_the_router_ready(tmp_path: Path) -> None:
    for name, callers in (("alone", [OWNER]), ("mixed", [OWNER, "token:a", "token:b", "user:c"])):
        memory = Memory.open(tmp_path / name, NAME, LEARNING_DIMENSIONS)
        installation = Installation(Learned(memory, Policy(LEARNING_DIMENSIONS), _embed, Lock()))
        installation.run(*(callers * (READY_OUTCOMES // len(callers))))
        assert installation.ready == READY_OUTCOMES, name
        memory.close()


def test_callers_with_the_role_of_an_owner_are_trusted(tmp_path: Path) -> None:
    given = {"token": "owner operator", "token:eve": "operator"}
    trusted = Learning(tmp_path, MemorySettings, lambda: given).trusted
    user = f"user:{pwd.getpwuid(tmp_path.stat().st_uid).pw_name}"
    assert {"", "user:root", user, "token"} <= trusted
    assert not {"token:eve", "owner", "token:token"} & trusted


def test_a_caller_s_outcomes_count_less_the_more_there_are(installation: Installation) -> None:
    installation.run(*["token:a"] * 300, passed=False)
    (only,) = installation.contributions
    assert only.told == 300
    assert only.counted == pytest.approx(FULL_BY_ACTION * (1 + math.log(300 / FULL_BY_ACTION)), rel=0.1)
    _, before = installation.advice()
    installation.run("token:b")
    assert installation.advice()[1][RULED].worth > before[RULED].worth, "another caller is heard"
