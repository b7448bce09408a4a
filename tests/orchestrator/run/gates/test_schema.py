import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from orchestrator.run.gates.contract import Artifact, GateContext
from orchestrator.run.gates.pipeline import run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.task.events import GateResult
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch, schema_mismatch

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
META = Draft202012Validator.META_SCHEMA["$id"]
HARD = r"^(\w+\s?)*$"
TEXT = "a" * 200_000 + "!"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


async def look(name: str, data: bytes, schema: dict[str, Any] | None = None) -> GateResult:
    """Return what the gate says of one output."""
    made = Step(id="S1", actor="worker", action="Go.", outputs=(name,), output_schema=schema)
    return (await run_gates(["schema"], [Artifact(name, data)], GateContext(Scope(made)))).results[0]


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ('{"name": "Brim", "age": -4}', "/age: -4 is less than the minimum of 0"),
        ('{"name": "Brim"}', "/: 'age' is a required property"),
        ('{"name": "Brim", "age": 4', "line 1, column 26: the document is not JSON"),
        ('{"name": "Brim", "age": NaN}', "/age: NaN is not JSON"),
        ('{"name": "Brim", "name": "B", "age": 1}', '/: the key "name" is there twice'),
        ('{"name": "\\ud800", "age": 1}', "/name: the text"),
        ("[" * 100_000, "nested too deep"),
        ("9" * 5000, "a number of 5000 digits"),
        ("", "the document is not JSON"),
    ],
)
def test_evidence_says_where_and_why(text: str, evidence: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        OutputSchema(PERSON).read(text)
    assert evidence in caught.value.evidence


@given(value=JSON)
def test_without_a_schema_any_json_is_read_as_it_is(value: object) -> None:
    assert OutputSchema(None).read(json.dumps(value)) == value


def test_evidence_stays_short_whatever_the_answer_is() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        OutputSchema({"type": "object"}).read(json.dumps(["x" * 1000] * 1000))
    assert len(caught.value.evidence) < 400
    assert "is not of type 'object'" in caught.value.evidence


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": 3},
        {"minLength": -1},
        *({"$schema": odd} for odd in (5, [1], None, "http://[")),
    ],
)
def test_what_is_no_schema_is_refused_at_once(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema, match="not a JSON Schema: at /"):
        OutputSchema(schema)


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://localhost:1/theirs.json"}, {"$ref": "#/$defs/none"}, {"$id": "http://[", "not": {"$ref": "b"}}],
)
def test_references_are_never_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema, match="not in it"):
        OutputSchema(schema).read("1")


def test_schema_that_refers_to_itself_for_ever_is_reported() -> None:
    with pytest.raises(BadSchema, match="without end"):
        OutputSchema({"$ref": "#"}).read("1")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": HARD}, TEXT),
        ({"propertyNames": {"pattern": HARD}}, {TEXT: 1}),
        ({"patternProperties": {HARD: True, "a": False}}, {TEXT: 1}),
        ({"patternProperties": {HARD: True}, "additionalProperties": False}, {TEXT: 1}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"pattern": HARD}}, [TEXT]),
        ({"$schema": META, "items": {"$ref": "#"}, "pattern": HARD}, [TEXT]),
    ],
)
def test_a_pattern_takes_time_by_the_length_of_the_text(schema: dict[str, Any], value: object) -> None:
    with pytest.raises(SchemaMismatch):
        OutputSchema(schema).check(value)


@pytest.mark.parametrize(
    ("schema", "good", "bad", "evidence"),
    [
        ({"pattern": "b"}, "abc", "ac", "/: 'ac' does not match 'b'"),
        ({"pattern": "^a$"}, "a", "a\n", "/: 'a\\n' does not match '^a$'"),
        ({"pattern": "a"}, 1, "", "/: '' does not match 'a'"),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x": 1, "y": ""}, {"x1": ""}, "/x1: '' is not of type"),
        (
            {"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False},
            {"a": 1, "x1": 1},
            {"a": 1, "y": 1},
            "/: Additional properties are not allowed ('y' was unexpected)",
        ),
        (
            {"patternProperties": {"a": {}}, "additionalProperties": {"type": "null"}},
            {"a": 1, "b": None},
            {"b": 1},
            "/b",
        ),
        (
            {"properties": {"pattern": {"type": "string"}, "$schema": {"pattern": "^h"}}},
            {"pattern": "("},
            {"$schema": "x"},
            "/$schema",
        ),
    ],
)
def test_patterns_are_searched_for_and_name_properties(
    schema: dict[str, Any], good: object, bad: object, evidence: str
) -> None:
    OutputSchema(schema).check(good)
    with pytest.raises(SchemaMismatch) as caught:
        OutputSchema(schema).check(bad)
    assert caught.value.evidence.startswith(evidence)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"pattern": "(?=a)b("}, "'(?=a)b(' is no regular expression: a group without its end"),
        ({"items": {"pattern": "[a"}}, "'[a' is no regular expression: a class without its end"),
        ({"patternProperties": {"*a": {}}}, "'*a' is no regular expression: * has nothing to repeat"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "cannot have unevaluatedProperties"),
        ({"items": {"$schema": META, "pattern": "a"}}, "cannot have $schema"),
        ({"$dynamicAnchor": "meta", "pattern": "a"}, "cannot have $dynamicAnchor"),
    ],
)
def test_patterns_that_are_none_or_not_ours_to_match_are_refused_at_once(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(BadSchema) as caught:
        OutputSchema(schema)
    assert told in str(caught.value)


def doubling(keyword: str, **first: Any) -> dict[str, Any]:
    """Return a schema of a few lines, each of whose 40 definitions names the one before it twice."""
    definitions: dict[str, Any] = {"d0": first or {"type": "integer"}}
    for number in range(1, 40):
        definitions[f"d{number}"] = {keyword: [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    return {"$defs": definitions, "$ref": "#/$defs/d39"}


def tower(leaf: object, depth: int = 20) -> object:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling("allOf"), 1),
        (doubling("anyOf"), "x"),
        pytest.param(doubling("oneOf"), 1, marks=pytest.mark.slow),
        pytest.param(doubling("anyOf", **{"$schema": META, "type": "integer"}), "x", marks=pytest.mark.slow),
        ({**doubling("anyOf"), "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/$defs/d39"}, "x"),
        ({"$defs": doubling("anyOf")["$defs"], "items": {"$schema": META, "$ref": "#/$defs/d39"}}, ["x"]),
        (doubling("anyOf", anyOf=[False, False]), "x" * 100_000),
        ({"anyOf": [{"items": {"$ref": "#"}, "type": "array"}] * 2}, tower("x")),
        ({**doubling("allOf", properties={"a": {}}), "unevaluatedProperties": False}, {"a": 1}),
    ],
)
def test_a_small_schema_that_takes_without_end_to_check_is_refused(schema: dict[str, Any], value: object) -> None:
    made = OutputSchema(schema)
    with pytest.raises(BadSchema, match="takes more than 50000 steps to check a value"):
        made.check(value)
    OutputSchema({"type": "string"}).check("the next check has its own steps")


def test_a_large_value_may_take_as_many_steps_as_it_has_parts() -> None:
    person = {"name": "Brim", "age": 4}
    OutputSchema({"type": "array", "items": PERSON}).check([person] * 10_000)


@given(value=st.lists(JSON, max_size=6))
def test_equal_items_are_found_as_the_standard_has_it(value: list[Any]) -> None:
    schema = {"uniqueItems": True}
    theirs = Draft202012Validator(schema)
    for one in (value, value * 2, [1, 1.0], [1, True], [[0], [False]], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]):
        assert not OutputSchema(schema).mismatches(one) == theirs.is_valid(one)


@given(value=JSON, wanted=st.lists(JSON, min_size=1, max_size=3))
def test_values_are_enumerated_as_the_standard_has_it(value: Any, wanted: list[Any]) -> None:
    for schema in (
        {"enum": wanted},
        {"const": wanted[0]},
        {"anyOf": [False, {"enum": wanted}]},
        {"oneOf": [False, True]},
    ):
        theirs = Draft202012Validator(schema)
        for one in (value, False, 0, *wanted):
            assert not OutputSchema(schema).mismatches(one) == theirs.is_valid(one)


def test_many_objects_are_compared_in_time() -> None:
    OutputSchema({"uniqueItems": True}).check([{"number": number} for number in range(50_000)])


KEYWORDS = sorted(
    {*Draft202012Validator.VALIDATORS, "$id", "$schema", "$anchor", "$comment", "$defs", "title", "format"}
)
SCHEMAS = st.recursive(
    JSON, lambda inner: st.dictionaries(st.sampled_from(KEYWORDS), inner | st.lists(inner, max_size=2), max_size=4)
)


@given(schema=SCHEMAS)
def test_schemas_are_checked_as_the_standard_has_it(schema: object) -> None:
    wanted: tuple[str | int, ...] | None = None
    try:
        Draft202012Validator.check_schema(schema)  # type: ignore[arg-type]
    except SchemaError as error:
        wanted = tuple(error.absolute_path)
    found = schema_mismatch(schema)
    assert (None if found is None else found.path) == wanted


async def test_gate_passes_what_matches() -> None:
    assert (await look("a", b'{"name": "Brim", "age": 4}', PERSON)).passed


@pytest.mark.parametrize(
    ("data", "evidence"),
    [(b"{}", "a: /: 'name' is a required property"), (b"\xff", "a: not UTF-8 at byte 0")],
)
async def test_gate_fails_what_does_not(data: bytes, evidence: str) -> None:
    result = await look("a", data, PERSON)
    assert result.status == "failed"
    assert result.evidence == evidence


async def test_gate_reads_json_where_the_name_says_so() -> None:
    assert (await look("a.json", b"[1]")).passed
    assert (await look("a.json", b"[1")).status == "failed"


async def test_gate_cannot_judge_plain_text() -> None:
    result = await look("a.txt", b"{")
    assert result.status == "not run"
    assert "output_schema" in result.evidence


async def test_gate_fails_under_a_schema_that_is_none() -> None:
    result = await look("a", b"1", {"type": "nonsense"})
    assert result.status == "failed"
    assert "not a JSON Schema" in result.evidence
