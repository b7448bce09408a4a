import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.pool.footprint import KEPT, LARGE_SECONDS, LEAST_BYTES, MOST_TIMES, Footprints, measure
from orchestrator.registry.memory import MemoryEstimate
from orchestrator.registry.models import ModelEntry
from tests.orchestrator.pool.conftest import LoadedRegistry

MIB = 1 << 20
ESTIMATE = MemoryEstimate(weights=100 * MIB, kv_cache=20 * MIB, compute=10 * MIB)
TAKEN = 90 * MIB
"""What an engine of the estimated model takes: less than the estimate, even with all buffers touched."""


class Clock:
    """Seconds since the epoch, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def entry(registry_of: LoadedRegistry) -> ModelEntry:
    return replace(registry_of(a="warm").models["a"], memory=ESTIMATE)


def test_the_estimate_holds_until_something_was_measured(entry: ModelEntry) -> None:
    footprints = Footprints()
    assert footprints.needed(entry) == ESTIMATE.total
    assert footprints.describe(entry) == str(ESTIMATE)
    footprints.note(entry, ESTIMATE.total - ESTIMATE.compute - 3 * MIB)
    assert footprints.needed(entry) == ESTIMATE.total - 3 * MIB, "it has still to touch what it computes in"
    assert footprints.describe(entry).endswith("for unused compute buffers")
    footprints.note(entry, ESTIMATE.total - 3 * MIB)
    assert footprints.needed(entry) == ESTIMATE.total
    assert "measured 3.0 MiB less, and 3.0 MiB for unused compute buffers" in footprints.describe(entry)
    footprints.note(entry, ESTIMATE.total + 2 * MIB)
    assert footprints.needed(entry) == ESTIMATE.total + 2 * MIB
    assert footprints.describe(entry).endswith("measured 2.0 MiB more")


def test_the_largest_of_the_last_measurements_counts(entry: ModelEntry) -> None:
    footprints = Footprints()
    for taken in (50, 90, 70):
        footprints.note(entry, taken * MIB)
    assert footprints.needed(entry) == 90 * MIB + ESTIMATE.compute
    for _ in range(KEPT - 1):
        footprints.note(entry, 70 * MIB)
    assert footprints.needed(entry) == 70 * MIB + ESTIMATE.compute


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(poison=st.lists(st.integers(-(2**70), 2**70) | st.floats(), max_size=30))
def test_after_any_past_a_few_loads_set_it_right(entry: ModelEntry, poison: list[float]) -> None:
    footprints = Footprints()
    for taken in poison:
        footprints.note(entry, taken)  # type: ignore[arg-type]
        assert LEAST_BYTES <= footprints.needed(entry) <= MOST_TIMES * ESTIMATE.total
    for _ in range(KEPT):
        footprints.note(entry, TAKEN)
    assert footprints.needed(entry) == TAKEN + ESTIMATE.compute


@pytest.mark.parametrize("taken", [-1, 0, LEAST_BYTES - 1, 9 * ESTIMATE.total, math.nan, math.inf])
def test_what_is_implausible_is_not_believed(entry: ModelEntry, taken: float) -> None:
    footprints = Footprints()
    footprints.note(entry, taken)  # type: ignore[arg-type]
    assert footprints.needed(entry) == ESTIMATE.total
    footprints.note(entry, TAKEN)
    footprints.note(entry, taken)  # type: ignore[arg-type]
    assert footprints.needed(entry) == TAKEN + ESTIMATE.compute


def test_a_model_that_was_measured_too_large_to_be_loaded_is_tried_again_after_a_day(
    entry: ModelEntry, tmp_path: Path
) -> None:
    clock, file = Clock(), tmp_path / "footprints.json"
    footprints = Footprints(file, clock)
    footprints.note(entry, 7 * ESTIMATE.total)
    footprints.note(entry, TAKEN)
    clock.now += LARGE_SECONDS - 1
    assert footprints.needed(entry) == 7 * ESTIMATE.total
    clock.now += 2
    for one in (footprints, Footprints(file, clock)):
        assert one.needed(entry) == TAKEN + ESTIMATE.compute, "what is not larger than the estimate is believed on"
    clock.now -= 10 * LARGE_SECONDS
    assert footprints.needed(entry) == TAKEN + ESTIMATE.compute, "a clock that was set back makes nothing last longer"


def test_it_is_remembered_over_restarts(entry: ModelEntry, tmp_path: Path) -> None:
    file = tmp_path / "footprints.json"
    Footprints(file).note(entry, 77 * MIB)
    assert Footprints(file).needed(entry) == 77 * MIB + ESTIMATE.compute
    assert [path.name for path in tmp_path.glob("footprints*")] == ["footprints.json"]


def test_a_file_of_an_older_version_still_tells_what_was_measured(entry: ModelEntry, tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "footprints.json"
    Footprints(file).note(entry, 77 * MIB)
    (key,) = json.loads(file.read_text())
    file.write_text(json.dumps({key: 77 * MIB, "of another file": 5}))
    footprints = Footprints(file, clock)
    assert footprints.needed(entry) == 77 * MIB + ESTIMATE.compute
    for _ in range(KEPT):
        footprints.note(entry, 60 * MIB)
    assert Footprints(file).needed(entry) == 60 * MIB + ESTIMATE.compute

    file.write_text(json.dumps({key: 7 * ESTIMATE.total}))
    os.utime(file, (clock.now, clock.now))
    assert Footprints(file, clock).needed(entry) == 7 * ESTIMATE.total
    clock.now += LARGE_SECONDS + 1
    assert Footprints(file, clock).needed(entry) == ESTIMATE.total


def test_another_file_or_another_setting_is_another_model(
    registry_of: LoadedRegistry, model_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(model_file.read_bytes())
    footprints = Footprints()
    entry = registry_of(file=file, a="warm").models["a"]
    assert entry.memory is not None
    footprints.note(entry, 17 * MIB)
    assert footprints.needed(registry_of(file=file, a="hot").models["a"]) == 17 * MIB + entry.memory.compute
    threaded = registry_of(file=file, threads=2, a="warm").models["a"]
    assert threaded.memory is not None
    assert footprints.needed(threaded) == threaded.memory.total
    os.utime(file, (1, 1))
    assert footprints.needed(entry) == entry.memory.total


DAMAGED = ["{", "[1]", '{"KEY": "b"}', '{"KEY": [1, 2]}', '{"KEY": [[90000000]]}', '{"KEY": [["a", 1.0], [1e9, 1.0]]}']
DAMAGED += ['{"KEY": [[90000000, NaN]]}', '{"KEY": -5}', '{"KEY": null}', '{"KEY": ' + "[" * 100_000, "\0", "\ud800"]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:40])
def test_a_damaged_file_is_as_good_as_none(entry: ModelEntry, tmp_path: Path, text: str) -> None:
    file = tmp_path / "footprints.json"
    Footprints(file).note(entry, TAKEN)
    (key,) = json.loads(file.read_text())
    file.write_bytes(text.replace("KEY", key).encode("utf-8", "surrogatepass"))
    assert Footprints(file).needed(entry) == ESTIMATE.total
    Footprints(file).note(entry, TAKEN)
    assert Footprints(file).needed(entry) == TAKEN + ESTIMATE.compute


def test_a_measurement_with_fewer_states_does_not_count(entry: ModelEntry, tmp_path: Path) -> None:
    assert entry.header is not None
    recurrent = replace(entry, header=replace(entry.header, state_bytes=MIB))
    Footprints(tmp_path / "footprints.json").note(entry, TAKEN)  # as before the engine kept any
    assert Footprints(tmp_path / "footprints.json").needed(recurrent) == ESTIMATE.total
    Footprints(tmp_path / "footprints.json").note(recurrent, TAKEN)
    assert Footprints(tmp_path / "footprints.json").needed(recurrent) < ESTIMATE.total


def test_a_process_needs_its_own_memory_and_what_it_maps_up_to_the_estimate() -> None:
    everything = measure(os.getpid(), 1 << 50)
    own = measure(os.getpid(), 0)
    assert everything is not None
    assert own is not None
    assert 0 < own < everything
    assert measure(os.getpid(), everything - 4096) in range(own, everything + (64 << 20))
    assert measure(2**22 + 1, 0) is None
