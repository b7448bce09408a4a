"""The network computes what llama.cpp does, with and without an adapter."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.errors import InputError
from orchestrator.memrl.parl.shape import shape_of
from orchestrator.memrl.parl.weights import halved, interleaved, write_adapter
from orchestrator.registry.options import Lora
from tests.memrl.parl.adapters import TINY

MODEL = TINY / "large.gguf"
TOKENS = np.arange(5, 60, dtype=np.int32)
ROUNDING = 0.5  # llama.cpp rounds what it multiplies by Q8_0 weights to 8 bits; logits reach 15


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 3))
def test_rows_are_put_in_order_and_back(heads: int, pairs: int, columns: int) -> None:
    rows = np.arange(heads * 2 * pairs * columns, dtype=np.float32).reshape(heads * 2 * pairs, columns)
    assert np.array_equal(halved(interleaved(rows, heads), heads), rows)


def test_the_sizes_are_those_of_the_file() -> None:
    shape = shape_of(MODEL)
    assert (shape.width, shape.layers, shape.heads, shape.vocabulary) == (192, 5, 6, 1024)


def logits(*lora: Lora, file: Path = MODEL) -> Any:
    llama = Llama(
        EngineSpec(file=str(file), context=64, slots=1, threads=1, kv_type_k="f32", kv_type_v="f32", lora=lora)
    )
    llama.batch.clear()
    llama.batch.add(0, 0, TOKENS, len(TOKENS))
    return llama.decode().copy()


def test_llama_cpp_computes_with_an_adapter_what_the_network_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.lora import copied, lora_pairs, lora_parameters, with_lora, with_weights
    from orchestrator.memrl.parl.network import add_adapter, load_network

    network = with_lora(load_network(MODEL), 8, 16.0, seed=1)
    first = copied(network)
    ids = torch.from_numpy(TOKENS).long()[None]
    with torch.no_grad():
        for weight in lora_parameters(network).values():
            weight.copy_(0.05 * torch.randn_like(weight))
        computed = network(ids)[0].numpy()
        with with_weights(network, first):
            before = network(ids)[0].numpy()
    file = write_adapter(lora_pairs(network), MODEL, tmp_path / "a.gguf", alpha=16.0, half=False)
    assert abs(logits() - before).max() < ROUNDING
    assert abs(logits(Lora(file=str(file))) - computed).max() < ROUNDING
    assert abs(computed - before).max() > 2 * ROUNDING
    merged = load_network(MODEL)
    add_adapter(merged, file, MODEL, scale=1.0)
    with torch.no_grad():
        assert abs(merged(ids)[0].numpy() - computed).max() < 1e-3, "a training may begin where another one ended"


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_heads_may_share_keys_and_values(tmp_path: Path, kv_heads: int) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl.lora import lora_pairs, lora_parameters, with_lora
    from orchestrator.memrl.parl.network import load_network

    shape = ModelShape(width=64, heads=4, kv_heads=kv_heads, layers=2, feed_forward=96, vocabulary=320, weights="f32")
    file = write_llama(tmp_path / "model.gguf", shape)
    network = with_lora(load_network(file), 4, 8.0, seed=1)
    with torch.no_grad():
        for weight in lora_parameters(network).values():
            weight.copy_(0.05 * torch.randn_like(weight))
        computed = network(torch.from_numpy(TOKENS).long()[None])[0].numpy()
    adapter = write_adapter(lora_pairs(network), file, tmp_path / "a.gguf", alpha=8.0, half=False)
    assert abs(logits(Lora(file=str(adapter)), file=file) - computed).max() < 0.01


def test_a_model_that_computes_otherwise_is_refused(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "model.gguf", ModelShape(width=64, heads=4, kv_heads=2))
    content = file.read_bytes().replace(b"ffn_gate.weight", b"ffn_gat2.weight", 1)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"has a tensor blk\.\d+\.ffn_gat2\.weight, which is unknown here"):
        shape_of(file)


def dequantised(model: Path, path: Path) -> Path:
    """Write a model with its weights in 32 bits, so that llama.cpp does not round what it multiplies them by."""
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(path, str(reader.get_field("general.architecture").contents()))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("QWEN2_MODEL" not in os.environ, reason="QWEN2_MODEL names no GGUF file of a Qwen2 model")
def test_the_network_of_a_real_qwen2_computes_what_llama_cpp_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from orchestrator.memrl.parl import network

    model, attend = Path(os.environ["QWEN2_MODEL"]), network.attend

    def attend_as_llama_cpp(query: Any, key: Any, value: Any) -> Any:
        # flash attention on a CPU reads keys and values of 16 bits, and the biases of Qwen2's keys are large
        return attend(query, key.half().float(), value.half().float())

    qwen, ids = network.load_network(model), torch.from_numpy(TOKENS).long()[None]
    with torch.no_grad():
        exact = qwen(ids)[0].numpy()
        monkeypatch.setattr(network, "attend", attend_as_llama_cpp)
        rounded = qwen(ids)[0].numpy()
    assert exact.std() > 1, "there is something to compare"
    assert abs(logits(file=dequantised(model, tmp_path / "f32.gguf")) - rounded).max() < 0.1
    quantised = logits(file=model)
    assert (quantised.argmax(-1) == exact.argmax(-1)).mean() > 0.8, "4-bit weights are multiplied by 8 bits"
