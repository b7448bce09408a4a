"""Choose what goes into one call of llama_decode: pure functions of what each sequence needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

CHUNK = 128
"""Tokens of a prompt that are computed in a step while other sequences decode."""
BATCH_INVARIANT_QUERIES = 63
"""The most query tokens of a step for which no token's logits depend on what else is in the step."""
MAX_PADDED_GAP = 3
"""A gap of at most this many streams is padded: their tokens cost less than reading all weights once more."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """A sequence in prefill."""

    position: int
    """How many tokens are computed."""
    remaining: int
    """How many tokens follow up to the end of the prefill, or up to where another sequence will fork from it."""


def chunks_of(
    prefilling: Sequence[Prefill],
    *,
    decoding: int,
    batch: int,
    chunk: int = CHUNK,
    ahead: int = 0,
    others_decode: bool = False,
) -> list[tuple[int, int]]:
    """Return how many tokens of which prompts are computed in this step, as pairs (index in `prefilling`, tokens).

    `prefilling` is in order of priority. `batch` is the most tokens of a step, of which sequences that decode take
    `decoding`. Chunks end on a grid of `chunk` positions, so that where a prompt is cut does not depend on the other
    prompts. The first `ahead` prompts, which have at least the priority of any sequence that decodes, share all tokens
    that are left, as all prompts do while nothing decodes: sequences that arrived together then decode together, in
    fewer steps. Other prompts share `chunk` tokens a step, so that a long prompt never starves sequences that decode,
    whether in this step or, with `others_decode`, in the next ones.
    Where any token is left, at least one prompt gets some.
    """
    left = max(0, batch - decoding)
    later = min(left, chunk) if decoding or others_decode else left
    chunks: list[tuple[int, int]] = []
    for index, need in enumerate(prefilling):
        budget = (left if index < ahead else later) - sum(count for _, count in chunks)
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


def padding_streams(streams: Sequence[int], count: int, *, alone: bool, width: int = 0) -> list[int]:
    """Return the streams that get a padding token in a step that computes one token of each of `streams`.

    `streams` are the numbers of some of the `count` streams, in order. llama.cpp computes streams together only where
    their numbers follow each other, so gaps of at most `MAX_PADDED_GAP` streams are padded. Unless a stream may be
    computed `alone`, a stream without neighbours gets one. Where the numbers then follow each other without a gap,
    more streams beside them are padded, up to `width` streams in all.
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


def group_equal_chunks(chunks: Sequence[tuple[int, int]], most: int) -> list[list[int]]:
    """Return which chunks of prompts go into one call of llama_decode each, as lists of indexes into `chunks`.

    A chunk is a pair (stream, tokens), and `chunks` are in order of their streams. The chunks of a group have equally
    many tokens, in streams whose numbers follow each other; there are at most `most` of them. llama.cpp would split
    any other group, and a chunk of one token that is left alone by that has other bits in its result.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(chunks)), key=lambda index: chunks[index][::-1]):
        stream, tokens = chunks[index]
        if groups and len(groups[-1]) < most and chunks[groups[-1][-1]] == (stream - 1, tokens):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _without_gaps(streams: Sequence[int]) -> set[int]:
    filled = set(streams)
    for left, right in pairwise(streams):
        if right - left - 1 <= MAX_PADDED_GAP:
            filled.update(range(left + 1, right))
    return filled
