from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.heads import BLOCK, MAX_BLOCKS, MAX_REMEMBERED, SeenHeads, heads_of

SYSTEM = ("system", "s" * 2 * BLOCK)


def test_prompts_match_as_far_as_they_begin_alike() -> None:
    seen = SeenHeads()
    seen.add(heads_of([SYSTEM, ("user", "a" * 3 * BLOCK)]))
    assert seen.match(heads_of([SYSTEM, ("user", "b" * 3 * BLOCK)])) == 2
    assert seen.match(heads_of([("system", "t" * 2 * BLOCK), ("user", "a" * 3 * BLOCK)])) == 0
    assert seen.match(heads_of([SYSTEM, ("user", "a" * 3 * BLOCK)])) == 5


def test_the_same_text_in_another_role_is_another_prompt() -> None:
    assert heads_of([("user", SYSTEM[1])])[0] != heads_of([SYSTEM])[0]


def test_the_least_recently_seen_are_forgotten_and_ends_before_beginnings() -> None:
    seen = SeenHeads()
    old = heads_of([("user", "old" * BLOCK)])
    seen.add(old)
    for number in range(MAX_REMEMBERED // MAX_BLOCKS):
        heads = heads_of([("user", f"{number:04}" * BLOCK * MAX_BLOCKS)])
        assert len(heads) == MAX_BLOCKS
        seen.add(heads)
    assert seen.match(old) == 0
    seen.add(old)
    assert seen.match(old) == len(old)
    assert 0 < seen.match(heads_of([("user", "0000" * BLOCK * MAX_BLOCKS)])) < MAX_BLOCKS


@given(st.text(), st.text())
def test_any_text_has_a_head_for_each_whole_block(role: str, content: str) -> None:
    long = content * (3 * BLOCK // max(1, len(content)))
    heads = heads_of([(role, long)])
    assert len(heads) == (len(role) + 1 + len(long)) // BLOCK
