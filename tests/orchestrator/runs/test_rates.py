"""What is typical of a role: right again soon after a bad hour, and from the generations that ended last."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.critical_path import predict_step
from orchestrator.events import AttemptGenerated, AttemptStarted, RoleRates, RunAccepted, Usage
from orchestrator.journal import Journal, MeasuredGeneration
from orchestrator.runs.job import RATED_GENERATIONS, known_rates, rates_of
from orchestrator.taskir import Step
from registry.load import find_registry, load_registry

STEP = Step(id="S1", actor="worker", action="say", outputs=("a",))


def generation(
    prompt: int = 300, output: int = 100, *, slower: float = 1.0, role: str = "worker"
) -> MeasuredGeneration:
    """A generation by a role that reads 1,000 tokens a second and writes 50, on a machine so many times slower."""
    return MeasuredGeneration(role, "small", prompt, 0, output, slower * prompt / 1000, slower * output / 50)


def seconds(newest_first: list[MeasuredGeneration]) -> float:
    return predict_step(STEP, rates_of(newest_first))


poisoned = st.one_of(
    st.builds(generation, st.integers(0, 10**6), st.integers(0, 10**6), slower=st.floats(1e-3, 1e3)),
    st.builds(
        MeasuredGeneration,
        st.just("worker"),
        st.just("small"),
        st.integers(-10, 10**9),
        st.integers(-10, 10**9),
        st.integers(-10, 10**9),
        st.floats(),
        st.floats(),
    ),
)


@given(st.lists(poisoned, max_size=50), st.integers(1, 50))
def test_after_any_past_the_next_generations_set_it_right(past: list[MeasuredGeneration], tokens: int) -> None:
    predicted = seconds(past)
    assert math.isfinite(predicted)
    assert predicted >= 0
    good = [generation(3 * tokens, tokens)] * RATED_GENERATIONS
    assert seconds([*good, *past]) == pytest.approx(3 * tokens / 1000 + tokens / 50)


@given(st.integers(1, 100))
def test_a_busy_hour_is_outvoted_by_more_good_generations_than_bad_ones(slower: int) -> None:
    bad = [generation(slower=10.0 * slower)] * (RATED_GENERATIONS // 2 - 1)
    good = [generation()] * (RATED_GENERATIONS // 2 + 1)
    assert seconds([*good, *bad]) == seconds([*bad, *good]) == pytest.approx(0.3 + 2.0)


def test_generations_of_a_few_tokens_do_not_tell_how_fast_long_ones_are() -> None:
    answer = MeasuredGeneration("worker", "small", 30, 0, 1, 0.03, 1e-6)
    assert rates_of([answer, answer, generation()])["worker"].decode_rate == 50.0


def test_what_was_not_measured_is_as_by_default() -> None:
    nothing = MeasuredGeneration("worker", "remote", 0, 0, 0, 0.0, 0.0)
    told = rates_of([nothing, generation(role="coder")])
    assert told["worker"] == RoleRates(prompt_tokens=0, output_tokens=0)
    assert told["coder"] == RoleRates(prefill_rate=1000.0, decode_rate=50.0, prompt_tokens=300, output_tokens=100)


async def test_the_last_generations_on_the_roles_model_count_and_their_time_in_a_queue_does_not(tmp_path: Path) -> None:
    async def did(count: int, usage: Usage, model: str = "tiny-large") -> None:
        for _ in range(count):
            attempt = len(numbers) + 1
            numbers.append(attempt)
            started = AttemptStarted(
                at=2.0, step="S1", number=attempt, role="worker", persona=None, model=model, reason="the default"
            )
            await journal.append("R", [started, AttemptGenerated(at=3.0, step="S1", number=attempt, usage=usage)])

    numbers: list[int] = []
    with Journal.open(tmp_path) as journal:
        await journal.append("R", [RunAccepted(at=1.0, run="R", mode="as-planned", request="Say hello.")])
        await did(60, Usage(300, 0, 100, prefill_seconds=300.0, decode_seconds=2000.0))
        await did(
            RATED_GENERATIONS, Usage(300, 200, 100, queued_seconds=900.0, prefill_seconds=0.1, decode_seconds=2.0)
        )
        await did(RATED_GENERATIONS, Usage(300, 0, 100, prefill_seconds=60.0, decode_seconds=60.0), model="another")
        rates = known_rates(journal, load_registry(find_registry()))
    assert rates == {"worker": RoleRates(prefill_rate=1000.0, decode_rate=50.0, prompt_tokens=100, output_tokens=100)}
