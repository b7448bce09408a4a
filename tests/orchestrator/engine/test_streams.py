"""Which stream a sequence is given, on a real model's cache. Nothing is decoded: what is computed is only noted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.streams import MIN_SHARED_TOKENS, StreamSlots
from orchestrator.engine.llama import Llama, Tokens

SHARED = MIN_SHARED_TOKENS + 8
OWN = 5


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, threads=1, split=True))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The (source, target, length) of every copy of a stream."""
    made: list[tuple[int, int, int]] = []
    fork = Llama.fork
    monkeypatch.setattr(Llama, "fork", lambda *given: made.append(given[1:]) or fork(*given))  # type: ignore[func-returns-value]
    return made


@pytest.fixture
def slots(llama: Llama) -> Iterator[StreamSlots]:
    yield StreamSlots(llama, 4, lambda _, count: count)
    llama.clear()


def head(number: int, common: int = SHARED, own: int = OWN) -> Tokens:
    """A prompt that begins with `common` tokens that are everybody's."""
    return np.concatenate((np.arange(common), 100 + 10 * number + np.arange(own) % 10)).astype(np.int32)


def enter(slots: StreamSlots, tokens: Tokens) -> int:
    """Let a prompt in and compute it; return its stream."""
    place = slots.admit(tokens, 8)
    assert place is not None
    slots.mark_computed(place[0], tokens[place[1] :])
    return place[0]


def finish(slots: StreamSlots, *heads: Tokens) -> list[int]:
    """Let prompts in at once, compute them and let them go; return their streams."""
    entered = [slots.admit(one, 8) for one in heads]
    for one, place in zip(heads, entered, strict=True):
        assert place is not None
        slots.mark_computed(place[0], one[place[1] :])
    for one, place in zip(heads, entered, strict=True):
        assert place is not None
        slots.release(place[0], len(one))
    return [place[0] for place in entered if place]


def test_a_shared_beginning_is_copied_while_streams_are_free(
    slots: StreamSlots, copies: list[tuple[int, int, int]]
) -> None:
    (kept,) = finish(slots, head(1))
    assert slots.admit(head(2), 8) == (1, SHARED)
    assert copies == [(kept, 1, SHARED)]


def test_a_sequence_that_continues_a_finished_prompt_takes_its_stream(
    slots: StreamSlots, copies: list[tuple[int, int, int]]
) -> None:
    (kept,) = finish(slots, head(1))
    longer = np.concatenate((head(1), np.arange(20))).astype(np.int32)
    assert slots.admit(longer, 8) == (kept, len(head(1)))
    assert copies == []


def test_prompts_that_come_again_take_their_streams_and_compute_their_last_token_alone(
    slots: StreamSlots, copies: list[tuple[int, int, int]]
) -> None:
    family = [head(number) for number in (1, 2, 3)]
    kept = finish(slots, *family)
    copies.clear()
    assert [slots.admit(one, 8) for one in family] == [(seq, SHARED + OWN - 1) for seq in kept]
    assert copies == []


def test_of_equal_prompts_one_is_retained(slots: StreamSlots) -> None:
    equal = [enter(slots, head(1)) for _ in range(3)]
    for seq in equal:
        slots.release(seq, len(head(1)))
    assert slots.retained == 1


def test_a_prompt_that_has_to_be_evicted_leaves_its_short_beginning_to_the_next_one(
    slots: StreamSlots, copies: list[tuple[int, int, int]]
) -> None:
    short = MIN_SHARED_TOKENS // 2
    oldest, *others = finish(slots, *(head(number, common=short, own=30) for number in (1, 2, 3)))
    (stranger,) = finish(slots, head(4, common=0, own=30 + short))
    fifth = head(5, common=short, own=30)
    assert slots.admit(fifth, 8) == (oldest, short)
    slots.mark_computed(oldest, fifth[short:])
    slots.release(oldest, len(fifth))
    assert slots.longest_shared_prefix(head(2, common=short, own=30))[0] == others[0], "younger ones stay as they are"
    finish(slots, head(6, common=0, own=30))
    finish(slots, head(7, common=0, own=30))
    assert slots.admit(head(8, common=short, own=30), 8) == (stranger, 0), "what is evicted is not chosen by this"
    assert copies == []


def test_an_evicted_prompt_leaves_its_stream_to_a_sequence_with_its_prefix(
    slots: StreamSlots, copies: list[tuple[int, int, int]]
) -> None:
    strangers = finish(slots, head(7, common=0, own=80), head(8, common=0, own=80))
    family = finish(slots, head(1), head(2))
    copies.clear()
    assert slots.retained == 4
    place = slots.admit(head(3), 8)
    assert place is not None
    assert place[0] in family, "the strangers' prompts stay"
    assert place[1] == SHARED
    assert copies == [], "what is there already is not copied"
    assert slots.retained == 3
    assert {slots.longest_shared_prefix(head(number, common=0, own=80))[0] for number in (7, 8)} == set(strangers)


def test_the_prompt_that_takes_least_to_compute_again_is_evicted_first_and_an_unused_one_at_last(
    slots: StreamSlots,
) -> None:
    long = head(1, common=0, own=100)
    (kept,) = finish(slots, long)
    lengths = [40, 20, 60]
    finish(slots, *(head(2 + at, common=0, own=length) for at, length in enumerate(lengths)))
    seen = []
    for number in range(5, 30):
        (stream,) = finish(slots, head(number, common=0, own=30))
        seen.append(stream)
    assert seen[0] == 2, "the shortest one"
    assert kept in seen[3:], "all that came later were used later"
    assert kept not in seen[:3]


def test_a_short_prefix_is_computed_and_not_copied(slots: StreamSlots, copies: list[tuple[int, int, int]]) -> None:
    finish(slots, head(1))
    assert slots.admit(head(2)[: MIN_SHARED_TOKENS - 1], 8) == (1, 0)
    assert copies == []


def test_a_free_stream_next_to_the_live_ones_is_used_first(slots: StreamSlots) -> None:
    for number in range(4):
        enter(slots, head(number, common=0))
    slots.preempt(0)
    slots.preempt(1)
    assert slots.admit(head(5, common=0), 8) == (1, 0)


@pytest.mark.parametrize(("length", "stream"), [(30, 1), (80, 2)])
def test_a_finished_prompt_next_to_the_live_ones_is_evicted_unless_it_is_worth_more_than_padding(
    slots: StreamSlots, length: int, stream: int
) -> None:
    again, neighbour = head(1, common=0, own=30), head(2, common=0, own=length)
    for prompt in (again, neighbour, head(3, common=0, own=30), head(4, common=0, own=30), neighbour):
        finish(slots, prompt)
    assert enter(slots, again) == 0
    assert slots.admit(head(5, common=0, own=30), 8) == (stream, 0)
