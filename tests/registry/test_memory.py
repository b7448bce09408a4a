from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.memory import CACHE_TYPES, estimate, size
from orchestrator.registry.options import KvType, LoadOptions, PromptLookupOptions
from tests.registry.conftest import WriteGguf


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> GgufHeader:
    path: Path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    return read_header(write_gguf(path, layers=4, embedding=256, heads=8, kv_heads=2))


def test_kv_cache_by_hand(header: GgufHeader) -> None:
    parts = estimate(header, LoadOptions(context=2048, slots=4))
    assert parts.kv_cache == 4 * 2 * (32 + 32) * 2 * 2048 * 4  # layers, heads, key and value, bytes, tokens, slots
    assert parts.weights == header.weight_bytes
    assert parts.total == parts.weights + parts.kv_cache + parts.compute + parts.process
    assert "8.0 MiB KV cache" in str(parts)


def test_layers_without_attention_have_no_cache_but_a_state(header: GgufHeader) -> None:
    hybrid = replace(header, cached_keys=64, cached_values=64, state_bytes=1000)
    parts = estimate(hybrid, LoadOptions(context=256, slots=3))
    assert parts.kv_cache == 2 * 64 * 2 * 256 * 3 + 1000 * (3 + 8)
    assert estimate(hybrid, LoadOptions(context=256, slots=20)).kv_cache == 2 * 64 * 2 * 256 * 20 + 1000 * 40
    alone = estimate(hybrid, LoadOptions(context=256, slots=3, batch_invariant=True))
    assert alone.kv_cache == 2 * 64 * 2 * 512 * 3 + 3000


def test_a_model_that_takes_drafts_back_has_states_for_them_and_checkpoints(header: GgufHeader) -> None:
    hybrid = replace(header, architecture="lfm2", cached_keys=0, cached_values=0, state_bytes=1000)
    for k, states in ((2, 3), (8, 5)):
        options = LoadOptions(context=256, slots=3, prompt_lookup=PromptLookupOptions(k=k))
        assert estimate(hybrid, options).kv_cache == 1000 * (3 + 8 + 3) * states
    assert estimate(replace(hybrid, architecture="jamba"), options).kv_cache == 1000 * (3 + 8 + 3)
    assert estimate(replace(hybrid, has_windows=True), options).kv_cache == 1000 * (2 * (3 + 8) + 3)


def test_streams_are_rounded_up_one_by_one(header: GgufHeader) -> None:
    short, whole = (estimate(header, LoadOptions(context=context, slots=64)).kv_cache for context in (300, 512))
    assert short == whole
    assert estimate(header, LoadOptions(context=300, slots=64, cells=300)).kv_cache == whole // 64


@given(context=st.integers(64, 1 << 17), slots=st.integers(1, 64), key=st.sampled_from(sorted(CACHE_TYPES)))
def test_more_never_takes_less(header: GgufHeader, context: int, slots: int, key: KvType) -> None:
    options = LoadOptions(context=context, slots=slots, kv_type_k=key)

    def total(**changes: Any) -> int:
        return estimate(header, replace(options, **changes)).total

    assert total(context=context + 1) >= total()
    assert total(slots=slots + 1) >= total()
    assert total(kv_type_k="f32") >= total()
    without, with_flash = total(flash_attention="off"), total(flash_attention="on")
    assert without >= total() > with_flash > total(batch_invariant=True)


def test_sizes_read_well() -> None:
    assert [size(number) for number in (0, 1023, 1536, 5 << 20, 3 << 30, 5000 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "5000.0 GiB",
    ]
