"""Which states stay, on a real model: its sequences can be forked at their ends only."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.states import StateSlots
from orchestrator.engine.llama import Llama, Logits, Tokens
from orchestrator.engine.step_cost.calibration import measure_step_costs
from orchestrator.registry.gguf import read_header

SLOTS = 2
SPARE = 8


@pytest.fixture(scope="module", params=["mamba", "jamba"])
def llama(request: pytest.FixtureRequest, recurrent_models: Path) -> Llama:
    file = recurrent_models / f"{request.param}.gguf"
    return Llama(EngineSpec(file=str(file), context=256, slots=SLOTS, threads=1, kv_type_k="f32", kv_type_v="f32"))


@pytest.fixture
def slots(llama: Llama) -> Iterator[StateSlots]:
    yield StateSlots(llama, SLOTS, lambda _, count: count)
    llama.clear()


def text(first: int, length: int) -> Tokens:
    return (first + np.arange(length) % 40).astype(np.int32)


def decode(llama: Llama, seq: int, tokens: Tokens) -> Logits:
    llama.batch.clear()
    llama.batch.add(seq, llama.held(seq), tokens, 1)
    rows = llama.decode()
    return rows[-1:].copy()


def enter(slots: StateSlots, llama: Llama, tokens: Tokens) -> tuple[int, int]:
    place = slots.admit(tokens, 8)
    assert place is not None
    seq, reused = place
    slots.mark_computed(seq, tokens[reused:])
    decode(llama, seq, tokens[reused:])
    return seq, reused


def finish(slots: StateSlots, llama: Llama, tokens: Tokens, answer: Tokens | None = None) -> int:
    seq, reused = enter(slots, llama, tokens)
    if answer is None:
        slots.release(seq, len(tokens))
    else:
        decode(llama, seq, answer)
        slots.release(seq, len(tokens), answer)
    return reused


def test_there_are_sequences_for_the_slots_and_for_states_of_the_estimated_size(
    llama: Llama, recurrent_models: Path
) -> None:
    assert llama.sequences == SLOTS + SPARE
    header = read_header(recurrent_models / f"{llama.info.architecture}.gguf")
    assert 0 <= llama.state_bytes - header.state_bytes < 200, "llama.cpp writes a few numbers before a state"


def test_a_state_is_found_by_a_prompt_that_starts_with_all_of_its_tokens(slots: StateSlots, llama: Llama) -> None:
    finish(slots, llama, text(1, 50), answer=text(100, 10))
    both = np.concatenate((text(1, 50), text(100, 10)))
    assert slots.longest_shared_prefix(np.concatenate((both, text(200, 1))))[1] == 60
    assert slots.longest_shared_prefix(both)[1] == 0, "the logits of the last token are missing"
    assert slots.longest_shared_prefix(np.concatenate((text(1, 50), text(200, 30))))[1] == 0


def test_a_sequence_that_decodes_is_not_forked(slots: StateSlots, llama: Llama) -> None:
    seq, _ = enter(slots, llama, text(1, 50))
    longer = np.concatenate((text(1, 50), text(200, 5)))
    assert slots.match(longer) == (seq, 50)
    decode(llama, seq, text(200, 1))
    assert slots.match(longer) == (-1, 0)


def test_a_checkpoint_stays_while_its_sequence_moves_on_and_is_exact(slots: StateSlots, llama: Llama) -> None:
    seq, _ = enter(slots, llama, text(1, 50))
    slots.checkpoint(seq)
    slots.checkpoint(seq)
    assert slots.retained == 1
    expected = decode(llama, seq, text(200, 5))
    place = slots.admit(np.concatenate((text(1, 50), text(200, 5))), 8)
    assert place is not None
    assert place[1] == 50
    assert np.abs(decode(llama, place[0], text(200, 5)) - expected).max() < 1e-5


def test_equal_texts_leave_a_single_state(slots: StateSlots, llama: Llama) -> None:
    slots.checkpoint(enter(slots, llama, text(1, 50))[0])
    for _ in range(2):
        assert finish(slots, llama, np.concatenate((text(1, 50), text(80, 5))), answer=text(200, 5)) == 50
    assert slots.retained == 2


def test_a_sequence_whose_state_is_beyond_its_text_leaves_none(slots: StateSlots, llama: Llama) -> None:
    seq, _ = enter(slots, llama, text(1, 50))
    decode(llama, seq, text(100, 3))
    slots.release(seq, 50)
    assert (slots.retained, slots.tree.cells) == (0, 0)


def test_the_state_that_costs_least_to_compute_again_goes_first(slots: StateSlots, llama: Llama) -> None:
    lengths = [30, 12, 24, 12, 36, 30, 20, 28]
    for at, length in enumerate(lengths):
        finish(slots, llama, text(50 * at, length), answer=text(7, 1))
    assert slots.retained == SPARE
    finish(slots, llama, text(450, 30), answer=text(7, 1))
    kept = [slots.match(np.concatenate((text(50 * at, length), text(7, 2))))[1] for at, length in enumerate(lengths)]
    assert kept == [31, 0, 25, 13, 37, 31, 21, 29], "of equals, the one that was used least recently"


def test_a_state_that_others_continue_costs_only_what_is_before_it(slots: StateSlots, llama: Llama) -> None:
    for length in range(10, 90, 10):
        finish(slots, llama, text(1, length))
    assert slots.retained == SPARE
    # All but the first follow another one by ten tokens.
    finish(slots, llama, text(100, 60))
    kept = [slots.match(text(1, length + 1))[1] == length for length in range(10, 90, 10)]
    assert sum(kept) == SPARE - 1
    assert slots.match(text(100, 61))[1] == 60


def test_a_state_that_nobody_uses_goes_at_last_however_much_it_cost(slots: StateSlots, llama: Llama) -> None:
    finish(slots, llama, text(1, 100))
    used = text(60, 30)
    finish(slots, llama, used)
    for number in range(60):
        finish(slots, llama, text(100 + number, 25))
        finish(slots, llama, np.concatenate((used, text(300 + number, 1))))
    assert slots.match(text(1, 101))[1] == 0
    assert slots.match(text(60, 31))[1] == 30


def test_checkpoints_take_no_place_of_a_sequence_that_decodes(slots: StateSlots, llama: Llama) -> None:
    for number in range(SPARE):
        finish(slots, llama, text(10 * number, 20 + number))
    seqs = [enter(slots, llama, text(200 + 50 * number, 50))[0] for number in range(SLOTS)]
    for seq in seqs:
        slots.checkpoint(seq)
    assert slots.retained == SPARE
    for seq in seqs:
        slots.release(seq, 50)
    assert slots.retained == SPARE
    assert slots.match(text(200, 51))[1] == 50


def test_a_prefix_from_elsewhere_takes_the_place_of_the_state_that_is_worth_least(
    slots: StateSlots, llama: Llama
) -> None:
    def fill(seq: int) -> bool:
        decode(llama, seq, text(1, 40))
        return True

    assert slots.insert_prefix(text(1, 40), (), fill)
    assert finish(slots, llama, text(1, 45)) == 40
    for number in range(SPARE):
        finish(slots, llama, text(50 * number, 30))
    assert slots.insert_prefix(text(400, 40), (), lambda seq: bool(len(decode(llama, seq, text(400, 40)))))
    assert slots.retained == SPARE
    assert finish(slots, llama, text(400, 45)) == 40


def test_measuring_steps_leaves_states_as_they_are(slots: StateSlots, llama: Llama) -> None:
    expected = decode(llama, 0, np.concatenate((text(1, 40), text(200, 5))))
    llama.truncate(0, 0)
    for number in range(SPARE):
        finish(slots, llama, text(1 + 50 * number, 40))
    costs = measure_step_costs(llama)
    assert costs.decode.sizes[-1] == SLOTS, "the other sequences hold states"
    place = slots.admit(np.concatenate((text(1, 40), text(200, 5))), 8)
    assert place is not None
    assert place[1] == 40
    assert np.abs(decode(llama, place[0], text(200, 5)) - expected).max() < 1e-5
