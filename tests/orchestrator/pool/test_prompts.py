from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import Message, OfferedTool
from orchestrator.pool.prompts import MAX_PREFIX_BLOCKS, MAX_REMEMBERED, PREFIX_BLOCK, SeenPrefixes, hash_prefixes
from orchestrator.registry.options import Lora

SYSTEM = Message("system", "s" * 2 * PREFIX_BLOCK)


def test_prompts_match_as_far_as_they_begin_alike() -> None:
    seen = SeenPrefixes()
    seen.add(hash_prefixes([SYSTEM, Message("user", "a" * 3 * PREFIX_BLOCK)]))
    assert seen.match(hash_prefixes([SYSTEM, Message("user", "b" * 3 * PREFIX_BLOCK)])) == 2
    assert (
        seen.match(hash_prefixes([Message("system", "t" * 2 * PREFIX_BLOCK), Message("user", "a" * 3 * PREFIX_BLOCK)]))
        == 0
    )
    assert seen.match(hash_prefixes([SYSTEM, Message("user", "a" * 3 * PREFIX_BLOCK)])) == 5
    assert seen.match(hash_prefixes([SYSTEM, Message("user", "a" * 3 * PREFIX_BLOCK)], (Lora("plans.gguf"),))) == 0
    tools = (OfferedTool("clock", "Tells the time.", "{}"),)
    assert seen.match(hash_prefixes([SYSTEM, Message("user", "a" * 3 * PREFIX_BLOCK)], tools=tools)) == 0


def test_the_same_text_in_another_role_is_another_prompt() -> None:
    assert hash_prefixes([Message("user", SYSTEM[1])])[0] != hash_prefixes([SYSTEM])[0]


def test_the_least_recently_seen_are_forgotten_and_ends_before_beginnings() -> None:
    seen = SeenPrefixes()
    old = hash_prefixes([Message("user", "old" * PREFIX_BLOCK)])
    seen.add(old)
    for number in range(MAX_REMEMBERED // MAX_PREFIX_BLOCKS):
        hashes = hash_prefixes([Message("user", f"{number:04}" * PREFIX_BLOCK * MAX_PREFIX_BLOCKS)])
        assert len(hashes) == MAX_PREFIX_BLOCKS
        seen.add(hashes)
    assert seen.match(old) == 0
    seen.add(old)
    assert seen.match(old) == len(old)
    assert (
        0 < seen.match(hash_prefixes([Message("user", "0000" * PREFIX_BLOCK * MAX_PREFIX_BLOCKS)])) < MAX_PREFIX_BLOCKS
    )


@given(st.text(), st.text())
def test_any_text_has_a_hash_for_each_whole_block(role: str, content: str) -> None:
    long = content * (3 * PREFIX_BLOCK // max(1, len(content)))
    hashes = hash_prefixes([Message(role, long)])
    assert len(hashes) == (len(role) + 1 + len(long)) // PREFIX_BLOCK
