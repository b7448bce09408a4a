"""Choose what goes into one llama_decode: pure functions of who needs what."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

CHUNK = 128
WORTH_FILLING = 3
"""A gap of at most this many streams is filled: their tokens cost less than reading all weights once more."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """A sequence whose prompt is computed up to `position` and has `remaining` tokens to go to where it may stop."""

    position: int
    remaining: int


def chunks_of(
    prefilling: Sequence[Prefill], *, decoding: int, batch: int, chunk: int = CHUNK, ahead: int = 0
) -> list[tuple[int, int]]:
    """Return how many tokens of which prompts are computed in this step, as pairs (index in `prefilling`, tokens).

    `prefilling` is in order of priority. `batch` is the most tokens of a step, of which sequences that decode take
    `decoding`. Chunks end on a grid of `chunk` positions, so that where a prompt is cut does not depend on the other
    prompts. The first `ahead` prompts, which have at least the priority of any sequence that decodes, share all tokens
    that are left, as all prompts do while nothing decodes: sequences that arrived together then decode together, in
    fewer steps. Other prompts share `chunk` tokens a step, so that a long prompt never starves sequences that decode.
    Where any token is left, at least one prompt gets some.
    """
    room = max(0, batch - decoding)
    later = min(room, chunk) if decoding else room
    chunks: list[tuple[int, int]] = []
    for index, need in enumerate(prefilling):
        budget = (room if index < ahead else later) - sum(count for _, count in chunks)
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
    return chunks


def company(streams: Sequence[int], count: int, *, alone: bool, width: int = 0) -> list[int]:
    """Return which other streams get a token too, when these (of `count`, in order) get one each.

    llama.cpp computes streams together only if their numbers follow each other: small gaps are filled. Unless a stream
    may be computed `alone`, one without neighbours gets one. Streams that are all together get more beside them, up to
    `width` in all.
    """
    taken = _without_gaps(streams)
    if not alone and count > 1:
        for stream in streams:
            if not taken & {stream - 1, stream + 1}:
                taken.add(stream + 1 if stream + 1 < count else stream - 1)
        taken = _without_gaps(sorted(taken))
    first, last = min(taken), max(taken)
    if last - first + 1 == len(taken) < width:
        last = min(count, first + width) - 1
        taken.update(range(max(0, last - width + 1), last + 1))
    return sorted(taken.difference(streams))


def side_by_side(parts: Sequence[tuple[int, int]], most: int) -> list[list[int]]:
    """Return which parts of prompts, (stream, tokens) in order of their streams, are computed in one call, by index.

    Those are equally long, at most `most`, in streams that follow each other. llama.cpp computes others apart, and a
    rest of a single token, with nothing beside it, comes out another way.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(parts)), key=lambda index: parts[index][::-1]):
        stream, tokens = parts[index]
        if groups and len(groups[-1]) < most and parts[groups[-1][-1]] == (stream - 1, tokens):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _without_gaps(streams: Sequence[int]) -> set[int]:
    filled = set(streams)
    for left, right in pairwise(streams):
        if right - left - 1 <= WORTH_FILLING:
            filled.update(range(left + 1, right))
    return filled
