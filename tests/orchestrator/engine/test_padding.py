"""Steps that are padded with tokens of other streams, whose logits nobody reads, on a real model."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama, Logits
from orchestrator.engine.step_cost.learned import LearnedStepCosts
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

PROMPTS = {1: (5, 6, 7), 2: (8, 9), 3: (10,)}


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    llama = Llama(EngineSpec(file=str(models / "quantised.gguf"), context=16, slots=5, threads=1, batch_invariant=True))
    for seq, prompt in PROMPTS.items():
        llama.batch.clear()
        llama.batch.add(seq, 0, prompt, 0)
        llama.decode()
    return llama


def step(llama: Llama, width: int) -> tuple[Logits, int]:
    """Decode a token of each sequence, remove it, and return the logits and how many tokens were computed."""
    llama.batch.clear()
    for seq, prompt in PROMPTS.items():
        llama.batch.add_one(seq, len(prompt), 11)
    logits = llama.decode(width).copy()
    for seq, prompt in PROMPTS.items():
        assert llama.held(seq) == len(prompt) + 1
        llama.truncate(seq, len(prompt))
    return logits, llama.batch.size


@pytest.mark.parametrize(("width", "computed"), [(0, 3), (3, 3), (4, 4), (5, 5), (9, 5)])
def test_padding_changes_no_logits_and_leave_nothing_behind(llama: Llama, width: int, computed: int) -> None:
    plain, _ = step(llama, 0)
    filled, size = step(llama, width)
    assert size == computed
    assert np.array_equal(plain, filled)
    assert (llama.held(0), llama.held(4)) == (0, 0)


def test_a_full_stream_has_room_for_padding(llama: Llama) -> None:
    llama.batch.clear()
    llama.batch.add(4, 0, range(16), 0)
    llama.decode()
    plain, _ = step(llama, 0)
    filled, size = step(llama, 4)
    assert (size, llama.held(4)) == (4, 16)
    assert np.array_equal(plain, filled)
    llama.truncate(4, 0)


def test_a_sequence_that_takes_turns_decodes_where_its_stream_would_be_padded(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LearnedStepCosts, "next_decode_width", lambda _, depths: max(1, len(depths) - 1))
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, threads=1, split=True)
    llama, steps, others = Llama(spec), list[list[int]](), 3
    text = Generation(messages=(Message("user", "a"),), max_tokens=60, grammar='root ::= "a" root')

    def note(parent: Parent) -> None:
        nonlocal others
        while others:  # in the loop's own thread, so that it does not matter when the test's thread gets a core
            others -= 1
            parent.submit(text)
        if llama.batch.size == len(llama.batch.ends):
            steps.append(sorted(seq for seq, _ in llama.batch.ends))

    with driven_loop(llama, spec, note) as parent:
        parent.submit(text)
        for _ in range(4):
            assert parent.finished().output_tokens == 60
    early = [seqs for seqs in steps[:50] if len(seqs) > 1]
    assert all(seqs == [*range(len(seqs))] for seqs in early), "until one has finished, no stream between them is free"
    assert {len(seqs) for seqs in early} >= {3, 4}, "three were to decode, and the fourth did where that is for nothing"
