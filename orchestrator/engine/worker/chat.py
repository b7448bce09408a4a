"""Make the tokens of a prompt from messages, without letting their contents pose as control tokens.

A control token that content spells, even in part, is tokenized as text.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.engine.contract import Message, OfferedTool
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.llama import Tokens, Vocabulary, as_tokens
from orchestrator.registry.chat_template import Arguments, ChatTemplate, Segment
from orchestrator.registry.errors import ChatTemplateError


class PromptTemplate:
    """Makes prompts for one model. `stops` end an answer, in addition to the model's end tokens."""

    def __init__(self, vocab: Vocabulary, source: str | None) -> None:
        self._vocab = vocab
        self._control = _ControlTokens(vocab.control)
        self._template = ChatTemplate(source, vocab.text(vocab.bos), vocab.text(vocab.eos), vocab.control)
        self.stops = self._template.stops

    def segments(
        self,
        messages: Sequence[Message],
        arguments: Arguments | None = None,
        tools: Sequence[OfferedTool] = (),
        *,
        continued: bool = False,
    ) -> list[Segment]:
        """Return the prompt for the next message, or for the rest of the last one if `continued`, in segments.

        `arguments` are variables of the template, such as `enable_thinking`. Raises BadPrompt.
        """
        try:
            return self._template.segments(messages, arguments, tools, continued=continued)
        except ChatTemplateError as error:
            raise BadPrompt(str(error)) from error

    def tokens(self, messages: Sequence[Message], arguments: Arguments | None = None) -> Tokens:
        return self.tokens_of(self.segments(messages, arguments))

    def tokens_of(self, segments: Sequence[Segment]) -> Tokens:
        """Return the tokens of a prompt. BOS comes first if the model wants it and the template has none."""
        vocab = self._vocab
        parts: list[Tokens] = []
        # Text is tokenized from one control token of the template to the next, as llama.cpp does, so the tokens can
        # be cached for other conversations that start alike.
        for text, special in self._control.cut(segments):
            parts += self._special(text, first=not parts) if special else self._quoted(text)
        if vocab.adds_bos and not (parts and len(parts[0]) and parts[0][0] == vocab.bos):
            parts.insert(0, as_tokens((vocab.bos,)))
        return np.concatenate(parts) if parts else as_tokens(())

    # `text` starts with a control token or has none; `first`: it starts the prompt.
    def _special(self, text: str, *, first: bool) -> list[Tokens]:
        vocab, token = self._vocab, self._control.at(text, 0)
        if token and vocab.adds_space and text.startswith(" ", len(token)):
            return [vocab.tokens_of(token, special=True), continued(vocab, text[len(token) :], special=True)]
        return [vocab.tokens_of(text, special=True) if token or first else continued(vocab, text, special=True)]

    def _quoted(self, token: str) -> list[Tokens]:
        tokens = continued(self._vocab, token, special=False)
        if len(tokens) > 1:
            return [tokens]
        # llama.cpp counts some control tokens as text, and finds them in any text that has the whole name
        return [continued(self._vocab, piece, special=False) for piece in (token[:1], token[1:])]


class _ControlTokens:
    def __init__(self, spellings: frozenset[str]) -> None:
        self._spellings = spellings
        self._lengths = sorted({len(spelling) for spelling in spellings}, reverse=True)
        first = "".join(sorted({re.escape(spelling[0]) for spelling in spellings}))
        self._begin = re.compile(f"[{first}]" if first else "(?!)")

    # The longest control token at `start`, or an empty string.
    def at(self, text: str, start: int) -> str:
        candidates = (text[start : start + length] for length in self._lengths)
        return next((candidate for candidate in candidates if candidate in self._spellings), "")

    def cut(self, segments: Sequence[Segment]) -> Iterator[tuple[str, bool]]:
        """Yield a prompt in pieces, and whether control tokens are meant in each."""
        text = "".join(segment.text for segment in segments)
        special = bytearray().join(bytes((segment.special,)) * len(segment.text) for segment in segments)
        start = end = 0
        for match in self._begin.finditer(text):
            match_start = match.start()
            token = self.at(text, match_start) if match_start >= end else ""
            if not token:
                continue
            end = match_start + len(token)
            if match_start > start:
                yield text[start:match_start], True
            start = match_start
            # At least a part of it is content.
            if 0 in special[match_start:end]:
                yield token, False
                start = end
        if start < len(text):
            yield text[start:], True


def continued(vocab: Vocabulary, text: str, special: bool) -> Tokens:
    """Return the tokens of text that does not start a prompt or an answer."""
    if not vocab.adds_space:
        return vocab.tokens_of(text, special)
    # SentencePiece vocabularies put a space before any text. A line break in front absorbs it, and is removed again.
    line_break = vocab.tokens_of("\n", special=False)
    tokens = vocab.tokens_of("\n" + text, special)
    alone = np.array_equal(tokens[: len(line_break)], line_break)
    return tokens[len(line_break) :] if alone else vocab.tokens_of(text, special)
