"""What is trained with peft is what llama.cpp computes with the exported adapter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.adapter import export as export_module
from benchmarks.adapter.base import NoModel, model_file
from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.memrl.parl.weights import interleaved
from orchestrator.registry.gguf import read_adapter, read_header
from orchestrator.registry.options import Lora

ROUNDING = 0.01
"""By how much logits may differ: attention is computed block by block, in part with 16 bits."""
TOKENS = np.array([5, 9, 2, 17, 30, 8, 21, 3], dtype=np.int32)


def logits(file: Path, *lora: Lora, tokens: np.ndarray = TOKENS) -> Any:
    """Return llama.cpp's logits after each of the tokens."""
    llama = Llama(
        EngineSpec(file=str(file), context=64, slots=1, threads=1, kv_type_k="f32", kv_type_v="f32", lora=lora)
    )
    llama.batch.clear()
    llama.batch.add(0, 0, tokens, len(tokens))
    return llama.decode().copy()


def test_rows_of_queries_are_put_in_the_order_of_gguf_files() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)  # two heads of four rows
    assert interleaved(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_a_weight_of_no_projection_is_refused(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "model.gguf", ModelShape())
    with pytest.raises(ValueError, match=r"lm_head.*is no weight of a projection; accepted: self_attn\.q_proj"):
        export_module.export({"base_model.model.lm_head.lora_A.weight": None}, model, tmp_path / "a.gguf", alpha=1.0)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
def test_llama_cpp_computes_with_the_exported_adapter_what_peft_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    pytest.importorskip("peft", reason="training needs peft: the extra `train`")
    from peft import get_peft_model_state_dict
    from transformers import AutoModelForCausalLM

    from benchmarks.adapter.train import with_adapter

    shape = ModelShape(width=64, heads=4, kv_heads=2, layers=2, feed_forward=96, vocabulary=320, weights="f32")
    file = write_llama(tmp_path / "model.gguf", shape)
    model = with_adapter(
        AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32), rank=4, alpha=8
    )
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.3)
        trained = model(torch.tensor(TOKENS[None], dtype=torch.long)).logits[0].numpy()
        with model.disable_adapter():
            plain = model(torch.tensor(TOKENS[None], dtype=torch.long)).logits[0].numpy()
    adapter = export_module.export(
        get_peft_model_state_dict(model, save_embedding_layers=False),
        file,
        tmp_path / "adapter.gguf",
        alpha=8.0,
        half=False,
    )
    assert read_adapter(adapter, read_header(file)) > 0
    assert np.abs(trained - plain).max() > 100 * ROUNDING
    assert np.allclose(logits(file), plain, atol=ROUNDING)
    assert np.allclose(logits(file, Lora(str(adapter))), trained, atol=ROUNDING)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
def test_packed_examples_have_the_loss_that_they_have_one_by_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    pytest.importorskip("peft", reason="training needs peft: the extra `train`")
    from transformers import AutoModelForCausalLM

    from benchmarks.adapter.data import TokenizedExample
    from benchmarks.adapter.train import PACKED, loss_of, with_adapter

    shape = ModelShape(width=64, heads=4, kv_heads=2, layers=2, feed_forward=96, vocabulary=320, weights="f32")
    file = write_llama(tmp_path / "model.gguf", shape)
    models = [
        AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file=file.name, dtype=torch.float32, attn_implementation=attention
        )
        for attention in (PACKED, "eager")
    ]
    rows = [([4, 8, 15, 16, 23, 42], 3), ([4, 8, 99, 3, 7, 7, 9, 200, 11], 5), ([4, 8, 15, 5], 3)]
    batch = [
        TokenizedExample(tokens, [0.0] * prompt + [0.3] + [1.0] * (len(tokens) - prompt - 1)) for tokens, prompt in rows
    ]
    total = count = 0.0
    for example in batch:
        tokens = torch.tensor([example.tokens])
        weights = torch.tensor(example.weights[1:])
        losses = torch.nn.functional.cross_entropy(models[1](tokens).logits[0, :-1], tokens[0, 1:], reduction="none")
        total, count = total + (losses * weights).sum().item(), count + weights.sum().item()
    packed = with_adapter(models[0], rank=2, alpha=2, first_layer=1)
    assert loss_of(packed, batch).item() == pytest.approx(total / count, rel=1e-4)
    loss_of(packed, batch).backward()
    learning = [name for name, weight in packed.named_parameters() if weight.grad is not None]
    assert learning
    assert all(".layers.1." in name for name in learning), "the lower layer has no adapter"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
def test_the_loss_falls_and_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    pytest.importorskip("peft", reason="training needs peft: the extra `train`")
    try:
        file = model_file()
    except NoModel as error:
        pytest.skip(str(error))
    from benchmarks.adapter.train import ALPHA, saved_adapter, train

    first = train(file, tmp_path, tokens=10_000)
    second = train(file, tmp_path, tokens=15_000)
    assert second.steps > first.steps > 0
    assert second.loss < first.loss
    adapter = export_module.export(saved_adapter(tmp_path), file, tmp_path / "adapter.gguf", alpha=float(ALPHA))
    with_it, without = logits(file, Lora(str(adapter))), logits(file)
    assert np.abs(with_it - without).max() > 0.1
