"""Keeping what was measured in a folder: keys, files, and what happens to damaged ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.step_cost.attention import AttentionCosts, MeasuredAttention
from orchestrator.engine.step_cost.cost_cache import (
    CacheKey,
    cache_key,
    load,
    load_attention,
    store,
    store_attention,
)
from orchestrator.engine.step_cost.model import Points, StepCostModel

KEY = CacheKey(file_bytes=7, file_mtime_ns=1, file_sha256="ab", llama_cpp="b1", threads=2, cpu="one", settings="kv f16")
COSTS = StepCostModel(Points((1, 2), (1.0, 3.0)), Points((1, 4), (1.0, 2.5)), 0.25, 0.001)


def test_a_stored_cost_model_comes_back_for_its_own_key_only(tmp_path: Path) -> None:
    folder = tmp_path / "curves"
    assert load(folder, KEY) is None
    store(folder, KEY, StepCostModel.assumed(1.0))
    store(folder, KEY, COSTS)
    assert load(folder, KEY) == COSTS
    others = [replace(KEY, threads=1), replace(KEY, cpu="two"), replace(KEY, settings="kv f32")]
    assert all(load(folder, other) is None for other in others)
    assert [path.name for path in folder.iterdir()] == [KEY.name], "nothing unfinished is left"


def test_a_stored_attention_comes_back_and_is_no_cost_model(tmp_path: Path) -> None:
    assert load_attention(tmp_path, KEY) is None
    costs = AttentionCosts(prompt=0.001, first=0.01, widest=0.1, width=16, per_cell=0.0)
    measured = MeasuredAttention("on", flash=costs, scores=replace(costs, widest=0.2))
    store_attention(tmp_path, KEY, measured)
    assert load_attention(tmp_path, KEY) == measured
    assert load_attention(tmp_path, replace(KEY, threads=1)) is None
    assert load(tmp_path, KEY) is None
    store(tmp_path, KEY, COSTS)
    assert load_attention(tmp_path, KEY) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"schema":4', b'"schema":3'),
        (b'"threads":2', b'"threads":3'),
        (b"3.0", b"-3.0"),
        (b"3.0", b"null"),
        (b"0.25", b"0"),
        (b"[1,2]", b"[2,1]"),
        (b"[1.0,3.0]", b"[1.5,3.0]"),
        (b'"one"', b'"two"'),
        (b"}", b""),
        (b"many", b"\xff\xfe"),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, old: bytes, new: bytes) -> None:
    store(tmp_path, KEY, COSTS)
    path = tmp_path / KEY.name
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))
    assert load(tmp_path, KEY) is None
    store(tmp_path, KEY, COSTS)
    assert load(tmp_path, KEY) == COSTS


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\x00" * 100, b"[" * 100_000])
def test_any_rubbish_counts_as_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / KEY.name).write_bytes(data)
    assert load(tmp_path, KEY) is None


def test_where_nothing_can_be_stored_that_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / KEY.name).mkdir()
    with pytest.raises(OSError, match=KEY.name):
        store(tmp_path, KEY, COSTS)
    assert [path.name for path in tmp_path.iterdir()] == [KEY.name]
    assert load(tmp_path, KEY) is None


def test_the_key_changes_with_the_file(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF one")

    def key() -> CacheKey:
        return cache_key(model, llama_cpp="b1", threads=2, cpu="one", settings="")

    first = key()
    assert key() == first
    model.write_bytes(b"GGUF two")
    assert key().file_sha256 != first.file_sha256
    assert key().name != first.name
