"""Rejected drafts are taken back from recurrent states and from windows: they change no text, and nothing is lost."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given

from benchmarks.models import (
    Matrix,
    ModelShape,
    write_jamba,
    write_lfm2,
    write_mamba,
    write_qwen35,
    write_windowed,
)
from orchestrator.engine.llama import CannotLoad, Llama
from orchestrator.engine.speculation.speculator import make_speculator
from orchestrator.registry.options import MAX_ROLLBACK, MtpOptions, PromptLookupOptions, SpeculationOptions
from tests.orchestrator.engine.conftest import WINDOW
from tests.orchestrator.engine.driven_loop import driven_loop
from tests.orchestrator.engine.shared_texts import (
    CONTEXT,
    MESSAGE_END,
    Loaded,
    Step,
    check_alone,
    check_story,
    computed,
    spec_of,
    stories,
    text,
)

RECURRENT = ["lfm2", "lfm2-moe", "qwen35", "qwen35-moe"]
CHECKPOINTED = ["mamba", "jamba", "lfm2-windowed"]  # llama.cpp keeps no states of their last tokens
LOOKUP: dict[str, Any] = {"prompt_lookup": PromptLookupOptions(ngram=1, k=8), "always_draft": True}


@pytest.fixture(scope="module")
def llamas(models: Path, recurrent_models: Path, windowed_models: Path) -> dict[str, Loaded]:
    """Of each model, one for a loop, and one that computes each text alone."""
    pool = {"cells": CONTEXT, **LOOKUP}
    drafting = {"speculation": SpeculationOptions(str(models / "float.gguf")), "always_draft": True}
    cases: dict[str, tuple[Path, str, dict[str, Any]]] = {
        **{model: (recurrent_models, model, pool) for model in RECURRENT},
        "qwen35-mtp": (recurrent_models, "qwen35-moe", {"mtp": MtpOptions(), "always_draft": True, "cells": CONTEXT}),
        "lfm2-draft": (recurrent_models, "lfm2", {**drafting, "cells": CONTEXT}),
        **{model: (recurrent_models, model, pool) for model in CHECKPOINTED},
        "windowed": (windowed_models, "windowed", pool),
        "windowed-streams": (windowed_models, "windowed-moe", {"split": True, **LOOKUP}),
    }
    loaded = {}
    for name, (folder, model, options) in cases.items():
        spec = spec_of(folder, model, **options)
        loaded[name] = Llama(spec), spec, Llama(spec_of(folder, model, slots=1))
    return loaded


@pytest.mark.parametrize(
    "model",
    [
        *("lfm2-draft", "qwen35-mtp", "windowed", "windowed-streams"),
        *(pytest.param(model, marks=pytest.mark.slow) for model in (*RECURRENT, *CHECKPOINTED)),
    ],
)
@given(actions=stories)
def test_whatever_is_rejected_all_texts_are_those_that_are_computed_from_their_starts(
    llamas: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    """Of models with random weights, which refuse nearly all drafts."""
    check_story(llamas[model], actions)


def counting(name: str, rows: int, columns: int) -> Matrix:
    """Return weights of a model that counts: each token follows on the one before. Its layers change little."""
    drawn = "token_embd.weight" if name == "output.weight" else name
    rng = np.random.default_rng(crc32(drawn.encode()))
    values: Matrix = rng.standard_normal((rows, columns), dtype=np.float32)
    if name == "output.weight":
        return np.asarray(np.roll(values, 1, axis=0) * (0.5 * columns**-0.5), np.float32)
    last = ("out_proj", "output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp")
    part = 0.1 if name.rpartition(".")[0].endswith(last) else 1.0
    return values if drawn == "token_embd.weight" else values * (part * columns**-0.5)


COUNTERS: dict[str, Callable[..., Path]] = {
    "mamba": write_mamba,
    "jamba": write_jamba,
    "jamba-moe": partial(write_jamba, experts=4),
    "lfm2": write_lfm2,
    "lfm2-moe": partial(write_lfm2, experts=4),
    "lfm2-windowed": partial(write_lfm2, window=WINDOW),
    "qwen35": write_qwen35,
    "qwen35-moe": partial(write_qwen35, experts=4),
    "windowed-moe": partial(write_windowed, window=WINDOW, experts=4),
}


def counter_of(folder: Path, model: str, **options: Any) -> Loaded:
    """Return a model that counts, and one that computes each text alone."""
    COUNTERS[model](folder / "model.gguf", ModelShape(weights="f32", layers=4, context=1024), draw=counting)
    spec = spec_of(folder, "model", **options)
    return Llama(spec), spec, Llama(spec_of(folder, "model", slots=1))


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    return {model: counter_of(tmp_path_factory.mktemp(model), model, cells=CONTEXT, **LOOKUP) for model in COUNTERS}


def counted(first: int) -> tuple[int, ...]:
    """Return tokens that count, in runs of these lengths. Of a draft, what is in the same run is right."""
    tokens: list[int] = []
    for length in (2, 5, 9, 3, 7, 12, 4, 6, 8, 11, 3):
        tokens += [*range(first, first + length), 470 + length]
        first += length
    return (*tokens, *MESSAGE_END)


@pytest.mark.parametrize("model", COUNTERS)
def test_the_right_part_of_each_draft_is_accepted(counters: dict[str, Loaded], model: str) -> None:
    llama, spec, alone = counters[model]
    llama.clear()
    prompt = (*counted(300), 300)
    with driven_loop(llama, spec) as parent:
        _, (done,) = computed(parent, prompt, max_tokens=40)
        stats = parent.stats().stats
    assert [token.id for token in done.logprobs] == [*range(301, 341)]
    check_alone(alone, prompt, done)
    assert 30 < stats.accepted < stats.drafted


@pytest.mark.parametrize("model", COUNTERS)
@given(actions=stories)
def test_whatever_part_is_accepted_all_texts_are_those_that_are_computed_from_their_starts(
    counters: dict[str, Loaded], model: str, actions: list[Step]
) -> None:
    check_story(counters[model], actions, (counted(300), counted(365)))


@pytest.fixture(scope="module", params=["lfm2", "lfm2-moe"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    lookup = {**LOOKUP, "prompt_lookup": PromptLookupOptions(ngram=1, k=MAX_ROLLBACK)}
    return counter_of(tmp_path_factory.mktemp("counting"), request.param, cells=2 * CONTEXT, **lookup)


@pytest.mark.parametrize("length", range(2, 12))
def test_the_next_turn_starts_from_the_state_of_an_answer_that_ended_among_drafts(counter: Loaded, length: int) -> None:
    llama, spec, alone = counter
    llama.clear()
    # What follows on 26 is drafted wrongly, and all else correctly.
    prompt = (*range(10, 40), *text(200, 60), 26, 400, *MESSAGE_END, 20)
    with driven_loop(llama, spec) as parent:
        _, (first,) = computed(parent, prompt, max_tokens=40, stop_tokens=(20 + length,))
        answer = tuple(token.id for token in first.logprobs)
        assert answer == tuple(range(21, 21 + length))
        turn = (*prompt, *answer, 300)  # short, since such a model soon forgets
        for _ in range(2):
            count, (second,) = computed(parent, turn, max_tokens=5)
            # The last token of the answer was computed only if it was a draft.
            assert count - 1 == (length in (6, 7))
            check_alone(alone, turn, second)
        stats = parent.stats().stats
    assert stats.drafted


@pytest.mark.parametrize("model", RECURRENT)
def test_as_many_drafts_are_taken_back_without_a_checkpoint_as_states_are_kept(
    llamas: dict[str, Loaded], model: str
) -> None:
    assert llamas[model][0].free_rollback == MAX_ROLLBACK


@pytest.mark.parametrize("model", [*CHECKPOINTED, *RECURRENT])
def test_more_drafts_are_taken_back_to_a_checkpoint(llamas: dict[str, Loaded], model: str) -> None:
    llama, spec, alone = llamas[model]
    assert (llama.free_rollback > 0) == (model in RECURRENT)
    assert (llama.max_rollback, llama.checkpoints) == (CONTEXT, spec.slots)
    llama.clear()
    prompt = text(1, 90) * 2
    with driven_loop(llama, spec) as parent:
        _, done = computed(parent, prompt, (*text(1, 40), *text(1, 40)), max_tokens=30)
        stats = parent.stats().stats
    assert stats.drafted > stats.accepted
    check_alone(alone, prompt, done[0])
    assert not any(llama.has_checkpoint(seq) for seq in range(llama.sequences))


def test_a_model_that_shares_nothing_drafts_nothing(recurrent_models: Path) -> None:
    spec = spec_of(recurrent_models, "mamba", batch_invariant=True, **{**LOOKUP, "flash_attention": "auto"})
    with pytest.raises(CannotLoad, match="mamba models cannot take back tokens"):
        make_speculator(Llama(spec), spec, lambda _: None)
