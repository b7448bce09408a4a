"""The model of the role `embedder` is loaded when texts come, and replaced when it dies; no other model embeds."""

import os
import signal
from pathlib import Path

import pytest

from benchmarks.models import ModelShape, write_bert
from orchestrator.engine.errors import BadRequest, EngineDied
from orchestrator.pool.pool import Pool
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from tests.orchestrator.pool.pool_use import SHORT, status_of


def registry_with(folder: Path, model_file: Path, roles: str) -> Registry:
    """A registry of a model that embeds and of one that writes."""
    write_bert(folder / "bert.gguf", ModelShape(context=64, pooling="mean"))
    path = folder / "model_registry.yaml"
    path.write_text(
        "defaults: {context: 64, slots: 2}\n"
        f"models:\n  bert: {{file: bert.gguf, threads: 1}}\n  llama: {{file: '{model_file}', threads: 1}}\n"
        f"roles: {{{roles}}}\n"
    )
    return load_registry(path)


@pytest.fixture
def registry(tmp_path: Path, model_file: Path) -> Registry:
    return registry_with(tmp_path, model_file, "worker: {model: llama, tier: C}, embedder: {model: bert, tier: D}")


async def test_it_is_loaded_on_demand_and_replaced_when_it_dies(registry: Registry, tmp_path: Path) -> None:
    async with Pool(registry, tmp_path) as pool:
        assert status_of(pool, "bert").state == "unloaded"
        first = await pool.embed("bert", ["hello", "there"])
        assert (first.vectors.shape, first.tokens) == ((2, 64), 14)
        status = status_of(pool, "bert")
        assert (status.state, status.requests, status.active) == ("ready", 0, 0)
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="SIGKILL"):
            await pool.embed("bert", ["hello"])
        again = await pool.embed("bert", ["hello", "there"])
        assert (again.vectors == first.vectors).all()
        assert status_of(pool, "bert").pid != status.pid


async def test_who_embeds_does_not_write_and_the_other_way_round(registry: Registry, tmp_path: Path) -> None:
    async with Pool(registry, tmp_path) as pool:
        with pytest.raises(BadRequest, match="loaded to embed texts"):
            await pool.generate("bert", SHORT)
        with pytest.raises(BadRequest, match="loaded to write"):
            await pool.embed("llama", ["hello"])
        assert (await pool.generate("llama", SHORT)).usage.output_tokens > 0


def test_the_role_says_who_embeds(registry: Registry, tmp_path: Path, model_file: Path) -> None:
    bert, llama = registry.models["bert"], registry.models["llama"]
    assert (bert.embeds, llama.embeds) == (True, False)
    other = registry_with(tmp_path, model_file, "draft: {model: bert, tier: D}, embedder: {model: llama, tier: D}")
    assert (other.models["bert"].embeds, other.models["llama"].embeds) == (False, True)
    assert other.models["bert"].memory != bert.memory, "it is loaded in another way"
    roles = "worker: {model: llama, tier: C}, embedder: {model: llama, tier: D}"
    with pytest.raises(
        RegistryError, match=r"roles.embedder.model: llama embeds, so it generates no text .* worker too"
    ):
        registry_with(tmp_path, model_file, roles)
