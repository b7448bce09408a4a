"""Render chat messages through a model's own template, without letting their content pose as the template's.

The template is rendered with placeholders instead of contents. What comes out is cut into segments: text of the
template, in which control tokens are meant, and contents, in which "<|im_end|>" is ten characters like any others.
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
"""Used for a model without a template; its answer ends where it would begin the next "### "."""
PLAIN_STOPS = ("\n### ",)

_CLOCK = "strftime_now"
_KEPT = 64

# \x1c counts as white space in Python and occurs in no template: it shows whether the template strips contents.
_EDGE = "\x1c"
_PLACEHOLDER = re.compile("(\x1c?)\ue0f0([0-9]+)\ue0f1(\x1c?)")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt; `special` says whether control tokens may be spelled in it."""

    text: str
    special: bool


class ChatTemplate:
    """A Jinja template of a model, or the plain one. `stops` end an answer besides the model's own end tokens."""

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
        """Return the prompt that asks for the assistant's next message. Raises BadPrompt.

        Where the template refuses or drops a system message, it goes in front of the first user message.
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
        """Render messages of placeholders. What comes out is kept where it depends on nothing else, as on the date."""
        dicts = [{"role": role, "content": content} for role, content in messages]
        try:
            return self._template.render(
                messages=dicts, add_generation_prompt=True, tools=None, documents=None, **self._tokens
            )
        except Exception as error:  # boundary: a template is foreign code, whatever it raises means a bad prompt
            raise BadPrompt(f"the model's chat template refuses the messages: {_one_line(error)}") from error


def prompt_tokens(vocab: Vocabulary, segments: Sequence[Segment]) -> Tokens:
    """Return the tokens of a prompt, with BOS in front where the model wants it and the template has none.

    Segments are tokenized one by one: a token never spans the border of template and content.
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
    """Tokenize text that does not begin the prompt.

    SentencePiece vocabularies put a space before whatever they are given. A line break in front takes it, and goes.
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
    """Return the rendered text with every placeholder as it was before the template may have stripped it."""
    return _PLACEHOLDER.sub(f"{_EDGE}\ue0f0\\2\ue0f1{_EDGE}", rendered)


def _merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    (_, system), (_, user), *rest = messages
    return (Message("user", "\n\n".join(filter(None, (system, user)))), *rest)


def _cut(rendered: str, contents: Sequence[str]) -> list[Segment]:
    """Return the segments of a rendered prompt, with contents stripped where the template strips them."""
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
