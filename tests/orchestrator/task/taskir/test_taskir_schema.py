"""The published schema and the parser agree, and nothing but InvalidTask ever comes of a wrong document."""

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.run.steps.foreach import MAX_CHILDREN
from orchestrator.task.taskir.check import Capabilities, check_task
from orchestrator.task.taskir.models import UNUSED, TaskIR
from orchestrator.task.taskir.parse import dump_task, json_schema, parse_task, task_from
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.task.taskir.schema_documents import ANYTHING, documents

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
DOCUMENTS = documents(SCHEMA)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
NONE: frozenset[str] = frozenset()
NOTHING = Capabilities(NONE, NONE, NONE, NONE, NONE, NONE)


def test_the_schema_is_a_json_schema_and_limits_every_text_list_and_object() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [path for path, node in nodes(SCHEMA) if is_unlimited(node)] == []


def nodes(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], dict[str, Any]]]:
    if isinstance(node, list):
        return [found for index, one in enumerate(node) for found in nodes(one, (*path, index))]
    if not isinstance(node, dict):
        return []
    return [(path, node)] + [found for key, one in node.items() for found in nodes(one, (*path, key))]


def is_unlimited(node: dict[str, Any]) -> bool:
    kind = node.get("type")
    if kind == "string":
        return "maxLength" not in node and "enum" not in node
    if kind == "array":
        return "maxItems" not in node
    return kind == "object" and node.get("additionalProperties") is not False and "maxProperties" not in node


@settings(max_examples=25, suppress_health_check=SLOW, deadline=None)
@given(DOCUMENTS)
def test_every_document_of_the_schema_loads_and_dumps_to_the_same_document(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)
    text = json.dumps(document)
    task = parse_task(text)
    assert same(dump_task(task), json.loads(text))
    assert task_from(document) == task
    assert parse_task(json.dumps(document, ensure_ascii=False).encode()) == task
    check_task(task, NOTHING)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type all the way down: 1, 1.0 and true are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


BAD_LEAVES: st.SearchStrategy[object] = st.sampled_from(
    [
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        -(2**70),
        "\ud800",
        "\x00",
        "",
        None,
        True,
        1.0,
        0,
        [],
        {},
        [[]],
        "x" * 300,
    ]
)


@settings(max_examples=30, suppress_health_check=SLOW, deadline=None)
@given(DOCUMENTS, st.data())
def test_a_document_with_a_value_or_key_changed_is_accepted_as_it_is_or_refused(
    document: dict[str, Any], data: st.DataObject
) -> None:
    changed = copy.deepcopy(document)
    holders = [node for node in walk(changed) if node]
    holder = data.draw(st.sampled_from(holders))
    key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))))
    change = data.draw(st.sampled_from(["replace", "remove", "rename", "duplicate"]))
    if change == "remove":
        del holder[key]
    elif change == "rename" and isinstance(holder, dict):
        holder[data.draw(st.text(max_size=5) | st.just(key + "x") | st.just("\udfff"))] = holder.pop(key)
    elif change == "duplicate" and isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[key] = data.draw(BAD_LEAVES | ANYTHING)
    accepted_as_it_is_or_refused(changed)


def accepted_as_it_is_or_refused(document: Any) -> None:
    """The parser and the schema agree, but for values that the schema's validator lets through and JSON does not."""
    outcome = parsed(json.dumps(document))
    if isinstance(outcome, TaskIR):
        assert same(dump_task(outcome), document)
        assert VALIDATOR.is_valid(document)
    else:
        assert all(problem.where.startswith("/") and problem.what for problem in outcome.problems)
        assert any(map(is_odd, leaves(document))) or not VALIDATOR.is_valid(document)


def parsed(raw: str | bytes) -> TaskIR | InvalidTask:
    try:
        return parse_task(raw)
    except InvalidTask as error:
        return error


def is_odd(leaf: object) -> bool:
    if isinstance(leaf, str):
        return any(0xD800 <= ord(character) < 0xE000 for character in leaf) or leaf.endswith("\n")
    if isinstance(leaf, float):
        return not math.isfinite(leaf) or leaf.is_integer()
    return isinstance(leaf, int) and abs(leaf) >= 10**300


def leaves(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return [*node, *(leaf for one in node.values() for leaf in leaves(one))]
    return [leaf for one in node for leaf in leaves(one)] if isinstance(node, list) else [node]


def walk(node: Any) -> list[Any]:
    inner = node.values() if isinstance(node, dict) else node
    return [node, *(found for one in inner if isinstance(one, dict | list) for found in walk(one))]


@settings(suppress_health_check=SLOW)
@given(DOCUMENTS, st.data())
def test_damaged_bytes_are_a_document_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(json.dumps(document, ensure_ascii=False).encode())
    start = data.draw(st.integers(0, len(raw) - 1))
    end = data.draw(st.integers(start, min(len(raw), start + 20)))
    raw[start:end] = data.draw(st.binary(max_size=8) | st.sampled_from([b"{", b'"', b"NaN", b"\\ud800", b"[" * 2000]))
    outcome = parsed(bytes(raw))
    if isinstance(outcome, TaskIR):
        assert same(dump_task(outcome), json.loads(raw))
    else:
        assert all(problem.what for problem in outcome.problems)


@pytest.mark.parametrize("text", ["null", "3", '"x"', "[]", "{}", "", " ", "[1, 2]"])
def test_any_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidTask):
        parse_task(text)


@given(ANYTHING | st.binary() | st.sets(st.integers()) | st.tuples(st.text()))
def test_task_from_refuses_what_is_no_document(data: object) -> None:
    with pytest.raises(InvalidTask):
        task_from(data)


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ("TaskIR", ["task_type", "constraints", "assumptions", "definition_of_done", "formalization"]),
        ("Step", ["parallel_group"]),
        ("TaskInput", ["content_type"]),
        ("Context", ["conversation_id", "relevant_files"]),
    ],
)
def test_the_schema_says_which_fields_change_nothing(record: str, fields: list[str]) -> None:
    properties = (SCHEMA if record == "TaskIR" else SCHEMA["$defs"][record])["properties"]
    assert all(UNUSED in properties[field]["description"] for field in fields)


def test_the_schema_says_how_many_items_a_step_may_run_over() -> None:
    assert f"at most {MAX_CHILDREN:,}" in SCHEMA["$defs"]["Step"]["properties"]["foreach"]["description"]


def test_the_schema_names_the_fields_of_the_model() -> None:
    assert set(SCHEMA["properties"]) == set(TaskIR.model_fields)
    assert SCHEMA["required"] == ["objective", "plan"]
    assert SCHEMA["$defs"]["Plan"]["required"] == ["steps"]
    assert SCHEMA["$defs"]["Step"]["required"] == ["id", "actor", "action", "outputs"]
