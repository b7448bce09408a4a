"""Measuring the step costs of a real model in idle moments, keeping them, and what is assumed before."""

import asyncio
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.calibration import (
    Calibration,
    assumed_step_costs,
    measure_step_costs,
    stored_step_costs,
)
from orchestrator.engine.step_cost.model import StepCostModel


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    file = shutil.copy(models / "quantised.gguf", tmp_path / "own.gguf")
    return EngineSpec(file=str(file), context=128, slots=5, threads=1, split=True, step_costs=str(tmp_path / "curves"))


@pytest.fixture
def llama(spec: EngineSpec) -> Llama:
    return Llama(spec)


def calibrated(llama: Llama, spec: EngineSpec) -> StepCostModel:
    """Calibrate the model without pauses, until other processes have not made its costs implausible."""
    found: list[StepCostModel] = []
    while not found or found[-1].implausible(most=spec.slots):
        calibration = Calibration(llama, spec, lambda threads, costs: found.append(costs))
        while calibration.wait(0.0) is not None:
            calibration.step()
    return found[-1]


def held(llama: Llama) -> list[int]:
    return [llama.held(seq) for seq in range(llama.sequences)]


def next_token(llama: Llama, seq: int) -> int:
    """Return the token that follows on what a sequence holds and two more, which are taken back."""
    before = llama.held(seq)
    llama.batch.clear()
    llama.batch.add(seq, before, (7, 8), 1)
    token = int(llama.decode()[0].argmax())
    llama.truncate(seq, before)
    return token


def test_steps_are_measured_as_far_as_slots_and_context_allow_and_leave_an_empty_cache(llama: Llama) -> None:
    costs = measure_step_costs(llama)
    assert costs.decode.sizes == (1, 2, 3, 4, 5)
    assert costs.verify.sizes[0] == 1
    assert costs.pads
    assert costs.verify.sizes[-1] <= llama.max_outputs
    assert min(*costs.decode.seconds, *costs.verify.seconds, costs.prefill) > 0
    assert costs.per_cell >= 0
    assert held(llama) == [0] * llama.sequences


def test_measuring_changes_nothing_that_sequences_hold(llama: Llama) -> None:
    for seq in (0, 2):
        llama.batch.clear()
        llama.batch.add(seq, 0, range(5, 25 + seq), 0)
        llama.decode()
    before = next_token(llama, 2)
    costs = measure_step_costs(llama)
    assert costs.decode.sizes == (1, 2, 3, 4, 5)
    assert held(llama) == [20, 0, 22, 0, 0]
    assert next_token(llama, 2) == before


def test_steps_that_need_a_full_sequence_are_not_measured(llama: Llama) -> None:
    llama.batch.clear()
    llama.batch.add(3, 0, range(128), 0)
    llama.decode()
    costs = measure_step_costs(llama)
    assert costs.decode.sizes == (1, 2, 3), "the fourth sequence has no room for a token"
    assert llama.held(3) == 128


def test_measured_costs_are_stored_for_the_same_file_threads_and_settings(llama: Llama, spec: EngineSpec) -> None:
    assert stored_step_costs(llama, spec) is None
    costs = calibrated(llama, spec)
    assert stored_step_costs(llama, spec) == costs
    assert stored_step_costs(llama, spec, threads=2) is None
    assert stored_step_costs(llama, dataclasses.replace(spec, slots=4)) is None
    llama.set_threads(2)
    assert stored_step_costs(llama, spec) is None
    assert stored_step_costs(llama, spec, threads=1) == costs


def test_without_a_model_file_or_a_folder_nothing_is_stored(llama: Llama, spec: EngineSpec) -> None:
    (Path(spec.file).parent / "taken").write_text("no folder")
    nowhere = dataclasses.replace(spec, step_costs=str(Path(spec.file).parent / "taken"))
    assert calibrated(llama, nowhere).decode.sizes == (1, 2, 3, 4, 5)
    assert stored_step_costs(llama, nowhere) is None
    Path(spec.file).unlink()
    assert calibrated(llama, spec).decode.sizes == (1, 2, 3, 4, 5)
    assert not list(Path(spec.step_costs or "").glob("*"))


def test_stored_costs_that_are_implausible_are_not_used(
    llama: Llama, spec: EngineSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    calibrated(llama, spec)
    (file,) = Path(spec.step_costs or "").glob("*.json")
    stored = json.loads(file.read_bytes())
    single = {"sizes": [1], "seconds": [3.05]}
    file.write_text(json.dumps(stored | {"many": single, "one": single}))
    assert stored_step_costs(llama, spec) is None
    assert "only steps of one token were measured" in capfd.readouterr().err


def test_wide_steps_are_assumed_to_pay_where_nothing_was_measured(llama: Llama) -> None:
    costs = assumed_step_costs(llama)
    assert costs.implausible(most=5) is None
    assert costs.decode.sizes == (1, 2, 3, 4, 5)
    assert held(llama) == [0] * llama.sequences


def test_a_calibration_can_be_interrupted_after_any_step_and_goes_on_later(llama: Llama, spec: EngineSpec) -> None:
    found: list[StepCostModel] = []
    calibration = Calibration(llama, spec, lambda threads, costs: found.append(costs), patient=False)
    for _ in range(100):
        calibration.step()
        calibration.interrupt()
        assert held(llama) == [0] * llama.sequences
    while calibration.wait(0.0) is not None:
        calibration.step()
    assert found[0].decode.sizes == (1, 2, 3, 4, 5)


def test_a_calibration_ends_when_the_threads_or_the_layout_change(llama: Llama, spec: EngineSpec) -> None:
    calibration = Calibration(llama, spec, lambda threads, costs: None)
    assert calibration.wait(0.0) == 0.0
    llama.set_threads(2)
    assert calibration.wait(0.0) is None
    llama.set_threads(1)
    llama.set_layout(spec, split=False)
    assert calibration.wait(0.0) is None


@pytest.mark.slow  # the machine has to be quiet for some seconds, which it is not while other tests run
async def test_a_new_model_answers_first_and_is_calibrated_when_there_is_nothing_to_do(spec: EngineSpec) -> None:
    short = dataclasses.replace(spec, context=64)  # whose steps are so short that hardly any is disturbed
    async with await Engine.start(short) as engine:
        assert not (await engine.stats()).calibrated
        answer = await engine.generate(Generation(messages=(Message("user", "hello"),), max_tokens=3))
        assert answer.usage.output_tokens <= 3
        while not (await engine.stats()).calibrated:  # noqa: ASYNC110 (an engine sends nothing when it is calibrated)
            await asyncio.sleep(0.2)
    async with await Engine.start(short) as engine:
        assert (await engine.stats()).calibrated, "what was measured is kept"
