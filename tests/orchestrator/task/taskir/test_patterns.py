"""Tests of patterns and formats: what is matched in linear time, what is left out, and how that is reported."""

import datetime
import ipaddress
import json
import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.taskir.formats import FORMATS
from orchestrator.task.taskir.patterns import BadPattern, matches, read_pattern
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch, unenforced

PARTS = st.sampled_from(["a", "[ab]", ".", r"\d", "(?:ab)?", "b*", "(a|1)", r"\.", "x{2}"])
SIMPLE = st.lists(PARTS, min_size=1, max_size=4).map("".join)
AHEAD = st.tuples(st.sampled_from(["(?=", "(?!"]), SIMPLE, st.sampled_from(["", "$"])).map(lambda p: f"{''.join(p)})")
TEXTS = st.text("ab1.x", max_size=6)

ADDRESS = r"^(?!\.)(?!.*\.\.)([a-z.]*)[a-z]@([a-z][a-z-]*\.)+[a-z]{2,}$"
"""An e-mail address as validators in TypeScript write it: look-ahead first, and a quantifier in what is repeated."""
NUMBER = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
"""A decimal number as pydantic writes it."""


@given(st.lists(AHEAD, max_size=2).map("".join), SIMPLE, TEXTS)
def test_look_ahead_behind_a_leading_anchor_is_matched_exactly(ahead: str, body: str, text: str) -> None:
    pattern = f"^{ahead}{body}$"
    assert not read_pattern(pattern).relaxed
    assert matches(pattern, text) == (re.search(pattern, text) is not None)


@given(SIMPLE, st.sampled_from(["(?=", "(?!", "(?<=", "(?<!"]), st.sampled_from("ab1"), SIMPLE, TEXTS)
def test_without_look_around_the_rest_accepts_what_the_whole_accepts(
    before: str, look: str, inner: str, after: str, text: str
) -> None:
    pattern = f"(b|1)?{before}{look}{inner}){after}\\1?"
    assert read_pattern(pattern).relaxed
    assert re.search(pattern, text) is None or matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (ADDRESS, ["jo.m@a.org"], [".jo@a.org", "jo..m@a.org", "jo@a", "jo"]),
        (NUMBER, ["12.50", "-3", "+0.1"], ["-", "", "12,50"]),
        (r"^(?<day>\d\d)\.(?P<month>\d\d)$", ["24.12"], ["24-12"]),
        (r"^[\p{L}\w-.]+$", ["é-1."], ["a b"]),
        (r"^(?=.*[A-Z])(?=.*\d).{4,}$", ["Abc1"], ["abc1", "Abcd", "A1"]),
        (r"^\<a\>$", ["<a>"], ["a"]),
    ],
)
def test_patterns_that_libraries_write_are_matched_as_a_whole(pattern: str, good: list[str], bad: list[str]) -> None:
    assert not read_pattern(pattern).relaxed
    assert [text for text in (*good, *bad) if matches(pattern, text)] == good


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a(?=b)", "look-ahead that does not follow a leading ^"),
        ("^(?=a)|b", "look-ahead"),
        ("^(?=a)*b", "look-ahead"),
        ("(?<!a)b", "look-behind"),
        (r"^(?!(a)\1)b", "look-ahead"),
        (r"(a)\1", "a back-reference"),
        (r"(?<x>a)\k<x>", "a back-reference"),
        ("(?P<x>a)(?P=x)", "a back-reference"),
        (r"\ca", "unrecognized escape"),
        (r"(\p{L}{1000}){100}", "size limit"),
        ("a" * 20_000, "it has 20000 characters"),
    ],
)
def test_what_is_not_matched_is_reported_at_its_place(pattern: str, why: str) -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": pattern}, "b": {"type": "integer"}}}
    ((path, message),) = unenforced(schema)
    assert path == ("properties", "a", "pattern")
    assert why in message
    OutputSchema(schema).check({"a": "baab", "b": 1})
    with pytest.raises(SchemaMismatch, match="/b"):
        OutputSchema(schema).check({"a": "baab", "b": "1"})


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "a\\", "*", "(+)", "a|?"])
def test_what_is_no_pattern_in_any_dialect_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="is no regular expression"):
        read_pattern(pattern)
    with pytest.raises(BadSchema, match="is no regular expression"):
        OutputSchema({"pattern": pattern})


def test_a_property_that_only_a_relaxed_pattern_names_is_accepted_as_it_is() -> None:
    schema = OutputSchema({"patternProperties": {"^x(?<=x)-": {"type": "integer"}}, "additionalProperties": False})
    schema.check({"x-a": "text"})
    with pytest.raises(SchemaMismatch, match="/: "):
        schema.check({"y": 1})


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {"pattern": "b(?=c)"}}, "not"),
        ({"if": {"pattern": "b(?=c)"}, "then": False}, "if"),
        ({"oneOf": [{"pattern": "b(?=c)"}, {"pattern": "b"}]}, "oneOf"),
        ({"type": ["array", "string"], "contains": {"pattern": "b(?=c)"}, "maxContains": 0}, "contains"),
    ],
)
def test_a_looser_pattern_makes_no_schema_stricter(schema: dict[str, Any], keyword: str) -> None:
    OutputSchema(schema).check(["b"] if keyword == "contains" else "b")
    assert (keyword,) in [path for path, _ in unenforced(schema)]
    exact = json.loads(json.dumps(schema).replace("b(?=c)", "b"))
    assert list(unenforced(exact)) == []
    with pytest.raises(SchemaMismatch):
        OutputSchema(exact).check(["b"] if keyword == "contains" else "b")


@given(st.dates())
def test_every_date_of_the_calendar_is_a_date(day: datetime.date) -> None:
    assert all(matches(pattern, day.isoformat()) for pattern in FORMATS["date"])


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_no_other_day_is_a_date(year: int, month: int, day: int) -> None:
    text = f"{year:04}-{month:02}-{day:02}"
    try:
        datetime.date.fromisoformat(text)
        is_date = True
    except ValueError:
        is_date = False
    assert all(matches(pattern, text) == is_date for pattern in FORMATS["date"])


@given(st.datetimes(timezones=st.just(datetime.UTC)), st.uuids(), st.ip_addresses(v=4))
def test_times_ids_and_addresses_have_their_formats(
    at: datetime.datetime, number: uuid.UUID, address: ipaddress.IPv4Address
) -> None:
    texts = {"date-time": at.isoformat(), "time": at.timetz().isoformat(), "uuid": str(number), "ipv4": str(address)}
    for name, text in texts.items():
        assert all(matches(pattern, text) for pattern in FORMATS[name]), (name, text)


@given(st.from_regex(re.compile(FORMATS["email"].written, re.ASCII), fullmatch=True))
def test_an_address_that_a_grammar_writes_is_accepted(text: str) -> None:
    assert matches(FORMATS["email"].accepted, text)


def test_formats_are_checked_and_those_that_are_not_are_reported() -> None:
    schema = {"properties": {"day": {"format": "date"}, "page": {"format": "uri"}, "size": {"format": "int32"}}}
    OutputSchema(schema).check({"day": "2024-02-29", "page": "no address", "size": 1})
    with pytest.raises(SchemaMismatch, match="/day: '2023-02-29' is not a 'date'"):
        OutputSchema(schema).check({"day": "2023-02-29"})
    assert [path for path, _ in unenforced(schema)] == [("properties", "page", "format")]


def test_formats_of_older_drafts_are_checked_too() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "uuid", "pattern": r"^\p{L}"}
    with pytest.raises(SchemaMismatch, match="uuid"):
        OutputSchema({**schema, "pattern": "."}).check("x")
    OutputSchema(schema).check("a1234567-89ab-cdef-0123-456789abcdef")
