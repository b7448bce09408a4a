"""Define how families of models write tool calls, as their chat templates show it. Pure.

A call is a tool's name and its arguments, a JSON object; families differ in the text around them.
`orchestrator.engine.tool_calls` reads the calls of a model only in the syntax of its family.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from orchestrator.registry.template_check import judge_template


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """How a family of models writes tool calls. Any white space matches any other."""

    family: str  # for people
    opening: str  # before the tool's name
    middle: str  # between name and arguments
    closing: str  # after the arguments
    start: str = ""  # before the first call
    separator: str = "\n"  # between two calls
    end: str = ""  # after the last call
    several: bool = True  # one answer may hold more than one call
    marks: tuple[str, ...] = ()  # start a call; each is found at the start of a line
    inline: bool = False  # a mark may also follow text in the same line
    bare: bool = False  # an answer may start with a call without a mark: a JSON object or a list of them
    # How arguments are written as XML; empty for JSON. No grammar bounds XML values, so a call from a grammar has the
    # form of Hermes in `opening`, `middle` and `closing`.
    xml: Literal["", "parameters", "pairs"] = ""
    id_letters: int = 0  # required letters and digits of a call's id; 0 for any


# Templates that show calls as JSON without marks.
BARE_JSON: Final = CallSyntax(family="json", opening='{"name": "', middle='", "arguments": ', closing="}", bare=True)
_MARKED_JSON: Final = replace(BARE_JSON, bare=False, inline=True)
# Hermes, Qwen 2.5 and 3, SmolLM3 and others.
HERMES: Final = replace(
    BARE_JSON,
    family="hermes",
    opening='<tool_call>\n{"name": "',
    closing="}\n</tool_call>",
    marks=("<tool_call>",),
    bare=False,
)
# Qwen3-Coder: a tag with the name of each argument around its value.
QWEN_CODER: Final = replace(HERMES, family="qwen-coder", xml="parameters")
# GLM 4.5 and later: after the bare name, tags around the key and the value of each argument.
GLM: Final = replace(HERMES, family="glm", xml="pairs")
# How calls that another server has parsed are written into the answer's text.
REMOTE: Final = replace(HERMES, family="remote", opening=f"\n{HERMES.opening}")
# Llama 3.1 and later: bare JSON, optionally after the token `<|python_tag|>`.
LLAMA3: Final = replace(
    BARE_JSON, family="llama3", middle='", "parameters": ', several=False, marks=("<|python_tag|>",), inline=True
)
# Up to version 7 of its tokenizer: a JSON list.
MISTRAL: Final = replace(
    _MARKED_JSON,
    family="mistral",
    start="[TOOL_CALLS] [",
    separator=", ",
    end="]",
    marks=("[TOOL_CALLS]",),
    id_letters=9,
)
# Mistral from version 11: name and arguments after control tokens.
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
# Functionary 3 for Llama 3.1, and others with the name in the tag.
FUNCTION_TAGS: Final = CallSyntax(
    family="function-tags",
    opening="<function=",
    middle=">",
    closing="</function>",
    marks=("<function=",),
    inline=True,
)
# Phi-4-mini and Granite: a JSON list after a control token.
TOOL_CALL_LIST: Final = replace(
    _MARKED_JSON,
    family="tool-call-list",
    start="<|tool_call|>[",
    separator=", ",
    end="]<|/tool_call|>",
    marks=("<|tool_call|>",),
)
# DeepSeek V3 and R1: arguments in a fenced block, after control tokens.
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
# DeepSeek V3.1 and later: only control tokens around name and arguments.
DEEPSEEK_V31: Final = replace(
    DEEPSEEK,
    family="deepseek-v3.1",
    opening="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    closing="<｜tool▁call▁end｜>",
    separator="",
)
# Gpt-oss: a message to a function, in its own channel; `orchestrator.engine.thinking` normalises the headers to this.
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

# Texts around calls that are control tokens in some vocabularies.
CALL_MARKS: Final = tuple(
    "<tool_call> </tool_call> <|tool_call|> <|/tool_call|> <function= </function> <|python_tag|> "
    "[TOOL_CALLS] [ARGS] [CALL_ID] <arg_key> </arg_key> <arg_value> </arg_value> "
    "<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜> <｜tool▁calls▁end｜> "
    "<|start|> <|channel|> <|message|>".split()
)
FAMILIES: Final = {
    syntax.family: syntax
    for syntax in (
        *(HERMES, QWEN_CODER, LLAMA3, BARE_JSON, MISTRAL, MISTRAL_TEKKEN, FUNCTION_TAGS, TOOL_CALL_LIST, GLM),
        *(DEEPSEEK, DEEPSEEK_V31, HARMONY, REMOTE),
    )
}
_PARAMETERS: Final = re.compile(r'\\?"parameters\\?": ')
_ARGUMENTS: Final = re.compile(r'\\?"arguments\\?": ')


@lru_cache(64)
def call_syntax(template: str | None) -> CallSyntax | None:
    """Return how a model with this chat template writes calls; None if the template does not show it any tools."""
    if template is None or "tools" not in template:
        return None
    candidates = (
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
    syntax = next((syntax for syntax, holds in candidates if holds), None)
    return syntax if syntax is not None and judge_template(template).takes_tools else None
