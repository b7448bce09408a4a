"""What is measured of a real model when it is loaded, and when it is not measured again."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from orchestrator.engine import measure
from orchestrator.engine.attention import LONG
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.measure import known_curve, measure_curve, settle_attention


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


@pytest.fixture
def long(spec: EngineSpec) -> EngineSpec:
    return dataclasses.replace(spec, context=LONG, slots=2)


def answers(llama: Llama) -> int:
    """Return the token that follows on a short prompt, in the second sequence."""
    llama.batch.clear()
    llama.batch.add(1, llama.held(1), (7, 8, 9), 1)
    return int(llama.decode()[0].argmax())


@pytest.mark.parametrize(("kept", "attention", "micro_batch"), [(True, "off", 128), (False, "on", 512)])
def test_the_faster_attention_is_measured_once_and_taken_after_every_start(
    long: EngineSpec, monkeypatch: pytest.MonkeyPatch, *, kept: bool, attention: str, micro_batch: int
) -> None:
    measured: list[tuple[float, float]] = []
    monkeypatch.setattr(measure, "worth_keeping", lambda *times: measured.append(times) or kept)  # type: ignore[func-returns-value]
    for _ in range(2):
        llama = Llama(long)
        assert llama.flash_attention == "off", "what is done where nothing is known"
        before = answers(llama)
        settle_attention(llama, long)
        assert (llama.flash_attention, llama.micro_batch) == (attention, micro_batch)
        llama.clear()
        assert [llama.held(seq) for seq in range(llama.sequences)] == [0, 0]
        assert answers(llama) == before
    assert len(measured) == 1
    assert min(measured[0]) > 0


def test_attention_is_left_as_it_is_where_it_is_settled_or_slow_or_cannot_be_known_again(
    long: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_measure_attention", lambda *_: pytest.fail("it is measured"))
    for change in ({"flash_attention": "off"}, {"flash_attention": "on"}, {"curves": None}, {"context": LONG - 1}):
        settled = dataclasses.replace(long, **change)  # type: ignore[arg-type]
        llama = Llama(settled)
        before = llama.flash_attention
        settle_attention(llama, settled)
        assert llama.flash_attention == before
    monkeypatch.setattr(measure, "ATTENTION_SECONDS", 0.0)
    llama = Llama(long)
    settle_attention(llama, long)
    Path(long.file).unlink()
    settle_attention(llama, long)
    assert llama.flash_attention == "off"
