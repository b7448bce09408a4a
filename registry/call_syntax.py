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
    # How the model writes arguments by itself. A grammar only makes JSON, so a call from a grammar is always that: in
    # `opening`, `middle` and `closing`.
    arguments: Literal["json", "parameters", "pairs", "dsml", "gemma", "python"] = "json"
    id_letters: int = 0  # required letters and digits of a call's id; 0 for any

    @property
    def from_grammar(self) -> "CallSyntax":
        """The syntax of calls that a grammar forms: their arguments are JSON."""
        return replace(self, arguments="json")


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
QWEN_CODER: Final = replace(HERMES, family="qwen-coder", arguments="parameters")
# GLM 4.5 and later: after the bare name, tags around the key and the value of each argument.
GLM: Final = replace(HERMES, family="glm", arguments="pairs")
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
# DeepSeek V3.2 (whose block is called `function_calls`) and V4: tags with the name and the kind of each argument. Calls
# from a grammar have the form of Hermes.
DEEPSEEK_DSML: Final = replace(
    HERMES,
    family="deepseek-dsml",
    marks=("<｜DSML｜tool_calls>", "<｜DSML｜function_calls>", *HERMES.marks),
    inline=True,
    arguments="dsml",
)
# Gemma 4: an object with bare keys, and texts between control tokens.
GEMMA4: Final = CallSyntax(
    family="gemma4",
    opening="<|tool_call>call:",
    middle="",
    closing="<tool_call|>",
    separator="",
    marks=("<|tool_call>",),
    inline=True,
    arguments="gemma",
)
# LFM2 and LFM2.5: a list of calls of Python functions, or of JSON objects if the prompt asks for these.
LFM2: Final = replace(
    _MARKED_JSON,
    family="lfm2",
    start="<|tool_call_start|>[",
    separator=", ",
    end="]<|tool_call_end|>",
    marks=("<|tool_call_start|>",),
    arguments="python",
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
    '｜DSML｜ <|tool_call> <tool_call|> <|"|> <|tool_call_start|> <|tool_call_end|> '
    "<|start|> <|channel|> <|message|>".split()
)
FAMILIES: Final = {
    syntax.family: syntax
    for syntax in (
        *(HERMES, QWEN_CODER, LLAMA3, BARE_JSON, MISTRAL, MISTRAL_TEKKEN, FUNCTION_TAGS, TOOL_CALL_LIST, GLM),
        *(DEEPSEEK, DEEPSEEK_V31, DEEPSEEK_DSML, GEMMA4, LFM2, HARMONY, REMOTE),
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
        (DEEPSEEK_DSML, "｜DSML｜" in template),
        (GEMMA4, "<|tool_call>" in template),
        (LFM2, "<|tool_call_start|>" in template),
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
        (LFM2, "List of tools: " in template),  # the first templates of LFM2.5 show no calls
    )
    syntax = next((syntax for syntax, holds in candidates if holds), None)
    return syntax if syntax is not None and judge_template(template).takes_tools else None
