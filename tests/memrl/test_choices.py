"""Choices next to how they turned out: regret, calibration, means over time, and the evidence for personas."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.memrl.choices import (
    JudgedChoice,
    calibration,
    journaled_choices,
    judged_choice,
    persona_evidence,
    spans,
)
from orchestrator.memrl.episodes import Action, Value
from orchestrator.memrl.store import LearnedAttempt
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import PersonaUse
from orchestrator.task.events import AttemptStarted, ModeChoice, RunAccepted
from tests.memrl.advised_runs import PERSONA, advice, estimate, started, write_advised_runs
from tests.memrl.observations import opened, told

LARGE, SMALL = estimate("large", 0.8, price=0.1), estimate("small", 0.5)


def learned(reward: float, weight: float = 1.0) -> LearnedAttempt:
    return LearnedAttempt(
        key=("R", "S1", 1),
        episode=1,
        action=Action("worker", "", "small"),
        task_type=None,
        failure="",
        success=reward,
        reward=reward,
        before=0.5,
        size=0.3,
        decay=0.0,
        at=2.0,
        weight=weight,
    )


def judged(**fields: object) -> JudgedChoice:
    choice = judged_choice(("R", "S1", 1), started(2.0, SMALL, advice([LARGE, SMALL])), learned(0.4))
    return replace(choice, **fields)  # type: ignore[arg-type]


def test_a_choice_has_what_was_expected_and_what_came_of_it() -> None:
    choice = judged()
    assert (choice.run, choice.step, choice.attempt, choice.at) == ("R", "S1", 1, 2.0)
    assert (choice.taken, choice.best, choice.rules) == ("worker on small", "worker on large", "worker on tiny-large")
    assert (choice.expected, choice.error, choice.confidence) == (0.5, 0.1, 0.75)
    assert choice.regret == pytest.approx(0.2), "0.7 for the best one, less 0.5"
    assert (choice.success, choice.reward, choice.weight) == (0.4, 0.4, 1.0)


def test_what_nobody_knows_is_none() -> None:
    unasked = judged_choice(("R", "S1", 1), started(2.0, SMALL, None), None)
    assert (unasked.best, unasked.confidence, unasked.expected, unasked.regret) == ("", None, None, None)
    assert (unasked.success, unasked.reward, unasked.weight) == (None, None, 0.0)
    other = judged_choice(("R", "S1", 1), started(2.0, estimate("third", 1.0), advice([LARGE, SMALL])), learned(1, 0))
    assert (other.expected, other.regret, other.reward) == (None, None, None)


def test_the_mode_of_a_plan_is_a_choice_too() -> None:
    serial, usual = replace(SMALL, mode="serial"), replace(LARGE, mode="planned")
    choice = ModeChoice(reason="a test", propensity=1.0, router="r", advice=advice([usual, serial]))
    accepted = RunAccepted(at=1.0, run="R", mode="serial", request="x", mode_choice=choice)
    ((key, event),) = journaled_choices([("R", accepted), ("Q", replace(accepted, mode_choice=None))])
    assert key == ("R", "", 0)
    shown = judged_choice(key, event, learned(0.4))
    assert (shown.step, shown.taken, shown.expected, shown.reward) == (None, "mode serial", 0.5, 0.4)


def test_spans_are_means_of_equally_many_choices() -> None:
    choices = [judged(at=float(at), reward=0.4 if at % 2 else None) for at in range(450)]
    rows = spans(choices)
    assert [row.choices for row in rows] == [12] * 37 + [6]
    assert (rows[0].start, rows[0].end, rows[0].judged) == (0.0, 11.0, 6)
    assert rows[0].reward == pytest.approx(0.4)
    assert rows[0].regret == pytest.approx(0.2)
    assert spans([]) == []
    assert spans([judged(reward=None, expected=None, regret=None)])[0].reward is None


def test_outcomes_count_by_their_weight() -> None:
    rows = spans([judged(reward=1.0, weight=0.75), judged(reward=0.0, weight=0.25)])
    assert rows[0].reward == pytest.approx(0.75)


def test_calibration_compares_what_was_expected_with_what_came() -> None:
    choices = [judged(expected=0.82, reward=0.5), judged(expected=0.86, reward=0.7), judged(expected=1.0, reward=1.0)]
    bins, error = calibration([*choices, judged(reward=None), judged(expected=None)])
    assert [(row.low, row.high, row.choices) for row in bins] == [(0.8, 0.9, 2), (0.9, 1.0, 1)]
    assert (bins[0].expected, bins[0].reward) == (pytest.approx(0.84), pytest.approx(0.6))
    assert error == pytest.approx(0.24 * 2 / 3)
    assert calibration([]) == ([], None)


def test_a_persona_is_compared_with_its_role_without_it() -> None:
    uses = [PersonaUse("terse", "writer", 5, 3, 1, 9.0)]
    values = [
        Value("code", "writer", "terse", 0.9, 2, 1, 9.0),
        Value(None, "writer", "terse", 0.3, 1, 1, 9.0),
        Value(None, "writer", "", 0.5, 4, 2, 9.0),
        Value(None, "worker", "curt", 0.2, 1, 1, 9.0),
    ]
    curt, terse = persona_evidence(uses, values)
    assert (terse.persona, terse.attempts, terse.succeeded, terse.failed) == ("terse", 5, 3, 1)
    assert (terse.q, terse.outcomes, terse.q_without, terse.outcomes_without) == (pytest.approx(0.7), 3, 0.5, 4)
    assert (curt.persona, curt.role, curt.attempts, curt.q, curt.q_without) == ("curt", "worker", 0, 0.2, None)


async def test_the_journal_has_the_latest_choices_in_order(tmp_path: Path) -> None:
    await write_advised_runs(tmp_path, 6)
    with JournalReader.open_to_read(tmp_path) as journal:
        choices = journal.newest_choices(4)
    assert [run for run, _ in choices] == ["R2", "R3", "R4", "R5"]
    events = [event for _, event in choices if isinstance(event, AttemptStarted)]
    assert [event.persona for event in events] == [None, PERSONA, None, PERSONA]


def test_the_memory_says_what_it_has_learned_from_attempts(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    try:
        told(memory, "write", 0.75, key=("R", "S1", 1), at=5.0)
        notes = memory.learned_from([("R", "S1", 1), ("R", "S1", 2), ("Q", "", 0)])
        assert {key: (note.reward, note.at) for key, note in notes.items()} == {("R", "S1", 1): (0.75, 5.0)}
    finally:
        memory.close()
