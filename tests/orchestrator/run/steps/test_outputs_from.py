from typing import Any

import pytest

from orchestrator.run.steps.answer import outputs_from
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.task.events import FailureKind
from orchestrator.task.taskir.models import Step

NUMBER = {"output_schema": {"type": "integer"}}


def step(*outputs: str, **more: Any) -> Step:
    return Step(id="S1", actor="worker", action="Go.", outputs=outputs, **more)


@pytest.mark.parametrize(
    ("made", "value", "written", "expected"),
    [
        (step("a.txt"), "text\n", {}, {"a.txt": b"text\n"}),
        (step("a.txt"), {"x": [1]}, {}, {"a.txt": b'{"x":[1]}'}),
        (step("a.json"), '{"x": 1}', {}, {"a.json": b'{"x": 1}'}),
        (step("a", output_schema={"type": "string"}), "three", {}, {"a": b'"three"'}),
        (step("a", **NUMBER), 3, {}, {"a": b"3"}),
        (step("a", **NUMBER), "3", {}, {"a": b"3"}),
        (step("a", "b.json"), {"a": "x", "b.json": [1], "more": 0}, {}, {"a": b"x", "b.json": b"[1]"}),
        (step("a", "b"), {"a": "x"}, {"b": "y"}, {"a": b"x", "b": b"y"}),
        (step("a"), "told to people", {"a": "written"}, {"a": b"written"}),
        (step("a"), None, {"a": ""}, {"a": b""}),
        (step("a.py"), None, {"a.py": "TEXT = '\n'"}, {"a.py": b"TEXT = '\\n'"}),
        (step("a.txt"), None, {"a.txt": "TEXT = '\n'"}, {"a.txt": b"TEXT = '\n'"}),
        (step(), None, {}, {}),
    ],
)
def test_what_becomes_the_artifacts(
    made: Step, value: Any, written: dict[str, str], expected: dict[str, bytes]
) -> None:
    assert outputs_from(made, value, written) == expected


@pytest.mark.parametrize(
    ("made", "value", "written", "why"),
    [
        (step("a"), None, {}, "there is no value for a"),
        (step("a", "b"), {"a": "x"}, {}, "an object with a, b"),
        (step("a", "b"), "x", {"b": "y"}, "an object with a"),
        (step("a", **NUMBER), "three", {}, "a: /: 'three' is not of type 'integer'"),
        (step("a.json"), "no JSON", {}, "a.json: "),
        (step("a.json"), None, {"a.json": "{"}, "a.json: "),
    ],
)
def test_what_does_not_fit_says_why(made: Step, value: Any, written: dict[str, str], why: str) -> None:
    with pytest.raises(AttemptError) as caught:
        outputs_from(made, value, written)
    assert why in caught.value.failure.evidence
    assert caught.value.failure.kind is FailureKind.SCHEMA


def test_a_schema_that_is_none_is_final() -> None:
    with pytest.raises(AttemptError) as caught:
        outputs_from(step("a", output_schema={"type": "nonsense"}), 1, {})
    assert caught.value.failure.final
