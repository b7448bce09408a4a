"""Choose what goes into one llama_decode. A pure function of who needs what."""

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK = 128


@dataclass(frozen=True, slots=True)
class Prefill:
    """A sequence whose prompt is computed up to `position` and has `remaining` tokens to go."""

    position: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Indices of the decoding sequences that get a token, and (index, tokens) of the prompts that get chunks."""

    decode: range
    chunks: tuple[tuple[int, int], ...]


def choose(decoding: int, prefilling: Sequence[Prefill], *, batch: int, chunk: int = CHUNK) -> Plan:
    """Return what to compute next: both groups come with the most urgent first, and `batch` is the most tokens.

    Every decoding sequence gets its token. Prompts get chunks that end on a grid of `chunk` positions, so that where
    a prompt is cut does not depend on the company it has. While others decode, one chunk's worth a step, so that a
    long prompt never starves them; alone, a full batch. Some prompt always moves if there is room for any.
    """
    decode = range(min(decoding, batch))
    room = batch - len(decode)
    budget = min(room, chunk) if decode else room
    chunks: list[tuple[int, int]] = []
    for index, need in enumerate(prefilling):
        taken = 0
        while budget > 0 and taken < need.remaining:
            size = min(chunk - (need.position + taken) % chunk, need.remaining - taken)
            if size > budget:
                if chunks or taken:
                    break
                size = budget
            taken += size
            budget -= size
        if taken:
            chunks.append((index, taken))
        if budget <= 0:
            break
    return Plan(decode, tuple(chunks))
