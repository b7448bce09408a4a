from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pool.admission import Admitted, MustWait, NeverFits, Resident, admit


def _idle(model: str, size: int, last_used: float) -> Resident:
    return Resident(model, size, pinned=False, in_use=False, last_used=last_used)


def test_what_fits_evicts_nobody() -> None:
    assert admit(40, [_idle("a", 60, 1)], 100) == Admitted(())


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    residents = [_idle("young", 30, 3), _idle("old", 30, 1), _idle("middle", 30, 2)]
    assert admit(50, residents, 100) == Admitted(("old", "middle"))
    assert admit(20, residents, 100) == Admitted(("old",))


def test_models_in_use_are_waited_for() -> None:
    busy = Resident("busy", 80, pinned=False, in_use=True, last_used=0)
    assert admit(50, [busy, _idle("idle", 10, 1)], 100) == MustWait(30)


def test_hot_models_stay_even_when_idle() -> None:
    hot = Resident("hot", 80, pinned=True, in_use=False, last_used=0)
    assert admit(50, [hot, _idle("idle", 10, 1)], 100) == NeverFits(pinned=80, short=30)


def test_more_than_the_budget_never_fits() -> None:
    assert admit(101, [], 100) == NeverFits(pinned=0, short=1)


RESIDENTS = st.lists(
    st.builds(
        Resident,
        st.text("abcdefgh", min_size=1, max_size=8),
        st.integers(1, 50),
        st.booleans(),
        st.booleans(),
        st.floats(0, 10),
    ),
    max_size=8,
    unique_by=lambda resident: resident.model,
)


@settings(max_examples=300)
@given(wanted=st.integers(1, 120), residents=RESIDENTS, budget=st.integers(1, 200))
def test_any_decision_keeps_its_promise(wanted: int, residents: list[Resident], budget: int) -> None:
    by_name = {resident.model: resident for resident in residents}
    held = sum(resident.bytes for resident in residents)
    pinned = sum(resident.bytes for resident in residents if resident.pinned)
    idle = [resident for resident in residents if not resident.pinned and not resident.in_use]
    match admit(wanted, residents, budget):
        case Admitted(evicted):
            gone = [by_name[model] for model in evicted]
            assert all(resident in idle for resident in gone)
            assert held - sum(resident.bytes for resident in gone) + wanted <= budget
            assert not gone or held - sum(resident.bytes for resident in gone[:-1]) + wanted > budget
            kept = [resident for resident in idle if resident not in gone]
            assert all(a.last_used <= b.last_used for a in gone for b in kept)
        case MustWait(short):
            assert held - sum(resident.bytes for resident in idle) + wanted - budget == short > 0
            assert any(resident.in_use and not resident.pinned for resident in residents)
        case NeverFits(kept_bytes, short):
            assert kept_bytes == pinned
            assert pinned + wanted - budget == short > 0
