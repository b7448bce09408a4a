"""Say which tokens a grammar allowed at each place of an answer.

The policy that is sampled from is the model's distribution over these tokens. A token that the grammar forces has the
probability 1 in it, so nothing is learned from it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.engine.llama.grammar import Grammars
from orchestrator.engine.llama.loading import vocabulary_of

Choices = tuple[npt.NDArray[np.uint8], ...]
"""For each token of an answer, which tokens could have been in its place: a bit for each, by `np.packbits`."""


def packed(ids: Sequence[int], size: int) -> npt.NDArray[np.uint8]:
    """Return the bits of these tokens in a vocabulary of this size."""
    bits = np.zeros(size, np.bool_)
    bits[[*ids]] = True
    return np.packbits(bits)


def unpacked(bits: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.bool_]:
    """Return whether each token of a vocabulary of this size is among those of the bits."""
    return np.unpackbits(bits, count=size).astype(np.bool_)


class AllowedTokens:
    """The tokens of a vocabulary that grammars allow."""

    def __init__(self, grammars: Grammars, size: int) -> None:
        self._grammars = grammars
        self._size = size

    def along(self, grammar: str, tokens: Sequence[int]) -> Choices:
        """Return the choices at each token of an answer. Raises ValueError for a token that is not allowed."""
        state = self._grammars.start(grammar)
        flat = np.zeros(self._size, np.float32)
        choices = []
        try:
            for place, token in enumerate(tokens):
                if not state.allows(token):
                    raise ValueError(f"the grammar does not allow token {token} at place {place}")
                choices.append(np.packbits(np.isfinite(state.mask(flat))))
                state.accept(token)
        finally:
            state.close()
        return tuple(choices)


@contextmanager
def allowed_tokens(file: Path) -> Iterator[AllowedTokens]:
    """Read the vocabulary of a model. Raises CannotLoad."""
    with vocabulary_of(file) as vocabulary:
        yield AllowedTokens(Grammars(vocabulary, []), vocabulary.size)
