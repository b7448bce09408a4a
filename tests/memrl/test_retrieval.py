import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.episodes import Neighbourhood
from orchestrator.memrl.policy import VOICES, RetrievalSettings, estimate, two_phase
from tests.memrl.situations import LARGE, SMALL, neighbour

SETTINGS = RetrievalSettings(threshold=0.1, candidates=4, chosen=2, weight=0.5)
episodes = st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=30)


@given(episodes)
def test_both_phases_keep_their_limits(pairs: list[tuple[float, float]]) -> None:
    similarities, values = np.array(pairs).reshape(-1, 2).T
    places = two_phase(similarities, values, SETTINGS)
    assert len(places) == min(2, (similarities > 0.1).sum())
    assert len(set(places.tolist())) == len(places)
    assert (similarities[places] > 0.1).all()
    fourth = np.sort(similarities)[::-1][:4].min() if len(pairs) else 0.0
    assert (similarities[places] >= fourth).all()


def test_phase_one_takes_the_similar_and_phase_two_the_valuable_among_them() -> None:
    similarities = np.array((0.9, 0.8, 0.7, 0.6, 0.5, 0.05))
    values = np.array((0.0, 0.0, 1.0, 1.0, 1.0, 1.0))
    valuable = RetrievalSettings(threshold=0.1, candidates=4, chosen=2, weight=0.8)
    assert two_phase(similarities, values, valuable).tolist() == [2, 3]
    only_similar = RetrievalSettings(threshold=0.1, candidates=4, chosen=2, weight=0.0)
    assert two_phase(similarities, values, only_similar).tolist() == [0, 1]


def test_without_z_scores_the_wider_scale_decides() -> None:
    similarities = np.array((0.60, 0.59, 0.58, 0.57))
    values = np.array((0.0, 0.3, 0.6, 0.9))
    raw = RetrievalSettings(threshold=0.1, candidates=4, chosen=1, weight=0.2, normalise=False)
    scored = RetrievalSettings(threshold=0.1, candidates=4, chosen=1, weight=0.2)
    assert two_phase(similarities, values, raw).tolist() == [3]
    assert two_phase(similarities, values, scored).tolist() == [0]


def test_without_neighbours_there_is_the_prior() -> None:
    small, large = estimate((), (SMALL, LARGE), (0.3, 0.7), SETTINGS)
    assert (small.value, large.value) == (0.3, 0.7)
    assert small.support == 0
    assert small.voices == ()


def test_only_an_actions_own_episodes_speak_for_it() -> None:
    around = [neighbour(SMALL, 0.0, 0.9, number=1), neighbour(LARGE, 1.0, 0.9, number=2)]
    small, large = estimate(around, (SMALL, LARGE), (0.5, 0.5), SETTINGS)
    assert small.value < 0.5 < large.value
    assert [voice.episode for voice in large.voices] == [2]
    assert estimate(around, (SMALL,), (0.5,), SETTINGS) == [small]


def test_an_episode_that_was_seen_often_outweighs_the_prior() -> None:
    once = estimate([neighbour(SMALL, 1.0, 0.9)], (SMALL,), (0.5,), SETTINGS)[0]
    often = estimate([neighbour(SMALL, 1.0, 0.9, count=50)], (SMALL,), (0.5,), SETTINGS)[0]
    assert once.value < often.value
    assert once.support < often.support
    assert often.value == pytest.approx(1, abs=0.02)


@given(episodes)
def test_an_estimate_lies_between_prior_and_values(pairs: list[tuple[float, float]]) -> None:
    around = [neighbour(SMALL, q, similarity, number=at) for at, (similarity, q) in enumerate(pairs)]
    found = estimate(around, (SMALL,), (0.5,), RetrievalSettings())[0]
    assert 0 <= found.value <= 1
    weights = [voice.weight for voice in found.voices]
    assert sum(weights) <= 1
    assert len(found.voices) == min(VOICES, found.spoke)
    assert [voice.similarity for voice in found.voices] == sorted(voice.similarity for voice in found.voices)[::-1]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1), st.booleans(), st.integers(1, 9)), max_size=30))
def test_columns_say_the_same_as_the_neighbours_that_they_are_made_of(
    rows: list[tuple[float, float, bool, int]],
) -> None:
    around = [
        neighbour(LARGE if large else SMALL, q, similarity, count=count, number=at)
        for at, (similarity, q, large, count) in enumerate(rows)
    ]
    columns = Neighbourhood.of(around)
    assert list(columns) == around
    assert columns[:2] == around[:2]
    for settings in (SETTINGS, RetrievalSettings()):
        said = [estimate(one, (SMALL, LARGE), (0.5, 0.5), settings) for one in (columns, around)]
        assert said[0] == said[1]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=3, max_size=30))
def test_what_speaks_is_what_both_phases_choose(pairs: list[tuple[float, float]]) -> None:
    around = [neighbour(SMALL, q, similarity, number=at) for at, (similarity, q) in enumerate(pairs)]
    similarities, values = np.array(pairs).T
    found = estimate(around, (LARGE, SMALL), (0.5, 0.5), SETTINGS)[1]
    assert {voice.episode for voice in found.voices} == set(two_phase(similarities, values, SETTINGS).tolist())
