"""Which finished prompts stay in a pool, on a real model's cache. Nothing is decoded: computing is only noted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.slots import PooledSlots
from orchestrator.engine.llama import Llama, Tokens

RETAIN = 128


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=RETAIN, slots=4, threads=1, split=False))


@pytest.fixture
def slots(llama: Llama) -> Iterator[PooledSlots]:
    yield PooledSlots(llama, 4, lambda _, count: count, retain=RETAIN)
    llama.clear()


def head(first: int, length: int) -> Tokens:
    return (first + np.arange(length) % 40).astype(np.int32)


def enter(slots: PooledSlots, tokens: Tokens) -> tuple[int, int]:
    place = slots.admit(tokens, 8)
    assert place is not None
    return place


def finish(slots: PooledSlots, tokens: Tokens) -> None:
    seq, reused = enter(slots, tokens)
    slots.mark_computed(seq, tokens[reused:])
    slots.release(seq, len(tokens))


@pytest.mark.parametrize(("length", "kept"), [(RETAIN - 100, 1), (RETAIN - 99, 0)])
def test_a_prompt_that_will_be_evicted_is_evicted_at_admission(slots: PooledSlots, length: int, kept: int) -> None:
    finish(slots, head(1, 100))
    assert (slots.retained, slots.tree.cells) == (1, 100)
    enter(slots, head(100, length))
    assert (slots.retained, slots.tree.cells) == (kept, 100 * kept)


def test_cells_shared_with_a_live_sequence_stay(slots: PooledSlots) -> None:
    document = head(1, 100)
    finish(slots, np.concatenate((document, head(100, 10))))
    seq, reused = enter(slots, np.concatenate((document, head(150, 20))))
    assert (reused, slots.retained, slots.tree.cells) == (100, 0, 100)
    slots.mark_computed(seq, head(150, 20))
    slots.release(seq, 120)
    assert (slots.retained, slots.tree.match(document)[1]) == (1, 100)


def test_what_a_pool_holds_counts_shared_cells_once(slots: PooledSlots) -> None:
    document = head(1, 60)
    for number in range(3):
        tokens = np.concatenate((document, head(100 + number, 5)))
        seq, reused = enter(slots, tokens)
        slots.mark_computed(seq, tokens[reused:])
    assert slots.pooled_cells == 60 + 3 * 5
    finish(slots, head(200, 40))
    assert slots.pooled_cells == 60 + 3 * 5 + 40


def test_a_sequence_that_did_not_fit_blocks_no_other_after_it_has_left(slots: PooledSlots, llama: Llama) -> None:
    enter(slots, head(1, llama.cells // 2))
    assert slots.admit(head(100, llama.cells // 2 + 1), 8) is None
    assert slots.admit(head(200, 10), 8) is None, "who waits first is not overtaken"
    slots.retry_admission()
    enter(slots, head(200, 10))
