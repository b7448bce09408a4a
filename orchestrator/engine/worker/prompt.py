"""Turn the segments of a prompt into tokens, so that contents cannot spell control tokens."""

from collections.abc import Sequence

import numpy as np

from orchestrator.engine.llama import Tokens, Vocabulary, as_tokens
from orchestrator.engine.worker.chat import Segment


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
