"""Heads for the embedded models: files, and the models that are made with them."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.heads.compose import deepened, head_file, head_shapes, headed, random_head, read_head, write_head
from benchmarks.heads.eagle import EAGLE_LAYERS, eagle_file, eagle_shapes
from benchmarks.tiny.sizes import SIZES
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.memrl.parl.weights import halved
from orchestrator.registry.checks import why_no_eagle
from orchestrator.registry.fit import Room, fit
from orchestrator.registry.gguf import read_header

LARGE = SIZES["large"]


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    head = random_head(LARGE.width, LARGE.hidden)
    write_head(head, tmp_path / "head.gguf")
    found = read_head(tmp_path / "head.gguf")
    assert {name: weights.shape for name, weights in found.items()} == head_shapes(LARGE.width, LARGE.hidden)
    assert all(np.allclose(found[name], head[name], atol=0.01) for name in head)


def test_the_trained_head_fits_its_model_and_is_small() -> None:
    head = read_head(head_file("large"))
    assert {name: weights.shape for name, weights in head.items()} == head_shapes(LARGE.width, LARGE.hidden)
    assert head_file("large").stat().st_size < 1_000_000


def test_the_trained_eagle_head_fits_its_model_and_is_small() -> None:
    file, trunk = eagle_file("large"), read_header(LARGE.shipped)
    reader = gguf.GGUFReader(file)
    tensors = {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in reader.tensors}
    (count,) = tensors.pop("d2t")
    assert tensors == {
        f"{name}.weight": shape for name, shape in eagle_shapes(LARGE.width, LARGE.hidden, count).items()
    }
    assert count < trunk.vocab_size
    assert why_no_eagle(trunk, read_header(file)) is None
    assert read_header(file).read_layers == EAGLE_LAYERS
    assert file.stat().st_size < 1_000_000


def test_a_model_with_a_head_has_the_weights_of_the_shipped_one(tmp_path: Path) -> None:
    file = headed("large", tmp_path)
    assert headed("large", tmp_path) == file
    assert list(tmp_path.iterdir()) == [file]
    own, shipped = (
        {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors} for path in (file, LARGE.shipped)
    )
    for name, data in shipped.items():
        same = own[name.replace(".ffn_norm.", ".post_attention_norm.")]
        turned = ".attn_q." in name or ".attn_k." in name
        assert np.array_equal(np.sort(same, axis=0), np.sort(data, axis=0)) if turned else np.array_equal(same, data)


@pytest.mark.parametrize("with_head", [False, True])
async def test_a_deeper_model_writes_the_same_text(with_head: bool, tmp_path: Path) -> None:
    layers = SIZES["large"].layers + 3
    deep = headed("large", tmp_path, layers) if with_head else deepened("large", tmp_path, layers)
    assert read_header(deep).layers == layers + with_head
    texts = []
    for file in (LARGE.shipped, deep):
        async with await Engine.start(EngineSpec(file=str(file), context=512, threads=1)) as engine:
            request = Generation(messages=(Message("user", "List the names: Zilthir 214, Koldin 187."),), max_tokens=24)
            texts.append((await engine.generate(request)).text)
    assert texts[0] == texts[1] != ""


def test_the_registry_sees_the_head(tmp_path: Path) -> None:
    header, trunk = read_header(headed("large", tmp_path)), read_header(LARGE.shipped)
    assert (header.mtp_heads, header.layers) == (1, trunk.layers + 1)
    assert header.mtp_cell_bytes == 2 * 2 * LARGE.width
    assert header.vocab_digest == trunk.vocab_digest
    room = Room(budget=4 << 30)
    assert fit(header, room).options.mtp is not None
    assert fit(trunk, room).options.mtp is None


def test_the_halves_of_a_rotary_pair_are_half_a_head_apart() -> None:
    rows = np.arange(16, dtype=np.float32).reshape(16, 1)  # two heads of eight rows, as pairs
    turned = halved(rows, 2)[:, 0].tolist()
    assert turned == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]
