"""What steps wait for, and why: rules by example, and against a run of every order the graph allows."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.analysis import Edge, Source, StepGraph, analyze, analyze_task
from orchestrator.task.taskir.fields import MAX_STEPS
from orchestrator.task.taskir.models import Step, TaskIR
from orchestrator.task.taskir.parse import task_from
from orchestrator.task.taskir.problems import InvalidTask


def plan(*steps: dict[str, Any]) -> list[Step]:
    """Steps S1, S2, … that write `s1`, `s2`, … unless they say otherwise."""
    return [
        Step.model_validate({"id": f"S{n}", "actor": "worker", "action": "Do it.", "outputs": [f"s{n}"], **step})
        for n, step in enumerate(steps, start=1)
    ]


def refusal(*steps: dict[str, Any], **context: Any) -> str:
    """Return the message with which a plan of these steps is refused."""
    with pytest.raises(InvalidTask) as caught:
        analyze(plan(*steps), **context)
    return str(caught.value)


def test_edges_come_from_dependencies_and_data_each_with_its_reason() -> None:
    graph = analyze(plan({}, {"inputs": ["s1"], "depends_on": ["S1"]}, {"depends_on": ["S2", "S2"], "foreach": "s1"}))
    assert graph.edges == (
        Edge("S1", "S2", "explicit", "s1"),
        Edge("S1", "S2", "data", "s1"),
        Edge("S2", "S3", "order only"),
        Edge("S1", "S3", "data", "s1"),
    )
    assert graph.before == {"S1": (), "S2": ("S1",), "S3": ("S1", "S2")}
    assert graph.after == {"S1": ("S2", "S3"), "S2": ("S3",), "S3": ()}
    assert graph.sources["S3"] == {"s1": Source("artifact", "S1")}


def test_a_step_that_overwrites_waits_for_the_writer_and_its_readers() -> None:
    writer, reader = {"outputs": ["a"]}, {"inputs": ["a"]}
    graph = analyze(plan(writer, reader, reader, {"outputs": ["a"]}, reader, {"inputs": ["a"], "outputs": ["a"]}))
    conflicts = [edge for edge in graph.edges if edge.reason.startswith("write")]
    assert conflicts == [
        Edge("S1", "S4", "write after write", "a"),
        Edge("S2", "S4", "write after read", "a"),
        Edge("S3", "S4", "write after read", "a"),
        Edge("S4", "S6", "write after write", "a"),
        Edge("S5", "S6", "write after read", "a"),
    ]
    assert graph.sources["S5"]["a"].step == "S4"
    assert graph.waves == (("S1",), ("S2", "S3"), ("S4",), ("S5",), ("S6",))
    assert graph.width == 2


def test_a_step_may_name_a_labelled_input_by_its_path() -> None:
    inputs = [{"type": "path", "value": "docs/a.txt", "label": "source"}]
    steps = [{"id": "S1", "actor": "w", "action": "Go.", "inputs": ["docs/a.txt"], "outputs": ["o"]}]
    task = task_from({"objective": "o", "inputs": inputs, "plan": {"steps": steps}})
    assert analyze_task(task).sources["S1"] == {"docs/a.txt": Source("input")}
    assert analyze_task(task, files=["docs/a.txt"]).sources["S1"] == {"docs/a.txt": Source("file")}
    steps[0]["outputs"] = ["docs/a.txt"]
    steps[0]["inputs"] = ["source"]
    assert analyze_task(task_from({"objective": "o", "inputs": inputs, "plan": {"steps": steps}}))


def task_of(steps: list[Step], **more: Any) -> TaskIR:
    written: dict[str, Any] = {"steps": [step.model_dump(mode="json", exclude_unset=True) for step in steps], **more}
    note = {"type": "text", "value": "A note.", "label": "note"}
    return task_from({"objective": "o", "inputs": [note], "plan": written})


def reads_in(plan_context: str | None, *step_contexts: str | None) -> list[tuple[str, ...]]:
    """Return what the steps of a plan read: two summaries, their comparison, a poem about it, and a list."""
    reads = [{"inputs": ["a.md"]}, {"inputs": ["note"]}, {"inputs": ["s1", "s2"]}, {"inputs": ["s3"]}]
    steps: list[dict[str, Any]] = [*reads, {"inputs": ["b.md"], "foreach": "s1"}]
    for step, context in zip(steps, step_contexts, strict=False):
        step |= {"context": context} if context else {}
    task = task_of(plan(*steps), **({"context": plan_context} if plan_context else {}))
    return [step.inputs for step in analyze_task(task, files=["a.md", "b.md", "c.md"]).steps.values()]


OWN = [("a.md",), ("note",), ("s1", "s2"), ("s3",), ("b.md",)]
SOURCES = [("a.md",), ("note",), ("a.md", "note", "s1", "s2"), ("a.md", "note", "s3"), ("a.md", "b.md")]
ALL = ("a.md", "note", "b.md")
SHARED = [ALL, ALL, (*ALL, "s1", "s2"), (*ALL, "s3"), ALL]


@pytest.mark.parametrize(
    ("plan_context", "reads"), [(None, OWN), ("own", OWN), ("sources", SOURCES), ("shared", SHARED)]
)
def test_steps_read_what_the_context_of_their_plan_adds(plan_context: str | None, reads: list[Any]) -> None:
    assert reads_in(plan_context) == reads


def test_the_context_of_a_step_replaces_that_of_the_plan() -> None:
    assert reads_in("sources", None, None, "own", "shared") == [*SOURCES[:2], OWN[2], SHARED[3], SOURCES[4]]
    assert reads_in(None, "shared") == [SHARED[0], *OWN[1:]]


def test_a_context_adds_no_order_between_steps() -> None:
    task = task_of(plan({"inputs": ["a.md"]}, {"inputs": ["b.md"]}), context="shared")
    assert analyze_task(task, files=["a.md", "b.md"]).edges == ()


def test_a_call_of_a_tool_reads_only_what_its_arguments_name() -> None:
    call = {"kind": "tool", "tools": ["read_file"], "arguments": {"name": {"$input": "s1"}}, "inputs": ["s1"]}
    task = task_of(plan({"inputs": ["a.md"]}, call), context="shared")
    assert analyze_task(task, files=["a.md"]).steps["S2"].inputs == ("s1",)


def test_a_read_is_the_latest_earlier_writer_else_a_label_else_a_file_else_the_only_later_writer() -> None:
    twice = [{"outputs": ["a"]}, {"outputs": ["a"]}, {"inputs": ["a"]}]
    assert analyze(plan(*twice), files=["a"]).sources["S3"] == {"a": Source("artifact", "S2")}
    later = analyze(plan({"inputs": ["s2", "note", "f"]}, {}), labels=["note"], files=["note", "f"])
    assert later.sources["S1"] == {"s2": Source("artifact", "S2"), "note": Source("input"), "f": Source("file")}
    assert later.order == ("S2", "S1")
    both = [{"inputs": ["a"]}, {"outputs": ["a"]}, {"outputs": ["a"]}]
    assert 'S1 cannot tell which "a" is meant: S2 and S3 both write it later' in refusal(*both)
    assert analyze(plan(*both), files=["a"]).sources["S1"] == {"a": Source("file")}
    assert 'only S1 itself writes "a"' in refusal({"inputs": ["a"], "outputs": ["a"]})


@pytest.mark.parametrize(
    ("original", "known"), [(Source("file"), {"files": ["a"]}), (Source("input"), {"labels": ["a"]})]
)
def test_an_output_with_the_name_of_an_original_is_a_new_version_for_the_steps_after_it(
    original: Source, known: dict[str, Any]
) -> None:
    reader, editor = {"inputs": ["a"]}, {"inputs": ["a"], "outputs": ["a"]}
    graph = analyze(plan(reader, editor, reader, editor, reader), **known)
    versions = {step: sources["a"] for step, sources in graph.sources.items()}
    first, second = Source("artifact", "S2"), Source("artifact", "S4")
    assert versions == {"S1": original, "S2": original, "S3": first, "S4": first, "S5": second}
    assert graph.waves == (("S1", "S2"), ("S3",), ("S4",), ("S5",))


def test_a_new_version_of_a_labelled_path_is_written_under_the_path_and_read_under_both_names() -> None:
    labelled: dict[str, Any] = {"labels": ["doc"], "paths": {"doc": "docs/a.md"}, "files": ["docs/a.md"]}
    graph = analyze(plan({"inputs": ["doc"], "outputs": ["docs/a.md"]}, {"inputs": ["doc", "docs/a.md"]}), **labelled)
    assert graph.sources["S1"] == {"doc": Source("input")}
    assert graph.sources["S2"] == {
        "doc": Source("artifact", "S1", "docs/a.md"),
        "docs/a.md": Source("artifact", "S1"),
    }
    assert '"docs/a.md" for a new version of it, or a name of its own' in refusal({"outputs": ["doc"]}, **labelled)


def test_names_that_look_the_same_are_versions_of_one_file() -> None:
    composed, decomposed = "caf\u00e9.md", "cafe\u0301.md"
    steps = plan({"inputs": [composed], "outputs": [composed]}, {"inputs": [decomposed]}, {"outputs": [decomposed]})
    graph = analyze(steps, files=[decomposed])
    assert graph.sources["S1"] == {composed: Source("file")}
    assert graph.sources["S2"] == {decomposed: Source("artifact", "S1", composed)}
    assert graph.before["S3"] == ("S1", "S2")


@pytest.mark.parametrize("acting", [{"kind": "tool"}, {"kind": "repl"}, {"tools": ["search"]}])
def test_discover_drops_what_carries_nothing_unless_a_step_acts(acting: dict[str, Any]) -> None:
    steps = plan({}, {"depends_on": ["S1"]}, {"depends_on": ["S2"], **acting}, {"depends_on": ["S3"]})
    graph = analyze(steps, mode="discover")
    assert [(edge.after, edge.reason, edge.dropped) for edge in graph.edges] == [
        ("S2", "order only", True),
        ("S3", "order only", False),
        ("S4", "order only", False),
    ]
    assert graph.before["S2"] == ()
    assert graph.after["S1"] == ()
    assert graph.waves == (("S1", "S2"), ("S3",), ("S4",))
    for mode in ("as-planned", "serial"):
        assert analyze(steps, mode=mode).waves == (("S1",), ("S2",), ("S3",), ("S4",))


def test_discover_keeps_dependencies_that_carry_data_and_conflicts() -> None:
    carrying = plan({}, {"inputs": ["s1"], "depends_on": ["S1"]}, {"outputs": ["s1"], "depends_on": ["S2"]})
    graph = analyze(carrying, mode="discover")
    assert graph.order == ("S1", "S2", "S3")
    assert graph.before["S3"] == ("S1", "S2")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"depends_on": ["S1"]}], "/plan/steps/0: these steps wait for each other: S1 → S1 (S1 depends on S1)"),
        (
            [{}, {"inputs": ["s4"]}, {"inputs": ["s2"]}, {"depends_on": ["S3"]}],
            '/plan/steps/1: these steps wait for each other: S2 → S3 → S4 → S2 (S3 reads "s2" of S2; S4 depends on S3; '
            'S2 reads "s4" of S4)',
        ),
        (
            [{"depends_on": ["S2"], "outputs": ["a"]}, {"outputs": ["a"]}],
            'S1 → S2 → S1 (S2 overwrites "a" of S1; S1 depends on S2)',
        ),
        (
            [{"outputs": ["a"]}, {"inputs": ["a"], "depends_on": ["S3"]}, {"outputs": ["a"]}],
            'S2 → S3 → S2 (S3 overwrites "a", which S2 reads; S2 depends on S3)',
        ),
        ([{"depends_on": ["S3"]}], "/plan/steps/0/depends_on/0: no step is called S3; accepted: S1"),
        (
            [{"inputs": ["s2"]}, {"outputs": ["s3"]}],
            '/plan/steps/0/inputs/0: no artifact, input or file is called "s2"',
        ),
        ([{"foreach": "nothing"}], '/plan/steps/0/foreach: no artifact, input or file is called "nothing"'),
        ([{}, {"id": "S1"}], "/plan/steps/1/id: S1 is the id of /plan/steps/0 too"),
        ([{"outputs": ["a", "a"]}], '/plan/steps/0/outputs/1: "a" is there twice in S1'),
        (
            [{"outputs": ["a/b"]}, {"outputs": ["a"]}],
            '/plan/steps/0/outputs/0: "a/b" needs a folder where S2 writes "a"',
        ),
        (
            [{"foreach": "file"}, {"outputs": ["s1[0]"]}],
            '/plan/steps/1/outputs/0: "s1[0]" is the name of an item of "s1"',
        ),
        ([{"outputs": ["é" * 130]}], "has a part of more than 240 bytes"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_with_the_steps_in_question(steps: list[Any], message: str) -> None:
    assert message in refusal(*steps, labels=["note"], files=["file"])


def test_every_problem_with_names_is_refused_at_once_with_the_nearest_name() -> None:
    message = refusal({"inputs": ["reprot.md"]}, {"depends_on": ["S9"]}, files=["report.md"])
    assert "accepted: 'report.md'?" in message
    assert "no step is called S9" in message


def test_a_cycle_is_refused_in_discover_even_where_it_would_fall_apart() -> None:
    assert "S1 → S2 → S1" in refusal({"depends_on": ["S2"]}, {"depends_on": ["S1"]}, mode="discover")


def test_each_of_several_cycles_is_in_the_message() -> None:
    message = refusal(
        {"depends_on": ["S2"]}, {"depends_on": ["S1"]}, {"depends_on": ["S1", "S4"]}, {"depends_on": ["S4"]}
    )
    assert "S1 → S2 → S1" in message
    assert "S4 → S4" in message
    assert message.count("wait for each other") == 2


def test_inputs_of_a_task_are_named_once() -> None:
    document = {
        "objective": "x",
        "inputs": [{"type": "text", "value": "x", "label": "a"}, {"type": "path", "value": "b"}],
        "plan": {"steps": [{"id": "S1", "actor": "w", "action": "a", "outputs": ["c"], "inputs": ["a", "b", "d"]}]},
    }
    graph = analyze_task(task_from(document), files=["d"])
    assert {name: source.kind for name, source in graph.sources["S1"].items()} == {
        "a": "input",
        "b": "input",
        "d": "file",
    }
    clash = {**document, "inputs": [{"type": "text", "value": "x", "label": "a"}, {"type": "path", "value": "a"}]}
    with pytest.raises(InvalidTask, match='/inputs/1: "a" is the name of /inputs/0 too'):
        analyze_task(task_from(clash))


NAMES = st.sampled_from("abcd")


@st.composite
def drawn_plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Mostly acyclic plans, with much overwriting. Reads may stand for later steps, and close a cycle now and then."""
    names = st.lists(NAMES, max_size=2, unique=True)
    found: list[dict[str, Any]] = []
    for earlier in range(draw(st.integers(2, 8))):
        step = {"inputs": draw(names), "outputs": draw(names)}
        if earlier and draw(st.booleans()):
            step["depends_on"] = [f"S{draw(st.integers(1, earlier))}"]
        found.append(step)
    return found


STEPS = drawn_plans()


def try_analyze(steps: Sequence[Step]) -> StepGraph | None:
    try:
        return analyze(steps, files="abcd")
    except InvalidTask:
        return None


@given(STEPS, st.none() | st.randoms(use_true_random=False))
def test_in_every_order_that_the_graph_allows_each_read_finds_its_writer(
    drawn: list[dict[str, Any]], chance: random.Random | None
) -> None:
    steps = plan(*drawn)
    graph = try_analyze(steps)
    if graph is None:
        return
    waiting = {step.id: set(graph.before[step.id]) for step in steps}
    written: dict[str, str] = {}
    while waiting:
        free = [identity for identity, others in waiting.items() if not others]
        # Without chance, as far from document order as can be.
        step = graph.steps[chance.choice(free) if chance else free[-1]]
        for name, source in graph.sources[step.id].items():
            assert source.kind == "file" or written[name] == source.step
        written.update(dict.fromkeys(step.outputs, step.id))
        del waiting[step.id]
        for others in waiting.values():
            others.discard(step.id)
    assert written == {name: step.id for step in steps for name in step.outputs}


@given(STEPS, st.randoms(use_true_random=False))
def test_every_schedule_makes_the_same_versions_as_the_steps_one_by_one_in_document_order(
    drawn: list[dict[str, Any]], chance: random.Random
) -> None:
    graph = try_analyze(plan(*drawn))
    if graph is None:
        return
    in_order = dict.fromkeys("abcd", "original")
    for step in graph.steps.values():
        in_order.update(dict.fromkeys(step.outputs, f"{step.id}({', '.join(in_order[name] for name in step.inputs)})"))
    made: dict[str, str] = {}
    shown: dict[str, str] = dict.fromkeys("abcd", "original")
    while len(made) < len(graph.steps):
        free = [name for name in graph.steps if name not in made and made.keys() >= {*graph.before[name]}]
        step = graph.steps[chance.choice(free)]
        sources = [graph.sources[step.id][name] for name in step.inputs]
        read = ["original" if source.step is None else made[source.step] for source in sources]
        made[step.id] = f"{step.id}({', '.join(read)})"
        shown.update(dict.fromkeys(step.outputs, made[step.id]))
    assert shown == in_order


@given(STEPS)
def test_order_waves_and_neighbours_follow_from_the_edges(drawn: list[dict[str, Any]]) -> None:
    graph = try_analyze(plan(*drawn))
    if graph is None:
        return
    kept = {(edge.before, edge.after) for edge in graph.edges if not edge.dropped}
    assert kept == {(first, after) for after, firsts in graph.before.items() for first in firsts}
    assert kept == {(before, last) for before, lasts in graph.after.items() for last in lasts}
    position = {identity: index for index, identity in enumerate(graph.order)}
    assert sorted(position) == sorted(graph.steps)
    assert all(position[first] < position[last] for first, last in kept)
    wave = {identity: index for index, wave in enumerate(graph.waves) for identity in wave}
    for identity in graph.steps:
        assert wave[identity] == max((wave[first] + 1 for first in graph.before[identity]), default=0)
    assert graph.width == max(map(len, graph.waves), default=0)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=10))
def test_a_plan_is_refused_if_and_only_if_it_has_a_cycle_and_the_cycle_of_the_message_is_one(
    pairs: list[tuple[int, int]],
) -> None:
    waits = {n: {before for before, after in pairs if after == n} for n in range(1, 7)}
    steps = plan(*[{"depends_on": [f"S{before}" for before in sorted(waits[n])]} for n in range(1, 7)])
    reach = {n: set(before) for n, before in waits.items()}
    for middle in reach:
        for n in reach:
            reach[n] |= reach[middle] if middle in reach[n] else set()
    cyclic = any(n in reach[n] for n in reach)
    try:
        analyze(steps)
    except InvalidTask as error:
        assert cyclic
        for problem in error.problems:
            path = problem.what.split(": ")[1].split(" (")[0].split(" → ")
            assert path[0] == path[-1]
            assert all(int(first[1:]) in waits[int(last[1:])] for first, last in pairwise(path))
    else:
        assert not cyclic


@given(STEPS, st.data())
def test_a_plan_that_grows_keeps_what_accepted_steps_wait_for(drawn: list[dict[str, Any]], data: st.DataObject) -> None:
    steps = plan(*[{key: value for key, value in step.items() if key != "depends_on"} for step in drawn])
    cut = data.draw(st.integers(0, len(steps)))
    first = try_analyze(steps[:cut])
    if first is None:
        return
    try:
        second = analyze(steps, files="abcd", earlier=first)
    except InvalidTask:
        return
    early = {step.id for step in steps[:cut]}
    assert [edge for edge in second.edges if edge.after in early] == list(first.edges)
    assert {identity: second.before[identity] for identity in early} == first.before


def test_growing_may_write_a_name_that_was_read_as_a_file() -> None:
    steps = plan({"inputs": ["a"]}, {"outputs": ["a"]})
    first = analyze(steps[:1], files=["a"])
    assert analyze(steps, files=["a"], earlier=first).edges == ()
    assert analyze(steps, files=["a"]).edges == ()


def test_no_steps_make_an_empty_graph() -> None:
    assert analyze([]) == StepGraph({}, (), {}, {}, (), (), 0, {})


# Work that is quadratic in the number of steps would take hours, and run into this timeout.
@pytest.mark.parametrize("count", [20_000, pytest.param(MAX_STEPS, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_plan_of_any_size_is_ordered(count: int) -> None:
    chain = [
        {"inputs": [f"s{n - 1}"] if n % 10 != 1 else [], "depends_on": ["S1"] if n > 1 else []} for n in range(1, count)
    ]
    steps = plan(*chain, {"inputs": [f"s{n}" for n in range(1, count)]})
    graph = analyze(steps)
    assert graph.order == tuple(f"S{n}" for n in range(1, count + 1))
    assert graph.before[f"S{count}"] == graph.order[:-1]


# Work that is quadratic in the number of steps would take hours for 20,000, and run into this timeout.
@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_great_cycle_and_as_many_dangling_names_are_refused(count: int) -> None:
    steps = plan(*[{"inputs": [f"s{n % count + 1}"]} for n in range(1, count + 1)])
    dangling = plan(*[{"inputs": [f"t{n}"]} for n in range(1, count + 1)])
    cycle = f"/plan/steps/0: these steps wait for each other: S1 → S{count} → S{count - 1}"
    with pytest.raises(InvalidTask, match=cycle):
        analyze(steps)
    with pytest.raises(InvalidTask) as caught:
        analyze(dangling)
    assert len(caught.value.problems) == 51
