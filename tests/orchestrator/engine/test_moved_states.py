"""The cells of a sequence can be put into a cache of either layout."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama, Logits, Tokens

TOKENS = (np.arange(40) % 31 + 1).astype(np.int32)
NEXT = np.array([7], np.int32)
Loaded = Callable[[bool, int], Llama]


@pytest.fixture(scope="module")
def loaded(models: Path) -> Loaded:
    """Return a function that returns a model whose cache is split or not, with that number of slots."""
    kept: dict[tuple[bool, int], Llama] = {}

    def load(split: bool, slots: int) -> Llama:
        if (split, slots) not in kept:
            file = str(models / "float.gguf")
            spec = EngineSpec(
                file=file, context=128, slots=slots, threads=1, split=split, kv_type_k="f32", kv_type_v="f32"
            )
            kept[split, slots] = Llama(spec)
        kept[split, slots].clear()
        return kept[split, slots]

    return load


def decode(llama: Llama, seq: int, tokens: Tokens) -> Logits:
    llama.batch.clear()
    llama.batch.add(seq, llama.held(seq), tokens, 1)
    return llama.decode()[-1:].copy()


@pytest.mark.parametrize("source", [(True, 1), (True, 3), (False, 3)])
@pytest.mark.parametrize("target", [(True, 1), (True, 4), (False, 2)])
def test_a_state_moves(loaded: Loaded, source: tuple[bool, int], target: tuple[bool, int]) -> None:
    first = loaded(*source)
    for seq in range(source[1]):
        decode(first, seq, np.roll(TOKENS, seq))
    states = [bytes(first.state(seq)) for seq in range(source[1])]
    expected = [decode(first, seq, NEXT) for seq in range(source[1])]
    assert all(len(state) <= first.size_of_state(seq) for seq, state in enumerate(states))
    second = loaded(*target)
    for state, logits in zip(states, expected, strict=True):
        seq = second.sequences - 1
        second.truncate(seq, 0)
        assert second.restore(seq, memoryview(state), len(TOKENS))
        second.truncate(seq, len(TOKENS))
        np.testing.assert_allclose(decode(second, seq, NEXT), logits, atol=1e-4)


def test_a_state_of_another_length_is_refused(loaded: Loaded) -> None:
    llama = loaded(True, 3)
    decode(llama, 0, TOKENS)
    state = llama.state(0)
    assert not llama.restore(1, state, len(TOKENS) + 1)
    assert llama.held(1) == 0


def test_cells_that_the_next_step_copies_are_known(loaded: Loaded) -> None:
    llama = loaded(True, 3)
    decode(llama, 0, TOKENS)
    llama.fork(0, 1, len(TOKENS))
    assert [llama.is_copied(seq) for seq in range(3)] == [True, True, False]
    decode(llama, 2, TOKENS)
    assert not any(map(llama.is_copied, range(3)))
    np.testing.assert_allclose(decode(llama, 1, NEXT), decode(llama, 0, NEXT), atol=1e-4)
    pool = loaded(False, 3)
    decode(pool, 0, TOKENS)
    pool.fork(0, 1, len(TOKENS))
    assert not any(map(pool.is_copied, range(3)))
