"""Make the tokens of prompts other than chats: a text, token ids, or a place in a text to fill (FIM)."""

from collections.abc import Sequence

import numpy as np

from orchestrator.engine.contract import Infill
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.llama import Tokens, Vocabulary, as_tokens
from orchestrator.engine.protocol import Detokenize, Rendered, Tokenize, Tokenized

REPOSITORY = "repository"  # the repository's name in FIM prompts; callers give none


def raw_tokens(vocab: Vocabulary, prompt: str | Sequence[int]) -> Tokens:
    """Return the tokens of a raw prompt. Raises BadPrompt if it is empty or has ids outside the vocabulary."""
    if isinstance(prompt, str):
        tokens = vocab.tokenize(prompt, special=True, whole=True)
        # BOS is not added to a text that starts with its name.
        if tokens[:2] == [vocab.bos, vocab.bos] and prompt.startswith(vocab.text(vocab.bos)):
            del tokens[0]
    else:
        tokens = list(prompt)
        check_ids(vocab, tokens)
    if not tokens:
        raise BadPrompt("the prompt is empty; accepted: at least one token")
    return as_tokens(tokens)


def infill_tokens(vocab: Vocabulary, place: Infill) -> Tokens:
    """Return the tokens of a FIM prompt. Raises BadPrompt for a model without FIM."""
    fim = vocab.fim
    if min(fim.prefix, fim.suffix, fim.middle) < 0:
        raise BadPrompt(f"the model cannot fill a place in a text: {vocab.why_no_fim}")
    # Qwen2.5-Coder (arXiv 2409.12186, section 3.2) and StarCoder 2 (arXiv 2402.19173, section 5.2): files of a
    # repository, then prefix, suffix and middle, each after a control token.
    parts: list[Sequence[int]] = [(vocab.bos,) if vocab.adds_bos else ()]
    if place.files and fim.repository >= 0:
        parts += [(fim.repository,), _plain(vocab, f"{REPOSITORY}\n")]
    for name, text in place.files:
        head = [fim.file] if fim.file >= 0 else []
        parts += [head, _plain(vocab, f"{name}\n{text}" if text.endswith("\n") else f"{name}\n{text}\n")]
    parts += [(fim.prefix,), _plain(vocab, place.prefix), (fim.suffix,), _plain(vocab, place.suffix)]
    parts += [(fim.middle,), _plain(vocab, place.begun)]
    return np.concatenate([as_tokens(part) for part in parts])


def convert_text(vocab: Vocabulary, command: Tokenize | Detokenize) -> Tokenized | Rendered:
    """Return the tokens of a text, or the text of tokens. Raises BadPrompt for ids outside the vocabulary."""
    if isinstance(command, Tokenize):
        tokens = vocab.tokenize(command.text, special=command.special, whole=command.whole)
        return Tokenized(command.seq, tuple(tokens), tuple(vocab.spelled(token) for token in tokens))
    check_ids(vocab, command.tokens)
    return Rendered(command.seq, b"".join(map(vocab.spelled, command.tokens)).decode("utf-8", "replace"))


def check_ids(vocab: Vocabulary, tokens: Sequence[int]) -> None:
    """Raise BadPrompt for an id outside the vocabulary."""
    wrong = next((token for token in tokens if not 0 <= token < vocab.size), None)
    if wrong is not None:
        raise BadPrompt(f"{wrong} is no token of the model; accepted: ids from 0 to {vocab.size - 1}")


def _plain(vocab: Vocabulary, text: str) -> list[int]:
    return vocab.tokenize(text, special=False) if text else []  # names of control tokens are text here
