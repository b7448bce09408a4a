from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.policy import Admitted, MustWait, NeverFits, PoolBudget, Resident, Verdict, admit


def _idle(model: str, size: int, last_used: float, node: int | None = None) -> Resident:
    return Resident((model, 0), size, pinned=False, in_use=False, last_used=last_used, node=node)


def _admit(wanted: int, *residents: Resident, budget: int = 100) -> Verdict:
    return admit(wanted, None, residents, PoolBudget(budget))


def _gone(*models: str) -> Admitted:
    return Admitted(tuple((model, 0) for model in models))


def test_what_fits_evicts_nobody() -> None:
    assert _admit(40, _idle("a", 60, 1)) == _gone()


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    residents = [_idle("young", 30, 3), _idle("old", 30, 1), _idle("middle", 30, 2)]
    assert _admit(50, *residents) == _gone("old", "middle")
    assert _admit(20, *residents) == _gone("old")


def test_models_in_use_are_waited_for() -> None:
    busy = Resident(("busy", 0), 80, pinned=False, in_use=True, last_used=0)
    assert _admit(50, busy, _idle("idle", 10, 1)) == MustWait(30)


def test_pinned_models_stay_even_when_idle() -> None:
    hot = Resident(("hot", 0), 80, pinned=True, in_use=False, last_used=0)
    assert _admit(50, hot, _idle("idle", 10, 1)) == NeverFits(pinned=80, short=30, limit=100)


def test_more_than_the_budget_never_fits() -> None:
    assert _admit(101) == NeverFits(pinned=0, short=1, limit=100)


def test_a_node_has_a_limit_of_its_own() -> None:
    budget = PoolBudget(200, {0: 50, 1: 50})
    here, there, anywhere = _idle("here", 30, 3, 0), _idle("there", 30, 1, 1), _idle("anywhere", 30, 2)
    assert admit(40, 0, [here, there, anywhere], budget) == _gone("here")
    assert admit(40, None, [here, there, anywhere], budget) == _gone()
    assert admit(60, 0, [], budget) == NeverFits(pinned=0, short=10, limit=50, node=0)
    busy = Resident(("busy", 0), 30, pinned=False, in_use=True, last_used=0, node=0)
    assert admit(40, 0, [busy, there], budget) == MustWait(20, 0)


RESIDENTS = st.lists(
    st.builds(
        Resident,
        st.tuples(st.text("abcdefgh", min_size=1, max_size=8), st.just(0)),
        st.integers(1, 50),
        st.booleans(),
        st.booleans(),
        st.floats(0, 10),
        st.sampled_from([None, 0, 1]),
    ),
    max_size=8,
    unique_by=lambda resident: resident.replica_id,
)


@given(
    wanted=st.integers(1, 120),
    node=st.sampled_from([None, 0, 1]),
    residents=RESIDENTS,
    total=st.integers(1, 200),
    nodes=st.fixed_dictionaries({0: st.integers(1, 150), 1: st.integers(1, 150)}),
)
def test_any_verdict_keeps_its_promise(
    wanted: int, node: int | None, residents: list[Resident], total: int, nodes: dict[int, int]
) -> None:
    def held(members: list[Resident], where: int | None) -> int:
        return sum(one.bytes for one in members if where is None or one.node == where)

    limits: dict[int | None, int] = {None: total} if node is None else {node: nodes[node], None: total}
    pinned = [one for one in residents if one.pinned]
    idle = [one for one in residents if not one.pinned and not one.in_use]
    match admit(wanted, node, residents, PoolBudget(total, nodes)):
        case Admitted(evicted):
            gone = [one for one in residents if one.replica_id in evicted]
            kept = [one for one in residents if one not in gone]
            assert len(gone) == len(evicted)
            assert all(one in idle for one in gone)
            assert all(held(kept, where) + wanted <= limit for where, limit in limits.items())
            needed = [where for where, limit in limits.items() if held(residents, where) + wanted > limit]
            assert bool(gone) == bool(needed)
        case MustWait(short, where):
            assert held(residents, where) - held(idle, where) + wanted - limits[where] == short > 0
            assert any(one.in_use and not one.pinned for one in residents)
        case NeverFits(kept_bytes, short, limit, where):
            assert (kept_bytes, limit) == (held(pinned, where), limits[where])
            assert kept_bytes + wanted - limit == short > 0
