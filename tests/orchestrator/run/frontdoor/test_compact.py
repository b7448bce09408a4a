import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.run.frontdoor.compact import MAX_PARTS, Part, PlanFlaw, PlanStream, plan_schema

NAMES = st.text(min_size=1, max_size=8)
PARTS = st.lists(
    st.builds(
        Part,
        role=st.sampled_from(["worker", "coder"]),
        action=st.text(min_size=1, max_size=20) | st.just('say "{[]}\\" \\\\ ü'),
        each=st.lists(NAMES, max_size=3).map(tuple),
        inputs=st.lists(NAMES, max_size=3).map(tuple),
        foreach=st.none() | NAMES,
        output=st.none() | NAMES,
        after=st.lists(NAMES, max_size=2).map(tuple),
        replan=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def written(parts: list[Part], **style: Any) -> str:
    return json.dumps({"plan": [part.as_json() for part in parts]}, **style)


def read(text: str) -> list[Part]:
    stream = PlanStream()
    parts = stream.feed(text)
    stream.finish()
    return parts


@given(parts=PARTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), data=st.data())
def test_plan_cut_anywhere_gives_each_part_when_it_closes(
    parts: list[Part], ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    text = written(parts, ensure_ascii=ascii_only, indent=indent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream, found = PlanStream(), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += stream.feed(text[begin:end])
    stream.finish()
    assert found == parts
    assert stream.length == len(text)


def test_part_is_given_with_its_closing_bracket_and_not_before() -> None:
    text = written([Part(role="worker", action="Go {.", inputs=("a]",))] * 2)
    stream = PlanStream()
    given_at = [index for index, mark in enumerate(text) if stream.feed(mark)]
    assert [text[index] for index in given_at] == ["}", "}"]
    assert text[given_at[0] + 1] == ","
    assert text[given_at[1] :] == "}]}"


def test_fence_around_the_plan_is_no_flaw() -> None:
    part = Part(role="worker", action="Go.")
    assert read(f"```json\n{written([part])}\n```\n") == [part]


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "there is no plan"),
        ("{", "there is no plan"),
        ("I would first summarize " * 10, "does not begin with"),
        ('{"parts":[', "does not begin with"),
        ('{"plan":[', "breaks off in P1"),
        ('{"plan":[{"role":"worker","action":"a"},{"role":"wor', "breaks off in P2"),
        ('{"plan":[]}', "is empty"),
        ('{"plan":[17]}', "there is '1' where P1 should begin"),
        ('{"plan":[["a"]]}', "there is '[' where P1 should begin"),
        ('{"plan":[{"role":"worker"}]}', "P1: action: Field required"),
        ('{"plan":[{"role":"worker","action":""}]}', "P1: action: "),
        ('{"plan":[{"role":"worker","action":"a","inputs":[7]}]}', "P1: inputs/0: "),
        ('{"plan":[{"role":"worker","action":"a","why":"b"}]}', "P1: why: Extra inputs"),
        ('{"plan":[{"role":"worker","action":"a","replan":"yes"}]}', "P1: replan: "),
        ('{"plan":[{"role":"worker","action":"a","action":"b"}]}', 'the key "action" is there twice'),
        ('{"plan":[{"role":"worker","action":"\\ud800"}]}', "half a surrogate pair"),
        ('{"plan":[{"role":"worker" "action"]}', "P1: the part is not JSON"),
        ('{"plan":[{"role":"worker","action":"' + "x" * 50_000, "P1 does not end"),
        ('{"plan":[' + ",".join(['{"role":"worker","action":"a"}'] * (MAX_PARTS + 1)) + "]}", "more than 64 parts"),
    ],
)
def test_flaws_are_reported_with_their_part(text: str, flaw: str) -> None:
    with pytest.raises(PlanFlaw) as caught:
        read(text)
    assert flaw in str(caught.value)


@given(text=st.text(alphabet='{}[]",:\\ planroleaction1', max_size=60))
def test_any_text_is_a_plan_or_a_flaw(text: str) -> None:
    for head in ("", '{"plan":['):
        try:
            assert read(head + text)
        except PlanFlaw:
            continue


@given(parts=PARTS)
def test_schema_accepts_what_the_stream_reads(parts: list[Part]) -> None:
    plan = json.loads(written(parts))
    jsonschema.validate(plan, plan_schema(["worker", "coder"], replan=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, plan_schema(["architect"]))


def test_schema_of_a_repair_begins_with_the_accepted_parts_and_goes_on() -> None:
    accepted = [Part(role="worker", action="a", inputs=("x",)), Part(role="coder", action="b")]
    schema = plan_schema(["worker", "coder"], accepted, least=3)
    more = Part(role="worker", action="c")
    jsonschema.validate(json.loads(written([*accepted, more])), schema)
    for wrong in (accepted, [accepted[0], more, more], [more]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(written(wrong)), schema)


def test_replan_is_the_last_key_and_offered_only_where_it_is_allowed() -> None:
    part = Part(role="worker", action="a", after=("P1",), replan=True)
    assert part.written == '{"role":"worker","action":"a","after":["P1"],"replan":true}'
    plan = {"plan": [part.as_json()]}
    jsonschema.validate(plan, plan_schema(["worker"], replan=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, plan_schema(["worker"]))
    offered = schema_grammar(plan_schema(["worker"], replan=True))
    assert "replan" in offered
    assert "replan" not in schema_grammar(plan_schema(["worker"]))


def test_rest_of_a_plan_counts_on_and_may_be_empty() -> None:
    stream = PlanStream(2)
    assert stream.feed('{"plan":[]}') == []
    stream.finish()
    with pytest.raises(PlanFlaw, match="P3: action"):
        PlanStream(2).feed('{"plan":[{"role":"worker"}]}')
    jsonschema.validate({"plan": []}, plan_schema(["worker"], least=0))


def test_schemas_make_grammars() -> None:
    accepted = [Part(role="worker", action='say "hi"', inputs=("x",))]
    assert '"worker"' in schema_grammar(plan_schema(["worker"])).replace("\\", "")
    assert 'say "hi"' in schema_grammar(plan_schema(["worker"], accepted)).replace("\\", "")
