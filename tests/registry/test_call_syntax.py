"""Whether a chat template takes tools, and how the model writes calls, shows in the template."""

import ast
import json
import re
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
        (LISTED + "{% set mark = '｜DSML｜' %}{# <{{ mark }}tool_calls> #}", "deepseek-dsml"),
        (LISTED + "{# <|tool_call>call: #}", "gemma4"),
        (LISTED + "{# <|tool_call_start|>[ #}", "lfm2"),
        ("{% if tools %}List of tools: {{ tools | tojson }}{% endif %}" + PLAIN, "lfm2"),
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
        ("deepseek_v4", "deepseek-dsml"),
        ("gemma4", "gemma4"),
        ("lfm2_5", "lfm2"),
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


def shown(name: str, talk: tuple[Message, ...]) -> str:
    template = ChatTemplate((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"), "", "")
    return "".join(segment.text for segment in template.segments(talk, tools=(WEATHER,)))


TWO_CALLS: Final = (
    Message("user", "Compare."),
    Message("assistant", "I will look.", (ToolCall("c1", "weather", '{"city": "A"}'), ToolCall("c2", "weather", "{}"))),
    Message("tool", '{"sky": "rain"}', (), "c2"),
    Message("tool", "sun", (), "c1"),
)


def test_results_come_in_the_turn_of_their_calls_where_the_template_takes_them_so() -> None:
    calls = '<|tool_call>call:weather{city:<|"|>A<|"|>}<tool_call|><|tool_call>call:weather{}<tool_call|>'
    results = (
        '<|tool_response>response:weather{value:<|"|>sun<|"|>}<tool_response|>'
        '<|tool_response>response:weather{sky:<|"|>rain<|"|>}<tool_response|>'
    )
    begun = f"<|turn>model\nI will look.<turn|>\n<|turn>model\n{calls}{results}"
    assert shown("gemma4", TWO_CALLS).endswith(f"{begun}<|channel>thought\n<channel|>")
    answered = (*TWO_CALLS, Message("assistant", "A is better."), Message("user", "Thanks."))
    assert f"{begun}A is better.<turn|>\n<|turn>user\nThanks.<turn|>\n" in shown("gemma4", answered)


def test_results_come_in_the_order_of_their_calls() -> None:
    assert "<tool_result>sun</tool_result>\n\n<tool_result>" in shown("deepseek_v4", TWO_CALLS)
    turns = shown("lfm2_5", TWO_CALLS).split("<|im_start|>")
    assert [turn.removesuffix("<|im_end|>\n") for turn in turns if turn.startswith("tool")] == [
        "tool\nsun",
        'tool\n{"sky": "rain"}',
    ]


@pytest.mark.parametrize("text", ["it's", 'it is "x"', 'it\'s "x"', "a\\b\n", "\ue0f0"])
def test_a_list_that_python_writes_has_the_texts_as_python_writes_them(text: str) -> None:
    arguments = json.dumps({"names": [text, "x"]})
    talk = (Message("user", "?"), Message("assistant", "", (ToolCall("c1", "weather", arguments),)))
    (written,) = re.findall(r"names=(\[.*\])\)\]<\|tool_call_end\|>", shown("lfm2_5", talk))
    assert ast.literal_eval(written) == [text, "x"]


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
