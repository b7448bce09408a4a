import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.foreach import MAX_CHILDREN, Items, gather, items_of
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.models import Step

SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=10)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


def fan(*outputs: str, schema: dict[str, object] | None = None) -> Step:
    return Step(id="S2", actor="worker", action="Go.", outputs=outputs, foreach="o", output_schema=schema)


@given(values=st.lists(VALUES, max_size=5))
def test_items_are_texts_as_they_are_and_the_rest_as_json(values: list[object]) -> None:
    items = items_of("o", f"  {json.dumps(values, indent=2)}\n").texts
    assert [
        value if isinstance(value, str) else json.loads(item) for value, item in zip(values, items, strict=True)
    ] == values
    assert [item for value, item in zip(values, items, strict=True) if isinstance(value, str)] == [
        value for value in values if isinstance(value, str)
    ]


@given(texts=st.lists(st.text(max_size=10), max_size=5))
def test_gathered_texts_can_be_run_over_again(texts: list[str]) -> None:
    made = gather(fan("all.json"), [{f"all.json[{i}]": text.encode()} for i, text in enumerate(texts)])
    assert items_of("all.json", made["all.json"].decode()) == Items(tuple(texts), "json")


def test_no_children_make_empty_lists() -> None:
    assert gather(fan("a", "b"), []) == {"a": b"[]", "b": b"[]"}


def test_several_outputs_are_gathered_each_on_its_own() -> None:
    children = [{"a[0]": b"1", "b[0]": b"2"}, {"a[1]": b"3", "b[1]": b"4"}]
    assert gather(fan("a", "b"), children) == {"a": b'["1","3"]', "b": b'["2","4"]'}


def test_json_of_children_with_a_schema_stays_json() -> None:
    made = gather(fan("a", schema={"type": "object"}), [{"a[0]": b'{"n": 1}'}, {"a[1]": '{"ü": []}'.encode()}])
    assert made["a"].decode() == '[{"n":1},{"ü":[]}]'


def test_list_that_is_too_long_is_refused() -> None:
    assert len(items_of("o", compact_json([0] * MAX_CHILDREN)).texts) == MAX_CHILDREN
    with pytest.raises(AttemptError, match=f"has {MAX_CHILDREN + 1} items; a step may run over {MAX_CHILDREN}"):
        items_of("o", compact_json([0] * (MAX_CHILDREN + 1)))
