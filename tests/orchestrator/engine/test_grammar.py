"""JSON Schema to GBNF, checked with llama.cpp's own grammar engine and with a validator."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.engine.client import grammar
from orchestrator.engine.client.grammar import (
    integer_range,
    kept_schema_grammar,
    left_to_validator,
    pattern_grammar,
    schema_grammar,
)
from orchestrator.engine.contract import COMPACT, EngineSpec
from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama import Llama, as_tokens
from orchestrator.task.taskir.validation import OutputSchema
from tests.orchestrator.engine.schema_cases import (
    CASES,
    IMPOSSIBLE,
    NO_JSON,
    NO_JSON_SCHEMA,
    NO_SCHEMA,
    OBJECT,
    REFUSED,
    TEXTS,
    walk,
)


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=64, slots=1, threads=1))


def accepts(llama: Llama, schema: Any, text: str) -> bool:
    return follows(llama, schema_grammar(schema), text)


def follows(llama: Llama, gbnf: str, text: str) -> bool:
    grammar = llama.grammars.start(gbnf)
    try:
        for token in llama.vocab.tokenize(text, special=False):
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        return grammar.allows(next(iter(llama.vocab.end)))
    finally:
        grammar.close()


@pytest.mark.parametrize(("schema", "good", "bad"), TEXTS)
def test_a_text_has_the_pattern_and_the_format_of_its_schema(
    llama: Llama, schema: Any, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in (*good, *bad) if accepts(llama, schema, json.dumps(value, ensure_ascii=False))] == good
    if not list(left_to_validator(schema)):
        OutputSchema(schema).read(
            walk(llama.grammars.start(schema_grammar(schema)), llama.vocab, np.random.default_rng(1))
        )


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_what_the_schema_means_is_what_the_grammar_accepts(
    llama: Llama, schema: Any, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        jsonschema.validate(value, schema)
        assert accepts(llama, schema, json.dumps(value)), value
        assert accepts(llama, schema, json.dumps(value, ensure_ascii=False, separators=(",", ":"))), value
        assert accepts(llama, schema, json.dumps(value, indent=2)), value
    for value in bad:
        assert not accepts(llama, schema, json.dumps(value)), value


@pytest.mark.parametrize(
    "text",
    NO_JSON,
)
def test_what_is_no_json_or_no_utf8_is_never_accepted(llama: Llama, text: str) -> None:
    assert not accepts(llama, NO_JSON_SCHEMA, text)


@pytest.mark.parametrize("schema", [case[0] for case in CASES if case[0] not in ({}, True)])
def test_a_random_walk_through_the_grammar_ends_and_validates(llama: Llama, schema: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2):
        jsonschema.validate(json.loads(walk(llama.grammars.start(schema_grammar(schema)), llama.vocab, rng)), schema)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    REFUSED,
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: Any, keyword: str) -> None:
    with pytest.raises(BadGrammar) as caught:
        schema_grammar(schema)
    assert caught.value.keyword == keyword


@pytest.mark.parametrize(
    "schema",
    IMPOSSIBLE,
)
def test_what_nothing_satisfies_is_refused(schema: Any) -> None:
    with pytest.raises(BadGrammar):
        schema_grammar(schema)


@pytest.mark.parametrize("value", [{}, [], {"a": [1, {"b": "x y"}], "c": None}, ["a b", [], {}]])
def test_a_compact_text_has_white_space_in_strings_only(llama: Llama, value: Any) -> None:
    schema = {COMPACT: True, "anyOf": [{"type": "object"}, {"type": "array"}]}
    compact, spaced = json.dumps(value, separators=(",", ":")), json.dumps(value, indent=1)
    assert accepts(llama, schema, compact)
    assert accepts(llama, schema, spaced) == (spaced == compact)
    assert accepts(llama, schema | {COMPACT: False}, spaced)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_choice_may_lead_back_to_itself(llama: Llama, keyword: str) -> None:
    chain = {"type": "object", "properties": {"next": {keyword: [{"$ref": "#/$defs/n"}, {"type": "null"}]}}}
    schema = {"$defs": {"n": {**chain, "required": ["next"], "additionalProperties": False}}, "$ref": "#/$defs/n"}
    assert accepts(llama, schema, '{"next": {"next": {"next": null}}}')
    assert not accepts(llama, schema, '{"next": {}}')


@pytest.mark.parametrize("way", [lambda ref: ref, lambda ref: {"anyOf": [ref, {"type": "null"}]}])
def test_the_grammar_of_schemas_that_lead_to_each_other_is_small(
    way: Callable[[dict[str, str]], dict[str, Any]],
) -> None:
    kinds = ("a", "b", "c", "d")
    fields = {kind: way({"$ref": f"#/$defs/{kind}"}) for kind in kinds}
    schema = {"$defs": {kind: {"type": "object", "properties": fields} for kind in kinds}, "$ref": "#/$defs/a"}
    assert schema_grammar(schema).count("\n") < 20_000  # writing each path out would make it endless


def test_merged_schemas_that_lead_to_each_other_come_to_an_end() -> None:
    kinds = ("a", "b", "c")
    fields = {kind: {"allOf": [{"$ref": f"#/$defs/{kind}"}]} for kind in kinds}
    schema = {"$defs": {kind: {"type": "object", "properties": fields} for kind in kinds}, "$ref": "#/$defs/a"}
    assert "root ::=" in schema_grammar(schema)


@pytest.mark.parametrize(
    "schema",
    NO_SCHEMA,
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(BadGrammar):
        schema_grammar(schema)


def test_control_tokens_are_no_text(llama: Llama) -> None:
    grammar = llama.grammars.start('root ::= "\\"" [^"]{1,40} "\\""')
    grammar.accept(llama.vocab.tokens_of('"', special=False)[0])
    control = [token for token in range(llama.vocab.size) if not llama.vocab.piece(token)]
    letter = int(llama.vocab.tokens_of("a", special=False)[0])
    masked = grammar.mask(np.zeros(llama.vocab.size, np.float32))
    assert control
    assert not any(grammar.allows(token) for token in control)
    assert np.isinf(masked[control]).all()
    assert grammar.allows(letter)
    assert masked[letter] == 0
    grammar.close()


@pytest.mark.parametrize("likeliest", [64, 100_000])
@pytest.mark.parametrize("schema", [{"type": "integer"}, {"type": "string"}, {"enum": ["north", "south"]}, OBJECT])
def test_a_mask_holds_all_tokens_that_are_allowed_one_by_one(
    llama: Llama, schema: Any, likeliest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens are left out by their first byte, and likelier ones are looked at first: neither may lose any."""
    monkeypatch.setattr("orchestrator.engine.llama.grammar._LIKELIEST", likeliest)
    rng, every = np.random.default_rng(3), as_tokens(range(llama.vocab.size))
    grammar = llama.grammars.start(schema_grammar(schema))
    for _ in range(30):
        logits = rng.normal(0, 3, llama.vocab.size).astype(np.float32)
        allowed = grammar.allows_each(every)
        masked, parts = grammar.mask(logits), list(grammar.allowed_by_likelihood(logits))
        firsts = {llama.vocab.piece(token)[:1] for token in np.flatnonzero(allowed).tolist()} - {b""}
        alike = grammar.allowed_if_alike()
        assert (alike is None) == (len(firsts) > 1)
        assert alike is None or sorted(alike.tolist()) == np.flatnonzero(allowed).tolist()
        assert np.array_equal(masked, np.where(allowed, logits, -np.inf))
        assert parts[-1].tolist() == np.flatnonzero(allowed).tolist()
        for part in parts:
            assert set(part.tolist()) <= set(parts[-1].tolist())
        first = next(part for part in parts if len(part))
        assert first[logits[first].argmax()] == masked.argmax()
        token = int(rng.choice(np.flatnonzero(allowed)))
        if token in llama.vocab.end:
            break
        grammar.accept(token)
    grammar.close()


@pytest.mark.parametrize(
    "values",
    [
        [*range(0, 4000, 7)],
        ["a" * count for count in range(1, 400)],
        [f"Straße {number % 11} {number}" for number in range(300)] + ["", "€", "Straße", None, 1.5],
        [[number, "x"] for number in range(40)],
    ],
)
def test_a_long_enum_lets_its_values_pass_and_no_others(llama: Llama, values: list[Any]) -> None:
    schema = {"enum": values}
    for value in values[:: len(values) // 15]:
        assert accepts(llama, schema, json.dumps(value, ensure_ascii=False))
    for wrong in ("9", '"b"', '"Straße 1 "', "[1]", '[1, "x"', "null1"):
        assert not accepts(llama, schema, wrong)


def test_an_enum_of_tens_of_thousands_of_values_is_a_small_grammar() -> None:
    assert schema_grammar({"enum": [*range(40_000)]}).count("::=") < 100
    assert schema_grammar({"enum": [f"v{number * 7919}" for number in range(20_000)]}).count("::=") < 4_000


def test_an_object_among_an_enum_is_spelled_in_one_way(llama: Llama) -> None:
    assert accepts(llama, {"enum": [{"k": [1, 2]}]}, '{"k": [1, 2]}')
    assert not accepts(llama, {"enum": [{"k": [1, 2]}]}, '{"k":[1,2]}')


def test_deep_and_wide_schemas_are_refused_or_written_quickly() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadGrammar, match="deep"):
        schema_grammar(deep)
    wide = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(500)}}
    assert len(schema_grammar(wide)) < 200_000


@pytest.mark.parametrize("keyword", ["pattern", "format", "multipleOf", "uniqueItems", "not", "title"])
def test_what_a_validator_checks_afterwards_is_let_through(keyword: str) -> None:
    values = {"multipleOf": 2, "uniqueItems": True, "not": {"const": 1}}
    assert "root ::=" in schema_grammar({"type": "string", keyword: values.get(keyword, "x")})


@given(st.integers(-(10**17), 10**17), st.integers(0, 10**6), st.integers(-(10**17), 10**17))
def test_an_integer_is_accepted_if_it_lies_between_the_bounds(low: int, width: int, other: int) -> None:
    high = low + width
    expression = integer_range(low, high).replace(" ", "").replace('"', "")
    found = re.compile(expression)  # of literals, classes and counts, GBNF and regular expressions write alike
    for number in (low, high, low - 1, high + 1, (low + high) // 2, other):
        assert (found.fullmatch(str(number)) is not None) == (low <= number <= high), number
    assert not found.fullmatch("-0")


ATOMS = st.sampled_from(
    ["a", "Z", "0", "_", "-", '"', r"\.", " ", "/", "[a-z]", "[^a0]", r"\d", r"\W", r"\s", ".", r"[\w.-]"]
)
REPEATED = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})"),
        inner.map(lambda one: f"(?:{one}){{2}}"),
    ),
    max_leaves=4,
)
"""Patterns without quantifiers that allow several numbers of repetitions."""
PATTERNS = st.recursive(
    st.tuples(REPEATED, st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}"])).map(
        lambda both: f"(?:{both[0]}){both[1]}"
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})"),
        inner.map(lambda one: f"(?:{one})?"),
    ),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATTERNS, st.text('aZ0_-". /b', max_size=6))
def test_a_simple_pattern_is_matched_by_its_grammar(llama: Llama, pattern: str, text: str) -> None:
    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    assert list(left_to_validator(schema)) == []
    assert accepts(llama, schema, json.dumps(text)) == (re.fullmatch(pattern, text) is not None)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATTERNS, st.text('aZ0_-". /b\n', max_size=6))
def test_a_whole_text_is_matched_by_the_grammar_of_a_pattern(llama: Llama, pattern: str, text: str) -> None:
    wanted = re.fullmatch(pattern, text) is not None
    assert follows(llama, pattern_grammar(pattern), text) == wanted
    assert follows(llama, pattern_grammar(f"^{pattern}$"), text) == wanted


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a+)+", "a quantifier inside of what is repeated at character 5"),
        ("(?=a)b", "look-around"),
        (r"\p{Greek}", "the property Greek"),
        (r"a\b", r"the escape \b"),
        ("a^b", "an anchor"),
        ("[a", "it ends within a class"),
        ("(a", "a group without its end"),
        ("a)", "a closing parenthesis has no opening one"),
        ("a{9999}", "more than 1024 repetitions"),
        ("a" * 1001, "it has 1001 characters"),
        ("[z-a]", "a range of no characters"),
    ],
)
def test_a_pattern_without_a_grammar_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(BadGrammar, match=re.escape(why)):
        pattern_grammar(pattern)


def test_a_grammar_is_made_within_a_time_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(50)}}
    monkeypatch.setattr(grammar, "MOST_SECONDS", -1.0)
    with pytest.raises(BadGrammar, match="it takes longer than -1 s"):
        schema_grammar(schema)
    assert kept_schema_grammar(schema) is None
    monkeypatch.undo()
    made = schema_grammar(schema)
    monkeypatch.setattr(grammar, "MOST_SECONDS", -1.0)
    assert kept_schema_grammar(schema) == schema_grammar(schema) == made


def test_only_so_many_grammars_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = [{"const": "x" * 1000 + str(number)} for number in range(20)]
    monkeypatch.setattr(grammar, "_KEPT", grammar._KeptGrammars())
    monkeypatch.setattr(grammar, "MOST_KEPT", 5000)
    for schema in schemas:
        schema_grammar(schema)
    kept = [schema for schema in schemas if kept_schema_grammar(schema)]
    assert 0 < len(kept) < 6
    assert kept == schemas[-len(kept) :]


NESTED: Final = "^(?:(?:.)*)*$"
"""Has so many readings that llama.cpp would not come to an end with them."""


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?:[a-z]+ )*x$",
        "^(?:a?){2}$",
        "^(?:(a|b{1,3})c)+$",
        r"^\ba$",
        "^a|b$",
        r"^(a)\1$",
        "^a{5000}$",
        "^[[:alpha:]]$",
        "^a++$",
        NESTED,
    ],
)
def test_a_pattern_that_is_not_simple_is_left_to_the_validator(llama: Llama, pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern, "maxLength": 5}
    assert list(left_to_validator(schema)) == [("", "pattern")]
    assert accepts(llama, schema, '"any"')


@pytest.mark.parametrize(
    ("schema", "loose"),
    [
        ({"type": "string", "format": "date"}, []),
        ({"type": "string", "format": "date", "maxLength": 10}, ["format"]),
        ({"type": "string", "format": "email", "pattern": "^[a-z@.]+$"}, ["format"]),
        ({"type": "string", "format": "email", "pattern": "^(?:[a-z]+[@.])+$"}, ["pattern"]),
        ({"type": "string", "pattern": "^(?=a)[a-z]+$"}, ["pattern"]),
        ({"type": "string", "format": "uri"}, []),
    ],
)
def test_a_format_is_enforced_unless_another_pattern_takes_its_place(schema: Any, loose: list[str]) -> None:
    assert [keyword for _, keyword in left_to_validator(schema)] == loose


def test_it_is_known_what_a_grammar_leaves_to_the_validator() -> None:
    schema = {
        "properties": {
            "a/b": {"type": "integer", "multipleOf": 5},
            "c": {"type": "array", "items": {"type": "number", "minimum": 1}, "uniqueItems": True},
            "pattern": {"type": "string", "pattern": "^a+$"},
        },
        "if": {"required": ["c"]},
        "enum": [{"not": 1}],
        "x-order": 2,
    }
    assert sorted(left_to_validator(schema)) == [
        ("", "if"),
        ("/properties/a~1b", "multipleOf"),
        ("/properties/c", "uniqueItems"),
        ("/properties/c/items", "minimum"),
    ]
