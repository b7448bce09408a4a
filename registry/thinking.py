"""How much a model shall think before it answers, and how models mark their thoughts. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, get_args

from annotated_types import Ge, Le

from orchestrator.registry.options import MAX_CONTEXT

Effort: TypeAlias = Literal["low", "medium", "high"]
ThinkingWord: TypeAlias = Literal["auto", "on", "off", "low", "medium", "high"]
# How much a model shall think: "auto" leaves it to the chat template, "on" and "off" switch it, an effort is for
# templates with `reasoning_effort`, and a number is the most tokens of thoughts (0 is "off").
Thinking: TypeAlias = ThinkingWord | Annotated[int, Ge(0), Le(MAX_CONTEXT)]

THINKING_WORDS: Final = get_args(ThinkingWord)
# Tokens of thoughts, if the chat template knows no efforts; no limit for "high".
EFFORT_BUDGETS: Final[dict[str, int]] = {"low": 1024, "medium": 4096}
_SWITCHES: Final = ("enable_thinking", "thinking")  # variables of chat templates
_EFFORT: Final = "reasoning_effort"


@dataclass(frozen=True, slots=True)
class ThoughtMarkers:
    """How a family of models marks its thoughts."""

    opens: str
    closes: str
    closing: str  # ends a thought from outside: `closes`, and everything up to the answer
    skips: str = ""  # written instead of a thought, if an answer without one has to be marked too
    header: str = ""  # ends a message header, if thoughts and answers are messages

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.opens, self.closes, self.closing, self.skips)))


def _tags(opens: str, closes: str) -> ThoughtMarkers:
    return ThoughtMarkers(opens, closes, f"\n{closes}\n\n")


# gpt-oss writes thoughts and answers as messages in different channels.
HARMONY: Final = ThoughtMarkers(
    opens="<|channel|>analysis<|message|>",
    closes="<|end|>",
    closing="<|end|><|start|>assistant<|channel|>final<|message|>",
    skips="<|channel|>final<|message|>",
    header="<|message|>",
)
TAGS: Final = (
    _tags("<think>", "</think>"),  # Qwen, DeepSeek, SmolLM, GLM, Phi and many others
    ThoughtMarkers("[THINK]", "[/THINK]", "[/THINK]"),  # Mistral
    _tags("<seed:think>", "</seed:think>"),
    _tags("<thought>", "</thought>"),
    _tags("◁think▷", "◁/think▷"),
    ThoughtMarkers("<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ThoughtMarkers("<|channel>thought", "<channel|>", "<channel|>"),  # Gemma 4
)


def thought_markers(template: str | None, is_token: Callable[[str], bool]) -> ThoughtMarkers | None:
    """Return how a model marks its thoughts, or None if it is not known to think.

    `is_token` says whether a text is one token of the vocabulary.
    """
    source = template or ""
    if ("<|channel|>" in source and "analysis" in source) or (is_token("<|channel|>") and is_token("<|message|>")):
        return HARMONY
    for markers in TAGS:
        if (
            markers.opens in source
            or markers.closes in source
            or (is_token(markers.opens) and is_token(markers.closes))
        ):
            return markers
    return None


def template_arguments(thinking: Thinking, template: str | None) -> dict[str, bool | str]:
    """Return the variables that ask a chat template for this much thinking, of those that it reads."""
    variables = set(re.findall(r"\w+", template or ""))
    if thinking == "auto":
        return {}
    on = thinking not in ("off", 0)
    arguments: dict[str, bool | str] = {name: on for name in _SWITCHES if name in variables}
    if _EFFORT in variables and (not on or thinking in ("low", "medium", "high")):
        arguments[_EFFORT] = str(thinking) if on else "low"
    return arguments


def thinking_budget(thinking: Thinking, template: str | None) -> int | None:
    """Return the most tokens that thoughts may have; None for no limit."""
    if isinstance(thinking, int):
        return thinking
    if thinking == "off":
        return 0
    return None if _EFFORT in (template or "") else EFFORT_BUDGETS.get(thinking)
