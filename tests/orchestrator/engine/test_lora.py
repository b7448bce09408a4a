"""LoRA adapters change what a model says, by their scale, and are refused where they do not fit."""

from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import pytest

from benchmarks.models import write_adapter
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import ModelLoadFailed
from orchestrator.engine.llama import Llama
from registry.options import Lora

WIDTH = 64


async def said(models: Path, *lora: Lora) -> str:
    spec = EngineSpec(
        file=str(models / "quantised.gguf"), context=256, slots=2, threads=1, batch_invariant=True, lora=lora
    )
    async with await Engine.start(spec) as engine:
        return (await engine.generate(Generation(messages=(Message("user", "hello"),), max_tokens=40))).text


async def test_an_adapter_counts_by_its_scale(models: Path, tmp_path: Path) -> None:
    adapter = str(write_adapter(tmp_path / "adapter.gguf", WIDTH))
    plain = await said(models)
    assert await said(models, Lora(adapter, 0.0)) == plain
    whole = await said(models, Lora(adapter, 1.0))
    assert whole != plain
    assert await said(models, Lora(adapter, 0.5), Lora(adapter, 0.5)) == whole


async def test_an_adapter_of_other_measures_is_refused(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"wide\.gguf does not fit"):
        await said(models, Lora(str(write_adapter(tmp_path / "wide.gguf", 2 * WIDTH))))


async def test_a_missing_adapter_is_told(models: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="no such file"):
        await said(models, Lora("/nowhere/adapter.gguf"))


def test_an_adapter_is_loaded_once_whatever_the_layout(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[bytes] = []
    load = lib.llama_adapter_lora_init

    def counted(model: Any, file: bytes) -> Any:
        loaded.append(file)
        return load(model, file)

    monkeypatch.setattr(lib, "llama_adapter_lora_init", counted)
    adapter = str(write_adapter(tmp_path / "adapter.gguf", WIDTH))
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=256, slots=2, threads=1, lora=(Lora(adapter),))
    llama = Llama(spec)
    llama.set_layout(spec, split=not llama.split)
    llama.set_layout(spec, split=not llama.split)
    assert loaded == [adapter.encode()]
