"""What is measured of a real model when it is loaded, and when it is not measured again."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.measure import known_curve, measure_curve


@pytest.fixture
def spec(models: Path, tmp_path: Path) -> EngineSpec:
    file = shutil.copy(models / "quantised.gguf", tmp_path / "own.gguf")
    return EngineSpec(file=str(file), context=512, slots=5, threads=1, curves=str(tmp_path / "curves"))


@pytest.fixture
def llama(spec: EngineSpec) -> Llama:
    return Llama(spec)


def test_steps_are_measured_as_far_as_slots_and_context_go_and_nothing_stays(llama: Llama) -> None:
    curve = measure_curve(llama)
    assert curve.many.sizes == (1, 2, 3, 4, 5)
    assert curve.one.sizes[0] == 1
    assert curve.fills
    assert curve.one.sizes[-1] <= llama.max_outputs
    assert min(*curve.many.seconds, *curve.one.seconds, curve.prefill) > 0
    assert curve.per_cell >= 0
    assert [llama.held(seq) for seq in range(llama.sequences)] == [0] * llama.sequences


def test_a_curve_that_was_measured_is_taken_for_the_same_file_threads_and_settings(
    llama: Llama, spec: EngineSpec
) -> None:
    curve = known_curve(llama, spec)
    assert known_curve(llama, spec) == curve, "two measurements are never equal to the last digit"
    assert known_curve(llama, dataclasses.replace(spec, slots=4)) != curve
    llama.set_threads(2)
    assert known_curve(llama, spec) != curve
    llama.set_threads(1)
    assert known_curve(llama, spec) == curve


def test_without_a_file_or_a_folder_to_know_it_by_it_is_measured(llama: Llama, spec: EngineSpec) -> None:
    (Path(spec.file).parent / "taken").write_text("no folder")
    nowhere = dataclasses.replace(spec, curves=str(Path(spec.file).parent / "taken"))
    assert known_curve(llama, nowhere) != known_curve(llama, nowhere)
    Path(spec.file).unlink()
    assert known_curve(llama, spec).many.sizes == (1, 2, 3, 4, 5)
    assert not list(Path(spec.file).parent.glob("curves/*"))
