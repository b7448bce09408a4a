"""Choose what one call of llama_decode computes. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from orchestrator.engine.step_cost.model import StepCostModel, attended_cells, round_robin

CHUNK = 128  # prompt tokens that a step computes while other sequences decode
# The same for prompts of a batch while interactive sequences decode, and the grid on which they are cut.
SHORT_CHUNK = 16
# Gaps of at most this many streams are padded: their tokens cost less than reading all weights again.
MAX_PADDED_GAP = 3


@dataclass(frozen=True, slots=True)
class Prefill:
    position: int  # tokens that are computed
    remaining: int  # tokens up to the end of the prefill, or up to where another sequence will fork


def chunks_of(
    prefilling: Sequence[Prefill],
    *,
    decoding: int,
    batch: int,
    chunk: int = CHUNK,
    ahead: int = 0,
    others_decode: bool = False,
) -> list[tuple[int, int]]:
    """Return how many tokens of which prompts this step computes, as pairs (index in `prefilling`, tokens).

    `prefilling` is in order of priority. A step has at most `batch` tokens, of which `decoding` are decoded. The first
    `ahead` prompts have at least the priority of any decoding sequence. With `others_decode`, some decode in the next
    steps. If any token is left, at least one prompt gets some.
    """
    # The first prompts share all tokens, as all do while nothing decodes: sequences that arrived together then decode
    # together, in fewer steps. The others share one chunk, so that a long prompt starves nobody who decodes.
    room = max(0, batch - decoding)
    later = min(room, chunk) if decoding or others_decode else room
    chunks: list[tuple[int, int]] = []
    for index, need in enumerate(prefilling):
        budget = (room if index < ahead else later) - sum(count for _, count in chunks)
        tokens = 0
        while budget > 0 and tokens < need.remaining:
            # Chunks end on a grid, so that where a prompt is cut does not depend on the other prompts.
            size = min(chunk - (need.position + tokens) % chunk, need.remaining - tokens)
            if size > budget:
                if chunks or tokens:
                    break
                size = budget
            tokens += size
            budget -= size
        if tokens:
            chunks.append((index, tokens))
        if budget <= 0:
            break
    return chunks


class BatchTurn(NamedTuple):
    """What a step computes of a batch while interactive sequences decode."""

    decode: bool  # whether decoding sequences of the batch get their next tokens
    prompt_tokens: int  # the most tokens of its prompts that are computed


class BatchTurns:
    """Chooses the steps that compute sequences of a batch while interactive ones decode."""

    def __init__(self) -> None:
        # Deficit round robin (Shreedhar and Varghese, 1995) of two classes with equal shares of the time. Each step
        # earns the batch as many seconds as the interactive sequences alone take, and the batch is computed once it
        # has earned the time that it adds. So interactive sequences take at most twice as long as alone, and a batch
        # always progresses, but at an uneven pace. Spread over all steps, few of its sequences would decode at a
        # time, with fewer tokens per second.
        self._earned = 0.0  # seconds that the batch may take
        self._prompts_first = True  # whether prompts are served before decoding sequences

    def choose(self, alone: float, decode: float | None, prompts: Sequence[tuple[int, float]]) -> BatchTurn:
        """Return what the next step computes of the batch. Without the batch it takes `alone` seconds.

        `decode` is the additional time to decode the batch; None if nothing of it decodes. `prompts` has pairs (prompt
        tokens, additional seconds), from few to many.
        """
        self._earned += alone
        decodes, tokens = False, 0
        # If both wait, they take turns.
        for is_prompts in (self._prompts_first, not self._prompts_first):
            if is_prompts and prompts:
                tokens, seconds = max((option for option in prompts if option[1] <= self._earned), default=(0, 0.0))
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
        """Return how many interactive and how many batch sequences decode, and the most prompt tokens of the batch.

        `depths` has the cells of each interactive sequence, at least one, and of each batch sequence. `best_width`
        returns how many of them make the most tokens per second.
        """
        interactive, batch = depths
        width = best_width(interactive)
        alone = costs.seconds(width, width, sum(interactive[:width]))
        batch_width, decode = 0, None
        if batch:
            batch_width = min(max(1, best_width([*interactive, *batch]) - width), len(batch))
            cells = sum(interactive[:width]) + sum(batch[:batch_width])
            decode = max(0.0, costs.seconds(width + batch_width, width + batch_width, cells) - alone)
        turn = self.choose(alone, decode, prompt_costs(costs, prompts, width, alone, split=split))
        return width, batch_width if turn.decode else 0, turn.prompt_tokens

    def reset(self) -> None:
        """Forget what was earned, because the classes do not compete now."""
        self._earned = 0.0


def prompt_costs(
    costs: StepCostModel, prompts: Sequence[Prefill], width: int, alone: float, *, split: bool
) -> list[tuple[int, float]]:
    """Return the seconds that these prompts add to a step, as pairs (tokens, seconds) from few to many.

    Without them it decodes `width` sequences in `alone` seconds.
    """
    waiting = sum(prompt.remaining for prompt in prompts)
    options: list[tuple[int, float]] = []
    size = SHORT_CHUNK
    while waiting and size <= CHUNK and (not options or options[-1][0] < waiting):
        tokens = min(size, waiting)
        cells = attended_cells(prompts[0].position, tokens)
        if split:  # prompts have calls of their own
            options.append((tokens, costs.seconds(tokens, 1, cells)))
        else:
            options.append((tokens, max(0.0, costs.seconds(width + tokens, width + 1, cells) - alone)))
        size *= 2
    return options


class TakesTurns(Protocol):
    seq: int  # number in the KV cache, which is also that of its stream
    steps_left_out: int  # steps since its last one in which others decoded in its place


T = TypeVar("T", bound=TakesTurns)


def take_turns(running: Sequence[T], width: int) -> list[T]:
    """Return which `width` of these sequences decode now, and count the step for those left out."""
    selected = [running[index] for index in round_robin(width, [sequence.steps_left_out for sequence in running])]
    for sequence in running:
        sequence.steps_left_out += 1
    for sequence in selected:
        sequence.steps_left_out = 0
    return selected


def join_padded(selected: list[T], running: Sequence[T], padded: Sequence[int]) -> list[T]:
    """Return `selected` and the sequences whose streams, in `padded`, would be padded: both decode now."""
    # A padding token takes as long as the next token of the stream's own sequence.
    joined = [candidate for candidate in running if candidate.seq in padded]
    for sequence in joined:
        sequence.steps_left_out = 0
    return [*selected, *joined]


class Padding(NamedTuple):
    streams: list[int]  # streams that are computed without a sequence, in order
    tokens: int  # tokens of each stream, padding included


def padding(
    streams: Sequence[int], tokens: int, rooms: Sequence[int], *, multiple: int, most: int, width: int = 0
) -> Padding:
    """Return how to pad a step that computes `tokens` tokens of each of some streams, for batch invariance.

    Each group of adjacent streams gets a multiple of `multiple` tokens. `rooms` has the free cells of all streams.
    Several streams have at most `most` tokens; a single one is cut into micro-batches of `most`. With a `width`, so
    many streams are computed if no stream gets more tokens.
    """
    whole = next(count for count in range(tokens, tokens + multiple + 2) if _is_whole(count, multiple, most))
    # Either adjacent streams are padded, or every stream gets more tokens, whichever makes the step smaller.
    candidates = []
    for size in range(tokens, whole + 1):
        added = padding_streams(
            streams, len(rooms), tokens=size, multiple=multiple, most=most, width=width if size == tokens else 0
        )
        if added is None or any(rooms[stream] < size for stream in added):
            continue
        count = len(streams) + len(added)
        if count == 1 or count * size <= most:
            candidates.append((count * size, size, added))
    if not candidates:
        return Padding([], whole)
    _, size, added = min(candidates)
    return Padding(added, size)


def padding_streams(
    streams: Sequence[int], count: int, *, width: int = 0, tokens: int = 0, multiple: int = 1, most: int = 1
) -> list[int] | None:
    """Return the streams to pad in a step that computes equally many tokens of each of `streams`, of `count`.

    Gaps are padded, and if there are none, up to `width` adjacent streams are computed. With `tokens`, each group is
    extended as `padding` says. Returns None if there is no place for that.
    """
    # llama.cpp computes streams together only if their numbers follow each other.
    filled = _without_gaps(streams)
    first, last = min(filled), max(filled)
    if last - first + 1 == len(filled) < width:
        last = min(count, first + width) - 1
        filled.update(range(max(0, last - width + 1), last + 1))
    if tokens and not _extend_groups(filled, count, lambda group: _is_whole(group * tokens, multiple, most)):
        return None
    return sorted(filled.difference(streams))


def group_equal_chunks(chunks: Sequence[tuple[int, int]], most: int) -> list[list[int]]:
    """Return which prompt chunks share a call of llama_decode, as lists of indexes into `chunks`.

    `chunks` are pairs (stream, tokens) in order of streams. A group has at most `most` of equal length, in adjacent
    streams.
    """
    # llama.cpp would split any other group. A chunk of one token that is alone then has other bits in its result.
    groups: list[list[int]] = []
    for index in sorted(range(len(chunks)), key=lambda index: chunks[index][::-1]):
        stream, tokens = chunks[index]
        if groups and len(groups[-1]) < most and chunks[groups[-1][-1]] == (stream - 1, tokens):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _is_whole(tokens: int, multiple: int, micro_batch: int) -> bool:
    # Only then does the result of a micro-batch depend on nothing else in it.
    return tokens % multiple == 0 and tokens % micro_batch != 1


# Adds streams until each group of adjacent ones has a whole size; False if there is no place.
def _extend_groups(filled: set[int], count: int, is_whole: Callable[[int], bool]) -> bool:
    first = min(filled)
    while first < count:
        end = first
        while end in filled:
            end += 1
        if end == first:
            first += 1
        elif is_whole(end - first):
            first = end
        elif end < count:
            filled.add(end)
        elif first > 0:
            first -= 1
            filled.add(first)
            while first - 1 in filled:  # it has merged with the group before it
                first -= 1
        else:
            return False
    return True


def gap_streams(streams: Iterable[int]) -> int:
    """Return how many streams a step for `streams` computes in vain.

    A gap that is too wide to be padded counts like the widest one that is padded: all weights are read again.
    """
    return sum(min(right - left - 1, MAX_PADDED_GAP) for left, right in pairwise(sorted(streams)))


def _without_gaps(streams: Sequence[int]) -> set[int]:
    filled = set(streams)
    for left, right in pairwise(streams):
        if right - left - 1 <= MAX_PADDED_GAP:
            filled.update(range(left + 1, right))
    return filled
