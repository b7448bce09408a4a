"""Which finished prompts stay in a pool, on a real model's cache. Nothing is decoded: computing is only noted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.slots import ANSWER_RESERVE, PooledSlots
from orchestrator.engine.llama import Llama, Tokens

RETAIN = 192


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    cells = RETAIN + ANSWER_RESERVE
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=RETAIN, cells=cells, slots=4, threads=1))


@pytest.fixture
def slots(llama: Llama) -> Iterator[PooledSlots]:
    yield PooledSlots(llama, 4, lambda _, count: count)
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
    seq, reused = enter(slots, np.concatenate((document, head(150, 90))))
    assert (reused, slots.retained, slots.tree.cells) == (100, 0, 100)
    slots.mark_computed(seq, head(150, 90))
    slots.release(seq, 190)
    assert (slots.retained, slots.tree.match(document)[1]) == (1, 100)


def test_finished_prompts_stay_while_there_are_cells_for_them(slots: PooledSlots) -> None:
    prompts = [head(1 + 20 * number, 25) for number in range(5)]
    for prompt in prompts:
        finish(slots, prompt)
    assert slots.retained == 5
    for prompt in prompts:
        assert slots.longest_shared_prefix(prompt)[1] == 24


def test_a_finished_prompt_stays_until_reading_it_has_cost_a_quarter_of_computing_it(slots: PooledSlots) -> None:
    document, other = head(1, 40), head(100, 20)
    finish(slots, np.concatenate((document, head(120, 10))))
    finish(slots, other)
    slots.note_read(0.2)  # computing takes a second for each token
    seq, _ = enter(slots, np.concatenate((document, head(150, 10))))  # uses the first one again
    slots.note_read(0.1)
    assert (slots.retained, slots.tree.match(other)[1]) == (1, 0)
    slots.note_read(0.1)
    assert slots.retained == 1
    slots.note_read(0.1)
    assert slots.retained == 0
    assert slots.tree.match(document) == (seq, 40), "a live sequence keeps what it shares"


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


def test_cells_belong_to_live_sequences_and_to_finished_prompts(slots: PooledSlots) -> None:
    finish(slots, head(1, 60))
    assert slots.finished_cells == 60
    seq, reused = enter(slots, np.concatenate((head(1, 50), head(90, 20))))
    slots.mark_computed(seq, head(90, 20))
    assert reused == 50
    assert slots.cells_by({seq: "worker"}) == {"worker": 70}
    assert slots.finished_cells == 10
    assert slots.cells_by({seq: "worker"})["worker"] + slots.finished_cells == slots.tree.cells
