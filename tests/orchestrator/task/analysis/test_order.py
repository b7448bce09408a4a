"""The order of steps: topological, by waves, and the cycles that prevent one."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.analysis import cycles, neighbours, topological, waves

IDS = tuple("abcdef")
PAIRS = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=15)


@given(PAIRS)
def test_either_every_step_comes_after_those_it_waits_for_or_a_cycle_is_named(pairs: list[tuple[str, str]]) -> None:
    before, after = neighbours(IDS, pairs)
    order = topological(IDS, before, after)
    for identity in order:
        assert all(order.index(one) < order.index(identity) for one in before[identity])
    found = list(cycles(IDS, order, before))
    assert bool(found) == (len(order) < len(IDS))
    for cycle in found:
        assert all(cycle[index - 1] in before[cycle[index]] for index in range(len(cycle)))


def test_waves_are_the_depths_of_the_steps() -> None:
    before, after = neighbours("abc", [("a", "c"), ("b", "c")])
    assert waves("abc", topological("abc", before, after), before) == (("a", "b"), ("c",))
