"""A stopped engine leaves the cells of system prompts on disk, and the next one restores them."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message, SystemPrompt

SYSTEM = "the quick brown fox jumps over the lazy dog and runs away " * 3
PERSONA = SYSTEM + "\nspeak like a sailor who has seen it all, and say so in every sentence "
ELSE = "some other text that no other begins with, and that is long enough to be kept as well " * 2
LAYOUTS = [
    {"batch_invariant": True},
    pytest.param({"batch_invariant": False}, marks=pytest.mark.slow),
    {"batch_invariant": False, "split": True, "kv_type_k": "f32"},
]


def spec_of(models: Path, folder: Path, **options: Any) -> EngineSpec:
    settings = {"context": 512, "slots": 4, "threads": 1, "hung_seconds": 60, "batch_invariant": True, **options}
    return EngineSpec(
        **{
            "file": str(models / "quantised.gguf"),
            "step_costs": str(models / "curves"),
            "prefixes": str(folder / "prefixes"),
            "system_prompts": tuple(map(SystemPrompt, (SYSTEM, PERSONA, ELSE, "short"))),
            "log_file": str(folder / "engine.log"),
            **settings,
        }
    )


def ask(system: str, user: str = "hello") -> Generation:
    return Generation(messages=(Message("system", system), Message("user", user)), max_tokens=24)


async def life(spec: EngineSpec, *systems: str) -> tuple[list[Completion], EngineStats]:
    async with await Engine.start(spec) as engine:
        return [await engine.generate(ask(system)) for system in systems], await engine.stats()


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "prefixes").glob("*"))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_next_engine_computes_none_of_it_and_says_the_same(
    models: Path, tmp_path: Path, layout: dict[str, object]
) -> None:
    spec = spec_of(models, tmp_path, **layout)
    first, before = await life(spec, PERSONA, SYSTEM, "short")
    assert before.restored_prefixes == 0
    (file,) = kept(tmp_path)  # the longer one begins nearly with the shorter one
    second, after = await life(spec, PERSONA, SYSTEM, "short")
    assert (after.restored_prefixes, after.restored_tokens > 100) == (1, True)
    assert after.reused_tokens >= after.restored_tokens + 100
    assert second[0].usage.cached_tokens >= after.restored_tokens
    if layout["batch_invariant"]:
        assert [one.text for one in second] == [one.text for one in first]
    assert kept(tmp_path) == [file]
    third, _ = await life(spec, ELSE)
    assert len(kept(tmp_path)) == 2
    _, both = await life(spec, ELSE)
    assert both.restored_prefixes == 2
    assert third[0].usage.cached_tokens < 32


@pytest.mark.parametrize("how", ["changed", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cut", "empty"))])
async def test_a_damaged_file_is_reported_and_replaced(models: Path, tmp_path: Path, how: str) -> None:
    spec = spec_of(models, tmp_path)
    first, _ = await life(spec, PERSONA)
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    middle = len(whole) // 2
    damage = {"cut": whole[:middle], "changed": whole[:middle] + b"?" + whole[middle + 1 :], "empty": b""}
    file.write_bytes(damage[how])
    again, stats = await life(spec, PERSONA)
    assert stats.restored_prefixes == 0
    assert again[0].text == first[0].text
    assert f"the prefix in {file} is not used" in Path(spec.log_file or "").read_text()  # noqa: ASYNC240
    assert file.read_bytes() == whole


async def test_another_model_or_layout_does_not_take_it(models: Path, tmp_path: Path) -> None:
    await life(spec_of(models, tmp_path), PERSONA)
    for other in ({"file": str(models / "float.gguf")}, {"kv_type_k": "f32", "slots": 3}):
        _, stats = await life(spec_of(models, tmp_path, **other), PERSONA)
        assert stats.restored_prefixes == 0
    assert len(kept(tmp_path)) == 3


async def test_the_folder_stays_within_its_bytes(models: Path, tmp_path: Path) -> None:
    await life(spec_of(models, tmp_path), ELSE)
    (older,) = kept(tmp_path)
    await life(spec_of(models, tmp_path, prefix_bytes=older.stat().st_size * 3 // 2), PERSONA)
    (newer,) = kept(tmp_path)
    assert newer != older
    await life(spec_of(models, tmp_path, prefix_bytes=10), ELSE)
    assert kept(tmp_path) == []


async def test_without_a_folder_that_can_be_written_it_works_all_the_same(models: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("a file")
    done, _ = await life(spec_of(models, tmp_path), PERSONA)
    assert done[0].usage.output_tokens > 0
    assert "cannot be kept" in (tmp_path / "engine.log").read_text()
