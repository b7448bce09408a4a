"""Models with sliding windows share prefixes, keep them and store them: this changes no text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from orchestrator.engine.contract import Generation, Message, SystemPrompt
from orchestrator.engine.llama import Llama, Logits, Tokens, as_tokens
from tests.orchestrator.engine.conftest import WINDOW
from tests.orchestrator.engine.driven_loop import Parent, driven_loop
from tests.orchestrator.engine.shared_texts import (
    CONTEXT,
    MESSAGE_END,
    Loaded,
    Step,
    check_alone,
    check_document_outlasts,
    check_story,
    computed,
    life,
    prefills_of_a_fan_out,
    spec_of,
    stored_in,
    stories,
    text,
)

SYSTEM = "the quick brown fox jumps over the lazy dog and runs away " * 2
LAYOUTS: dict[str, dict[str, Any]] = {"pool": {"cells": CONTEXT}, "streams": {"split": True}}
CASES = [("windowed", "pool"), ("windowed", "streams"), ("windowed-moe", "pool"), ("windowed-moe", "streams")]

of_each_model_and_layout = pytest.mark.parametrize("case", CASES, ids="-".join)


@pytest.fixture(scope="module")
def llamas(windowed_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Loaded]:
    """Of each model and layout, one for a loop, and one that computes each text alone."""
    loaded = {}
    for model, layout in CASES:
        folder = tmp_path_factory.mktemp(f"{model}-{layout}")
        spec = spec_of(
            windowed_models,
            model,
            **LAYOUTS[layout],
            prefixes=str(folder),
            stores_all=True,
            system_prompts=(SystemPrompt(SYSTEM),),
        )
        llama = Llama(spec)
        with driven_loop(llama, spec) as parent:
            parent.submit(Generation(messages=(Message("system", SYSTEM), Message("user", "hello")), max_tokens=1))
            parent.finished()
            parent.shut_down()
        assert len(list(folder.iterdir())) == 2, "the prompt and its system prompt, which needs a window of its own"
        loaded[model, layout] = llama, spec, Llama(spec_of(windowed_models, model, slots=1))
    return loaded


@pytest.fixture
def loaded(llamas: dict[tuple[str, str], Loaded], case: tuple[str, str]) -> Loaded:
    llamas[case][0].clear()
    return llamas[case]


@pytest.fixture
def parent(loaded: Loaded) -> Iterator[Parent]:
    llama, spec, _ = loaded
    with driven_loop(llama, spec) as running:
        yield running


def stored(llama: Llama) -> tuple[int, ...]:
    """Return the tokens of the prefix that all loops restore."""
    prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
    return tuple(llama.vocab.tokenize(prompt, special=True))


@of_each_model_and_layout
@given(actions=stories)
def test_whatever_happens_all_texts_are_those_that_are_computed_from_their_starts(
    llamas: dict[tuple[str, str], Loaded], case: tuple[str, str], actions: list[Step]
) -> None:
    start = stored(llamas[case][0])
    stats = check_story(llamas[case], actions, (start, start[: len(start) // 2], (*text(1, 70), *MESSAGE_END)))
    assert stats.restored_tokens % len(start) == 0, "only the system prompt, as often as it was evicted"


@of_each_model_and_layout
def test_a_new_prefix_is_computed_once_for_more_requests_than_slots(loaded: Loaded) -> None:
    assert prefills_of_a_fan_out(loaded)[0] == 5 + 150 + 8 * 10


@of_each_model_and_layout
def test_a_prompt_starts_where_it_parts_from_a_finished_one_far_behind_its_window(
    loaded: Loaded, parent: Parent
) -> None:
    first = text(1, 120)
    computed(parent, first)
    # These take cells, and leave them in the middle of the cache.
    computed(parent, *(text(200 + 30 * number, 20 + 5 * number) for number in range(2)), max_tokens=3)
    count, (done,) = computed(parent, (*first[:50], *text(300, 9)))
    assert count == 9
    check_alone(loaded[2], (*first[:50], *text(300, 9)), done)


@of_each_model_and_layout
def test_the_next_turn_computes_no_earlier_message_again(loaded: Loaded, parent: Parent) -> None:
    prompt = (*text(1, 60), *MESSAGE_END, *text(200, 60))
    _, (first,) = computed(parent, prompt)
    turn = (*prompt, *(token.id for token in first.logprobs), *MESSAGE_END, *text(300, 20))
    count, (second,) = computed(parent, turn)
    assert count == len(turn) - len(prompt)
    check_alone(loaded[2], turn, second)


@of_each_model_and_layout
def test_a_restored_prefix_is_continued_at_its_end_and_not_before(loaded: Loaded, parent: Parent) -> None:
    start = stored(loaded[0])
    assert len(start) > 2 * WINDOW
    whole, part = ((*tokens, *text(300, 9)) for tokens in (start, start[:-WINDOW]))
    for prompt, expected in ((whole, 9), (part, len(part)), (part, 1)):
        count, (done,) = computed(parent, prompt)
        assert count == expected
        check_alone(loaded[2], prompt, done)


def test_a_sequence_of_a_pool_keeps_what_has_left_its_window(llamas: dict[tuple[str, str], Loaded]) -> None:
    llama, _, alone = llamas["windowed", "pool"]
    llama.clear()

    def decode(llama: Llama, seq: int, tokens: Tokens) -> Logits:
        llama.batch.clear()
        llama.batch.add(seq, llama.held(seq), tokens, 1)
        return llama.decode().copy()

    texts = [np.arange(first, first + 90, dtype=np.int32) for first in (1, 101, 201)]
    decode(llama, 0, texts[0][:40])
    decode(llama, 1, texts[1])
    llama.truncate(0, 0)
    decode(llama, 2, texts[2])  # starts in the cells before those of the other one
    assert [llama.least_prefix(seq) for seq in (1, 2)] == [0, 0]
    for source, target in ((1, 3), (2, 4)):
        llama.fork(source, target, 45)
        alone.clear()
        expected = decode(alone, 0, np.concatenate((texts[source][:45], as_tokens([7, 8]))))
        assert np.abs(decode(llama, target, as_tokens([7, 8])) - expected).max() < 1e-4


def test_each_micro_batch_of_a_step_is_computed_with_the_whole_window(recurrent_models: Path) -> None:
    # A hybrid computes as many tokens of each sequence in the first micro-batch, and what remains in another one.
    pool = Llama(spec_of(recurrent_models, "lfm2-windowed", cells=CONTEXT))
    alone = Llama(spec_of(recurrent_models, "lfm2-windowed", slots=1))

    def decode(llama: Llama, *parts: tuple[int, tuple[int, ...]]) -> Logits:
        llama.batch.clear()
        for seq, tokens in parts:
            llama.batch.add(seq, llama.held(seq), tokens, len(tokens))
        return llama.decode().copy()

    tokens = text(1, 48)
    # Free cells, then the later and the earlier tokens of a sequence, then others which two sequences hold.
    decode(pool, (4, text(100, 16)))
    decode(pool, (2, text(200, 10)))
    decode(pool, (0, tokens[:16]))
    for number in range(19):
        decode(pool, (1, text(300 + number, 10)))
    pool.fork(1, 3, 190)
    pool.truncate(2, 0)
    decode(pool, (0, tokens[16:26]))
    decode(pool, (0, tokens[26:40]))
    pool.truncate(4, 0)
    # The first micro-batch fills the free cells. The token that remains comes to that at position 16, which the window
    # of the next token of the first sequence, but not that of these eight, has left.
    logits = decode(pool, (0, tokens[40:]), (1, text(400, 9)))[:8]
    assert np.abs(logits - decode(alone, (0, tokens))[40:]).max() < 1e-3


@pytest.mark.parametrize("layout", [*LAYOUTS, "invariant"])
async def test_the_next_engine_computes_no_system_prompt_again_and_says_the_same(
    windowed_models: Path, tmp_path: Path, layout: str
) -> None:
    persona = SYSTEM + "\nspeak like a sailor who has seen it all, and say so in every sentence "
    spec = spec_of(
        windowed_models,
        "windowed",
        **(LAYOUTS | {"pool": {"cells": 1024}, "invariant": {"batch_invariant": True}})[layout],
        system_prompts=tuple(map(SystemPrompt, (SYSTEM, persona, "short"))),
        **stored_in(tmp_path),
    )
    first, before = await life(spec, persona, SYSTEM, "short")
    assert before.restored_prefixes == 0
    assert len(list((tmp_path / "prefixes").iterdir())) >= 2, "each needs a window of its own"
    second, after = await life(spec, persona, SYSTEM, "short")
    assert after.restored_prefixes >= 2
    assert [done.text for done in second] == [done.text for done in first]
    assert sum(done.usage.cached_tokens for done in second[:2]) >= after.restored_tokens > 200


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_next_engine_computes_no_document_again_for_another_task(
    windowed_models: Path, tmp_path: Path, layout: str
) -> None:
    spec = spec_of(
        windowed_models,
        "windowed",
        **(LAYOUTS | {"pool": {"cells": 1024}})[layout],
        **stored_in(tmp_path),
    )
    await check_document_outlasts(spec, SYSTEM + SYSTEM)
