"""Choose what goes into one call of llama_decode: pure functions of what each sequence needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from orchestrator.engine.step_cost.model import StepCostModel, attended_cells, round_robin

CHUNK = 128
"""Tokens of a prompt that are computed in a step while other sequences decode."""
SHORT_CHUNK = 16
"""The same for prompts of a batch while interactive sequences decode, and the grid on which these prompts are cut."""
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


class BatchTurn(NamedTuple):
    """What is computed of the sequences of a batch in a step in which interactive sequences decode."""

    decode: bool
    """Whether those of them that decode get their next tokens."""
    prompt_tokens: int
    """At most so many tokens of their prompts are computed."""


class BatchTurns:
    """Chooses the steps in which sequences of a batch are computed while interactive ones decode.

    This is deficit round robin (Shreedhar and Varghese, 1995) of two classes with equal shares, in seconds. Each step
    earns the batch as much time as it takes with the interactive sequences alone, and the batch is computed in those
    steps for which it has earned the time by which it makes them longer. So over any number of steps interactive
    sequences take at most twice as long as they would alone, and a batch always goes on. The price is an uneven pace: a
    step with the batch may take several times as long as one without. Spreading the same time over all steps would put
    few sequences of the batch into each, which make fewer tokens per second than many together, and with a split cache
    those whose streams are no neighbours would have to be computed apart.
    """

    def __init__(self) -> None:
        self._earned = 0.0
        """The seconds that the batch may take."""
        self._prompts_first = True
        """Whether prompts are served before what decodes."""

    def choose(self, alone: float, decode: float | None, prompts: Sequence[tuple[int, float]]) -> BatchTurn:
        """Return what is computed of the batch in the next step, which takes `alone` seconds without it.

        `decode` is how much longer the step takes with the sequences of the batch that decode, None if there are none.
        `prompts` are the numbers of tokens of prompts that may be computed, each with the time by which the step gets
        longer, from few to many; it is empty if no prompt waits. Where both wait, they take turns.
        """
        self._earned += alone
        decodes, tokens = False, 0
        for is_prompts in (self._prompts_first, not self._prompts_first):
            if is_prompts and prompts:
                tokens, seconds = max((one for one in prompts if one[1] <= self._earned), default=(0, 0.0))
                served = tokens > 0
            elif not is_prompts and decode is not None:
                decodes = served = decode <= self._earned
                seconds = decode if served else 0.0
            else:
                continue
            if not served:
                self._prompts_first = is_prompts
                return BatchTurn(decodes, tokens)
            self._earned -= seconds
        self._earned = min(self._earned, alone)
        return BatchTurn(decodes, tokens)

    def choose_widths(
        self,
        costs: StepCostModel,
        best_width: Callable[[Sequence[int]], int],
        depths: tuple[Sequence[int], Sequence[int]],
        prompts: Sequence[Prefill],
        *,
        split: bool,
    ) -> tuple[int, int, int]:
        """Return how many interactive sequences decode in the next step, how many of a batch decode beside them, and
        how many tokens of the prompts of a batch are computed at most.

        `depths` has the cells that each sequence holds: first of the interactive ones, at least one, and then of those
        of a batch. `best_width` returns how many sequences with such depths make most tokens per second together. With
        a `split` cache prompts are computed in calls of their own.
        """
        interactive, others = depths
        width = best_width(interactive)
        alone = costs.seconds(width, width, sum(interactive[:width]))
        beside, decode = 0, None
        if others:
            beside = min(max(1, best_width([*interactive, *others]) - width), len(others))
            cells = sum(interactive[:width]) + sum(others[:beside])
            decode = max(0.0, costs.seconds(width + beside, width + beside, cells) - alone)
        turn = self.choose(alone, decode, prompt_costs(costs, prompts, width, alone, split=split))
        return width, beside if turn.decode else 0, turn.prompt_tokens

    def reset(self) -> None:
        """Forget what was earned: there are not both interactive sequences that decode and others of a batch."""
        self._earned = 0.0


def prompt_costs(
    costs: StepCostModel, prompts: Sequence[Prefill], width: int, alone: float, *, split: bool
) -> list[tuple[int, float]]:
    """Return by how much tokens of these prompts make a step longer, as pairs (tokens, seconds) from few to many.

    Without them the step computes one token for each of `width` sequences, in `alone` seconds. With a `split` cache
    prompts are computed in calls of their own.
    """
    waiting = sum(one.remaining for one in prompts)
    found: list[tuple[int, float]] = []
    size = SHORT_CHUNK
    while waiting and size <= CHUNK and (not found or found[-1][0] < waiting):
        tokens = min(size, waiting)
        cells = attended_cells(prompts[0].position, tokens)
        if split:
            found.append((tokens, costs.seconds(tokens, 1, cells)))
        else:
            found.append((tokens, max(0.0, costs.seconds(width + tokens, width + 1, cells) - alone)))
        size *= 2
    return found


class TakesTurns(Protocol):
    """A sequence that decodes in some steps and is left out of others."""

    seq: int
    """The number of the sequence in the KV cache, and with a split cache of its stream."""
    steps_left_out: int
    """In how many steps since its last one others decoded in its place."""


T = TypeVar("T", bound=TakesTurns)


def take_turns(running: Sequence[T], width: int) -> list[T]:
    """Return which `width` of these sequences decode now, and count for the others that they are left out."""
    chosen = [running[index] for index in round_robin(width, [sequence.steps_left_out for sequence in running])]
    for sequence in running:
        sequence.steps_left_out += 1
    for sequence in chosen:
        sequence.steps_left_out = 0
    return chosen


def join_padded(chosen: list[T], running: Sequence[T], padded: Sequence[int]) -> list[T]:
    """Return the sequences that decode now: `chosen`, and those left out whose streams, in `padded`, would be padded.

    Padding gives a stream a token that nobody uses. The next token of its own sequence takes the same time.
    """
    joined = [one for one in running if one.seq in padded]
    for sequence in joined:
        sequence.steps_left_out = 0
    return [*chosen, *joined]


class Padding(NamedTuple):
    """How a step is padded."""

    streams: list[int]
    """The streams that are computed although no sequence of the step is in them, in order."""
    tokens: int
    """How many tokens of each stream are computed, with those that pad it."""


def padding(
    streams: Sequence[int], tokens: int, rooms: Sequence[int], *, multiple: int, most: int, width: int = 0
) -> Padding:
    """Return how to pad a step that computes so many `tokens` of each of some streams, for batch invariance.

    llama.cpp computes streams whose numbers follow each other together. Each such group gets a multiple of `multiple`
    tokens and never just one: streams next to it are padded, or every stream gets more tokens, whichever makes the step
    smaller. `rooms` are the free cells of all streams, by number. A step of several streams has at most `most` tokens,
    and a longer one of a single stream is cut into micro-batches of `most`. With a `width`, so many streams are
    computed if no stream gets more tokens.
    """
    whole = next(count for count in range(tokens, tokens + multiple + 2) if _is_whole(count, multiple, most))
    candidates = []
    for each in range(tokens, whole + 1):
        added = padding_streams(
            streams, len(rooms), tokens=each, multiple=multiple, most=most, width=width if each == tokens else 0
        )
        if added is None or any(rooms[stream] < each for stream in added):
            continue
        count = len(streams) + len(added)
        if count == 1 or count * each <= most:
            candidates.append((count * each, each, added))
    if not candidates:
        return Padding([], whole)
    _, each, added = min(candidates)
    return Padding(added, each)


def padding_streams(
    streams: Sequence[int], count: int, *, width: int = 0, tokens: int = 0, multiple: int = 1, most: int = 1
) -> list[int] | None:
    """Return the streams that get padding tokens in a step that computes equally many tokens of each of `streams`.

    `streams` are the numbers of some of the `count` streams, in order. llama.cpp computes streams together only if
    their numbers follow each other, so gaps of at most `MAX_PADDED_GAP` streams are padded. Where the numbers then
    follow each other without a gap, more streams next to them are padded, up to `width` streams in all. If `tokens` are
    given, each group of streams that are computed together is extended until its tokens are as `padding` says; None is
    returned if there is no place for that.
    """
    taken = _without_gaps(streams)
    first, last = min(taken), max(taken)
    if last - first + 1 == len(taken) < width:
        last = min(count, first + width) - 1
        taken.update(range(max(0, last - width + 1), last + 1))
    if tokens and not _extend_groups(taken, count, lambda group: _is_whole(group * tokens, multiple, most)):
        return None
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


def _is_whole(tokens: int, multiple: int, micro_batch: int) -> bool:
    """Return whether so many tokens are computed in micro-batches whose results depend on nothing else in them."""
    return tokens % multiple == 0 and tokens % micro_batch != 1


def _extend_groups(taken: set[int], count: int, is_whole: Callable[[int], bool]) -> bool:
    """Add streams until each group of neighbours has a size that is whole. Return False if there is no place."""
    first = min(taken)
    while first < count:
        end = first
        while end in taken:
            end += 1
        if end == first:
            first += 1
        elif is_whole(end - first):
            first = end
        elif end < count:
            taken.add(end)
        elif first > 0:
            first -= 1
            taken.add(first)
            while first - 1 in taken:  # it has grown together with the group before it
                first -= 1
        else:
            return False
    return True


def _without_gaps(streams: Sequence[int]) -> set[int]:
    filled = set(streams)
    for left, right in pairwise(streams):
        if right - left - 1 <= MAX_PADDED_GAP:
            filled.update(range(left + 1, right))
    return filled
