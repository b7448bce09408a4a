"""What is learned from a run: who said how it turned out, and how much that counts."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.memrl.episodes import Action
from orchestrator.memrl.lessons import Agreement, Lesson, chat_lesson, lessons_of
from orchestrator.run.journal.chats import ChatAnswered, ChatRated, ChatRecord, ChatRouted
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    Failure,
    FailureKind,
    GateResult,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    RatingGiven,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepsPlanned,
    Usage,
)
from orchestrator.task.taskir.models import Step

STEP = Step(id="S1", actor="worker", action="Extract the name.", outputs=("o",))
PASSED = GateResult("unit", "passed")
JUDGED = GateResult("judge", "passed", score=7)
REFUSED = GateResult("judge", "failed", score=2)


def events(
    *attempts: tuple[str, tuple[GateResult, ...]], ratings: tuple[RatingGiven, ...] = (), status: Any = "done"
) -> list[Event]:
    """Return the events of a run of one step, with an attempt for each pair: `done` or a kind of failure, and gates."""
    found: list[Event] = [
        RunAccepted(at=1.0, run="R", mode="as-planned", request="Names", priority="batch"),
        RunBegun(at=1.0),
        PlanningStarted(at=1.0, role="frontdoor", model="big"),
        StepsPlanned(at=2.0, steps=(STEP,)),
        PlanFinished(at=2.0, origin="planned"),
    ]
    for number, (outcome, gates) in enumerate(attempts, 1):
        begun = AttemptStarted(
            at=2.0 + number,
            step="S1",
            number=number,
            role="worker",
            persona=None,
            model="m",
            reason="r",
            propensity=0.5,
        )
        found += [begun, AttemptGenerated(at=2.5 + number, step="S1", number=number, usage=Usage(10, 4, 5))]
        if outcome == "done":
            found.append(AttemptSucceeded(at=2.5 + number, step="S1", number=number, outputs={"o": "d"}, gates=gates))
        else:
            failure = Failure(FailureKind(outcome), "x")
            found.append(AttemptFailed(at=2.5 + number, step="S1", number=number, failure=failure, gates=gates))
    return [*found, RunFinished(at=9.0, status=status), *ratings]


def rating(score: float, by: str, step: str | None = None) -> RatingGiven:
    return RatingGiven(at=10.0, score=score, by=by, step=step)


def learned(told: list[Event], judge: float = 0.2, *, rated: bool = False) -> tuple[list[Lesson], Agreement]:
    """Return what is learned of the steps, and the agreement; read for the last event where the run is `rated`."""
    last = told[-1]
    lessons, agreement = lessons_of(told, judge, rating=last if rated and isinstance(last, RatingGiven) else None)
    return [lesson for lesson in lessons if lesson.key[1]], agreement


@pytest.mark.parametrize(
    ("outcome", "gates", "ratings", "said"),
    [
        ("done", (), (), (1.0, "run", "", 0.1)),
        ("done", (PASSED,), (), (1.0, "gate", "unit", 0.7)),
        ("done", (PASSED, JUDGED), (), (1 - 0.2 / 9, "gate", "unit", 0.9)),
        ("done", (GateResult("lint", "passed"),), (), (1.0, "gate", "lint", 0.4)),
        ("done", (GateResult("lint", "not run"),), (), (1.0, "run", "", 0.1)),
        ("done", (JUDGED,), (), (7 / 9, "judge", "judge", 0.2)),
        ("done", (PASSED,), (rating(0.0, "checker:train"),), (0.0, "checker", "checker:train", 0.95)),
        ("done", (PASSED,), (rating(0.25, "ann"), rating(1.0, "checker:train")), (0.25, "person", "ann", 1.0)),
        ("done", (JUDGED,), (rating(0.0, "ann"),), (0.0, "person", "ann", 1.0)),
        ("done", (), (rating(0.0, "ann"), rating(1.0, "ann", "S1")), (1.0, "person", "ann", 1.0)),
        ("logic", (), (rating(1.0, "ann"),), (0.0, "person", "ann", 1.0)),
    ],
)
def test_whoever_knows_best_says_how_it_turned_out(
    outcome: str, gates: tuple[GateResult, ...], ratings: tuple[RatingGiven, ...], said: tuple[Any, ...]
) -> None:
    (lesson,), _ = learned(events((outcome, gates), ratings=ratings))
    told = lesson.outcome
    assert (told.worth, told.source, told.by, told.weight) == pytest.approx(said)


def doubted(*attempts: tuple[str, tuple[GateResult, ...]], still: bool) -> list[Event]:
    """Return the events of a run whose answer was doubtful after the first attempt, and `still` is after the last."""
    told, doubt = events(*attempts), AnswerDoubt("It has 3 of 5.", "S1")
    first = next(at for at, event in enumerate(told) if isinstance(event, AttemptSucceeded))
    told.insert(first + 1, AnswerChecked(at=told[first].at, doubts=(doubt,)))
    end = RunFinished(at=9.0, status="done", doubt=doubt.text if still else "")
    return [*told[:-1], AnswerChecked(at=9.0, doubts=(doubt,) if still else ()), end]


def test_a_doubtful_answer_counts_less_than_one_without_doubt() -> None:
    lessons, _ = lessons_of(doubted(("done", ()), ("done", ()), still=True), 0.2)
    told = [(one.outcome.worth, one.outcome.by, one.outcome.weight) for one in lessons]
    assert told == [(0.5, "answer", 0.3), (0.0, "answer", 0.4), (0.0, "answer", 0.4)]


def test_a_repair_that_removes_the_doubt_counts_as_done() -> None:
    plan, first, repair = (one.outcome for one in lessons_of(doubted(("done", ()), ("done", ()), still=False), 0.2)[0])
    assert (plan.worth, plan.weight) == (1.0, 0.1)
    assert (first.worth, first.by) == (0.0, "answer")
    assert (repair.worth, repair.by, repair.weight) == (1.0, "", 0.1)


def test_tests_that_have_passed_say_more_than_the_form_of_the_answer() -> None:
    (_, first, _), _ = lessons_of(doubted(("done", (PASSED,)), ("done", ()), still=True), 0.2)
    assert (first.outcome.worth, first.outcome.by) == (1.0, "unit")


def chain(*gates: tuple[GateResult, ...], status: Any = "done", ratings: tuple[RatingGiven, ...] = ()) -> list[Event]:
    """Return the events of a run whose steps read each other's output, each with an attempt that passed these gates."""
    names = [f"S{number}" for number in range(1, len(gates) + 1)]
    steps = tuple(
        Step(
            id=name,
            actor="worker",
            action=f"Do {name}.",
            inputs=("o" + before,) if before else (),
            outputs=("o" + name,),
        )
        for before, name in zip(("", *names), names, strict=False)
    )
    found: list[Event] = events()[:3]
    found += [StepsPlanned(at=2.0, steps=steps), PlanFinished(at=2.0, origin="planned")]
    for name, passed in zip(names, gates, strict=True):
        begun = AttemptStarted(at=3.0, step=name, number=1, role="worker", persona=None, model="m", reason="r")
        found += [begun, AttemptGenerated(at=4.0, step=name, number=1, usage=Usage(10, 4, 5))]
        found.append(AttemptSucceeded(at=4.0, step=name, number=1, outputs={"o" + name: "d"}, gates=passed))
    return [*found, RunFinished(at=9.0, status=status), *ratings]


def test_the_judge_s_word_about_the_result_counts_for_the_steps_before_and_for_the_plan_by_its_agreement() -> None:
    lessons, _ = lessons_of(chain((), (JUDGED,)), 0.8)
    plan, first, last = (lesson.outcome for lesson in lessons)
    assert (last.success, last.quality, last.source) == (pytest.approx(7 / 9), 1.0, "judge")
    assert (first.success, first.source) == (1.0, "run")
    assert first.quality == pytest.approx(1 - 0.5 * 0.8 * 2 / 9)
    assert (plan.success, plan.quality, plan.source, plan.weight) == (1.0, pytest.approx(7 / 9), "judge", 0.8)
    lessons, _ = lessons_of(chain((), (JUDGED,)), 0.0)
    plan, first, last = (lesson.outcome for lesson in lessons)
    assert (first.quality, last.weight) == (1.0, 0.0), "a judge that tosses a coin says nothing"
    assert (plan.source, plan.weight) == ("run", 0.1)


def test_a_rating_of_the_run_is_the_quality_of_its_result_and_outweighs_the_judge() -> None:
    rated = chain((PASSED,), (JUDGED,), ratings=(rating(1.0, "checker:x"), rating(0.2, "ann"), rating(0.4, "ann")))
    plan, first, last = (lesson.outcome for lesson in lessons_of(rated, 0.8)[0])
    assert {(one.success, one.quality, one.by) for one in (plan, first, last)} == {(1.0, 0.4, "ann")}
    assert (plan.weight, first.weight, last.weight) == (1.0, 0.5, 1.0)


ANN, BOB = "user:ann", "token:bob"


def owned(told: list[Event], **accepted: Any) -> list[Event]:
    """Return the events of a run that Ann has submitted."""
    first, *others = told
    assert isinstance(first, RunAccepted)
    return [replace(first, owner=ANN, **accepted), *others]


@pytest.mark.parametrize(
    ("outcome", "gates", "ratings", "said", "caller"),
    [
        ("done", (), (rating(0.0, ANN, "S1"),), (0.0, "person", ANN, 0.7), ANN),
        ("done", (PASSED,), (rating(0.0, ANN, "S1"),), (0.0, "person", ANN, 0.7), ANN),
        ("done", (PASSED, JUDGED), (rating(0.0, ANN, "S1"),), (1 - 0.2 / 9, "gate", "unit", 0.9), ANN),
        ("code", (GateResult("unit", "failed"),), (rating(1.0, ANN, "S1"),), (0.0, "gate", "unit", 1.0), ANN),
        ("code", (GateResult("unit", "failed"),), (rating(1.0, BOB, "S1"),), (1.0, "person", BOB, 1.0), BOB),
        ("done", (), (rating(0.0, BOB, "S1"), rating(1.0, ANN, "S1")), (0.0, "person", BOB, 1.0), BOB),
        ("done", (), (rating(0.0, "checker:x"), rating(1.0, ANN)), (0.0, "checker", "checker:x", 0.95), ANN),
        ("done", (PASSED,), (), (1.0, "gate", "unit", 0.7), ANN),
    ],
)
def test_a_rating_by_the_run_s_owner_counts_less_than_other_evidence(
    outcome: str,
    gates: tuple[GateResult, ...],
    ratings: tuple[RatingGiven, ...],
    said: tuple[Any, ...],
    caller: str,
) -> None:
    (lesson,), _ = learned(owned(events((outcome, gates), ratings=ratings)))
    told = lesson.outcome
    assert (told.worth, told.source, told.by, told.weight) == pytest.approx(said)
    assert lesson.caller == caller


def test_the_owner_s_rating_of_the_whole_run_counts_less_for_its_plan() -> None:
    plan = lessons_of(owned(events(("done", ()), ratings=(rating(0.5, ANN),))), 0.2)[0][0]
    assert (plan.outcome.quality, plan.outcome.weight, plan.caller) == (0.5, 0.7, ANN)


def test_a_forced_choice_teaches_by_its_propensity() -> None:
    for unforced, weight in ((None, 1.0), (0.0, 0.0), (0.05, 0.1), (0.5, 1.0)):
        told = [
            replace(one, unforced=unforced) if isinstance(one, AttemptStarted) else one
            for one in events(("done", ()), ratings=(rating(1.0, BOB),))
        ]
        (lesson,), _ = learned(told)
        assert (lesson.outcome.weight, lesson.drawn) == (pytest.approx(weight), unforced is None)
        early, _ = learned(owned(told, model="m"))  # early versions did not record what the router would have done
        assert early[0].drawn is False
        assert early[0].outcome.weight == pytest.approx(weight if unforced is not None else 0.0)
    for mode, weight in (("as-planned", 1.0), ("serial", 0.0)):
        plan = lessons_of(owned(events(("done", ()), ratings=(rating(1.0, BOB),)), mode=mode), 0.2)[0][0]
        assert (plan.outcome.weight, plan.drawn) == (weight, bool(weight))


def test_what_happened_to_the_machine_teaches_nothing() -> None:
    first, second = learned(events(("infrastructure", ()), ("done", (PASSED,))))[0]
    assert (first.outcome.success, first.outcome.failure) == (None, "INFRASTRUCTURE")
    assert second.situation.failures == ("INFRASTRUCTURE",)
    assert second.outcome.success == 1.0


def test_a_lesson_has_the_situation_of_the_choice_and_no_defaults() -> None:
    (lesson,), _ = learned(events(("done", ())))
    assert lesson.key == ("R", "S1", 1)
    assert lesson.action == Action("worker", "", "m")
    assert lesson.propensity == 0.5
    assert lesson.situation.text == "Names\nExtract the name."
    assert (lesson.situation.task_type, lesson.situation.role, lesson.situation.interactive) == (None, "worker", False)
    assert lesson.outcome.tokens == 10 - 4 + 5
    assert lesson.outcome.used


def test_the_plan_of_a_request_has_a_lesson_about_its_mode() -> None:
    lessons, _ = lessons_of(events(("done", ()), ratings=(rating(0.5, "ann"),)), 0.2)
    plan = lessons[0]
    assert (plan.key, plan.action) == (("R", "", 0), Action("frontdoor", "", "big", "", "planned"))
    assert (plan.situation.kind, plan.situation.text) == ("plan", "Names")
    assert (plan.outcome.success, plan.outcome.quality, plan.outcome.source) == (1.0, 0.5, "person")


def test_a_direct_answer_is_a_mode_and_says_nothing_for_a_plan_that_it_replaces() -> None:
    direct = lessons_of(owned(events(("done", ())), mode="direct"), 0.2)[0][0]
    assert direct.action == Action("frontdoor", "", "big", "", "direct")
    told = events(("logic", ()), ("logic", ()))
    end = next(place for place, event in enumerate(told) if event.kind == "run_finished")
    answer = Step(id="S2", actor="worker", action="Names", outputs=("s2.txt",))
    done: list[Event] = [
        PlanReplaced(at=8.0, answer=answer, reason="S1: wrong"),
        AttemptStarted(at=8.0, step="S2", number=1, role="worker", persona=None, model="m", reason="r"),
        AttemptSucceeded(at=9.0, step="S2", number=1, outputs={}),
        RunFinished(at=9.0, status="done"),
    ]
    replaced = lessons_of([*told[:end], *done], 0.2)[0][0]
    assert replaced.outcome.success == 0.0


@pytest.mark.parametrize(
    ("attempts", "ratings", "rated", "agreement"),
    [
        ([("done", (PASSED, JUDGED))], (), False, Agreement(1, 1)),
        ([("done", (JUDGED,))], (), False, Agreement(0, 0)),
        ([("done", (JUDGED,))], (rating(0.0, "checker:train"),), True, Agreement(0, 1)),
        ([("done", (JUDGED,))], (rating(1.0, "checker:train", "S1"),), True, Agreement(1, 1)),
        ([("done", (PASSED, JUDGED))], (rating(1.0, "ann"),), True, Agreement(0, 0)),
        ([("done", (JUDGED,))], (rating(1.0, "checker:train"), rating(0.0, "ann")), True, Agreement(0, 0)),
        ([("done", (JUDGED,))], (rating(1.0, "checker:x"), rating(0.0, "checker:x")), True, Agreement(0, 0)),
        ([("logic", (REFUSED,)), ("done", (JUDGED,))], (rating(1.0, "checker:train"),), True, Agreement(1, 1)),
    ],
)
def test_the_judge_is_compared_once_with_a_checker_about_the_same_answer(
    attempts: list[tuple[str, tuple[GateResult, ...]]],
    ratings: tuple[RatingGiven, ...],
    rated: bool,
    agreement: Agreement,
) -> None:
    assert learned(events(*attempts, ratings=ratings), rated=rated)[1] == agreement


def test_the_judge_of_a_step_before_is_not_compared_with_a_rating_of_the_whole() -> None:
    told = chain((JUDGED,), (JUDGED,), ratings=(rating(0.0, "checker:train"),))
    assert learned(told, rated=True)[1] == Agreement(0, 1)


def test_a_chat_teaches_by_its_form_or_its_rating() -> None:
    routed = ChatRouted(
        at=1.0,
        chat="c",
        objective="Hello",
        asked_role="worker",
        asked_persona=None,
        role="worker",
        persona=None,
        model="m",
        reason="r",
        propensity=1.0,
        candidates=(),
        router="rules-1",
        resident=(),
    )
    answer = ChatAnswered(
        at=2.0, chat="c", answer=0, finish="stop", failure=None, message="", usage=Usage(3, 0, 4), seconds=1.0
    )
    assert chat_lesson(ChatRecord(routed)) is None
    plain = chat_lesson(ChatRecord(routed, (answer,)))
    assert plain is not None
    assert (plain.key, plain.situation.kind, plain.outcome.weight) == (("chat:c", "", 0), "chat", 0.1)
    wrong = chat_lesson(ChatRecord(routed, (replace(answer, failure=FailureKind.SCHEMA),)))
    assert wrong is not None
    assert (wrong.outcome.success, wrong.outcome.source) == (0.0, "gate")
    rated = chat_lesson(ChatRecord(routed, (answer,), (ChatRated(at=3.0, chat="c", score=0.0, by="ann"),)))
    assert rated is not None
    assert (rated.outcome.success, rated.outcome.source, rated.outcome.weight) == (0.0, "person", 1.0)
    own = replace(routed, owner=BOB, unforced=0.5)
    forced = chat_lesson(ChatRecord(own, (answer,), (ChatRated(at=3.0, chat="c", score=0.0, by=BOB),)))
    assert forced is not None
    assert (forced.outcome.weight, forced.caller, forced.drawn) == (pytest.approx(0.35), BOB, False)
    others = (ChatRated(at=3.0, chat="c", score=1.0, by=ANN), ChatRated(at=4.0, chat="c", score=0.0, by=BOB))
    judged = chat_lesson(ChatRecord(replace(own, unforced=None), (answer,), others))
    assert judged is not None
    assert (judged.outcome.success, judged.outcome.weight, judged.caller) == (1.0, 1.0, ANN)
