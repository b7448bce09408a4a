"""Turn the segments of a prompt into tokens, so that contents cannot spell control tokens."""

from collections.abc import Sequence

from orchestrator.engine.chat import Segment
from orchestrator.engine.llama import Tokens, Vocabulary, as_tokens


def prompt_tokens(vocab: Vocabulary, segments: Sequence[Segment]) -> Tokens:
    """Return the tokens of a prompt, with BOS in front where the model wants it and the template has none.

    Segments are tokenized one by one: a token never spans the border of template and content.
    """
    tokens: list[int] = []
    for segment in segments:
        tokens += _continued(vocab, segment) if tokens else vocab.tokenize(segment.text, segment.special)
    if vocab.adds_bos and tokens[:1] != [vocab.bos]:
        tokens.insert(0, vocab.bos)
    return as_tokens(tokens)


def _continued(vocab: Vocabulary, segment: Segment) -> list[int]:
    """Tokenize text that does not begin the prompt.

    SentencePiece vocabularies put a space before whatever they are given. A line break in front takes it, and goes.
    """
    if not vocab.adds_space:
        return vocab.tokenize(segment.text, segment.special)
    head = vocab.tokenize("\n", special=False)
    tokens = vocab.tokenize("\n" + segment.text, segment.special)
    return tokens[len(head) :] if tokens[: len(head)] == head else vocab.tokenize(segment.text, segment.special)
