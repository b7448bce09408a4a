"""Parts of requests that measure what a model should read for a step."""

from collections import Counter

import pytest

from orchestrator.bench.real.contexts import KINDS, ContextKind, ContextTask, best_context, context_tasks
from orchestrator.bench.real.measure import ModelResults, Result, context_of
from orchestrator.registry.options import StepContext


def test_every_part_and_join_is_there_with_its_own_sources_and_with_all_files() -> None:
    counts = Counter(task.kind for task in context_tasks())
    assert counts == {"part-own": 12, "part-all": 12, "join-own": 6, "join-all": 6}
    read = {task.name: {one.name for one in task.reads} for task in context_tasks()}
    assert all(
        len(read[task.name]) == 1 and task.reads[0].name in task.ask
        for task in context_tasks()
        if task.kind == "part-own"
    )
    for task in context_tasks():
        if task.kind.endswith("-own"):
            assert read[task.name] < read[task.name.replace("-own:", "-all:")]


@pytest.mark.parametrize(
    "task", [task for task in context_tasks() if task.kind == "part-own"], ids=lambda task: task.ask
)
def test_a_right_answer_says_what_its_file_says_and_nothing_of_the_others(task: ContextTask) -> None:
    right = f"It is: {', '.join(phrase.split('|')[0].upper() for phrase in task.expect)}."
    assert task.is_right(right)
    assert not task.is_right("It is unknown.")
    assert not any(task.is_right(f"{right} {other}") for other in task.without)
    assert all(any(one in task.reads[0].text.casefold() for one in phrase.split("|")) for phrase in task.expect) or (
        task.ask.startswith("Classify")
    )


@pytest.mark.parametrize(
    ("right", "best"),
    [
        ({"part-own": 9, "part-all": 9, "join-own": 3, "join-all": 3}, "own"),
        ({"part-own": 9, "part-all": 7, "join-own": 3, "join-all": 4}, "sources"),
        ({"part-own": 9, "part-all": 10, "join-own": 3, "join-all": 3}, "shared"),
    ],
)
def test_the_context_with_the_most_right_answers_is_best(right: dict[ContextKind, int], best: StepContext) -> None:
    assert best_context(right) == best


def test_only_a_whole_measurement_says_what_steps_should_read() -> None:
    results = [Result(task.name, task.kind, task.kind != "join-own", "") for task in context_tasks()]
    assert context_of(ModelResults("m", "p", tuple(results), "", 1.0)) == "sources"
    assert context_of(ModelResults("m", "p", tuple(results[1:]), "", 1.0)) is None
    assert {kind for kinds in KINDS.values() for kind in kinds} == {task.kind for task in context_tasks()}
