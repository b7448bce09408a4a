from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.fit import MOST_SLOTS, WORTH_HAVING, Room, fit
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.memory import estimate, estimate_draft
from orchestrator.registry.options import MAX_CELLS, LoadOptions
from tests.registry.conftest import WriteGguf

GIB = 1 << 30


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> GgufHeader:
    """A header of the measures of a model with 8 B weights: 128 KiB of f16 cache a token."""
    path: Path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    small = read_header(write_gguf(path, layers=32, embedding=256, heads=8, kv_heads=8))
    return replace(
        small, weight_bytes=5 * GIB, key_length=128, value_length=128, cached_keys=32 * 8 * 128,
        cached_values=32 * 8 * 128, embedding=4096, feed_forward=14336, context_length=131_072,
    )  # fmt: skip


def test_a_model_in_a_large_room_gets_the_context_it_was_made_for(header: GgufHeader) -> None:
    found = fit(header, Room(budget=600 * GIB))
    assert (found.context, found.options.kv_type_k, found.short) == (131_072, "f16", 0)
    assert found.options.slots == 16
    assert found.memory.kv_cache == 16 * 131_072 * 128 * 1024


def test_half_of_the_room_is_left_to_others_where_that_is_enough(header: GgufHeader) -> None:
    found = fit(header, Room(budget=32 * GIB))
    assert found.memory.total <= 16 * GIB
    assert WORTH_HAVING <= found.context < 131_072
    assert found.options.slots >= 4
    crowded = fit(header, Room(budget=7 * GIB))
    assert 3.5 * GIB < crowded.memory.total <= 7 * GIB


def test_hot_models_take_their_part_of_the_room(header: GgufHeader) -> None:
    assert fit(header, Room(budget=40 * GIB, hot=8 * GIB)) == fit(header, Room(budget=32 * GIB))
    assert Room(budget=4, hot=9).free == 0


def test_fewer_slots_come_before_a_quantised_cache_and_that_before_a_short_context(header: GgufHeader) -> None:
    base = estimate(header, LoadOptions(context=WORTH_HAVING, slots=1)).total
    one = fit(header, Room(budget=base))
    assert (one.options.slots, one.options.kv_type_k, one.context) == (1, "f16", WORTH_HAVING)
    quantised = fit(header, Room(budget=base - (150 << 20)))
    assert (quantised.options.slots, quantised.options.kv_type_k) == (1, "q8_0")
    assert quantised.context >= WORTH_HAVING
    short = fit(header, Room(budget=base - (400 << 20)))
    assert (short.options.slots, short.options.kv_type_k, short.short) == (1, "q8_0", 0)
    assert 0 < short.context < WORTH_HAVING
    odd = fit(replace(header, key_length=80, value_length=80), Room(budget=base - (400 << 20)))
    assert odd.options.kv_type_k == "f16", "heads of 80 numbers cannot be quantised in blocks of 32"


def test_what_does_not_fit_says_how_much_is_missing(header: GgufHeader) -> None:
    found = fit(header, Room(budget=2 * GIB))
    assert found.short == found.memory.total - 2 * GIB > 0
    assert found.options.slots == 1


def test_the_model_that_drafts_needs_room_too(header: GgufHeader) -> None:
    draft = replace(header, weight_bytes=GIB, cached_keys=256, cached_values=256)
    room = Room(budget=32 * GIB)
    alone, both = fit(header, room), fit(header, room, draft)
    assert both.memory == estimate(header, both.options) + estimate_draft(draft, both.options)
    assert both.memory.total <= 16 * GIB
    assert both.context < alone.context


@given(
    budget=st.integers(0, 300 * GIB),
    hot=st.integers(0, 50 * GIB),
    context_length=st.integers(1, 1 << 22),
    cached=st.integers(0, 1 << 16),
)
def test_what_is_proposed_fits_and_leaves_no_slot_unused(
    header: GgufHeader, budget: int, hot: int, context_length: int, cached: int
) -> None:
    room = Room(budget=budget, hot=hot)
    model = replace(header, context_length=context_length, cached_keys=cached, cached_values=cached)
    found = fit(model, room)
    assert 1 <= found.context <= context_length
    assert 1 <= found.options.slots <= MOST_SLOTS
    assert found.context * found.options.slots <= MAX_CELLS
    assert found.short == max(0, found.memory.total - room.free)
    assert found.memory == estimate(model, found.options)
    if found.options.slots < MOST_SLOTS and (found.options.slots + 1) * found.context <= MAX_CELLS:
        more = estimate(model, replace(found.options, slots=found.options.slots + 1))
        assert more.total > room.free // 2
