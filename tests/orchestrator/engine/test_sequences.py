"""Which sequences are admitted, on a real model's cache. Nothing is decoded; computed chunks are only noted."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.kv.slots import Slots
from orchestrator.engine.llama import Llama, Tokens, as_tokens
from orchestrator.engine.worker import sequence as sequence_module
from orchestrator.engine.worker.sequence import Sequence
from orchestrator.engine.worker.sequences import Sequences
from orchestrator.registry.options import Adapters

SHARED = 80


@pytest.fixture(scope="module")
def llama(models: Path) -> Llama:
    return Llama(EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, threads=1, split=True))


@pytest.fixture
def sequences(llama: Llama) -> Iterator[Sequences]:
    yield Sequences(llama, Counter(), lambda _: None, lambda _, count: count)
    llama.clear()


def sequence(number: int, common: int, own: int, slack: float = 0.0) -> Sequence:
    """Return a sequence whose prompt has `common` tokens in common with all others, and `own` tokens of its own."""
    prompt = np.concatenate((np.arange(common), 100 + 10 * number + np.arange(own) % 10)).astype(np.int32)
    request = Generation(messages=(Message("user", ""),), slack=slack)
    return Sequence(number, request, prompt, max_tokens=8, stops=(), grammar=None, stream=False)


def compute(sequences: Sequences, one: Sequence) -> None:
    sequences.computed(one, one.prefill_tokens[one.computed : one.computed + sequences.next_chunk_limit(one)])


def numbers(group: list[Sequence]) -> list[int]:
    return [one.number for one in group]


def test_the_first_prefill_pauses_where_others_fork_and_the_rests_are_computed_together(sequences: Sequences) -> None:
    for number in range(1, 4):
        sequences.add(sequence(number, SHARED, own=6))
    sequences.admit()
    assert numbers(sequences.prefilling) == [1]
    assert sequences.next_chunk_limit(sequences.prefilling[0]) == SHARED
    compute(sequences, sequences.prefilling[0])
    sequences.admit()
    assert sorted(numbers(sequences.prefilling)) == [1, 2, 3]
    assert [sequences.next_chunk_limit(one) for one in sequences.prefilling] == [6, 6, 6]


def test_a_prefill_pauses_first_at_the_first_fork(sequences: Sequences) -> None:
    for number, common in ((1, SHARED), (2, SHARED), (3, SHARED // 2)):
        sequences.add(sequence(number, common, own=30))
    sequences.admit()
    (first,) = sequences.prefilling
    assert sequences.next_chunk_limit(first) == SHARED // 2
    compute(sequences, first)
    sequences.admit()
    assert sorted(numbers(sequences.prefilling)) == [1, 3]
    assert sequences.next_chunk_limit(first) == SHARED - SHARED // 2


def test_a_sequence_takes_over_the_priority_of_one_that_waits_for_its_prefix(sequences: Sequences) -> None:
    sequences.add(sequence(1, SHARED, own=6, slack=20))
    sequences.add(sequence(2, 0, own=40, slack=10))
    sequences.admit()
    assert numbers(sequences.prefilling) == [2, 1]
    sequences.add(sequence(3, SHARED, own=6))
    sequences.admit()
    assert numbers(sequences.prefilling) == [1, 2]
    assert numbers(sequences.queue) == [3]


@pytest.mark.parametrize("common", [10, 30])
def test_a_sequence_that_shares_too_little_pauses_no_prefill(sequences: Sequences, common: int) -> None:
    assert sequences.slots.min_shared_tokens > common
    for number in (1, 2):
        sequences.add(sequence(number, common, own=40 - common))
    sequences.admit()
    assert sorted(numbers(sequences.prefilling)) == [1, 2]
    assert [sequences.next_chunk_limit(one) for one in sequences.prefilling] == [40, 40]


def test_a_cancelled_sequence_pauses_no_prefill(sequences: Sequences) -> None:
    for number in (1, 2):
        sequences.add(sequence(number, SHARED, own=6))
    sequences.admit()
    sequences.remove(sequences.all[2])
    sequences.admit()
    assert [sequences.next_chunk_limit(one) for one in sequences.prefilling] == [SHARED + 6]


@pytest.mark.parametrize("gone", [True, False])
def test_a_new_first_in_the_queue_is_admitted_though_another_did_not_fit(models: Path, gone: bool) -> None:
    pool = Llama(
        EngineSpec(file=str(models / "quantised.gguf"), context=128, slots=4, cells=128, threads=1, split=False)
    )
    sequences = Sequences(pool, Counter(), lambda _: None, lambda _, count: count)
    large = sequence(2, 0, own=90, slack=5)
    for one in (sequence(1, 0, own=110), sequence(4, 0, own=110), large):  # of 256 cells
        sequences.add(one)
        sequences.admit()
    assert numbers(sequences.queue) == [2]
    if gone:
        sequences.remove(large)
    sequences.add(sequence(3, 0, own=10, slack=9.0 if gone else -9.0))
    sequences.admit()
    assert 3 in numbers(sequences.prefilling)


def test_the_start_of_a_prompt_is_looked_for_on_disk_once_while_it_is_queued(llama: Llama) -> None:
    looked_up: list[int] = []

    def restore(_slots: Slots, tokens: Tokens, _lora: Adapters) -> int:
        looked_up.append(len(tokens))
        return 0

    sequences = Sequences(llama, Counter(), lambda _: None, lambda _, count: count, restore=restore)
    for number in range(1, 6):
        sequences.add(sequence(number, 0, own=20 + number))
    for _ in range(3):
        sequences.admit()
    assert looked_up == [21, 22, 23, 24], "the last one has no slot yet"
    sequences.remove(sequences.all[1])
    sequences.admit()
    assert looked_up[4:] == [25]
    last = sequences.all[5]
    last.preempt()
    assert not last.looked_up, "it has lost its cells"
    llama.clear()


@pytest.mark.parametrize("decoding", [False, True])
def test_the_wait_after_a_preemption_counts_as_time_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, decoding: bool
) -> None:
    now = 100.0
    monkeypatch.setattr(sequence_module, "time", SimpleNamespace(monotonic=lambda: now))

    def after(seconds: float) -> None:
        nonlocal now
        now += seconds

    one = sequence(1, 10, own=6)
    after(2.0)
    one.enter(0, 0)
    after(3.0)
    if decoding:
        one.append(5, b"a", end=False)
        after(4.0)
    one.preempt()
    after(1000.0)
    one.enter(1, 0)
    after(5.0)
    if not decoding:
        one.append(5, b"a", end=False)
        after(4.0)
    one.preempt()
    after(500.0)
    done = one.report()
    assert done.queued_seconds == 2.0 + 1000.0 + 500.0
    assert (done.prefill_seconds, done.decode_seconds) == ((3.0, 9.0) if decoding else (8.0, 4.0))


@given(
    logits=st.lists(st.sampled_from((-1.0, 0.0, 1.0, 2.0)), min_size=5, max_size=12),
    ends=st.sets(st.integers(0, 4), max_size=4),
    ignore_end=st.booleans(),
)
def test_the_likeliest_token_that_may_come_is_taken(logits: list[float], ends: set[int], ignore_end: bool) -> None:
    row = np.array(logits, np.float32)
    before, allowed = row.copy(), row.copy()
    if ignore_end:
        allowed[sorted(ends)] = -np.inf
    request = Generation(prompt="hello", ignore_end=ignore_end)
    one = Sequence(
        1, request, as_tokens([1]), max_tokens=8, stops=(), grammar=None, stream=False, ends=as_tokens(sorted(ends))
    )
    assert one.sample(row, int(row.argmax()), lambda _: b"a") == int(allowed.argmax())
    assert row.tolist() == before.tolist(), "the model's logits are left as they are"
