from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.cores import share_cores


def test_one_alone_has_all_cores_up_to_its_ceiling() -> None:
    assert share_cores(8, {"a": None}) == {"a": 8}
    assert share_cores(8, {"a": 3}) == {"a": 3}
    assert share_cores(8, {}) == {}


def test_shares_are_equal_and_the_rest_goes_to_the_first() -> None:
    assert share_cores(8, {"a": None, "b": None}) == {"a": 4, "b": 4}
    assert share_cores(8, {"a": None, "b": None, "c": None}) == {"a": 3, "b": 3, "c": 2}


def test_what_a_ceiling_leaves_goes_to_the_others() -> None:
    assert share_cores(9, {"a": 1, "b": None, "c": 3}) == {"a": 1, "b": 5, "c": 3}


def test_each_has_a_thread_when_there_are_too_few_cores() -> None:
    assert share_cores(2, {"a": None, "b": 4, "c": None}) == {"a": 1, "b": 1, "c": 1}


@given(
    st.integers(1, 128), st.dictionaries(st.text(max_size=3), st.none() | st.integers(1, 40), min_size=1, max_size=9)
)
def test_cores_are_used_up_and_never_overused(cores: int, ceilings: dict[str, int | None]) -> None:
    shares = share_cores(cores, ceilings)
    assert shares.keys() == ceilings.keys()
    assert all(1 <= share <= (ceilings[engine] or cores) for engine, share in shares.items())
    if len(ceilings) <= cores:
        assert sum(shares.values()) == min(cores, sum(ceiling or cores for ceiling in ceilings.values()))
        unlimited = [share for engine, share in shares.items() if ceilings[engine] is None]
        assert not unlimited or max(unlimited) - min(unlimited) <= 1
