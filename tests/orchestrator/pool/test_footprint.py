import os
from pathlib import Path

from orchestrator.pool.footprint import Footprints, measure
from registry import ModelEntry


def _entry(registry_of, **options: str) -> ModelEntry:
    return registry_of(**(options or {"a": "warm"})).models["a"]


def test_the_estimate_holds_until_something_was_measured(registry_of) -> None:
    entry, footprints = _entry(registry_of), Footprints()
    assert footprints.needed(entry) == entry.memory.total
    assert footprints.describe(entry) == str(entry.memory)
    compute = entry.memory.compute
    footprints.note(entry, entry.memory.total - compute - (3 << 20))
    assert footprints.needed(entry) == entry.memory.total - (3 << 20), "it has still to touch what it computes in"
    assert footprints.describe(entry).endswith("for buffers that may not have been touched yet")
    footprints.note(entry, entry.memory.total - (3 << 20))
    assert footprints.needed(entry) == entry.memory.total
    assert "measured 3.0 MiB less, and 3.0 MiB for buffers" in footprints.describe(entry)
    footprints.note(entry, entry.memory.total + (2 << 20))
    assert footprints.needed(entry) == entry.memory.total + (2 << 20)
    assert footprints.describe(entry).endswith("measured 2.0 MiB more")


def test_the_most_that_was_seen_counts(registry_of) -> None:
    entry, footprints = _entry(registry_of), Footprints()
    for taken in (5, 9, 7):
        footprints.note(entry, taken)
    assert footprints.needed(entry) == 9 + entry.memory.compute


def test_it_is_remembered_over_restarts(registry_of, tmp_path: Path) -> None:
    entry, file = _entry(registry_of), tmp_path / "footprints.json"
    Footprints(file).note(entry, 77)
    assert Footprints(file).needed(entry) == 77 + entry.memory.compute
    assert [path.name for path in tmp_path.glob("footprints*")] == ["footprints.json"]


def test_another_file_or_another_setting_is_another_model(registry_of, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(model_file.read_bytes())
    footprints = Footprints()
    entry = registry_of(file=file, a="warm").models["a"]
    footprints.note(entry, 77)
    assert footprints.needed(registry_of(file=file, a="hot").models["a"]) == 77 + entry.memory.compute
    threaded = registry_of(file=file, threads=2, a="warm").models["a"]
    assert footprints.needed(threaded) == threaded.memory.total
    os.utime(file, (1, 1))
    assert footprints.needed(entry) == entry.memory.total


def test_a_damaged_file_is_as_good_as_none(registry_of, tmp_path: Path) -> None:
    entry, file = _entry(registry_of), tmp_path / "footprints.json"
    for text in ("{", "[1]", '{"a": "b"}'):
        file.write_text(text)
        assert Footprints(file).needed(entry) == entry.memory.total
    Footprints(file).note(entry, 77)
    assert Footprints(file).needed(entry) == 77 + entry.memory.compute


def test_a_process_needs_its_own_memory_and_what_it_maps_up_to_the_estimate() -> None:
    everything = measure(os.getpid(), 1 << 50)
    own = measure(os.getpid(), 0)
    assert everything is not None
    assert own is not None
    assert 0 < own < everything
    assert measure(os.getpid(), everything - 4096) in range(own, everything + (64 << 20))
    assert measure(2**22 + 1, 0) is None
