import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.grammar import schema_grammar
from orchestrator.frontdoor.compact import MAX_STEPS, CompactStep, CompactStream, compact_schema
from orchestrator.frontdoor.errors import PlanFlaw

NAMES = st.text(min_size=1, max_size=8)
STEPS = st.lists(
    st.builds(
        CompactStep,
        role=st.sampled_from(["worker", "coder"]),
        action=st.text(min_size=1, max_size=20) | st.just('say "{[]}\\" \\\\ ü'),
        inputs=st.lists(NAMES, max_size=3).map(tuple),
        foreach=st.none() | NAMES,
        output=st.none() | NAMES,
        after=st.lists(NAMES, max_size=2).map(tuple),
        replan=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def written(steps: list[CompactStep], **style: Any) -> str:
    return json.dumps({"steps": [step.as_json() for step in steps]}, **style)


def read(text: str) -> list[CompactStep]:
    stream = CompactStream()
    steps = stream.feed(text)
    stream.finish()
    return steps


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), data=st.data())
def test_plan_cut_anywhere_gives_each_step_when_it_closes(
    steps: list[CompactStep], ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    text = written(steps, ensure_ascii=ascii_only, indent=indent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream, found = CompactStream(), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += stream.feed(text[begin:end])
    stream.finish()
    assert found == steps
    assert stream.length == len(text)


def test_step_is_given_with_its_closing_bracket_and_not_before() -> None:
    text = written([CompactStep(role="worker", action="Go {.", inputs=("a]",))] * 2)
    stream = CompactStream()
    given_at = [index for index, mark in enumerate(text) if stream.feed(mark)]
    assert [text[index] for index in given_at] == ["}", "}"]
    assert text[given_at[0] + 1] == ","
    assert text[given_at[1] :] == "}]}"


def test_fence_around_the_plan_is_no_flaw() -> None:
    step = CompactStep(role="worker", action="Go.")
    assert read(f"```json\n{written([step])}\n```\n") == [step]


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "there is no plan"),
        ("{", "there is no plan"),
        ("I would first summarize " * 10, "does not begin with"),
        ('{"plan":[', "does not begin with"),
        ('{"steps":[', "breaks off in step 1"),
        ('{"steps":[{"role":"worker","action":"a"},{"role":"wor', "breaks off in step 2"),
        ('{"steps":[]}', "has no steps"),
        ('{"steps":[17]}', "there is '1' where step 1 should begin"),
        ('{"steps":[["a"]]}', "step 1: "),
        ('{"steps":[{"role":"worker"}]}', "step 1: action: Field required"),
        ('{"steps":[{"role":"worker","action":""}]}', "step 1: action: "),
        ('{"steps":[{"role":"worker","action":"a","inputs":[7]}]}', "step 1: inputs/0: "),
        ('{"steps":[{"role":"worker","action":"a","why":"b"}]}', "step 1: why: Extra inputs"),
        ('{"steps":[{"role":"worker","action":"a","replan":"yes"}]}', "step 1: replan: "),
        ('{"steps":[{"role":"worker","action":"a","action":"b"}]}', 'the key "action" is there twice'),
        ('{"steps":[{"role":"worker","action":"\\ud800"}]}', "half a surrogate pair"),
        ('{"steps":[{"role":"worker" "action"]}', "step 1: line 1"),
        ('{"steps":[{"role":"worker","action":"' + "x" * 50_000, "step 1 does not end"),
        ('{"steps":[' + ",".join(['{"role":"worker","action":"a"}'] * (MAX_STEPS + 1)) + "]}", "more than 64 steps"),
    ],
)
def test_flaws_are_told_with_their_step(text: str, flaw: str) -> None:
    with pytest.raises(PlanFlaw) as caught:
        read(text)
    assert flaw in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet='{}[]",:\\ steproleaction1', max_size=60))
def test_any_text_is_a_plan_or_a_flaw(text: str) -> None:
    for head in ("", '{"steps":['):
        try:
            assert read(head + text)
        except PlanFlaw:
            continue


@settings(max_examples=50, deadline=None)
@given(steps=STEPS)
def test_schema_accepts_what_the_stream_reads(steps: list[CompactStep]) -> None:
    plan = json.loads(written(steps))
    jsonschema.validate(plan, compact_schema(["worker", "coder"], replan=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, compact_schema(["architect"]))


def test_schema_of_a_repair_begins_with_the_accepted_steps_and_goes_on() -> None:
    accepted = [CompactStep(role="worker", action="a", inputs=("x",)), CompactStep(role="coder", action="b")]
    schema = compact_schema(["worker", "coder"], accepted, least=3)
    more = CompactStep(role="worker", action="c")
    jsonschema.validate(json.loads(written([*accepted, more])), schema)
    for wrong in (accepted, [accepted[0], more, more], [more]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(written(wrong)), schema)


def test_replan_is_the_last_key_and_offered_only_where_it_is_allowed() -> None:
    step = CompactStep(role="worker", action="a", after=("S1",), replan=True)
    assert step.written == '{"role":"worker","action":"a","inputs":[],"after":["S1"],"replan":true}'
    plan = {"steps": [step.as_json()]}
    jsonschema.validate(plan, compact_schema(["worker"], replan=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plan, compact_schema(["worker"]))
    offered = schema_grammar(compact_schema(["worker"], replan=True))
    assert "replan" in offered
    assert "replan" not in schema_grammar(compact_schema(["worker"]))


def test_rest_of_a_plan_counts_on_and_may_be_empty() -> None:
    stream = CompactStream(2)
    assert stream.feed('{"steps":[]}') == []
    stream.finish()
    with pytest.raises(PlanFlaw, match="step 3: action"):
        CompactStream(2).feed('{"steps":[{"role":"worker"}]}')
    jsonschema.validate({"steps": []}, compact_schema(["worker"], least=0))


def test_schemas_make_grammars() -> None:
    accepted = [CompactStep(role="worker", action='say "hi"', inputs=("x",))]
    assert '"worker"' in schema_grammar(compact_schema(["worker"])).replace("\\", "")
    assert 'say "hi"' in schema_grammar(compact_schema(["worker"], accepted)).replace("\\", "")
