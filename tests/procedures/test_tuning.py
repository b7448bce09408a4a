"""The search of settings on simulated measurements: real gains are found, noise is not, and the time is kept."""

import asyncio
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.tuning import (
    LEAST_ROUNDS,
    Compared,
    Dimension,
    Setting,
    TriedSetting,
    TuningResult,
    search,
)

ROUND_SECONDS = 1.0
THREADS = Dimension("threads", ({"threads": 1}, {"threads": 2}, {"threads": 3}))
LOOKUP = Dimension("prompt_lookup", ({"prompt_lookup": 4}, {"prompt_lookup": 8}))
TYPES = Dimension("kv_types", ({"kv_type_k": "q8_0"},), exact=False)


class Simulated:
    """Measures settings whose real speeds are known, with noise that is the same for nobody twice."""

    def __init__(self, speed: Callable[[Setting], float], noise: float, seed: int) -> None:
        self._speed = speed
        self._noise = noise
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self.now = 0.0
        self.refused: dict[str, str] = {}
        self.broken: set[str] = set()
        self.differs: set[str] = set()
        self.compared: list[Setting] = []

    def why_refused(self, setting: Setting) -> str:
        return next((why for key, why in self.refused.items() if key in setting), "")

    async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
        if self.broken & other.keys():
            raise StepFailed("the engine has died")
        self.compared.append(other)
        self.now += rounds * ROUND_SECONDS
        ratios = [
            self._speed(other) / self._speed(present) * math.exp(self._chance.gauss(0, self._noise))
            for _ in range(rounds)
        ]
        differing = rounds if self.differs & (other.keys() - present.keys()) else 0
        return Compared(tuple(ratios), differing, 4 * rounds, rounds * ROUND_SECONDS)

    def search(self, *dimensions: Dimension, seconds: float = 200.0) -> TuningResult:
        return asyncio.run(search(dimensions, self, seconds, lambda: self.now))


def gains(**factors: dict[object, float]) -> Callable[[Setting], float]:
    """Return how fast a setting is if each value makes it so many times as fast."""
    return lambda setting: math.prod(factors.get(key, {}).get(value, 1.0) for key, value in setting.items())


def test_real_gains_are_found_and_combined() -> None:
    speed = gains(threads={2: 1.3, 3: 0.8}, prompt_lookup={8: 1.5})
    for seed in range(20):
        found = Simulated(speed, 0.05, seed).search(THREADS, LOOKUP)
        assert found.setting == {"threads": 2, "prompt_lookup": 8}
        assert found.ratio is not None
        assert found.ratio.low > 1


def test_noise_does_not_win() -> None:
    wins = sum(bool(Simulated(gains(), 0.3, seed).search(THREADS, LOOKUP).setting) for seed in range(400))
    assert wins <= 20, "the interval is of 95 %, and only its lower end counts"


@given(seed=st.integers(0, 1 << 30), noise=st.floats(0, 0.5), seconds=st.floats(1, 500))
def test_only_what_is_certain_is_returned_and_the_time_is_kept(seed: int, noise: float, seconds: float) -> None:
    simulated = Simulated(gains(threads={1: 0.7, 2: 1.1}, prompt_lookup={4: 1.2}), noise, seed)
    found = simulated.search(THREADS, LOOKUP, seconds=seconds)
    assert bool(found.setting) == (found.ratio is not None and found.ratio.low > 1)
    assert simulated.now <= seconds + 16 * ROUND_SECONDS, "at most the comparison that was under way is longer"
    assert found.told


def test_what_is_refused_broken_or_changes_answers_is_not_chosen() -> None:
    simulated = Simulated(gains(threads={2: 3.0}, prompt_lookup={4: 3.0, 8: 3.0}, kv_type_k={"q8_0": 2.0}), 0.01, 1)
    simulated.refused = {"prompt_lookup": "is impossible: it is a state-space model"}
    simulated.differs = {"threads"}
    found = simulated.search(THREADS, LOOKUP)
    assert found.setting == {}
    assert all("prompt_lookup" not in setting for setting in simulated.compared)
    reasons = {one.dimension: one.refused for one in found.tried}
    assert reasons["prompt_lookup"] == "is impossible: it is a state-space model"
    assert "answers at temperature 0 differ" in reasons["threads"]

    simulated.differs, simulated.broken = set(), {"threads"}
    found = simulated.search(THREADS, LOOKUP)
    assert found.setting == {}
    assert {one.refused for one in found.tried if one.dimension == "threads"} == {"the engine has died"}


def test_settings_that_may_change_answers_are_chosen_where_they_are_searched() -> None:
    simulated = Simulated(gains(kv_type_k={"q8_0": 2.0}), 0.01, 1)
    simulated.differs = {"kv_type_k"}
    assert simulated.search(TYPES).setting == {"kv_type_k": "q8_0"}


def test_a_dimension_without_choices_says_why() -> None:
    found = Simulated(gains(), 0.0, 1).search(Dimension("replicas", (), refused="this machine has one NUMA node"))
    assert found.setting == {}
    assert [one.refused for one in found.tried] == ["this machine has one NUMA node"]


def test_a_measurement_that_fails_at_the_end_leaves_what_was_measured_before() -> None:
    class Breaks(Simulated):
        async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
            if rounds >= LEAST_ROUNDS and not present:
                raise StepFailed("the engine has died")
            return await super().compare(present, other, rounds)

    found = Breaks(gains(threads={2: 1.5}), 0.01, 1).search(THREADS)
    assert (found.setting, found.ratio) == ({}, None)
    assert found.told == "the measurement that decides has failed: the engine has died"
    assert any(one.faster > 1.3 for one in found.tried)


def test_what_was_measured_is_there_when_the_search_is_ended_from_outside() -> None:
    class Ended(BaseException):
        pass

    class Ends(Simulated):
        async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
            if len(self.compared) == 2:
                raise Ended
            return await super().compare(present, other, rounds)

    one, tried = Ends(gains(), 0.01, 1), list[TriedSetting]()
    with pytest.raises(Ended):
        asyncio.run(search((THREADS,), one, 200.0, lambda: one.now, tried))
    assert sum(bool(each.ratios) for each in tried) == 2
