"""The language of conditions and templates, and that nothing outside of it can be reached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.procedures.expressions import ExpressionError, NotKnownYet, Pending, evaluate, render, render_all

NAMES = {"inputs": {"name": "big", "count": 3, "list": ["a", "b"]}, "steps": {"one": {"state": "done"}}, "places": {}}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.count * 2 + 1", 7),
        ("inputs.name == 'big' and inputs.count > 2", True),
        ("'a' in inputs.list", True),
        ("'z' not in inputs.list", True),
        ("inputs.list[0] + '!'", "a!"),
        ("len(inputs.list)", 2),
        ("steps.one.state if inputs.count else null", "done"),
        ("default(null, 5)", 5),
        ("[1, 2][1]", 2),
        ("not true", False),
    ],
)
def test_an_expression_is_evaluated(expression: str, value: object) -> None:
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "inputs.__class__",
        "''.__class__.__mro__",
        "'a'.upper()",
        "(lambda: 1)()",
        "[x for x in inputs.list]",
        "open('/etc/passwd')",
        "9 ** 9 ** 9",
        "'%100000000d' % 1",
        "'a' * 10000000",
        "f'{inputs}'",
        "inputs.missing",
        "1 / 0",
        "inputs.count.real",
        "x := 1",
        "",
        "1; 2",
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(expression, NAMES)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_give_a_value_or_an_error(expression: str) -> None:
    try:
        evaluate(expression, NAMES)
    except ExpressionError:
        pass


def test_a_template_of_one_expression_has_its_value_and_others_are_texts() -> None:
    assert render("{{ inputs.count }}", NAMES) == 3
    assert render("n: {{ inputs.count }}, {{ inputs.list }}", NAMES) == 'n: 3, ["a", "b"]'
    assert render_all({"a": ["{{ inputs.name }}", 1, None]}, NAMES) == {"a": ["big", 1, None]}


def test_what_a_step_returns_that_has_not_run_is_not_known_yet() -> None:
    with pytest.raises(NotKnownYet) as told:
        render("{{ steps.two.path }}", {**NAMES, "steps": {"two": Pending("two")}})
    assert told.value.step == "two"
