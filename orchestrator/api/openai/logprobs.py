"""Convert the logprobs of an answer to the forms of chats, completions and llama-server."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel

from orchestrator.api.limiter import CallArguments, CallStarted
from orchestrator.engine.client.engine import Completion, TextPiece
from orchestrator.engine.contract import TokenLikelihood, TokenLogprob

_LEAST: Final = -9999.0  # stands for minus infinity, which JSON does not have, as in OpenAI's API


class LikelihoodBody(BaseModel):
    """A token that might have come, and the logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class LogprobBody(LikelihoodBody):
    """A token of an answer, and the most likely ones in its place."""

    top_logprobs: list[LikelihoodBody]


class IdentifiedLikelihoodBody(LikelihoodBody):
    """The same, with the number of the token in the vocabulary, as llama-server has it."""

    id: int


class IdentifiedLogprobBody(IdentifiedLikelihoodBody):
    """A token of an answer, and the most likely ones in its place, as llama-server has them."""

    top_logprobs: list[IdentifiedLikelihoodBody]


class LogprobsBody(BaseModel):
    """The tokens of an answer to a chat, or of a piece of it."""

    content: list[LogprobBody]
    refusal: None = None


class TextLogprobs(BaseModel):
    """The tokens that continue a text, or those of a piece of it, and how likely they were."""

    tokens: list[str]
    token_logprobs: list[float | None]  # None for the first token of a prompt
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]  # first character of each token in the answer


def logprobs_body(tokens: Sequence[TokenLogprob]) -> LogprobsBody:
    return LogprobsBody(
        content=[
            LogprobBody(
                **_likelihood(token).model_dump(), top_logprobs=[_likelihood(candidate) for candidate in token.top]
            )
            for token in tokens
        ]
    )


def identified_logprobs(tokens: Sequence[TokenLogprob]) -> list[IdentifiedLogprobBody]:
    """Return the logprobs as llama-server has them in /completion."""

    def identified(token: TokenLogprob | TokenLikelihood) -> dict[str, Any]:
        return {"id": token.id, **_likelihood(token).model_dump()}

    return [
        IdentifiedLogprobBody(
            **identified(token),
            top_logprobs=[IdentifiedLikelihoodBody(**identified(candidate)) for candidate in token.top],
        )
        for token in tokens
    ]


def tokens_of_text(completion: Completion) -> tuple[TokenLogprob, ...]:
    """Return the tokens of an answer's text, without those of the tool calls that follow."""
    if not completion.calls:
        return completion.logprobs
    count, length = 0, 0
    while count < len(completion.logprobs) and length < len(completion.text.encode()):
        length += len(completion.logprobs[count].data)
        count += 1
    return completion.logprobs[:count]


def text_logprobs(tokens: Sequence[TokenLogprob], offset: int = 0) -> TextLogprobs:
    """Return the logprobs as OpenAI's completions have them. The first token starts at the character `offset`."""
    likelihoods = [_likelihood(token) for token in tokens]
    offsets = [offset]
    for likelihood in likelihoods:
        offsets.append(offsets[-1] + len(likelihood.token))
    tops: list[dict[str, float] | None] = [
        {candidate.token: candidate.logprob for candidate in map(_likelihood, token.top)} for token in tokens
    ]
    return TextLogprobs(
        tokens=[likelihood.token for likelihood in likelihoods],
        token_logprobs=[likelihood.logprob for likelihood in likelihoods],
        top_logprobs=tops,
        text_offset=offsets[:-1],
    )


def prompt_tokens(completion: Completion, prompt: str | None) -> tuple[TokenLogprob, ...]:
    """Return the tokens of a prompt. `prompt` is its text; None for a prompt of tokens."""
    tokens = completion.prompt_logprobs
    if prompt is None or not tokens:
        return tokens
    # What comes before the text, such as BOS, is left out: clients count the tokens of the text alone.
    length = sum(len(token.data) for token in tokens[1:])
    return tokens[1:] if length >= len(prompt.encode()) else tokens


def echoed_logprobs(completion: Completion, prompt: str | None) -> TextLogprobs:
    """Return the logprobs of a prompt and of its continuation. `prompt` is as in `prompt_tokens`."""
    tokens = prompt_tokens(completion, prompt)
    listed = text_logprobs((*tokens, *completion.logprobs))
    # Nothing comes before the first token.
    if len(tokens) == len(completion.prompt_logprobs) and tokens:
        listed.token_logprobs[0] = listed.top_logprobs[0] = None
    return listed


def _likelihood(token: TokenLogprob | TokenLikelihood) -> LikelihoodBody:
    text = token.data.decode("utf-8", "replace")
    return LikelihoodBody(token=text, logprob=max(token.logprob, _LEAST), bytes=list(token.data))


class ListedTokens:
    """The tokens of one streamed answer. Each is sent with the text that it makes."""

    def __init__(self) -> None:
        self._tokens: list[TokenLogprob] = []
        self._sent = 0

    def take_with(self, piece: object) -> list[TokenLogprob]:
        """Add the tokens of a piece, and return those that were not sent yet."""
        if isinstance(piece, TextPiece | CallStarted | CallArguments):
            self._tokens += piece.logprobs
        sent, self._sent = self._sent, len(self._tokens)
        return self._tokens[sent:]

    def rest(self, completion: Completion) -> list[TokenLogprob] | None:
        """Return the tokens of the complete answer that were not sent yet; None if there are none."""
        self._tokens = list(completion.logprobs)
        return self.take_with(None) or None
