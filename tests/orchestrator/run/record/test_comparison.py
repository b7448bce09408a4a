"""Two runs side by side: steps are aligned by id, and plans and answers are compared."""

from collections.abc import Mapping, Sequence

from orchestrator.run.record.comparison import RunFigures, compare
from orchestrator.run.record.report import Report, build_report
from orchestrator.run.record.view import RunView
from orchestrator.task.events import Event, RunFinished
from tests.orchestrator.run.record.test_picture import T0, done, planned, started

PLAN: Mapping[str, Sequence[str]] = {"S1": [], "S2": ["S1"]}


def report(after: Mapping[str, Sequence[str]], *events: Event, answer: str = "the answer\n") -> Report:
    view = RunView.of([*planned(after), *events, RunFinished(at=T0 + 9, status="done")])
    return build_report(view, lambda digest: answer.encode())


def test_steps_are_aligned_by_id() -> None:
    base = report(PLAN, started("S1", 0), done("S1", 2), started("S2", 2), done("S2", 3))
    other = report({"S1": [], "S3": []}, started("S1", 0), done("S1", 5), started("S3", 0), done("S3", 1))
    compared = compare(base, other)
    assert [pair.id for pair in compared.steps] == ["S1", "S2", "S3"]
    assert [[side is not None for side in pair.sides] for pair in compared.steps] == [
        [True, True],
        [True, False],
        [False, True],
    ]
    first, second = compared.steps[0].sides
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (2.0, 5.0)
    assert (first.predicted_seconds, first.attempts, first.model, first.critical) == (2.0, 1, "m", True)
    assert not compared.same_plan
    assert compared.steps[2].action == "Do S3."


def test_the_same_plan_and_answer_are_the_same() -> None:
    events = [started("S1", 0), done("S1", 2), started("S2", 2), done("S2", 3)]
    compared = compare(report(PLAN, *events), report(PLAN, *events))
    assert compared.same_plan
    assert compared.answers == ""
    assert compare(report(PLAN, *events), report({"S1": [], "S2": []}, *events)).same_plan is False


def test_answers_are_compared_line_by_line() -> None:
    events = [started("S1", 0), done("S1", 2), started("S2", 2), done("S2", 3)]
    compared = compare(report(PLAN, *events), report(PLAN, *events, answer="another answer\n"))
    assert compared.answers.splitlines()[-4:-2] == ["-the answer", "\\ No newline at end of file"]


def test_a_run_that_has_not_ended_is_compared_too() -> None:
    view = RunView.of([*planned(PLAN), started("S1", 0)])
    unfinished = build_report(view, lambda digest: b"")
    side = compare(unfinished, unfinished).steps[0].sides[0]
    assert side is not None
    assert (side.state, side.seconds) == ("running", None)


def test_figures_are_of_the_critical_path_and_all_attempts() -> None:
    figures = RunFigures.of(report(PLAN, started("S1", 0), done("S1", 2), started("S2", 2), done("S2", 3)))
    assert figures == RunFigures(4.0, 3.0, 2, 2, 0, 0)
