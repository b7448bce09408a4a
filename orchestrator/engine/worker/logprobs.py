"""Compute how likely the tokens of answers and prompts were, and the most likely alternatives."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from orchestrator.engine.contract import TokenLikelihood, TokenLogprob
from orchestrator.engine.llama import Logits, Tokens, Vocabulary


# A token of an answer, and the characters that it makes: from `start` to before `end`.
@dataclass(slots=True)
class _Listed:
    logprob: TokenLogprob
    text: str
    start: int
    end: int


def _token_logprob(logits: Logits, token: int, count: int, vocab: Vocabulary) -> TokenLogprob:
    best = logits.max()
    total = float(best) + float(np.log(np.exp(logits - best).sum(dtype=np.float64)))
    count = min(count, len(logits))
    most = np.argpartition(-logits, count - 1)[:count] if count else np.zeros(0, np.int64)
    most = most[np.lexsort((most, -logits[most]))]
    top = tuple(
        TokenLikelihood(candidate, _bytes(vocab, candidate), float(logits[candidate]) - total)
        for candidate in most.tolist()
    )
    return TokenLogprob(token, _bytes(vocab, token), float(logits[token]) - total, top)


def _bytes(vocab: Vocabulary, token: int) -> bytes:
    return vocab.piece(token) or vocab.text(token).encode()


class PromptLogprobs:
    """Logprobs of the tokens of one prompt, each after those before it, with the `count` most likely ones."""

    def __init__(self, count: int, vocab: Vocabulary, prompt: Tokens) -> None:
        self._count = count
        self._vocab = vocab
        self._prompt = prompt
        self._logprobs = [TokenLogprob(token, _bytes(vocab, token), 0.0) for token in prompt[:1].tolist()]

    def take(self, position: int, logits: Logits) -> None:
        """Take the logits after the tokens from `position` on, of shape (tokens, vocabulary)."""
        # After a preemption the prompt is computed again, from a position that may be known already.
        first = len(self._logprobs) - position - 1
        for row in range(max(0, first), min(len(logits), len(self._prompt) - position - 1)):
            token = int(self._prompt[position + row + 1])
            self._logprobs.append(_token_logprob(logits[row], token, self._count, self._vocab))

    @property
    def complete(self) -> bool:
        return len(self._logprobs) == len(self._prompt)

    @property
    def found(self) -> tuple[TokenLogprob, ...]:
        """The logprobs, as far as the prompt is computed."""
        return tuple(self._logprobs)


class AnswerLogprobs:
    """The tokens of one answer with their logprobs, each released together with its text."""

    def __init__(self, count: int, vocab: Vocabulary) -> None:
        self.released: list[TokenLogprob] = []  # belongs to the text that is certain by now
        self._count = count
        self._vocab = vocab
        self._pending: TokenLogprob | None = None
        self._held: deque[_Listed] = deque()
        self._sent = 0

    def choose(self, logits: Logits, token: int) -> None:
        """Record that a token was chosen from these logits, of shape (vocabulary,)."""
        # The model's own logits: before biases, penalties, temperature and grammar, as in OpenAI's API and vLLM.
        self._pending = _token_logprob(logits, token, self._count, self._vocab)

    def append(self, data: bytes, text: str, start: int, *, unfinished: bool) -> None:
        """Add the token that was chosen last. Its bytes `data` decode to `text`, after `start` characters.

        `unfinished`: its last character is incomplete.
        """
        if self._pending is None:
            return
        listed, self._pending = self._pending._replace(data=data), None
        self._held.append(_Listed(listed, text, start, start + len(text) + unfinished))

    def release(self, characters: int, *, stopped: bool) -> None:
        """Release the tokens of the first `characters` of the answer. Nothing follows if a stop string `stopped` it."""
        while self._held and self._held[0].end <= characters:
            self.released.append(self._held.popleft().logprob)
        if stopped:
            # A token in which the stop string starts is listed with the part before it.
            cut = self._held[0] if self._held else None
            if cut is not None and cut.start < characters:
                shown = cut.text[: characters - cut.start]
                self.released.append(cut.logprob._replace(data=shown.encode()))
            self._held.clear()

    def finish(self) -> None:
        """Release all tokens, since the text is complete."""
        self.released += [listed.logprob for listed in self._held]
        self._held.clear()

    def unsent(self) -> list[TokenLogprob]:
        """Return what was released since the last call."""
        sent, self._sent = self._sent, len(self.released)
        return self.released[sent:]
