"""Arguments in XML arrive whole and with the types of their schema, or the call is broken."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.tool_calls import CallEvent, TextDelta, ToolCallBroken, ToolCallFinished, ToolCallParser
from orchestrator.engine.xml_values import ABSENT, typed_value
from orchestrator.registry.call_syntax import DEEPSEEK_DSML, GLM, QWEN_CODER, CallSyntax

WRITE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
}
TOOLS: Final[Mapping[str, Any]] = {"write": WRITE, "any": {"type": "object"}}


def qwen(arguments: Mapping[str, str], name: str = "write") -> str:
    """Return a call as the template of Qwen3-Coder writes it."""
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def glm(arguments: Mapping[str, str], name: str = "write") -> str:
    """Return a call as the template of GLM 4.5 writes it."""
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def dsml(arguments: Mapping[str, str], name: str = "write") -> str:
    """Return a call as the template of DeepSeek V4 writes it."""
    parameters = "".join(
        f'<｜DSML｜parameter name="{key}" string="true">{value}</｜DSML｜parameter>\n'
        for key, value in arguments.items()
    )
    invoke = f'<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>'
    return f"<｜DSML｜tool_calls>\n{invoke}\n</｜DSML｜tool_calls>"


def events_of(text: str, syntax: CallSyntax) -> list[CallEvent]:
    parser = ToolCallParser(TOOLS, syntax)
    return [*parser.push(text), *parser.finish()]


def calls_in(text: str, syntax: CallSyntax = QWEN_CODER) -> list[tuple[str, Any]]:
    found = [event for event in events_of(text, syntax) if isinstance(event, ToolCallFinished)]
    return [(event.name, json.loads(event.arguments)) for event in found]


def problem_of(text: str, syntax: CallSyntax = QWEN_CODER) -> str:
    """Return why the only event of a text is a broken call."""
    (event,) = events_of(text, syntax)
    assert isinstance(event, ToolCallBroken)
    return event.problem


VALUES: Final = [
    "",
    "\n",
    "\n\n a \n",
    "ends with </parameter> here",
    "ends with </parameter>",
    "ends with </function> here",
    "x\n</function>\n</tool_call>\ny",
    "a <parameter=path> in a line",
    "<parameter=other>\nof another tool",
    "x</parameter>\n</parameter> y </parameter>",
    "ends with </arg_value> here",
    "ends with </｜DSML｜parameter> here",
    '{"a": 1}',
    "42",
    "null",
]


@pytest.mark.parametrize("value", VALUES)
def test_a_text_arrives_whole(value: str) -> None:
    for render, syntax in ((qwen, QWEN_CODER), (glm, GLM), (dsml, DEEPSEEK_DSML)):
        if syntax is GLM and "</tool_call>" in value:
            continue
        arguments = {"path": "a.txt", "content": value}
        assert calls_in(render(arguments), syntax) == [("write", arguments)]
        assert calls_in(f"{render(arguments)}\n{render({'path': value})}", syntax) == [
            ("write", arguments),
            ("write", {"path": value}),
        ]


TEXTS: Final = st.lists(
    st.sampled_from(
        [
            *("</parameter>", "</function>", "</tool_call>", "<tool_call>", "<function=write>", "<parameter=path>"),
            *("<parameter=content>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "\n", " ", "x"),
            *("</｜DSML｜parameter>", "</｜DSML｜invoke>", "</｜DSML｜tool_calls>", '<｜DSML｜parameter name="path">'),
        ]
    )
    | st.text(max_size=4),
    max_size=8,
).map("".join)


@given(TEXTS, TEXTS)
def test_a_call_arrives_whole_or_is_broken(path: str, content: str) -> None:
    for render, syntax, parameters in (
        (qwen, QWEN_CODER, r"</parameter>\s*<parameter=(path|content)>"),
        (glm, GLM, r"</arg_value>\s*<arg_key>(path|content)</arg_key>\s*<arg_value>"),
        (dsml, DEEPSEEK_DSML, r"</｜DSML｜parameter>\s*<｜DSML｜parameter name=\"(path|content)"),
    ):
        if re.search(parameters, path + content):
            continue  # a value that is the rest of a call to the letter cannot be told from one
        found = calls_in(render({"path": path, "content": content}), syntax)
        assert found in ([], [("write", {"path": path, "content": content})])


@given(st.text().filter(lambda text: "<" not in text), st.text().filter(lambda text: "<" not in text))
def test_a_text_without_tags_is_never_broken(path: str, content: str) -> None:
    arguments = {"path": path, "content": content}
    for render, syntax in ((qwen, QWEN_CODER), (glm, GLM), (dsml, DEEPSEEK_DSML)):
        assert calls_in(render(arguments), syntax) == [("write", arguments)]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\n</parameter>\n</function>", "\n</function>", "'content' does not end"),
        ("\n</parameter>\n<parameter=content>", "\n<parameter=content>", "'content' begins before 'path' ends"),
        ("<parameter=content>", "<paramter=content>", "'<paramter=content>"),
        ("</function>", "</functon>", "'</functon>"),
        ("</tool_call>", "</tool_cal>", "'</function>"),
        ("<parameter=content>", "<parameter=contnet>", "there is no parameter 'contnet'; accepted: path, content"),
        ("<parameter=content>", "<parameter=path>", "'path' occurs twice"),
        ("<function=write>\n", "<function=write>\nNow: ", "'Now: <parameter=path>"),
        ("<function=write>", "<function=wriet>", "there is no tool 'wriet'; accepted: write, any"),
        ("</tool_call>", "</tool_call>\nrest\n</parameter>\n</function>\n</tool_call>", "closing tags follow"),
    ],
)
def test_a_call_with_a_misspelt_tag_is_broken(old: str, new: str, problem: str) -> None:
    text = qwen({"path": "a.txt", "content": "hello"})
    assert problem in problem_of(text.replace(old, new, 1))


def test_a_misspelt_mark_begins_no_call() -> None:
    text = qwen({"path": "a.txt", "content": "hello"}).replace("<tool_call>", "<tool_cal>")
    assert events_of(text, QWEN_CODER) == [TextDelta(text)]


@pytest.mark.parametrize("cut", range(12, len(qwen({"path": "a", "content": "b"})) - len("</function>\n</tool_call>")))
def test_a_call_that_is_cut_off_is_no_call(cut: int) -> None:
    assert not calls_in(qwen({"path": "a", "content": "b"})[:cut])


def test_parameters_without_a_schema_are_taken_as_they_come() -> None:
    assert calls_in(qwen({"a": "1", "b": "x"}, "any")) == [("any", {"a": 1, "b": "x"})]


NULLABLE: Final = {"type": ["string", "null"]}
EITHER: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
ROOT: Final = {"$defs": {"text": {"type": "string"}, "count": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("42", {"type": "string"}, "42"),
        ("null", {"type": "string"}, "null"),
        ("", {"type": "string"}, ""),
        ("42", NULLABLE, "42"),
        ('{"a": 1}', NULLABLE, '{"a": 1}'),
        ('"quoted"', NULLABLE, '"quoted"'),
        ("null", NULLABLE, None),
        ("None", NULLABLE, None),
        ("", NULLABLE, ""),
        ("42", EITHER, 42),
        ("x", EITHER, "x"),
        ("42", {"enum": ["42", "43"]}, "42"),
        ("42", {"enum": [42, "x"]}, 42),
        ("42", {"const": "42"}, "42"),
        ("42", {"allOf": [{"$ref": "#/$defs/text"}]}, "42"),
        ("42", {"$ref": "#/$defs/text"}, "42"),
        ("42", {"$ref": "#/$defs/count"}, 42),
        ("42", {"type": "number"}, 42),
        (" 4.0 ", {"type": "integer"}, 4),
        ("4.5", {"type": "number"}, 4.5),
        ("", {"type": "integer"}, ABSENT),
        ("\n", {"type": ["number", "null"]}, ABSENT),
        ("many", {"type": "integer"}, "many"),
        ("NaN", {"type": "number"}, "NaN"),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("True", {"type": "string"}, "True"),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("[" * 9000, {"type": "array"}, "[" * 9000),
        ("42", {}, 42),
        ("42", None, 42),
        ("x", {"$ref": "#/$defs/nowhere"}, "x"),
    ],
)
def test_a_value_has_the_type_of_its_schema(text: str, schema: object, value: object) -> None:
    found = typed_value(text, schema, ROOT)
    assert (found, type(found)) == (value, type(value))


def test_references_in_a_circle_are_followed_once() -> None:
    several = [{"$ref": f"#/$defs/{name}"} for name in "abcabcabc"]
    root = {"$defs": {name: {"anyOf": several} for name in "abc"}}
    assert typed_value("42", {"anyOf": several}, root) == 42
    assert typed_value("x", {"$ref": "#/$defs/a"}, root) == "x"
    chain = {"$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(5000)}}
    assert typed_value("42", {"$ref": "#/$defs/0"}, chain) == 42


@pytest.mark.parametrize("depth", [100, *range(960, 1000), 100_000])
def test_a_value_may_be_nested_deeply(depth: int) -> None:
    event = events_of(qwen({"a": "[" * depth + "]" * depth}, "any"), QWEN_CODER)[-1]
    assert isinstance(event, ToolCallFinished | ToolCallBroken)


def test_an_empty_tag_of_a_number_is_left_out() -> None:
    assert calls_in(qwen({"path": "a", "mode": ""})) == [("write", {"path": "a"})]
