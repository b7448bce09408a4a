import json
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.engine.contract import Finish
from orchestrator.run.steps.answer import AnswerShape
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.task.events import FailureKind, Usage
from orchestrator.task.taskir.models import Step

NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 1}


def step(*outputs: str, schema: dict[str, Any] | None = None) -> Step:
    return Step(id="S1", actor="worker", action="Go.", outputs=outputs, output_schema=schema)


def completion(text: str, finish: Finish = "stop") -> Completion:
    return Completion(text, finish, Usage(output_tokens=40))


def failure(shape: AnswerShape, text: str, finish: Finish = "stop") -> tuple[FailureKind, str]:
    with pytest.raises(AttemptError) as caught:
        shape.read(completion(text, finish))
    return caught.value.failure.kind, caught.value.failure.message


def test_text_is_the_artifact() -> None:
    shape = AnswerShape(step("a.md"))
    assert shape.schema is None
    assert shape.read(completion("\n# Hi\n  there \n")) == {"a.md": b"# Hi\n  there"}


CODE = "def one() -> int:\n    return 1"


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"```python\n{CODE}\n```",
        f"Here is the file:\n\n```python\n{CODE}\n```\n\nIt returns `1`.",
        f"Here is the file:\n```\n{CODE}\n",
        f"Of course!\n ```py\n{CODE}\n ```",
    ],
)
def test_code_is_taken_out_of_the_prose_around_its_only_fence(text: str) -> None:
    for name in ("one.py", "one.py[3]"):
        assert AnswerShape(step(name)).read(completion(text)) == {name: CODE.encode()}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("one.py", f'"""Say one.\n\n```\none()\n```\n"""\n{CODE}'),
        ("one.py", f"{CODE}\n\n\ndef two() -> int:\n    # ```\n    return 2"),
        ("guide.sh", "#!/bin/sh\ncat > guide.md <<END\n```\nls\n```\nEND"),
    ],
)
def test_a_fence_in_a_string_of_code_is_left_there(name: str, code: str) -> None:
    assert AnswerShape(step(name)).read(completion(code)) == {name: code.encode()}


def test_of_several_blocks_the_one_that_is_the_file_is_taken() -> None:
    example = f"The function:\n```python\n{CODE}\n```\nExample:\n```python\nprint(one())\nprint(one() + one())\n```"
    assert AnswerShape(step("one.py")).read(completion(example)) == {"one.py": CODE.encode()}


def test_prose_stays_where_it_may_be_what_is_wanted() -> None:
    explained = f"Do it so:\n```\n{CODE}\n```\nThat is all."
    for name in ("guide.md", "answer", "s1.txt"):
        assert AnswerShape(step(name)).read(completion(explained)) == {name: explained.encode()}


def test_several_outputs_may_be_blocks_under_their_names() -> None:
    answer = f"Here they are.\n\n**one.py**\n```python\n{CODE}\n```\n\n**b.json**\n```json\n[1]\n```\n"
    shape = AnswerShape(step("one.py", "b.json", schema=None))
    assert shape.read(completion(answer)) == {"one.py": CODE.encode(), "b.json": b"[1]"}
    fenced = json.dumps({"one.py": f"```python\n{CODE}\n```", "b.json": [1]})
    assert shape.read(completion(fenced)) == {"one.py": CODE.encode(), "b.json": b"[1]"}
    assert failure(shape, "**one.py**\n```python\npass\n```")[0] is FailureKind.SCHEMA


@pytest.mark.parametrize("text", ["", "  \n", "```\n```"])
def test_empty_answer_is_a_matter_of_format(text: str) -> None:
    for shape in (AnswerShape(step("a.txt")), AnswerShape(step("a.json"))):
        assert failure(shape, text) == (FailureKind.FORMAT, "the answer is empty")


def test_name_that_ends_in_json_asks_for_json() -> None:
    shape = AnswerShape(step("a.json"))
    assert shape.schema == {}
    assert shape.read(completion('```json\n{"n": [1]}\n```')) == {"a.json": b'{"n": [1]}'}
    kind, message = failure(shape, '{"n": [1]')
    assert kind is FailureKind.SCHEMA
    assert "not JSON" in message


def test_schema_is_given_to_the_engine_and_checked_afterwards() -> None:
    shape = AnswerShape(step("a", schema=NUMBERS))
    assert shape.schema == NUMBERS
    assert shape.read(completion("[1, 2]")) == {"a": b"[1, 2]"}
    assert failure(shape, '[1, "2"]') == (
        FailureKind.SCHEMA,
        "the answer does not match: /1: '2' is not of type 'integer'",
    )


def test_several_outputs_are_keys_of_one_object() -> None:
    shape = AnswerShape(step("a.md", "b.json"))
    assert shape.schema is not None
    assert schema_grammar(shape.schema)
    answer = json.dumps({"a.md": "# Ü", "b.json": {"n": [1]}})
    assert shape.read(completion(answer)) == {"a.md": "# Ü".encode(), "b.json": b'{"n":[1]}'}
    assert failure(shape, '{"a.md": "x"}')[1] == "the answer does not match: /: 'b.json' is a required property"
    assert (
        failure(shape, '{"a.md": 7, "b.json": 7}')[1] == "the answer does not match: /a.md: 7 is not of type 'string'"
    )


def test_schema_holds_for_each_of_several_outputs() -> None:
    shape = AnswerShape(step("a", "b", schema=NUMBERS))
    assert shape.schema is not None
    assert shape.schema["properties"] == {"a": NUMBERS, "b": NUMBERS}
    assert shape.read(completion('{"a": [1], "b": [2]}')) == {"a": b"[1]", "b": b"[2]"}
    assert failure(shape, '{"a": [1], "b": []}')[1].startswith("the answer does not match: in b: /: [] ")


def test_references_inside_a_schema_survive_several_outputs() -> None:
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}
    shape = AnswerShape(step("a", "b", schema=schema))
    assert shape.schema is not None
    assert schema_grammar(shape.schema)
    assert shape.read(completion('{"a": 1, "b": 2}')) == {"a": b"1", "b": b"2"}
    assert failure(shape, '{"a": 1, "b": "2"}')[1] == "the answer does not match: in b: /: '2' is not of type 'integer'"


@pytest.mark.parametrize(
    ("finish", "text_kind", "json_kind"),
    [
        ("length", FailureKind.FORMAT, FailureKind.SCHEMA),
        ("repetition", FailureKind.LOGIC, FailureKind.SCHEMA),
        ("deadline", FailureKind.TIMEOUT, FailureKind.TIMEOUT),
        ("cancelled", FailureKind.INFRASTRUCTURE, FailureKind.INFRASTRUCTURE),
    ],
)
def test_answer_that_did_not_end_by_itself_is_no_answer(
    finish: Finish, text_kind: FailureKind, json_kind: FailureKind
) -> None:
    assert failure(AnswerShape(step("a.txt")), "[1]", finish)[0] is text_kind
    assert failure(AnswerShape(step("a.json")), "[1]", finish)[0] is json_kind


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "#/$defs/none"}])
def test_schema_that_is_of_no_use_fails_for_good(schema: dict[str, Any]) -> None:
    with pytest.raises(AttemptError, match="output_schema cannot be used") as caught:
        AnswerShape(step("a", schema=schema)).read(completion("1"))
    assert caught.value.failure.final
