"""Finding the kind of attention that takes less time for a real model, and keeping the choice."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import LONG_CONTEXT
from orchestrator.engine.step_cost.attention_trial import (
    MAX_INTERRUPTIONS,
    AttentionTrial,
    apply_stored_attention,
    attention_key,
)
from orchestrator.engine.step_cost.calibration import measure_step_costs


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    file = shutil.copy(models / "quantised.gguf", tmp_path / "own.gguf")
    folder = str(tmp_path / "curves")
    return EngineSpec(file=str(file), context=LONG_CONTEXT, slots=2, threads=1, step_costs=folder)


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trials ignore what other processes do, because the test machine may be busy."""
    monkeypatch.setattr("orchestrator.engine.worker.contention.CpuUse.disturbed", lambda self, threads: False)


def stored_attention(llama: Llama, spec: EngineSpec) -> cost_cache.Attention | None:
    key = attention_key(spec, llama.info.llama_cpp, 1)
    assert key is not None
    return cost_cache.load_attention(Path(spec.step_costs or ""), key)


def held(llama: Llama) -> list[int]:
    return [llama.held(seq) for seq in range(llama.sequences)]


def test_a_choice_that_was_stored_is_applied_and_not_tried_again(spec: EngineSpec) -> None:
    llama = Llama(spec)
    assert llama.flash_attention == "off", "where nothing is known, scores are kept"
    assert AttentionTrial(llama, spec).wait(0.0) is not None
    key = attention_key(spec, llama.info.llama_cpp, 1)
    assert key is not None
    choices: tuple[tuple[cost_cache.Attention, int], ...] = (("off", 128), ("on", 512))
    for attention, micro_batch in choices:
        cost_cache.store_attention(Path(spec.step_costs or ""), key, attention)
        again = Llama(spec)
        apply_stored_attention(again, spec)
        assert AttentionTrial(again, spec).ended
        assert (again.flash_attention, again.micro_batch) == (attention, micro_batch)


@pytest.mark.usefixtures("undisturbed")
def test_a_trial_ends_with_a_choice_that_is_stored(spec: EngineSpec) -> None:
    llama = Llama(spec)
    trial = AttentionTrial(llama, spec)
    while trial.wait(1e12) is not None:
        trial.step()
    assert trial.ended
    assert stored_attention(llama, spec) == llama.flash_attention
    assert held(llama) == [0, 0]


def test_an_interrupted_trial_leaves_an_empty_cache_and_the_attention_from_before(spec: EngineSpec) -> None:
    llama = Llama(spec)
    for steps in (1, 3, 12):
        trial = AttentionTrial(llama, spec)
        for _ in range(steps):
            trial.step()
        assert trial.begun
        trial.interrupt()
        assert not trial.begun
        assert llama.flash_attention == "off"
        assert held(llama) == [0, 0]
        measure_step_costs(llama)


@pytest.mark.usefixtures("undisturbed")
def test_a_trial_goes_on_after_an_interruption(spec: EngineSpec) -> None:
    llama = Llama(spec)
    trial = AttentionTrial(llama, spec)
    for _ in range(MAX_INTERRUPTIONS - 1):
        trial.step()
        trial.interrupt()
    while trial.wait(1e12) is not None:
        trial.step()
    assert stored_attention(llama, spec) == llama.flash_attention


def test_a_trial_that_is_always_interrupted_ends_without_a_choice(spec: EngineSpec) -> None:
    llama = Llama(spec)
    trial = AttentionTrial(llama, spec)
    for _ in range(MAX_INTERRUPTIONS):
        assert trial.wait(1e12) is not None
        trial.step()
        trial.interrupt()
    assert trial.wait(1e12) is None
    assert llama.flash_attention == "off"
    assert stored_attention(llama, spec) is None


@pytest.mark.parametrize(
    "changed",
    [
        lambda spec: dataclasses.replace(spec, flash_attention="off"),
        lambda spec: dataclasses.replace(spec, flash_attention="on"),
        lambda spec: dataclasses.replace(spec, step_costs=None),
        lambda spec: dataclasses.replace(spec, context=LONG_CONTEXT - 1),
    ],
)
def test_there_is_no_trial_where_attention_is_settled_or_scores_cannot_be_kept(
    spec: EngineSpec, changed: Callable[[EngineSpec], EngineSpec]
) -> None:
    settled = changed(spec)
    llama = Llama(settled)
    assert AttentionTrial(llama, settled).ended
    before = llama.flash_attention
    apply_stored_attention(llama, settled)
    assert llama.flash_attention == before


def test_there_is_no_trial_without_a_model_file(spec: EngineSpec) -> None:
    llama = Llama(spec)
    Path(spec.file).unlink()
    assert AttentionTrial(llama, spec).ended
