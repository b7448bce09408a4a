"""A run is replayed on other machines, with the times of steps that are known of its models."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bench.simulate.question import (
    MeasuredModel,
    OtherMachine,
    Question,
    Replay,
    ReplayedAttempt,
)
from orchestrator.bench.simulate.what_if import answer, machine_of, replay
from orchestrator.engine.contract import StepTimes
from orchestrator.registry.load import find_registry, load_registry

REGISTRY = load_registry(find_registry(environment={}))
# A step of one sequence takes 10 ms, of which it computes for 2 and reads memory for 8.
TIMES = StepTimes(
    decode=((1, 0.010), (2, 0.012), (4, 0.016)),
    verify=((1, 0.010), (2, 0.012), (4, 0.016)),
    prompt_token=0.002,
    cell=0.0,
    pads=False,
    measured=True,
    width=1,
    tokens=1,
    seconds=0.010,
)
HERE = OtherMachine(cores=2, replicas=1, bandwidth=1.0)


def measured(**changes: Any) -> MeasuredModel:
    facts: dict[str, Any] = {"times": TIMES, "threads": 2, "slots": 4, "token_seconds": 0.0, "bytes": 1 << 30}
    return MeasuredModel(**{**facts, **changes})


def attempts(*after: tuple[int, ...], model: str = "m") -> tuple[ReplayedAttempt, ...]:
    """Return attempts that read 100 tokens and write 101, each after those at these places."""
    return tuple(ReplayedAttempt(f"T{place}", model, 100, 101, earlier) for place, earlier in enumerate(after))


def replayed(home: Path, run: tuple[ReplayedAttempt, ...], other: OtherMachine, **models: MeasuredModel) -> Replay:
    question = Question("", 2, models or {"m": measured()}, run, 0.0, (other,))
    return replay(run, machine_of(question, other), REGISTRY, home)


def test_a_chain_takes_what_its_steps_take(tmp_path: Path) -> None:
    both = replayed(tmp_path / "home", attempts((), (0,), (1,)), HERE)
    assert both.path == ("T0", "T1", "T2")
    assert both.width == 1
    # Each reads 100 tokens in 0.2 s and writes 100 more tokens after the first in a second.
    assert both.seconds == pytest.approx(3 * 1.2, rel=0.05)
    assert both.path_seconds == pytest.approx(both.seconds, rel=0.05)


def test_attempts_that_wait_for_nothing_run_together(tmp_path: Path) -> None:
    chain = replayed(tmp_path / "chain", attempts((), (0,), (1,), (2,)), HERE)
    fan = replayed(tmp_path / "fan", attempts((), (), (), ()), HERE)
    assert fan.width == 4
    assert fan.seconds < 0.7 * chain.seconds


def test_more_cores_compute_sooner_and_more_bandwidth_reads_sooner(tmp_path: Path) -> None:
    run = attempts((), (0,))
    seconds = {
        name: replayed(tmp_path / name, run, OtherMachine(cores, 1, bandwidth)).seconds
        for name, cores, bandwidth in (("here", 2, 1.0), ("cores", 32, 1.0), ("all", 32, 16.0))
    }
    # Of 2.4 s, 0.4 s are for prompts and 0.4 s of writing are computing; the rest reads memory.
    assert seconds["cores"] == pytest.approx(seconds["here"] - 0.8 * 15 / 16, rel=0.05)
    assert seconds["all"] == pytest.approx(seconds["here"] / 16, rel=0.1)


def test_replicas_share_the_cores_and_have_slots_of_their_own(tmp_path: Path) -> None:
    run, models = attempts((), (), (), ()), {"m": measured(slots=1)}
    single = replayed(tmp_path / "single", run, OtherMachine(32, 1, 1.0), **models)
    four = replayed(tmp_path / "four", run, OtherMachine(32, 4, 1.0), **models)
    assert (single.width, four.width) == (1, 4)
    machine = machine_of(Question("", 2, models, run, 0.0, ()), OtherMachine(32, 4, 1.0))
    assert len(machine.topology.nodes) == 4


def test_attempts_on_several_models_keep_their_order(tmp_path: Path) -> None:
    run = (*attempts(()), *attempts((0,), model="n"))
    slow = measured(times=StepTimes(**{**_facts(TIMES), "decode": ((1, 0.1),), "verify": ((1, 0.1),)}))
    both = replayed(tmp_path / "home", run, HERE, m=measured(), n=slow)
    assert both.path == ("T0",), "both are attempts at steps of these names"
    assert both.seconds == pytest.approx(1.2 + 10.2, rel=0.05)


def test_replays_are_fitted_to_the_path_of_the_run(tmp_path: Path) -> None:
    run = attempts((), (0,))
    plain = replayed(tmp_path / "plain", run, HERE)
    question = Question("", 2, {"m": measured()}, run, 3 * plain.path_seconds, (HERE, OtherMachine(32, 1, 16.0)))
    fitted = answer(question, REGISTRY, tmp_path / "fitted")
    assert fitted.factor == pytest.approx(3.0, rel=0.01)
    assert fitted.replays[0].seconds == pytest.approx(3 * plain.seconds, rel=0.02)
    assert fitted.replays[1].seconds == pytest.approx(3 * plain.seconds / 16, rel=0.1)
    unknown = replace(question, path_seconds=0.0, machines=(HERE,))
    assert answer(unknown, REGISTRY, tmp_path / "unknown").factor == 1.0


def _facts(times: StepTimes) -> dict[str, Any]:
    return {name: getattr(times, name) for name in times.__slots__}
