"""What is measured of a real model in idle moments, what is kept of it, and what a model answers by before."""

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost import cost_cache
from orchestrator.engine.step_cost.attention import LONG_CONTEXT
from orchestrator.engine.step_cost.calibration import (
    MOST_INTERRUPTIONS,
    AttentionTrial,
    Calibration,
    apply_stored_attention,
    assumed_step_costs,
    attention_key,
    measure_step_costs,
    stored_step_costs,
)
from orchestrator.engine.step_cost.model import StepCostModel


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    file = shutil.copy(models / "quantised.gguf", tmp_path / "own.gguf")
    return EngineSpec(file=str(file), context=512, slots=5, threads=1, step_costs=str(tmp_path / "curves"))


@pytest.fixture
def llama(spec: EngineSpec) -> Llama:
    return Llama(spec)


def calibrated(llama: Llama, spec: EngineSpec) -> StepCostModel:
    """Measure the model to the end, whatever else the machine does."""
    found: list[StepCostModel] = []
    calibration = Calibration(llama, spec, lambda threads, costs: found.append(costs), patient=False)
    while calibration.wait(0.0) is not None:
        calibration.step()
    return found[0]


def test_steps_are_measured_as_far_as_slots_and_context_go_and_nothing_stays(llama: Llama) -> None:
    costs = measure_step_costs(llama)
    assert costs.many.sizes == (1, 2, 3, 4, 5)
    assert costs.one.sizes[0] == 1
    assert costs.pads
    assert costs.one.sizes[-1] <= llama.max_outputs
    assert min(*costs.many.seconds, *costs.one.seconds, costs.prefill) > 0
    assert costs.per_cell >= 0
    assert [llama.held(seq) for seq in range(llama.sequences)] == [0] * llama.sequences


def test_what_sequences_hold_stays_while_steps_are_measured(llama: Llama) -> None:
    for seq in (0, 2):
        llama.batch.clear()
        llama.batch.add(seq, 0, range(5, 25 + seq), 0)
        llama.decode()
    before = next_token(llama, 2)
    costs = measure_step_costs(llama)
    assert costs.many.sizes == (1, 2, 3, 4, 5)
    assert [llama.held(seq) for seq in range(llama.sequences)] == [20, 0, 22, 0, 0]
    assert next_token(llama, 2) == before


def next_token(llama: Llama, seq: int) -> int:
    """Return the token that follows on what a sequence holds and two more, which are taken back."""
    held = llama.held(seq)
    llama.batch.clear()
    llama.batch.add(seq, held, (7, 8), 1)
    token = int(llama.decode()[0].argmax())
    llama.truncate(seq, held)
    return token


def test_full_sequences_are_not_measured_but_others_are(llama: Llama) -> None:
    llama.batch.clear()
    llama.batch.add(3, 0, range(512), 0)
    llama.decode()
    costs = measure_step_costs(llama)
    assert costs.many.sizes == (1, 2, 3), "the fourth sequence has no room for a token"
    assert llama.held(3) == 512


def test_a_cost_model_that_was_measured_is_taken_for_the_same_file_threads_and_settings(
    llama: Llama, spec: EngineSpec
) -> None:
    assert stored_step_costs(llama, spec) is None
    costs = calibrated(llama, spec)
    assert stored_step_costs(llama, spec) == costs
    assert stored_step_costs(llama, spec, threads=2) is None
    assert stored_step_costs(llama, dataclasses.replace(spec, slots=4)) is None
    llama.set_threads(2)
    assert stored_step_costs(llama, spec) is None
    assert stored_step_costs(llama, spec, threads=1) == costs


def test_without_a_file_or_a_folder_to_know_it_by_nothing_is_kept(llama: Llama, spec: EngineSpec) -> None:
    (Path(spec.file).parent / "taken").write_text("no folder")
    nowhere = dataclasses.replace(spec, step_costs=str(Path(spec.file).parent / "taken"))
    assert calibrated(llama, nowhere).many.sizes == (1, 2, 3, 4, 5)
    assert stored_step_costs(llama, nowhere) is None
    Path(spec.file).unlink()
    assert calibrated(llama, spec).many.sizes == (1, 2, 3, 4, 5)
    assert not list(Path(spec.file).parent.glob("curves/*"))


def test_a_cost_model_that_cannot_be_right_is_not_taken(
    llama: Llama, spec: EngineSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    calibrated(llama, spec)
    (file,) = Path(spec.step_costs or "").glob("*.json")
    key = cost_cache.cache_key(
        Path(spec.file),
        llama_cpp=llama.info.llama_cpp,
        threads=1,
        cpu=cpu_model(),
        settings=f"f16/f16/{llama.flash_attention}/None/False/True/5/0",
    )
    assert key.name == file.name
    single = StepCostModel.assumed(3.05, most=1)
    cost_cache.store(file.parent, key, dataclasses.replace(single, one=single.many))
    assert stored_step_costs(llama, spec) is None
    assert "only steps of one token were measured" in capfd.readouterr().err


def test_a_model_that_was_not_measured_is_assumed_to_gain_by_wide_steps(llama: Llama) -> None:
    costs = assumed_step_costs(llama)
    assert costs.implausible(most=5) is None
    assert costs.many.sizes == (1, 2, 3, 4, 5)
    assert [llama.held(seq) for seq in range(llama.sequences)] == [0] * llama.sequences


def test_measuring_makes_way_at_any_step_and_goes_on_later(llama: Llama, spec: EngineSpec) -> None:
    found: list[StepCostModel] = []
    calibration = Calibration(llama, spec, lambda threads, costs: found.append(costs), patient=False)
    steps = 0
    while calibration.wait(0.0) is not None:
        calibration.step()
        calibration.interrupt()
        assert [llama.held(seq) for seq in range(llama.sequences)] == [0] * llama.sequences
        steps += 1
        if steps > 500:
            break
    assert not found, "the last measurement takes several steps, and was never let finish"
    while calibration.wait(0.0) is not None:
        calibration.step()
    assert found[0].many.sizes == (1, 2, 3, 4, 5)


def test_other_threads_or_another_layout_end_a_measurement(llama: Llama, spec: EngineSpec) -> None:
    calibration = Calibration(llama, spec, lambda threads, costs: None)
    assert calibration.wait(0.0) == 0.0
    llama.set_threads(2)
    assert calibration.wait(0.0) is None
    llama.set_threads(1)
    llama.lay_out(spec, split=False)
    assert calibration.wait(0.0) is None


async def test_a_new_model_answers_first_and_is_measured_when_there_is_nothing_to_do(spec: EngineSpec) -> None:
    async with await Engine.start(spec) as engine:
        assert not (await engine.stats()).calibrated
        answer = await engine.generate(Generation(messages=(Message("user", "hello"),), max_tokens=3))
        assert answer.usage.output_tokens <= 3
        while not (await engine.stats()).calibrated:  # noqa: ASYNC110 (an engine tells nobody that it has measured)
            await asyncio.sleep(0.2)
    async with await Engine.start(spec) as engine:
        assert (await engine.stats()).calibrated, "what was measured is kept"


# The kind of attention


@pytest.fixture
def long(spec: EngineSpec) -> EngineSpec:
    return dataclasses.replace(spec, context=LONG_CONTEXT, slots=2)


def tried(llama: Llama, spec: EngineSpec) -> AttentionTrial:
    trial = AttentionTrial(llama, spec)
    while (wait := trial.wait(1e12)) is not None:
        assert wait == 0.0
        trial.step()
    return trial


def test_the_faster_attention_is_found_once_and_taken_after_every_start(long: EngineSpec) -> None:
    llama = Llama(long)
    assert llama.flash_attention == "off", "what is done where nothing is known"
    assert AttentionTrial(llama, long).wait(0.0) is not None
    key = attention_key(long, llama.info.llama_cpp, 1)
    assert key is not None
    for attention, micro_batch in (("off", 128), ("on", 512)):
        cost_cache.store_attention(Path(long.step_costs or ""), key, attention)  # type: ignore[arg-type]
        again = Llama(long)
        apply_stored_attention(again, long)
        assert AttentionTrial(again, long).ended
        assert (again.flash_attention, again.micro_batch) == (attention, micro_batch)


def test_a_trial_of_attention_ends_with_a_choice_that_is_kept(
    long: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.engine.step_cost.calibration.CpuUse.disturbed", lambda self, threads: False
    )  # a busy machine
    llama = Llama(long)
    trial = tried(llama, long)
    assert trial.ended
    key = attention_key(long, llama.info.llama_cpp, 1)
    assert key is not None
    assert cost_cache.load_attention(Path(long.step_costs or ""), key) == llama.flash_attention
    assert [llama.held(seq) for seq in range(llama.sequences)] == [0, 0]


def test_a_trial_of_attention_makes_way_and_leaves_an_empty_cache(long: EngineSpec) -> None:
    llama = Llama(long)
    for steps in (1, 3, 12):
        trial = AttentionTrial(llama, long)
        for _ in range(steps):
            trial.step()
        assert trial.begun
        trial.interrupt()
        assert not trial.begun
        assert llama.flash_attention == "off"
        assert [llama.held(seq) for seq in range(llama.sequences)] == [0, 0]
        measure_step_costs(llama)


def test_a_trial_of_attention_goes_on_where_it_was_interrupted_but_not_for_ever(
    long: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.engine.step_cost.calibration.CpuUse.disturbed", lambda self, threads: False
    )  # a busy machine
    llama = Llama(long)
    trial, steps = AttentionTrial(llama, long), 0
    while trial.wait(1e12) is not None:
        trial.step()
        steps += 1
        if steps % 13 == 0:  # an answer takes nine steps
            trial.interrupt()
    assert trial.ended
    assert AttentionTrial(llama, long).ended, "what was found is kept"
    Path(long.step_costs or "").joinpath(next(Path(long.step_costs or "").glob("*.json")).name).unlink()
    trial, interruptions = AttentionTrial(Llama(long), long), 0
    while trial.wait(1e12) is not None:
        trial.step()
        trial.interrupt()
        interruptions += 1
    assert interruptions == MOST_INTERRUPTIONS
    assert not list(Path(long.step_costs or "").glob("*.json"))


@pytest.mark.parametrize(
    "change",
    [{"flash_attention": "off"}, {"flash_attention": "on"}, {"step_costs": None}, {"context": LONG_CONTEXT - 1}],
)
def test_attention_is_not_tried_where_it_is_settled_or_cannot_be_kept(
    long: EngineSpec, change: dict[str, object]
) -> None:
    settled = dataclasses.replace(long, **change)  # type: ignore[arg-type]
    llama = Llama(settled)
    assert AttentionTrial(llama, settled).ended
    before = llama.flash_attention
    apply_stored_attention(llama, settled)
    assert llama.flash_attention == before


def test_attention_is_not_tried_without_a_file_to_know_it_by(long: EngineSpec) -> None:
    llama = Llama(long)
    Path(long.file).unlink()
    assert AttentionTrial(llama, long).ended
