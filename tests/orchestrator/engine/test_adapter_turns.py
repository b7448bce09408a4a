"""Which adapters the next step is computed with, when sequences with different ones have work."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.worker.adapters import MAX_TURNS_AHEAD, TURN_STEPS, TURN_TOKENS, AdapterCosts, AdapterTurns
from orchestrator.registry.options import Adapters, Lora

PLAIN: Adapters = ()
PLANS = (Lora("plans.gguf"),)
JUDGES = (Lora("judges.gguf"), Lora("plans.gguf", 0.5))


def steps(turns: AdapterTurns, urgency: Mapping[Adapters, float], count: int, tokens: int = 1) -> list[Adapters]:
    """Return the adapters of the next `count` steps, which compute `tokens` tokens each."""
    chosen = []
    for _ in range(count):
        chosen.append(turns.choose(urgency))
        turns.record(tokens)
    return chosen


def test_alone_they_compute_every_step() -> None:
    assert set(steps(AdapterTurns(), {PLANS: 5.0}, 10 * TURN_STEPS)) == {PLANS}


def test_equally_urgent_ones_take_turns_of_several_steps() -> None:
    told = steps(AdapterTurns(), {PLAIN: 7.0, PLANS: 7.01}, 4 * TURN_STEPS)
    assert told == [*[PLAIN] * TURN_STEPS, *[PLANS] * TURN_STEPS] * 2


def test_a_chunk_of_a_prompt_is_a_whole_turn() -> None:
    told = steps(AdapterTurns(), {PLAIN: 7.0, PLANS: 7.0}, 6, tokens=TURN_TOKENS)
    assert told == [PLAIN, PLANS] * 3


def test_a_more_urgent_one_goes_first_and_gets_most_of_the_turns() -> None:
    counted = Counter(steps(AdapterTurns(), {PLAIN: 9.0, PLANS: 3.0}, 40 * TURN_STEPS))
    assert counted[PLANS] == counted[PLAIN] * MAX_TURNS_AHEAD
    assert steps(AdapterTurns(), {JUDGES: 9.0, PLANS: 3.0}, 1) == [PLANS]


def test_a_turn_ends_when_there_is_no_more_work() -> None:
    turns = AdapterTurns()
    assert steps(turns, {PLAIN: 1.0, PLANS: 1.0}, 2) == [PLAIN, PLAIN]
    assert steps(turns, {PLANS: 1.0}, 1) == [PLANS]
    assert steps(turns, {PLAIN: 1.0, PLANS: 1.0}, TURN_STEPS) == [*[PLANS] * (TURN_STEPS - 1), PLAIN]


@given(
    st.lists(
        st.dictionaries(st.sampled_from([PLAIN, PLANS, JUDGES]), st.floats(0, 90), min_size=1), min_size=1, max_size=60
    ),
    st.integers(1, 200),
)
def test_whoever_has_work_is_never_left_out_for_long(worlds: list[dict[Adapters, float]], tokens: int) -> None:
    turns, waiting = AdapterTurns(), Counter[Adapters]()
    bound = TURN_STEPS * (MAX_TURNS_AHEAD * 2 + 2)
    for world in worlds:
        for _ in range(TURN_STEPS):
            (chosen,) = steps(turns, world, 1, tokens)
            assert chosen in world
            waiting = Counter({lora: waiting[lora] + 1 for lora in world if lora != chosen})
            assert all(steps_left_out <= bound for steps_left_out in waiting.values())


def test_what_adapters_cost_is_learned_and_bounded() -> None:
    costs = AdapterCosts()
    assert costs.ratio(PLANS) == 1.0
    for _ in range(50):
        costs.observe(PLANS, 0.013, 0.010)
        costs.observe(JUDGES, 100.0, 0.010)
    assert 1.29 < costs.ratio(PLANS) < 1.31
    assert costs.ratio(JUDGES) <= 4.0
    assert costs.ratio(PLAIN) == 1.0
