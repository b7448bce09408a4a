"""Models that think aloud. Their weights make one token follow on another, so it is known what they write."""

from pathlib import Path

from benchmarks.models import CHATML, ModelShape, write_chain

TURN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TAGGED = CHATML.replace(
    TURN,
    "<|im_start|>assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
)
"""A template that can be told not to think, and then puts an empty thought into the prompt."""
OPENED = CHATML.replace(TURN, "<|im_start|>assistant:<think>")
"""A template that opens the thought itself."""
CHANNELS = CHATML.replace(TURN, "Reasoning: {{ reasoning_effort }}<|start|>assistant") + "{# <|channel|>analysis #}"

THOUGHT = {":": "<think>", "<think>": "hm", "hm": "ah", "ah": "</think>", "</think>": "\n"}
ANSWER = {"\n": "4", "4": "2", "2": "<|im_end|>"}
TAGS = ("<think>", "</think>")


def brief(path: Path, template: str = TAGGED) -> Path:
    """Write a model that thinks `hmah` and answers `42`."""
    return write_chain(path, THOUGHT | ANSWER, _shape(template, TAGS))


def endless(path: Path, template: str = TAGGED) -> Path:
    """Write a model that never ends its thought by itself, and answers `42` when somebody else ends it."""
    return write_chain(path, THOUGHT | ANSWER | {"hm": "hm"}, _shape(template, TAGS))


def giving_up(path: Path) -> Path:
    """Write a model that would end the whole text within its thought."""
    return write_chain(path, THOUGHT | ANSWER | {"ah": "<|im_end|>"}, _shape(TAGGED, TAGS))


def harmonic(path: Path) -> Path:
    """Write a model that thinks `hmah` in the channel for analysis and answers `42` in the final one, as gpt-oss does.

    A chain cannot tell two headers apart, so it leaves the second one out: what ends a thought has to be forced.
    """
    marks = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "assistant", "analysis", "final")
    follows = {"assistant": "<|channel|>", "<|channel|>": "analysis", "analysis": "<|message|>", "<|message|>": "hm"}
    follows |= {"hm": "ah", "ah": "ah"}
    return write_chain(path, follows | ANSWER, _shape(CHANNELS, marks, control=True))


def _shape(template: str, marks: tuple[str, ...], *, control: bool = False) -> ModelShape:
    return ModelShape(weights="f32", chat_template=template, marks=marks, control_marks=control)
