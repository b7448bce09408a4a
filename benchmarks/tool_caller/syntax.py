"""Write prompts and answers of the tool caller in its two syntaxes: each is a chat template for the same weights."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from benchmarks.tiny.sizes import TOKENIZER_FILE
from benchmarks.tiny.tokenizer import BEGIN, END, SPECIAL_TOKENS, Tokenizer

Syntax: TypeAlias = Literal["hermes", "llama3"]
SYNTAXES: Final[tuple[Syntax, ...]] = ("hermes", "llama3")
OPEN_THOUGHT, CLOSE_THOUGHT = "<think>\n", "\n</think>\n\n"
# Tokens that are texts at the same time, as Qwen's vocabulary has them.
MARKS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CONTROL: Final = ("<|tool|>", "<|python_tag|>")  # Control tokens, which are no text
SEARCH: Final = ("search", "web_search", "search_facts", "brave_search")
CALCULATORS: Final = ("calculator", "calculate", "evaluate", "wolfram_alpha")
# Names of tools whose calls begin with a token of their own in the syntax of Llama 3.
BUILT_IN: Final = (*SEARCH, *CALCULATORS)
ADDED: Final = (*MARKS, *CONTROL)  # the tokens that the vocabulary has in addition to those of the embedded models


@dataclass(frozen=True, slots=True)
class TaughtCall:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the model answers: a text or calls, after a thought."""

    thought: str
    text: str = ""
    calls: tuple[TaughtCall, ...] = ()


def template_source(syntax: Syntax) -> str:
    """Return the chat template for a syntax."""
    return (Path(__file__).parent / "templates" / f"{syntax}.jinja").read_text(encoding="utf-8")


@cache
def _template(syntax: Syntax) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(template_source(syntax))


def prompt_text(
    syntax: Syntax, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, thinking: bool
) -> str:
    """Return the prompt that asks for the next answer, as the chat template renders it with `transformers`."""
    return _template(syntax).render(
        messages=messages,
        tools=[*tools] or None,
        enable_thinking=thinking,
        add_generation_prompt=True,
        bos_token=SPECIAL_TOKENS[BEGIN],
        eos_token=SPECIAL_TOKENS[END],
    )


def answer_text(syntax: Syntax, answer: ModelAnswer) -> str:
    """Return the answer without its thought, as the model writes it: text or calls.

    In the syntax of Llama 3 there is at most one call, and `<|python_tag|>` stands before one of a tool that is like
    those that are built into Llama 3.
    """
    key = "arguments" if syntax == "hermes" else "parameters"
    calls = [json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False) for call in answer.calls]
    if syntax == "hermes":
        return answer.text or "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    built_in = answer.calls and answer.calls[0].name in BUILT_IN
    return answer.text or ("<|python_tag|>" if built_in else "") + "".join(calls)


def _refuse(message: str) -> None:
    raise TemplateError(message)


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of the embedded models with the tokens that only the tool caller has."""
    return Tokenizer.load(TOKENIZER_FILE, ADDED)
