from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Neighbour, Replaced
from orchestrator.memrl.policy import ExplorationSettings, LearnedStateError, Policy, PolicySettings
from orchestrator.memrl.reward import Cost
from orchestrator.task.lexical import embed
from tests.memrl.situations import LARGE, SITUATION, SMALL, neighbour, outcome, situation, unit

ACTIONS = (SMALL, LARGE)
WIDTH = 32
EASY, HARD = "List the names.", "Prove that 17 * 23 = 391, step by step, with (a) lemmas and (b) examples!"
QUIET = PolicySettings(exploration=ExplorationSettings(method="off"))


def vector(text: str) -> NDArray[np.float32]:
    made: NDArray[np.float32] = embed([text], WIDTH)[0]
    return made


def taught(rounds: int = 150, options: PolicySettings = QUIET) -> Policy:
    """Return a policy that has seen the small model fail at what is hard, and succeed at what is easy."""
    policy = Policy(WIDTH, options)
    for number in range(rounds):
        for text, small in ((f"{EASY} {number}", 1.0), (f"{HARD} {number}", 0.0)):
            policy.observe(situation(text), vector(text), SMALL, outcome(small, critical_seconds=1, tokens=100))
            policy.observe(situation(text), vector(text), LARGE, outcome(1.0, critical_seconds=50, tokens=100))
    return policy


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_without_experience_it_is_not_confident() -> None:
    choice = Policy(WIDTH, QUIET).choose(SITUATION, vector("x"), (), ACTIONS, rng=rng())
    assert choice.confidence < 0.6
    assert choice.propensity == 1


def test_it_learns_to_take_the_cheap_action_where_that_succeeds() -> None:
    policy = taught()
    asked = f"{EASY} 173", f"{HARD} 173"  # it was taught up to 149
    easy, hard = (policy.choose(situation(text), vector(text), (), ACTIONS, rng=rng()) for text in asked)
    assert (easy.action, hard.action) == (SMALL, LARGE)
    assert hard.confidence > 0.6
    estimates = {one.action: one for one in easy.estimates}
    assert estimates[LARGE].price > estimates[SMALL].price > 0
    assert estimates[SMALL].value == pytest.approx(estimates[SMALL].worth - estimates[SMALL].price)


def test_loading_a_model_is_charged() -> None:
    policy = taught()
    costs = {LARGE: Cost(load_seconds=1000.0)}
    assert policy.choose(situation(HARD), vector(HARD), (), ACTIONS, costs, rng=rng()).action == SMALL
    costs = {LARGE: Cost(lost_prefix_tokens=1e6)}
    assert policy.choose(situation(HARD), vector(HARD), (), ACTIONS, costs, rng=rng()).action == SMALL


def test_similar_episodes_speak_and_are_named() -> None:
    policy = Policy(WIDTH, QUIET)
    around = [neighbour(SMALL, 0.0, 0.9, number=n) for n in range(9)]
    around += [neighbour(LARGE, 1.0, 0.9, number=n) for n in range(10, 19)]
    choice = policy.choose(SITUATION, vector("x"), around, ACTIONS, rng=rng())
    assert choice.action == LARGE
    large = choice.estimates[1]
    assert [voice.episode for voice in large.retrieved.voices] == [*range(10, 15)]
    assert 0 < large.head_part < 1


@pytest.mark.parametrize("failure", ["INFRASTRUCTURE", "RESOURCE"])
def test_failures_of_the_machine_change_nothing(failure: str) -> None:
    policy = taught(10)
    before = policy.to_bytes()
    assert policy.observe(SITUATION, vector("x"), SMALL, outcome(0.0, failure=failure)) is None
    assert policy.to_bytes() == before


@given(st.sampled_from(["epsilon", "thompson"]), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_same_generator_leads_to_the_same_choices(method: str, seed: int) -> None:
    options = PolicySettings(exploration=ExplorationSettings(method=method))  # type: ignore[arg-type]
    made = [
        [policy.choose(SITUATION, vector("x"), (), ACTIONS, rng=source) for _ in range(5)]
        for policy, source in ((Policy(WIDTH, options), rng(seed)) for _ in range(2))
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize("method", ["epsilon", "thompson"])
def test_propensities_are_how_often_an_action_is_drawn(method: str) -> None:
    policy = taught(5, PolicySettings(exploration=ExplorationSettings(method=method, first=0.3)))  # type: ignore[arg-type]
    source = rng()
    choices = [policy.choose(situation(EASY), vector(EASY), (), ACTIONS, rng=source) for _ in range(1000)]
    propensities = {choice.action: choice.propensity for choice in choices}
    assert sum(propensities.values()) == pytest.approx(1)
    for action, propensity in propensities.items():
        assert np.mean([choice.action == action for choice in choices]) == pytest.approx(propensity, abs=0.05)


def test_nothing_is_explored_while_somebody_waits_unless_asked() -> None:
    policy = Policy(WIDTH, PolicySettings(exploration=ExplorationSettings(first=1.0)))
    source = rng()

    def drawn(**fields: object) -> set[Action]:
        return {
            policy.choose(replace(SITUATION, interactive=True), vector("x"), (), ACTIONS, rng=source, **fields).action  # type: ignore[arg-type]
            for _ in range(50)
        }

    assert len(drawn()) == 1
    assert len(drawn(explore=False)) == 1
    assert len(drawn(explore=True)) == 2


def test_epsilon_falls_with_the_outcomes_of_a_task_type_or_is_given_for_it() -> None:
    def propensity(policy: Policy, task_type: str) -> float:
        source = rng(1)
        drawn = [
            policy.choose(replace(SITUATION, task_type=task_type), vector("x"), (), ACTIONS, rng=source)
            for _ in range(40)
        ]
        return min(choice.propensity for choice in drawn if not choice.explored)

    options = ExplorationSettings(first=0.4, halved_after=10.0, by_type={"code": 0.0})
    policy = taught(20, PolicySettings(exploration=options))
    assert propensity(policy, "code") == 1
    assert propensity(policy, "chat") == pytest.approx(0.8)
    assert propensity(policy, "doc") > 0.9


def test_task_types_are_explored_by_thompson_sampling_or_by_an_epsilon_of_their_own() -> None:
    options = ExplorationSettings(first=0.0, least=0.02, by_type={"code": "thompson", "doc": 0.3, "": 0.01})
    policy = taught(8, PolicySettings(exploration=options))

    def probabilities(task_type: str | None) -> list[float]:
        asked = replace(situation(EASY), task_type=task_type)
        return list(policy.choose(asked, vector(EASY), (), ACTIONS, rng=rng()).probabilities)

    assert sorted(probabilities("chat")) == [0.0, 1.0]
    low = 0.3 / 2 * 200 / (200 + 4 * 8)  # epsilon has fallen with the outcomes
    assert sorted(probabilities("doc")) == pytest.approx([low, 1 - low])
    assert min(probabilities(None)) == pytest.approx(0.005), "what is below the limit at first stays as it is"
    small, large = policy.estimate(replace(situation(EASY), task_type="code"), vector(EASY), (), ACTIONS)
    drawn = np.random.default_rng(1).normal((small.value, large.value), (small.error, large.error), (200_000, 2))
    assert probabilities("code")[0] == pytest.approx((drawn[:, 0] > drawn[:, 1]).mean(), abs=0.01)


@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_a_new_persona_begins_with_what_its_role_and_model_are_worth_without_one(worth: float) -> None:
    policy, new = Policy(WIDTH, QUIET), replace(LARGE, persona="new")
    for number in range(60):
        text = f"{EASY} {number}"
        policy.observe(situation(text), vector(text), SMALL, outcome(1.0 - worth))
        policy.observe(situation(text), vector(text), LARGE, outcome(worth))
    known, begun, other = policy.estimate(situation(EASY), vector(EASY), (), (LARGE, new, replace(new, model="other")))
    assert begun.retrieved.value == pytest.approx(known.retrieved.value)
    assert other.retrieved.value == pytest.approx(0.5, abs=0.05), "an unknown model begins with the mean of all actions"
    assert begun.worth == pytest.approx(worth, abs=0.3)


def test_a_rating_takes_the_place_of_what_the_end_of_the_attempt_had_taught() -> None:
    late, at_once, both = Policy(WIDTH, QUIET), Policy(WIDTH, QUIET), Policy(WIDTH, QUIET)
    for number in range(40):
        where, seen = situation(f"{EASY} {number}"), vector(f"{EASY} {number}")
        passed, rated = (outcome(score, weight=0.9, tokens=100) for score in (1.0, 0.0))
        at_once.observe(where, seen, SMALL, rated)
        earned = late.observe(where, seen, SMALL, passed)
        assert earned is not None
        late.observe(where, seen, SMALL, rated, replaced=Replaced(reward=earned.total, weight=0.9))
        both.observe(where, seen, SMALL, passed)
        both.observe(where, seen, SMALL, rated)
    assert (late.observed, at_once.observed, both.observed) == (40, 40, 80)
    told_late, told_at_once, told_both = (
        one.estimate(situation(EASY), vector(EASY), (), ACTIONS)[0] for one in (late, at_once, both)
    )
    assert told_both.worth > 0.4, "half of what it is told is a success"
    assert told_late.worth < 0.25, "all that counts is a failure"
    assert told_late.price == pytest.approx(told_at_once.price)


def test_a_budget_limits_the_share_of_dear_choices() -> None:
    policy = taught(options=replace(QUIET, budget=0.25))
    source, made = rng(3), []
    for number in range(200):
        text = f"{HARD if number % 2 else EASY} {number}"
        made.append(policy.choose(situation(text), vector(text), (), ACTIONS, rng=source).action)
    assert made.count(LARGE) <= 51
    assert made.count(LARGE) >= 30
    assert all(action == SMALL for action in made[0::2][10:])


def test_what_was_learned_survives_as_bytes() -> None:
    policy = taught(20)
    again = Policy.from_bytes(policy.to_bytes(), WIDTH, QUIET)
    for text in (EASY, HARD, "something else"):
        one = policy.choose(situation(text), vector(text), (), ACTIONS, rng=rng())
        assert again.choose(situation(text), vector(text), (), ACTIONS, rng=rng()) == one
    assert again.observed == policy.observed
    assert again.to_bytes() == policy.to_bytes()


@pytest.mark.parametrize("data", [b"", b"nonsense", Policy(WIDTH).to_bytes()[:-20], Policy(WIDTH + 1).to_bytes()])
def test_bytes_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(LearnedStateError, match="cannot be used"):
        Policy.from_bytes(data, WIDTH)


@given(st.binary(max_size=40), st.integers(0, 4000))
@settings(max_examples=30, deadline=None)
def test_spoilt_bytes_are_refused_or_read(noise: bytes, place: int) -> None:
    data = taught(2).to_bytes()
    spoilt = data[:place] + noise + data[place + len(noise) :]
    try:
        Policy.from_bytes(spoilt, WIDTH)
    except LearnedStateError:
        return


def test_an_embedding_of_the_wrong_width_is_refused() -> None:
    policy = Policy(WIDTH, QUIET)
    with pytest.raises(ValueError, match="accepted"):
        policy.choose(SITUATION, unit(rng(), WIDTH + 1), (), ACTIONS, rng=rng())
    with pytest.raises(ValueError, match="accepted"):
        policy.observe(SITUATION, unit(rng(), WIDTH + 1), SMALL, outcome(1.0))
    assert policy.observed == 0


@pytest.mark.parametrize("actions", [(), (SMALL, SMALL)])
def test_there_have_to_be_different_actions(actions: tuple[Action, ...]) -> None:
    with pytest.raises(ValueError, match="actions were given"):
        Policy(WIDTH).choose(SITUATION, vector("x"), (), actions, rng=rng())


def test_calibration_learns_from_neighbours_that_are_wrong() -> None:
    policy = Policy(WIDTH, QUIET)
    source = rng()
    wrong: list[Neighbour] = [neighbour(SMALL, 1.0, 0.95) for _ in range(30)]
    before = policy.estimate(SITUATION, unit(source, WIDTH), wrong, (SMALL,))[0].worth
    for _ in range(300):
        policy.observe(SITUATION, unit(source, WIDTH), SMALL, outcome(0.0), neighbours=wrong)
    assert policy.estimate(SITUATION, unit(source, WIDTH), wrong, (SMALL,))[0].worth < before / 2


def test_outcomes_of_one_situation_are_compared_with_what_was_expected_before_any_of_them() -> None:
    """Two actions succeed at the same tasks, which nothing in the situation tells: nobody can know more than the mean.

    Told one after the other, the second would be expected by what the first has just taught about the same task.
    """
    source, policy = rng(), Policy(WIDTH, QUIET)
    expected, happened = [], []
    for _ in range(400):
        embedding, success = unit(source, WIDTH), float(source.random() < 0.5)
        expected.append(policy.estimate(SITUATION, embedding, (), (LARGE,))[0].worth)
        happened.append(success)
        rewards = policy.observe_all(SITUATION, embedding, {SMALL: outcome(success), LARGE: outcome(success)})
        assert all(reward is not None for reward in rewards.values())
    assert policy.observed == 800
    assert np.mean((np.array(expected) - np.array(happened)) ** 2) < 0.3
    assert np.std(expected[200:]) < 0.2


def test_of_outcomes_of_one_situation_only_those_that_say_something_teach() -> None:
    policy = Policy(WIDTH, QUIET)
    told = {SMALL: outcome(0.0, failure="RESOURCE"), LARGE: outcome(1.0)}
    rewards = policy.observe_all(SITUATION, vector("x"), told)
    assert rewards[SMALL] is None
    assert rewards[LARGE] is not None
    assert policy.observed == 1
