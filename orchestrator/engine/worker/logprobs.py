"""Say how likely the tokens of an answer were, and which others would have been likely in their places."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from orchestrator.engine.contract import TokenLikelihood, TokenLogprob
from orchestrator.engine.llama import Logits, Tokens, Vocabulary


@dataclass(slots=True)
class _Listed:
    """A token of the answer, and the characters of the text that it makes: from `start` to before `end`."""

    logprob: TokenLogprob
    text: str
    start: int
    end: int


def _token_logprob(logits: Logits, token: int, count: int, vocab: Vocabulary) -> TokenLogprob:
    """Return how likely a token was by these logits, of shape (vocabulary,), and the `count` most likely ones."""
    best = logits.max()
    total = float(best) + float(np.log(np.exp(logits - best).sum(dtype=np.float64)))
    count = min(count, len(logits))
    most = np.argpartition(-logits, count - 1)[:count] if count else np.zeros(0, np.int64)
    most = most[np.lexsort((most, -logits[most]))]
    top = tuple(TokenLikelihood(one, _bytes(vocab, one), float(logits[one]) - total) for one in most.tolist())
    return TokenLogprob(token, _bytes(vocab, token), float(logits[token]) - total, top)


def _bytes(vocab: Vocabulary, token: int) -> bytes:
    return vocab.piece(token) or vocab.text(token).encode()


class PromptLogprobs:
    """How likely the tokens of one prompt were, each after those before it, with the `count` most likely ones."""

    def __init__(self, count: int, vocab: Vocabulary, prompt: Tokens) -> None:
        self._count = count
        self._vocab = vocab
        self._prompt = prompt
        self._found = [TokenLogprob(token, _bytes(vocab, token), 0.0) for token in prompt[:1].tolist()]

    def take(self, position: int, logits: Logits) -> None:
        """Take the logits after the tokens from `position` on, of shape (tokens, vocabulary).

        A sequence that was preempted computes its prompt again, from a place that it knows already.
        """
        first = len(self._found) - position - 1
        for row in range(max(0, first), min(len(logits), len(self._prompt) - position - 1)):
            token = int(self._prompt[position + row + 1])
            self._found.append(_token_logprob(logits[row], token, self._count, self._vocab))

    @property
    def complete(self) -> bool:
        """Whether all of the prompt is computed."""
        return len(self._found) == len(self._prompt)

    @property
    def found(self) -> tuple[TokenLogprob, ...]:
        """All of them, as far as the prompt is computed."""
        return tuple(self._found)


class AnswerLogprobs:
    """The tokens of one answer with their logprobs, each released together with the text that it makes.

    Logprobs come from the logits as the model computed them: before biases, penalties, temperature and grammar, as in
    OpenAI's API and by default in vLLM. With each token come the `count` most likely ones in its place. A token of
    which only a part is in the text, since a stop string begins in it, is listed with that part.
    """

    def __init__(self, count: int, vocab: Vocabulary) -> None:
        self.released: list[TokenLogprob] = []
        """What belongs to the text that is certain by now."""
        self._count = count
        self._vocab = vocab
        self._chosen: TokenLogprob | None = None
        self._held: deque[_Listed] = deque()
        self._sent = 0

    def choose(self, logits: Logits, token: int) -> None:
        """Note that this token was chosen where the model has computed these logits, of shape (vocabulary,)."""
        self._chosen = _token_logprob(logits, token, self._count, self._vocab)

    def append(self, data: bytes, text: str, start: int, *, unfinished: bool) -> None:
        """Add the token that was chosen last. Its bytes `data` are part of the answer and decode to `text`.

        The answer has `start` characters before it. It is `unfinished` where a character is not complete after it.
        """
        if self._chosen is None:
            return
        listed, self._chosen = self._chosen._replace(data=data), None
        self._held.append(_Listed(listed, text, start, start + len(text) + unfinished))

    def release(self, characters: int, *, stopped: bool) -> None:
        """Release the tokens of the first `characters` of the answer. Nothing follows if a stop string `stopped` it."""
        while self._held and self._held[0].end <= characters:
            self.released.append(self._held.popleft().logprob)
        if stopped:
            cut = self._held[0] if self._held else None
            if cut is not None and cut.start < characters:
                shown = cut.text[: characters - cut.start]
                self.released.append(cut.logprob._replace(data=shown.encode()))
            self._held.clear()

    def finish(self) -> None:
        """Release all tokens, since the text is complete."""
        self.released += [one.logprob for one in self._held]
        self._held.clear()

    def unsent(self) -> list[TokenLogprob]:
        """Return what was released since the last call."""
        sent, self._sent = self._sent, len(self.released)
        return self.released[sent:]
