import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.foreach import Items
from orchestrator.run.steps.inputs import RunInputs
from orchestrator.run.steps.role import StepInput
from orchestrator.task.analysis import Source, analyze
from orchestrator.task.events import FailureKind, InputSize
from orchestrator.task.taskir.models import Step, TaskInput


def step(number: int, *inputs: str, **more: Any) -> Step:
    return Step(id=f"S{number}", actor="worker", action="Go.", outputs=(f"o{number}",), inputs=inputs, **more)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "a.txt").write_text("of a")
    return folder


def test_each_name_is_read_from_where_it_stands_for(objects: ObjectStore, folder: Path) -> None:
    inputs = {"note": TaskInput(type="text", value="of the note"), "doc": TaskInput(type="path", value="a.txt")}
    run = RunInputs(inputs, folder, objects.get)
    steps = [step(1), step(2, "o1", "note", "doc", "a.txt")]
    graph = analyze(steps, labels=inputs, files=["a.txt"], mode="as-planned")
    run.produced("S1", {"o1": objects.put(b"of S1")})
    assert run.read(steps[1], graph.sources["S2"]) == (
        StepInput("o1", "of S1"),
        StepInput("note", "of the note"),
        StepInput("doc", "of a"),
        StepInput("a.txt", "of a"),
    )


def test_sizes_are_known_before_anything_is_read(objects: ObjectStore, folder: Path) -> None:
    inputs = {"note": TaskInput(type="text", value="of the nöte"), "doc": TaskInput(type="path", value="a.txt")}
    old = objects.put(b"of an earlier run")
    run = RunInputs(inputs, folder, objects.get, {"prior": old}, lambda digest: None, objects.size)
    steps = [step(1), step(2, "o1", "note", "doc", "a.txt", "prior", "lost.txt")]
    graph = analyze(steps, labels=inputs, files=["a.txt", "prior", "lost.txt"], mode="as-planned")
    run.produced("S1", {"o1": objects.put(b"of S1")})
    assert run.sizes(steps[1], graph.sources["S2"]) == (
        InputSize("o1", 5),
        InputSize("note", 12),
        InputSize("doc", 4),
        InputSize("a.txt", 4),
        InputSize("prior", 17),
        InputSize("lost.txt", None),
    )


def test_the_size_of_a_child_s_item_is_its_own(objects: ObjectStore, folder: Path) -> None:
    run = RunInputs({}, folder, objects.get)
    fan = step(2, "a.txt", foreach="o1")
    graph = analyze([step(1), fan], files=["a.txt"], mode="as-planned")
    run.produced("S1", {"o1": objects.put(b'["one", "three"]')})
    sizes = run.sizes(fan, graph.sources["S2"], 1)
    assert sizes == (InputSize("a.txt", 4), InputSize("o1[1]", 5))


def test_what_several_steps_read_comes_first(objects: ObjectStore, folder: Path) -> None:
    (folder / "b.txt").write_text("of b")
    run = RunInputs({}, folder, objects.get)
    steps = [step(1, "a.txt", "b.txt"), step(2, "b.txt")]
    graph = analyze(steps, files=["a.txt", "b.txt"], mode="as-planned")
    run.planned(steps[:1])
    assert [found.name for found in run.read(steps[0], graph.sources["S1"])] == ["a.txt", "b.txt"]
    run.planned(steps[1:])
    assert [found.name for found in run.read(steps[0], graph.sources["S1"])] == ["b.txt", "a.txt"]


def test_child_reads_its_item_in_the_place_of_the_list(objects: ObjectStore, folder: Path) -> None:
    run = RunInputs({}, folder, objects.get)
    fan = step(2, "o1", "a.txt", foreach="o1")
    graph = analyze([step(1), fan], files=["a.txt"], mode="as-planned")
    run.produced("S1", {"o1": objects.put(json.dumps(["Brim", {"n": [1, "ü"]}, 7]).encode())})
    assert run.items(fan, graph.sources["S2"]).texts == ("Brim", '{"n":[1,"ü"]}', "7")
    child = fan.model_copy(update={"id": "S2[1]", "outputs": ("o2[1]",)})
    read = run.read(child, graph.sources["S2"], item=1)
    assert read == (StepInput("a.txt", "of a"), StepInput("o1[1]", '{"n":[1,"ü"]}'))


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("- a\n- b", ("a", "b")),
        ("The cities:\n\n1. Rome\n   by the sea\n2) Oslo \n", ("Rome\nby the sea", "Oslo")),
        ("* only", ("only",)),
    ],
)
def test_a_bulleted_or_numbered_text_is_a_list(objects: ObjectStore, text: str, items: tuple[str, ...]) -> None:
    run = RunInputs({}, None, objects.get)
    run.produced("S1", {"o1": objects.put(text.encode())})
    assert run.items(step(2, foreach="o1"), {"o1": Source("artifact", "S1")}) == Items(items, "text")


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Rome\nOslo\n\nLima\n", ("Rome", "Oslo", "Lima")),
        ("The cities are:\nRome\nOslo", ("Rome", "Oslo")),
        ("Rome, Oslo, New Delhi.", ("Rome", "Oslo", "New Delhi")),
        ("A.\nB.\n- a", ("A.", "B.", "- a")),
        ('{"cities": ["Rome", {"name": "Oslo"}]}', ("Rome", '{"name":"Oslo"}')),
        (" \n", ()),
    ],
)
def test_a_text_that_is_no_json_is_read_as_the_list_that_it_may_be(
    objects: ObjectStore, text: str, items: tuple[str, ...]
) -> None:
    run = RunInputs({}, None, objects.get)
    run.produced("S1", {"o1": objects.put(text.encode())})
    assert run.items(step(2, foreach="o1"), {"o1": Source("artifact", "S1")}) == Items(items, "text")


def test_items_follow_a_list_that_is_written_again(objects: ObjectStore) -> None:
    run = RunInputs({}, None, objects.get)
    fan = step(2, foreach="o1")
    sources = {"o1": Source("artifact", "S1")}
    for items in (["a"], ["b", "c"]):
        run.produced("S1", {"o1": objects.put(json.dumps(items).encode())})
        assert run.items(fan, sources) == Items(tuple(items), "json")


@pytest.mark.parametrize(
    "text",
    [
        "a and b",
        "# Report\n\nIt rained.\n\nThen it stopped.",
        "| city | country |\n|---|---|\n| Rome | Italy |",
        "Brim: owner Renzer, length 214, speed 38.",
        "We met in Rome, which is old, and left for the north.",
        f"{'long ' * 50}\n{'text ' * 49}text",
        '["a", "b"',
        '{"a": 1}',
        '{"a": [1], "b": [2]}',
        "7.5",
    ],
)
def test_a_text_that_is_no_list_is_one_item(objects: ObjectStore, text: str) -> None:
    run = RunInputs({}, None, objects.get)
    run.produced("S1", {"o1": objects.put(text.encode())})
    fan, sources = step(2, foreach="o1"), {"o1": Source("artifact", "S1")}
    assert run.items(fan, sources) == Items((text,), "whole")
    run.listed(fan, sources, ("a", "b"))
    assert run.items(fan, sources) == Items(("a", "b"), "asked"), "until it was asked for again"
    child = fan.model_copy(update={"id": "S2[1]", "outputs": ("o2[1]",)})
    assert run.read(child, sources, item=1) == (StepInput("o1[1]", "b"),)


def test_file_that_cannot_be_read_fails_for_good(objects: ObjectStore, folder: Path) -> None:
    (folder / "link").symlink_to("a.txt")
    with pytest.raises(AttemptError, match="file 'link' is a link") as caught:
        RunInputs({}, folder, objects.get).read(step(1, "link"), {"link": Source("file")})
    assert caught.value.failure.final
    with pytest.raises(AttemptError, match="no --dir was given"):
        RunInputs({}, None, objects.get).read(step(1, "a.txt"), {"a.txt": Source("file")})


def test_input_of_a_type_that_nobody_reads(objects: ObjectStore) -> None:
    run = RunInputs({"page": TaskInput(type="url", value="http://localhost/")}, None, objects.get)
    with pytest.raises(AttemptError, match="input 'page' is of type url"):
        run.read(step(1, "page"), {"page": Source("input")})


def test_lost_object_is_a_failure_that_names_it(objects: ObjectStore) -> None:
    run = RunInputs({}, None, objects.get)
    run.produced("S1", {"o1": "0" * 64})
    with pytest.raises(AttemptError, match="is missing") as caught:
        run.read(step(2, "o1"), {"o1": Source("artifact", "S1")})
    assert caught.value.failure.kind is FailureKind.INFRASTRUCTURE
