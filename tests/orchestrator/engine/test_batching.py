from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.worker.batching import (
    MAX_PADDED_GAP,
    BatchTurns,
    Prefill,
    chunks_of,
    gap_streams,
    group_equal_chunks,
    join_padded,
    padding,
    padding_streams,
    take_turns,
)
from orchestrator.registry.options import INVARIANT_MICRO_BATCH, invariant_streams

needs = st.lists(st.builds(Prefill, st.integers(0, 300), st.integers(1, 2000)), max_size=8)


@settings(deadline=None)
@given(st.integers(0, 40), needs, st.integers(1, 600), st.sampled_from([1, 16, 128]), st.integers(0, 100))
def test_chunks_fit_and_move_everything_they_can(
    decoding: int, prefilling: list[Prefill], batch: int, chunk: int, ahead: int
) -> None:
    chunks = chunks_of(prefilling, decoding=decoding, batch=batch, chunk=chunk, ahead=ahead)
    assert sum(count for _, count in chunks) <= max(0, batch - decoding)
    assert [i for i, _ in chunks] == sorted({i for i, _ in chunks})
    assert all(0 < count <= prefilling[i].remaining for i, count in chunks)
    if prefilling and batch > decoding:
        assert chunks
        assert chunks[0][0] == 0
    if decoding:
        later = sum(count for index, count in chunks if index >= ahead)
        assert not later or sum(count for _, count in chunks) <= chunk


@settings(deadline=None)
@given(st.integers(0, 8), needs)
def test_prompts_are_cut_on_the_grid(decoding: int, prefilling: list[Prefill]) -> None:
    for index, count in chunks_of(prefilling, decoding=decoding, batch=512, chunk=64):
        end = prefilling[index].position + count
        assert end % 64 == 0 or count == prefilling[index].remaining


def test_a_prompt_gets_the_whole_batch_or_a_chunk_while_others_decode() -> None:
    long = [Prefill(0, 5000)]
    assert chunks_of(long, decoding=0, batch=512, chunk=128) == [(0, 512)]
    assert chunks_of(long, decoding=3, batch=512, chunk=128) == [(0, 128)]


def test_prompts_of_the_priority_of_what_decodes_get_all_the_room_and_others_a_chunk() -> None:
    short = [Prefill(0, 32)] * 48
    assert len(chunks_of(short, decoding=16, batch=512, chunk=128, ahead=48)) == (512 - 16) // 32
    assert len(chunks_of(short, decoding=16, batch=512, chunk=128, ahead=10)) == 10
    assert len(chunks_of(short, decoding=16, batch=512, chunk=128, ahead=2)) == 128 // 32
    assert chunks_of([Prefill(0, 5000)], decoding=3, batch=512, chunk=128, ahead=1) == [(0, 384)]


def test_short_prompts_share_a_batch() -> None:
    assert chunks_of([Prefill(0, 40)] * 20, decoding=0, batch=512, chunk=128) == [(i, 40) for i in range(12)]


@settings(deadline=None)
@given(st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_small_gaps_are_closed(drawn: tuple[int, set[int]]) -> None:
    count, streams = drawn
    added = padding_streams(sorted(streams), count)
    assert added is not None
    together = sorted({*streams, *added})
    assert len(together) == len(streams) + len(added)
    assert set(together) <= set(range(count))
    runs = [right - left for left, right in pairwise([-9, *together, count + 9]) if right - left > 1]
    assert all(gap - 1 > MAX_PADDED_GAP for gap in runs[1:-1])
    assert gap_streams(streams) == len(added) + MAX_PADDED_GAP * len(runs[1:-1])


@given(st.integers(1, 40), st.data(), st.sampled_from([1, 4]), st.sampled_from([1, 1, 2, 3, 7, 60, 61, 119]))
def test_steps_are_padded_until_their_micro_batches_are_whole(
    count: int, data: st.DataObject, multiple: int, tokens: int
) -> None:
    """Whatever is full, and without a stream or a cell beyond those that are free."""
    count = invariant_streams(count)
    streams = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=1 if tokens > 1 else None)))
    rooms = data.draw(st.lists(st.sampled_from([0, 3, 200]), min_size=count, max_size=count))
    rooms = [200 if stream in streams else room for stream, room in enumerate(rooms)]
    padded = padding(streams, tokens, rooms, multiple=multiple, most=INVARIANT_MICRO_BATCH)
    assert tokens <= padded.tokens < tokens + max(2, multiple)
    assert not {*padded.streams} & {*streams}
    assert all(rooms[stream] >= padded.tokens for stream in padded.streams)
    together = sorted({*streams, *padded.streams})
    ends = [stream for stream in together if stream + 1 not in together]
    starts = [stream for stream in together if stream - 1 not in together]
    for first, last in zip(starts, ends, strict=True):
        computed = (last - first + 1) * padded.tokens
        assert computed % multiple == 0
        assert computed % INVARIANT_MICRO_BATCH != 1
    if len(together) > 1 and 0 not in rooms and 3 not in rooms:
        assert len(together) * padded.tokens <= INVARIANT_MICRO_BATCH


@given(st.integers(1, 12), st.data(), st.integers(0, 15))
def test_streams_that_are_together_get_more_beside_them(count: int, data: st.DataObject, width: int) -> None:
    first = data.draw(st.integers(0, count - 1))
    streams = range(first, data.draw(st.integers(first, count - 1)) + 1)
    together = sorted({*streams, *(padding_streams(streams, count, width=width) or [])})
    assert together == list(range(together[0], together[-1] + 1))
    assert set(streams) <= set(together) <= set(range(count))
    assert len(together) == max(len(streams), min(width, count))


@dataclass(slots=True)
class Decoding:
    """A sequence that decodes."""

    seq: int
    steps_left_out: int = 0


@given(st.lists(st.integers(0, 15), min_size=2, unique=True), st.data())
def test_a_sequence_decodes_rather_than_that_its_stream_is_padded(streams: list[int], data: st.DataObject) -> None:
    running = [Decoding(seq, data.draw(st.integers(0, 3))) for seq in streams]
    chosen = take_turns(running, data.draw(st.integers(1, len(running) - 1)))
    first = sorted(one.seq for one in chosen)
    padded = padding_streams(first, 16)
    assert padded is not None
    decode = join_padded(chosen, running, padded)
    assert {*first, *padded} >= {one.seq for one in decode} >= {*first}, "nothing is computed that was not before"
    left_out = [one for one in running if one not in decode]
    assert not {one.seq for one in left_out} & {*padded}
    assert all(one.steps_left_out == 0 for one in decode)
    assert all(one.steps_left_out > 0 for one in left_out)


def test_streams_that_are_apart_get_none_beside_them() -> None:
    assert padding_streams([0, MAX_PADDED_GAP + 2], 12, width=9) == []


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 3)), st.integers(1, 20))
def test_parts_go_together_that_are_equally_long_and_side_by_side(lengths: dict[int, int], most: int) -> None:
    parts = sorted(lengths.items())
    groups = [[parts[index] for index in group] for group in group_equal_chunks(parts, most)]
    assert sorted(part for group in groups for part in group) == parts, "each once"
    for group in groups:
        (first, tokens), *_ = group
        assert group == [(first + place, tokens) for place in range(len(group))]
        assert len(group) <= most
        assert len(group) == most or lengths.get(first + len(group)) != tokens, "none that could be with them is apart"


costs_of_prompts = st.lists(st.floats(0.001, 100), max_size=4).map(
    lambda seconds: [(16 << place, cost) for place, cost in enumerate(sorted(seconds))]
)
steps = st.tuples(st.floats(0.001, 10), st.none() | st.floats(0, 100), costs_of_prompts)


@given(st.lists(steps, min_size=1, max_size=60))
def test_a_batch_never_takes_more_time_than_the_interactive_sequences_beside_it(
    steps: list[tuple[float, float | None, list[tuple[int, float]]]],
) -> None:
    turns, earned, spent = BatchTurns(), 0.0, 0.0
    for alone, decode, prompts in steps:
        turn = turns.choose(alone, decode, prompts)
        assert not turn.decode or decode is not None
        earned += alone
        spent += (decode or 0.0) * turn.decode + dict(prompts).get(turn.prompt_tokens, 0.0)
        assert turn.prompt_tokens in {0, *dict(prompts)}
        assert spent <= earned + 1e-6


@given(steps)
def test_a_batch_is_never_starved(step: tuple[float, float | None, list[tuple[int, float]]]) -> None:
    alone, decode, prompts = step
    turns, round_seconds = BatchTurns(), (decode or 0.0) + (prompts[0][1] if prompts else 0.0)
    # Where time is left after a turn, prompts may take it by longer chunks, at most the time of the longest.
    most = int((round_seconds + (prompts[-1][1] if prompts else 0.0)) / alone) + 3
    if most > 2000:
        return
    taken = [turns.choose(alone, decode, prompts) for _ in range(2 * most)]
    assert decode is None or sum(turn.decode for turn in taken) >= 2
    assert not prompts or sum(turn.prompt_tokens > 0 for turn in taken) >= 2


def test_a_batch_whose_tokens_cost_little_is_in_every_step() -> None:
    turns = BatchTurns()
    assert {turns.choose(1.0, 0.4, [(16, 0.2), (32, 0.5)]) for _ in range(9)} == {(True, 32)}


def test_an_expensive_batch_waits_until_it_has_earned_its_turn_and_earns_nothing_without_work() -> None:
    turns = BatchTurns()
    for _ in range(9):
        turns.choose(1.0, None, [])
    assert "".join("NY"[turns.choose(1.0, 4.0, []).decode] for _ in range(8)) == "NNYNNNYN"
    turns.reset()
    taken = [turns.choose(1.0, 4.0, [(16, 2.0)]) for _ in range(7)]
    assert [at for at, turn in enumerate(taken) if turn.decode] == [3]
    assert [at for at, turn in enumerate(taken) if turn.prompt_tokens] == [5], "then it is the turn of the prompts"
