"""Say how models write calls of tools, as their chat templates show it. Pure.

A call is the name of a tool and its arguments, which are a JSON object. Families of models differ in what stands
around them. `orchestrator.engine.tool_calls` reads the calls of a model in the syntax of its family, and in no other.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from registry.template_check import judge_template


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """How a family of models writes calls of tools. White space in the texts may be of any kind."""

    family: str
    """The family's name, for people."""
    opening: str
    """What stands before the name of a tool."""
    middle: str
    """What stands between name and arguments."""
    closing: str
    """What stands after the arguments."""
    start: str = ""
    """What stands before the first call."""
    separator: str = "\n"
    """What stands between two calls."""
    end: str = ""
    """What stands after the last call."""
    several: bool = True
    """Whether one answer may hold more than one call."""
    marks: tuple[str, ...] = ()
    """What the model begins calls with; each is found at the start of a line."""
    inline: bool = False
    """Whether a mark may also follow directly on text in the same line."""
    bare: bool = False
    """Whether an answer may begin with a call that has no mark: with an object in JSON, or a list of some."""
    xml: Literal["", "parameters", "pairs"] = ""
    """How the model writes arguments as XML; empty where it writes JSON. No grammar bounds their values, so a call that
    a grammar forms has the form of Hermes, which `opening`, `middle` and `closing` are of."""
    id_letters: int = 0
    """How many letters and digits the id of a call has to have; 0 for any id."""


HERMES: Final = CallSyntax(
    family="hermes",
    opening='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    closing="}\n</tool_call>",
    marks=("<tool_call>",),
)
"""Hermes, Qwen 2.5 and 3, SmolLM3 and others."""
QWEN_CODER: Final = replace(HERMES, family="qwen-coder", xml="parameters")
"""Qwen3-Coder: a tag with the name of each argument around its value."""
LLAMA3: Final = CallSyntax(
    family="llama3",
    opening='{"name": "',
    middle='", "parameters": ',
    closing="}",
    several=False,
    marks=("<|python_tag|>",),
    inline=True,
    bare=True,
)
"""Llama 3.1 and later: bare JSON, with or without the token `<|python_tag|>` before it."""
BARE_JSON: Final = CallSyntax(
    family="json",
    opening='{"name": "',
    middle='", "arguments": ',
    closing="}",
    bare=True,
)
"""Models whose templates show calls as JSON, with nothing around them."""
MISTRAL: Final = CallSyntax(
    family="mistral",
    start="[TOOL_CALLS] [",
    opening='{"name": "',
    middle='", "arguments": ',
    closing="}",
    separator=", ",
    end="]",
    marks=("[TOOL_CALLS]",),
    inline=True,
    id_letters=9,
)
"""Mistral up to version 7 of its tokenizer: a list in JSON."""
MISTRAL_TEKKEN: Final = CallSyntax(
    family="mistral-tekken",
    opening="[TOOL_CALLS]",
    middle="[ARGS]",
    closing="",
    separator="",
    marks=("[TOOL_CALLS]",),
    inline=True,
    id_letters=9,
)
"""Mistral from version 11 on: a name and its arguments behind control tokens."""
FUNCTION_TAGS: Final = CallSyntax(
    family="function-tags",
    opening="<function=",
    middle=">",
    closing="</function>",
    marks=("<function=",),
    inline=True,
)
"""Functionary 3 for Llama 3.1, and others whose tags hold the name."""
TOOL_CALL_LIST: Final = CallSyntax(
    family="tool-call-list",
    start="<|tool_call|>[",
    opening='{"name": "',
    middle='", "arguments": ',
    closing="}",
    separator=", ",
    end="]<|/tool_call|>",
    marks=("<|tool_call|>",),
    inline=True,
)
"""Phi-4-mini and Granite: a list in JSON behind a control token."""

GLM: Final = replace(HERMES, family="glm", xml="pairs")
"""GLM 4.5 and later: tags around the key and the value of each argument, behind the bare name."""
DEEPSEEK: Final = CallSyntax(
    family="deepseek",
    start="<｜tool▁calls▁begin｜>",
    opening="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    closing="\n```<｜tool▁call▁end｜>",
    end="<｜tool▁calls▁end｜>",
    marks=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    inline=True,
)
"""DeepSeek V3 and R1: arguments in a fenced block, behind control tokens."""
DEEPSEEK_V31: Final = CallSyntax(
    family="deepseek-v3.1",
    start=DEEPSEEK.start,
    opening="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    closing="<｜tool▁call▁end｜>",
    separator="",
    end=DEEPSEEK.end,
    marks=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    inline=True,
)
"""DeepSeek V3.1 and later: name and arguments with nothing but control tokens around them."""
HARMONY: Final = CallSyntax(
    family="harmony",
    opening="<|channel|>commentary to=functions.",
    middle=" json<|message|>",
    closing="",
    several=False,
    marks=(
        "<|channel|>commentary to=functions.",
        "<|start|>assistant to=functions.",
        "<|start|>assistant<|channel|>commentary to=functions.",
    ),
    inline=True,
)
"""gpt-oss: a message to a function, in a channel of its own. `orchestrator.engine.thinking` gives headers this form."""

REMOTE: Final = replace(HERMES, family="remote", opening=f"\n{HERMES.opening}")
"""The form in which calls are written into the text of an answer that another server has read the calls of."""

CALL_MARKS: Final = (
    *("<tool_call>", "</tool_call>", "<|tool_call|>", "<|/tool_call|>", "<function=", "</function>"),
    *("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    *("<|start|>", "<|channel|>", "<|message|>"),
)
"""The texts around calls that are control tokens in some vocabularies."""
FAMILIES: Final = {
    syntax.family: syntax
    for syntax in (
        *(HERMES, QWEN_CODER, LLAMA3, BARE_JSON, MISTRAL, MISTRAL_TEKKEN, FUNCTION_TAGS, TOOL_CALL_LIST, GLM),
        *(DEEPSEEK, DEEPSEEK_V31, HARMONY, REMOTE),
    )
}
"""All syntaxes, by their names."""
_PARAMETERS: Final = re.compile(r'\\?"parameters\\?": ')
_ARGUMENTS: Final = re.compile(r'\\?"arguments\\?": ')


@lru_cache(64)
def call_syntax(template: str | None) -> CallSyntax | None:
    """Return how a model with this chat template writes calls; None where it is not known to be given tools by it."""
    if template is None or "tools" not in template:
        return None
    found = (
        (HARMONY, "<|channel|>" in template and "functions." in template),
        (DEEPSEEK, "<｜tool▁calls▁begin｜>" in template and "```json" in template),
        (DEEPSEEK_V31, "<｜tool▁calls▁begin｜>" in template),
        (GLM, "<arg_key>" in template),
        (QWEN_CODER, "<parameter=" in template),
        (MISTRAL_TEKKEN, "[TOOL_CALLS]" in template and "[ARGS]" in template),
        (MISTRAL, "[TOOL_CALLS]" in template),
        (TOOL_CALL_LIST, "<|tool_call|>" in template),
        (FUNCTION_TAGS, "<function=" in template),
        (HERMES, "<tool_call>" in template),
        (LLAMA3, "<|python_tag|>" in template or _PARAMETERS.search(template) is not None),
        (BARE_JSON, _ARGUMENTS.search(template) is not None),
    )
    syntax = next((syntax for syntax, holds in found if holds), None)
    return syntax if syntax is not None and judge_template(template).takes_tools else None
