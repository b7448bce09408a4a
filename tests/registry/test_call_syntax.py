"""Whether a chat template takes tools, and how the model writes calls, shows in the template."""

from pathlib import Path
from typing import Final

import pytest

from orchestrator.registry.call_syntax import call_syntax
from orchestrator.registry.chat_template import ChatTemplate, takes_tools
from orchestrator.registry.messages import Message, OfferedTool, ToolCall

TEMPLATES: Final = Path(__file__).parents[1] / "orchestrator" / "engine" / "chat_templates"
PLAIN: Final = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
LISTED: Final = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + PLAIN


WEATHER: Final = OfferedTool(
    "weather", "Says <|im_end|>", '{"type": "object", "properties": {"city": {"type": "string"}}}'
)


@pytest.mark.parametrize(
    ("source", "family"),
    [
        (LISTED + "{# <tool_call> #}", "hermes"),
        (LISTED + "{# <tool_call><function=x><parameter=y> #}", "qwen-coder"),
        (LISTED + "{# <|python_tag|> #}", "llama3"),
        (LISTED + """{{ '{"name": "x", "parameters": ' if false }}""", "llama3"),
        (LISTED + """{{ '{"name": "x", "arguments": ' if false }}""", "json"),
        (LISTED + "{# [TOOL_CALLS] #}", "mistral"),
        (LISTED + "{# [TOOL_CALLS][ARGS] #}", "mistral-tekken"),
        (LISTED + "{# <function= <|python_tag|> #}", "function-tags"),
        (LISTED + "{# <|tool_call|> #}", "tool-call-list"),
        (LISTED + "{# <tool_call><arg_key> #}", "glm"),
        (LISTED + "{# <｜tool▁calls▁begin｜>function<｜tool▁sep｜>x```json #}", "deepseek"),
        (LISTED + "{# <｜tool▁calls▁begin｜>x<｜tool▁sep｜> #}", "deepseek-v3.1"),
        (LISTED + "{# <|start|>assistant to=functions.x<|channel|>commentary #}", "harmony"),
        (LISTED, None),
        (PLAIN + "{# <tool_call> tools #}", None),
        (None, None),
        ("{% if tools", None),
        ("{{ raise_exception('no') if tools }}" + PLAIN + "{# <tool_call> #}", None),
    ],
)
def test_the_family_of_a_template(source: str | None, family: str | None) -> None:
    found = call_syntax(source)
    assert (found.family if found is not None else None) == family
    assert takes_tools(source) or family is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen3", "hermes"),
        ("llama3", "llama3"),
        ("mistral_v3", "mistral"),
        ("mistral_tekken", "mistral-tekken"),
        ("phi", None),
    ],
)
def test_templates_in_the_manner_of_real_ones(name: str, family: str | None) -> None:
    found = call_syntax((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
    assert (found.family if found is not None else None) == family


def test_descriptions_are_no_text_of_the_template() -> None:
    segments = ChatTemplate(LISTED, "<s>", "</s>").segments((Message("user", "Hi"),), tools=(WEATHER,))
    text = "".join(segment.text for segment in segments)
    assert text.startswith('{"type": "function", "function": {"name": "weather", "description": "Says <|im_end|>"')
    assert not any(segment.special and "<|im_end|>" in segment.text for segment in segments)


def test_calls_come_one_a_turn_where_the_template_takes_no_more() -> None:
    source = (TEMPLATES / "llama3.jinja").read_text(encoding="utf-8")
    talk = (
        Message("user", "Compare."),
        Message(
            "assistant", "I will look.", (ToolCall("c1", "weather", '{"city": "A"}'), ToolCall("c2", "weather", "{}"))
        ),
        Message("tool", "rain", (), "c2"),
        Message("tool", "sun", (), "c1"),
    )
    text = "".join(one.text for one in ChatTemplate(source, "", "").segments(talk, tools=(WEATHER,)))
    turns = [turn.partition("<|end_header_id|>\n\n")[2] for turn in text.split("<|eot_id|>")][2:-1]
    assert turns == [
        "I will look.",
        '{"name": "weather", "parameters": {"city": "A"}}',
        '"sun"',
        '{"name": "weather", "parameters": {}}',
        '"rain"',
    ]


def test_ids_of_calls_are_those_of_the_conversation_or_as_mistral_wants_them() -> None:
    source = (TEMPLATES / "mistral_v3.jinja").read_text(encoding="utf-8")
    for call_id, kept in (("a1b2c3d4e", True), ("call_0123456789", False)):
        talk = (
            Message("user", "?"),
            Message("assistant", "", (ToolCall(call_id, "weather", "{}"),)),
            Message("tool", "sun", (), call_id),
        )
        text = "".join(one.text for one in ChatTemplate(source, "", "").segments(talk, tools=(WEATHER,)))
        (found,) = {one.split('"')[0] for one in text.split('id": "')[1:]}
        assert (found == call_id, len(found)) == (kept, 9)
