"""Measuring both kinds of attention with a real model, keeping the result, and changing the kind by the load."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import CannotLoad, Llama, loading, model
from orchestrator.engine.protocol import Finished
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import (
    LONG_CONTEXT,
    Attention,
    AttentionChoice,
    AttentionCosts,
    MeasuredAttention,
)
from orchestrator.engine.step_cost.attention_trial import (
    MAX_INTERRUPTIONS,
    AttentionTrial,
    apply_stored_attention,
    attention_key,
    measured_attention,
)
from orchestrator.engine.step_cost.calibration import measure_step_costs
from tests.orchestrator.engine.driven_loop import Parent, driven_loop
from tests.orchestrator.engine.shared_texts import ask, check_alone, text

# Told instead of measured: one kind is faster for texts of few tokens, the other one for long ones.
SHALLOW = AttentionCosts(prompt=1e-4, first=0.01, widest=0.01, width=2, per_cell=1e-2)
DEEP = AttentionCosts(prompt=1e-4, first=0.5, widest=0.5, width=2, per_cell=1e-5)


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    file = shutil.copy(models / "quantised.gguf", tmp_path / "own.gguf")
    folder = str(tmp_path / "curves")
    return EngineSpec(file=str(file), context=LONG_CONTEXT, slots=2, threads=1, step_costs=folder)


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trials ignore what other processes do, because the test machine may be busy."""
    monkeypatch.setattr("orchestrator.engine.worker.contention.CpuUse.disturbed", lambda self, threads: False)


def stored_attention(llama: Llama, spec: EngineSpec) -> Attention | None:
    measured = measured_attention(llama, spec)
    return None if measured is None else measured.attention


def store(llama: Llama, spec: EngineSpec, measured: MeasuredAttention) -> None:
    key = attention_key(spec, llama.info.llama_cpp, 1)
    assert key is not None
    cost_cache.store_attention(Path(spec.step_costs or ""), key, measured)


def held(llama: Llama) -> list[int]:
    return [llama.held(seq) for seq in range(llama.sequences)]


def test_a_choice_that_was_stored_is_applied_and_not_tried_again(spec: EngineSpec) -> None:
    llama = Llama(spec)
    assert llama.flash_attention == "off", "where nothing is known, scores are kept"
    assert AttentionTrial(llama, spec).wait(0.0) is not None
    choices: tuple[tuple[Attention, int], ...] = (("off", 128), ("on", 512))
    for attention, micro_batch in choices:
        store(llama, spec, MeasuredAttention(attention, SHALLOW, DEEP))
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
    measured = measured_attention(llama, spec)
    assert measured is not None
    assert {costs.width for costs in (measured.flash, measured.scores)} == {2}
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


@pytest.fixture
def as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps take what `SHALLOW` and `DEEP` say, with flash attention and with scores, and record all of them."""
    record = AttentionChoice.record

    def told(choice: AttentionChoice, prompt_tokens: int, tokens: int, cells: int, *_: Any, **__: Any) -> None:
        costs = SHALLOW if choice.attention == "on" else DEEP
        record(choice, prompt_tokens, tokens, cells, costs.seconds(prompt_tokens, tokens, cells))

    monkeypatch.setattr(AttentionChoice, "record", told)
    monkeypatch.setattr("orchestrator.engine.worker.loop.LEARNED_EVERY", 1)
    monkeypatch.setattr("orchestrator.engine.worker.contention.CpuUse.disturbed", lambda self, threads: False)


def changes(parent: Parent, prompt_tokens: int) -> int:
    """Ask for long answers to prompts of this length, at most twelve pairs, until the kind of attention changes."""
    before = parent.stats().stats.attention_changes
    for number in range(12):
        for at in range(2):
            parent.submit(ask(text(40 * at + number, prompt_tokens), max_tokens=30))
        assert [parent.finished().finish for _ in range(2)] == ["length"] * 2
        if parent.stats().stats.attention_changes > before:
            break
    return parent.stats().stats.attention_changes - before


def answer(parent: Parent, prompt_tokens: int) -> tuple[tuple[int, ...], Finished]:
    prompt = text(1, prompt_tokens)
    parent.submit(ask(prompt))
    return prompt, parent.finished()


@pytest.mark.usefixtures("as_told")
def test_an_engine_follows_its_load_and_starts_with_the_latest_kind(
    models: Path, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(models / "float.gguf", spec.file)
    spec = dataclasses.replace(spec, kv_type_k="f32", kv_type_v="f32")
    llama, alone = Llama(spec), Llama(dataclasses.replace(spec, slots=1, flash_attention="off", step_costs=None))
    store(llama, spec, MeasuredAttention("off", SHALLOW, DEEP))
    with driven_loop(llama, spec) as parent:
        assert parent.stats().stats.keeps_scores
        assert changes(parent, 3) == 1
        assert (stored_attention(llama, spec), llama.flash_attention, llama.split) == ("on", "on", True)
        assert not parent.stats().stats.keeps_scores
        check_alone(alone, *answer(parent, 30), tolerance=0.05)  # flash attention rounds to half precision
        assert changes(parent, 400) == 1
        assert (stored_attention(llama, spec), llama.flash_attention) == ("off", "off")
        check_alone(alone, *answer(parent, 400))
        assert changes(parent, 400) == 0


@pytest.mark.parametrize("settings", [{"flash_attention": "off"}, {"batch_invariant": True}])
def test_an_engine_whose_attention_is_settled_never_changes_it(spec: EngineSpec, settings: dict[str, Any]) -> None:
    settled = dataclasses.replace(spec, **settings)
    llama = Llama(settled)
    store(llama, settled, MeasuredAttention("off", SHALLOW, DEEP))
    before = llama.flash_attention
    apply_stored_attention(llama, settled)
    with driven_loop(llama, settled) as parent:
        assert changes(parent, 3) == 0
    assert llama.flash_attention == before


@pytest.mark.usefixtures("as_told")
def test_where_there_is_no_memory_for_the_other_kind_the_old_one_stays(
    spec: EngineSpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    llama = Llama(spec)
    store(llama, spec, MeasuredAttention("off", SHALLOW, DEEP))
    failures = iter([CannotLoad("memory", "no room for it")])

    def fail_once(*given: Any) -> object:
        for error in failures:
            raise error
        return loading.new_context(*given)

    monkeypatch.setattr(model, "new_context", fail_once)
    with driven_loop(llama, spec) as parent:
        assert changes(parent, 3) == 0
        stats = parent.stats().stats
    assert "the kind of attention stays as it was: no room for it" in capfd.readouterr().err
    assert (stats.keeps_scores, stats.running) == (True, 0)
