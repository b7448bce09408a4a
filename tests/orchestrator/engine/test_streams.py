"""Which stream a sequence is given, on a real model's cache. Nothing is decoded: what is computed is only noted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.slots import MIN_RETAINED_CELLS
from orchestrator.engine.kv.streams import StreamSlots
from orchestrator.engine.llama import Llama, Tokens

SHARED = MIN_RETAINED_CELLS + 8
OWN = MIN_RETAINED_CELLS + 1


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
    yield StreamSlots(llama, slots=4)
    llama.clear()


def head(number: int, common: int = SHARED, own: int = OWN) -> Tokens:
    """A prompt that begins with `common` tokens that are everybody's."""
    return np.concatenate((np.arange(common), 100 + 10 * number + np.arange(own) % 10)).astype(np.int32)


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


def test_a_short_prefix_is_computed_and_not_copied(slots: StreamSlots, copies: list[tuple[int, int, int]]) -> None:
    finish(slots, head(1))
    assert slots.admit(head(2)[: MIN_RETAINED_CELLS - 1], 8) == (1, 0)
    assert copies == []
