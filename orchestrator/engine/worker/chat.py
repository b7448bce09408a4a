"""Turn chat messages into the tokens of a prompt through the model's own template.

The contents of messages cannot spell control tokens: the template is rendered with placeholders instead of contents,
and the result is cut into segments. In those of the template control tokens are recognized, and in those of contents
"<|im_end|>" is ten characters like any others.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import jinja2
import numpy as np
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.engine.contract import Message
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.llama import Tokens, Vocabulary, as_tokens

PLAIN = (
    "{% for message in messages %}### {{ message.role | capitalize }}:\n{{ message.content }}\n\n{% endfor %}"
    "### Assistant:{{ '\n' }}"
)
"""The template for a model without one."""
PLAIN_STOPS = ("\n### ",)
"""Stop strings that go with `PLAIN`: the answer ends where the model would begin the next message."""

_CLOCK = "strftime_now"
_KEPT = 64

# Python counts \x1c as white space, and no template contains it: it shows whether the template strips contents.
_EDGE = "\x1c"
_PLACEHOLDER = re.compile("(\x1c?)\ue0f0([0-9]+)\ue0f1(\x1c?)")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt."""

    text: str
    special: bool
    """Whether control tokens may be spelled in it."""


class ChatTemplate:
    """A model's Jinja template, or the plain one. `stops` are strings that end an answer, besides the end tokens."""

    def __init__(self, source: str | None, bos: str, eos: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals[_CLOCK] = _now
        self.stops = PLAIN_STOPS if source is None else ()
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._broken = ""
        self._rendered = self._render if source and _CLOCK in source else lru_cache(_KEPT)(self._render)
        try:
            self._template = environment.from_string(PLAIN if source is None else source)
        except jinja2.TemplateError as error:
            self._broken = f"the model's chat template is broken: {_one_line(error)}"

    def segments(self, messages: Sequence[Message]) -> list[Segment]:
        """Return the segments of the prompt that asks for the assistant's next message. Raises BadPrompt.

        Where the template refuses or drops a system message, its text is put in front of the first user message.
        """
        if self._broken:
            raise BadPrompt(self._broken)
        contents = [text for _, text in messages]
        plain = tuple(Message(role, _placeholder(index, contents)) for index, (role, _) in enumerate(messages))
        may_merge = len(plain) > 1 and plain[0][0] == "system" and plain[1][0] == "user"
        try:
            rendered = self._rendered(plain)
            if may_merge and plain[0][1] not in _normal(rendered):
                rendered = self._rendered(_merged(plain))
        except BadPrompt:
            if not may_merge:
                raise
            rendered = self._rendered(_merged(plain))
        return _cut(rendered, contents)

    def _render(self, messages: tuple[Message, ...]) -> str:
        """Render messages of placeholders. The result is cached unless it also depends on the date."""
        dicts = [{"role": role, "content": content} for role, content in messages]
        try:
            return self._template.render(
                messages=dicts, add_generation_prompt=True, tools=None, documents=None, **self._tokens
            )
        except Exception as error:  # a template is code of somebody else: whatever it raises means a bad prompt
            raise BadPrompt(f"the model's chat template refuses the messages: {_one_line(error)}") from error


def prompt_tokens(vocab: Vocabulary, segments: Sequence[Segment]) -> Tokens:
    """Return the tokens of a prompt, with BOS in front if the model needs one and the template has not put it there.

    Segments are tokenized one by one, so that no token spans the border of template and content.
    """
    parts: list[Tokens] = []
    for segment in segments:
        part = _continued(vocab, segment) if parts else vocab.tokens_of(segment.text, segment.special)
        if len(part):
            parts.append(part)
    if vocab.adds_bos and not (parts and parts[0][0] == vocab.bos):
        parts.insert(0, as_tokens((vocab.bos,)))
    return np.concatenate(parts) if parts else as_tokens(())


def _continued(vocab: Vocabulary, segment: Segment) -> Tokens:
    """Return the tokens of a segment that does not begin the prompt.

    SentencePiece vocabularies put a space before any text. So it is tokenized with a line break in front, whose tokens
    are then removed.
    """
    if not vocab.adds_space:
        return vocab.tokens_of(segment.text, segment.special)
    line_break = vocab.tokens_of("\n", special=False)
    tokens = vocab.tokens_of("\n" + segment.text, segment.special)
    alone = np.array_equal(tokens[: len(line_break)], line_break)
    return tokens[len(line_break) :] if alone else vocab.tokens_of(segment.text, segment.special)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _placeholder(index: int, contents: Sequence[str]) -> str:
    return f"{_EDGE}\ue0f0{index}\ue0f1{_EDGE}" if contents[index] else ""


def _normal(rendered: str) -> str:
    """Return the rendered text with all placeholders complete, also those that the template has stripped."""
    return _PLACEHOLDER.sub(f"{_EDGE}\ue0f0\\2\ue0f1{_EDGE}", rendered)


def _merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    (_, system), (_, user), *rest = messages
    return (Message("user", "\n\n".join(filter(None, (system, user)))), *rest)


def _cut(rendered: str, contents: Sequence[str]) -> list[Segment]:
    """Return the segments of a rendered prompt, with contents stripped where the template has stripped them."""
    segments, end = [], 0
    for match in _PLACEHOLDER.finditer(rendered):
        segments.append(Segment(rendered[end : match.start()], special=True))
        text = contents[int(match[2])]
        text = text if match[1] else text.lstrip()
        segments.append(Segment(text if match[3] else text.rstrip(), special=False))
        end = match.end()
    segments.append(Segment(rendered[end:], special=True))
    return [segment for segment in segments if segment.text]


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
