"""Which outputs of a run the user gets, and what the run knows of the files that they are new versions of."""

from collections.abc import Mapping
from typing import Any

from orchestrator.run.record.report import RunResult, build_report, results
from orchestrator.run.record.view import RunView
from orchestrator.run.steps.files import NO_FILE
from orchestrator.task.events import (
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step

Touched = Mapping[str, Mapping[str, Mapping[str, str]]]


def finished(
    *steps: Mapping[str, Any],
    wanted: tuple[str, ...] = (),
    touched: Touched | None = None,
    contained: tuple[str, ...] = (),
) -> RunView:
    """Return the view of a run of these steps in which each output has its step and name as its digest.

    `touched` has the `reads` and the `originals` of steps; `contained` are files in the answer of each step.
    """
    plan = [
        Step.model_validate({"id": f"S{number}", "actor": "worker", "action": "Go.", **step})
        for number, step in enumerate(steps, start=1)
    ]
    accepted = RunAccepted(at=0, run="R", mode="as-planned", request="x", files=("a.md", "b.md"))
    events: list[Event] = [
        accepted,
        StepsPlanned(at=0, steps=tuple(plan)),
        PlanFinished(at=0, origin="planned", wanted=wanted),
    ]
    view = RunView.of(events)
    for name in view.graph.order:
        outputs = {output: f"{name}:{output}" for output in (*view.graph.steps[name].outputs, *contained)}
        view.apply(AttemptStarted(at=0, step=name, number=1, role="worker", persona=None, model="m", reason="first"))
        files = (touched or {}).get(name, {})
        reads, originals = files.get("reads", {}), files.get("originals", {})
        view.apply(AttemptSucceeded(at=0, step=name, number=1, outputs=outputs, reads=reads, originals=originals))
    view.apply(RunFinished(at=0, status="done"))
    return view


def names(view: RunView) -> list[str]:
    return [result.name for result in results(view)]


DRAFT = {"inputs": ["a.md"], "outputs": ["draft.md"]}
CHECKED = {"inputs": ["draft.md"], "outputs": ["check.md"]}
NEW = {"inputs": ["draft.md"], "outputs": ["a.md"]}


def test_results_are_what_no_other_step_reads() -> None:
    assert names(finished(DRAFT, CHECKED)) == ["check.md"]


def test_a_new_version_of_a_file_is_a_result_though_a_step_reads_it() -> None:
    view = finished(
        NEW | {"inputs": ["a.md"]},
        {"inputs": ["a.md"], "outputs": ["sum.md"]},
        touched={"S1": {"originals": {"a.md": "old"}}},
    )
    assert results(view) == (RunResult("sum.md", "S2:sum.md"), RunResult("a.md", "S1:a.md", "old"))


def test_only_what_is_wanted_is_a_result_in_the_order_of_the_request() -> None:
    view = finished(DRAFT, CHECKED, NEW, wanted=("a.md", "draft.md", "nothing.md"))
    assert names(view) == ["a.md", "draft.md"]
    answer = build_report(view, lambda digest: digest.encode()).answer
    assert answer == "[a.md]\nS3:a.md\n\n[draft.md]\nS1:draft.md"


def test_the_newest_version_is_the_result_and_the_first_original_its_original() -> None:
    touched = {"S1": {"originals": {"a.md": "old"}}, "S2": {"originals": {"a.md": "old"}}}
    edit = {"inputs": ["a.md"], "outputs": ["a.md"]}
    assert results(finished(edit, edit, touched=touched)) == (RunResult("a.md", "S2:a.md", "old"),)


def test_a_file_that_changed_while_steps_read_it_is_known_to_have_changed() -> None:
    for first, second in (("old", "edited"), ("old", NO_FILE), (NO_FILE, "new")):
        touched = {"S1": {"reads": {"a.md": first}}, "S2": {"originals": {"a.md": second}}}
        assert results(finished(DRAFT, NEW, touched=touched)) == (
            RunResult("a.md", "S2:a.md", second, has_changed=True),
        )
    same = {"S1": {"reads": {"a.md": "old"}}, "S2": {"originals": {"a.md": "old"}}}
    assert results(finished(DRAFT, NEW, touched=same)) == (RunResult("a.md", "S2:a.md", "old"),)


def test_names_that_look_the_same_are_one_file() -> None:
    touched = {"S1": {"reads": {"cafe\u0301.md": "old"}, "originals": {"caf\u00e9.md": "edited"}}}
    view = finished({"inputs": ["a.md"], "outputs": ["caf\u00e9.md"]}, touched=touched)
    assert results(view) == (RunResult("caf\u00e9.md", "S1:caf\u00e9.md", "edited", has_changed=True),)


def test_a_file_in_an_answer_is_a_result_and_is_not_shown_after_it() -> None:
    touched = {"S1": {"originals": {"a.md": "old"}}}
    for wanted in ((), ("s1.txt",)):
        view = finished({"outputs": ["s1.txt"]}, wanted=wanted, touched=touched, contained=("a.md",))
        assert results(view) == (RunResult("s1.txt", "S1:s1.txt"), RunResult("a.md", "S1:a.md", "old"))
        assert build_report(view, lambda digest: digest.encode()).answer == "S1:s1.txt"


def test_a_run_of_an_early_version_knows_no_originals() -> None:
    assert results(finished(NEW | {"inputs": []})) == (RunResult("a.md", "S1:a.md", None),)
