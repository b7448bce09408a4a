"""Follow the thoughts of a generation, token by token: keep them out of the answer, and end them in time."""

from collections import deque

from orchestrator.engine.llama import Vocabulary
from orchestrator.engine.thinking import ThoughtSplitter
from orchestrator.engine.worker.text import TextStream
from orchestrator.registry.thinking import Thinking, template_arguments, thinking_budget, thought_markers


class ThoughtFormat:
    """How one model thinks: marks as tokens, and variables of its chat template."""

    def __init__(self, vocab: Vocabulary, template: str | None) -> None:
        self._vocab = vocab
        self._template = template
        # None if the model is not known to think
        self.markers = thought_markers(template, lambda text: _token(vocab, text) is not None)
        self.closing: tuple[int, ...] = ()
        self.skipping: tuple[int, ...] = ()
        self._marks: dict[int, bytes] = {}
        if self.markers is not None:
            self.closing = _tokens(vocab, self.markers.closing)
            self.skipping = _tokens(vocab, self.markers.skips)
            tokens = (token for text in self.markers.texts for token in _tokens(vocab, text))
            self._marks = {token: vocab.text(token).encode() for token in tokens if not vocab.piece(token)}

    def arguments(self, thinking: Thinking) -> dict[str, bool | str]:
        return template_arguments(thinking, self._template)

    def budget(self, thinking: Thinking) -> int | None:
        """Return the most tokens that thoughts may have; None for no limit."""
        return thinking_budget(thinking, self._template)

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, also of control tokens that are part of a mark."""
        return self._marks.get(token) or self._vocab.piece(token)

    def is_end(self, token: int) -> bool:
        """Return whether a token ends a text, and is no part of a mark."""
        return token in self._vocab.end and token not in self._marks


class Thoughts:
    """The thoughts of one sequence, up to its answer. They may have `budget` tokens.

    `grammar` says whether the answer has one, and `calls` whether it may call tools.
    """

    def __init__(
        self, form: ThoughtFormat, prompt_end: str, budget: int, *, grammar: bool, calls: bool = False
    ) -> None:
        assert form.markers is not None, "a model that does not think has no thoughts"
        self.tokens = 0  # tokens of thoughts and their marks
        self._form = form
        self._splitter = ThoughtSplitter.after_prompt(form.markers, prompt_end, calls=calls)
        self._stream = TextStream(())
        self._unsent = ""
        self._budget = budget
        self._spent = 0
        self._grammar = grammar
        self._forced: deque[int] = deque()
        self._answer_next = False
        if not budget and self._splitter.state == "start" and not calls:
            self._forced.extend(form.skipping)

    @property
    def answering(self) -> bool:
        return self._splitter.state == "answering"

    @property
    def thinking(self) -> bool:
        """Whether the sequence is inside a thought that may continue."""
        return self._splitter.state == "thinking" and not self._forced

    @property
    def text(self) -> str:
        return self._stream.text

    def choose(self, token: int) -> int | None:
        """Return the next token of the thoughts: `token` or one that ends them. None: the answer starts."""
        # The budget is used up, or the model would end the whole text within the thought.
        if self.thinking and (self._spent >= self._budget or self._form.is_end(token)):
            self._forced.extend(self._form.closing)
        if self._forced:
            return self._forced[0]
        if self._splitter.state == "thinking":
            return token
        self._answer_next = self._form.is_end(token) or not self._splitter.expects(self._form.piece(token))
        return None if self._answer_next else token

    def take(self, token: int, data: bytes) -> tuple[bytes, bool]:
        """Take the chosen token, whose bytes in an answer are `data`.

        Returns the bytes that belong to the answer, and whether the whole token does.
        """
        if self._answer_next:
            held = self._splitter.answer()
            if not self._splitter.thought_begun:
                self.tokens = 0
            # A grammar has not seen what was held back before the answer.
            return (b"" if self._grammar else held) + data, True
        if self._forced:
            self._forced.popleft()
        self._spent += self._splitter.state == "thinking"
        self.tokens += 1
        thought, answer = self._splitter.push(self._form.piece(token))
        self._add(thought)
        return (b"" if self._grammar else answer), False

    def is_end(self, token: int) -> bool:
        return self._form.is_end(token)

    def close(self) -> None:
        """End the thought with the next tokens."""
        self._budget = 0

    def finish(self) -> bytes:
        """Return the bytes of the answer that were held back, since no more tokens follow."""
        if self.answering:
            return b""
        thought, answer = self._splitter.finish()
        self._add(thought)
        self._unsent += self._stream.finish()
        return answer

    def unsent(self) -> str:
        """Return what was added to the thoughts since the last call."""
        text, self._unsent = self._unsent, ""
        return text

    def _add(self, thought: bytes) -> None:
        if thought:
            self._unsent += self._stream.push(thought)


def _token(vocab: Vocabulary, text: str) -> int | None:
    tokens = vocab.tokenize(text, special=True)
    return tokens[0] if len(tokens) == 1 and vocab.text(tokens[0]) == text else None


def _tokens(vocab: Vocabulary, text: str) -> tuple[int, ...]:
    if not vocab.adds_space or not text:
        return tuple(vocab.tokenize(text, special=True))
    # Some vocabularies put a space before the start of a text; this text is inside one.
    before = vocab.tokenize("\n", special=False)
    return tuple(vocab.tokenize(f"\n{text}", special=True)[len(before) :])
