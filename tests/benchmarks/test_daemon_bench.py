"""The daemon benchmark's own parts: figures, bodies and the file of results. What it measures is in its results."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.daemon import swap
from benchmarks.daemon.__main__ import PARTS, main
from benchmarks.daemon.bodies import chain, lasting, layered, modest, short
from benchmarks.daemon.chain import figures
from benchmarks.daemon.figures import PartResult, percentile, slope, spread
from benchmarks.daemon.report import merged, read
from benchmarks.results import FOLDER, write
from orchestrator.bench.environment import machine
from orchestrator.bench.goals import at_least, at_most, exactly
from orchestrator.task.analysis import analyze_task
from orchestrator.task.events import AttemptGenerated, AttemptStarted, AttemptSucceeded, Usage
from orchestrator.task.taskir.parse import task_from

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(FINITE, min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_a_sample_that_so_many_do_not_exceed(samples: list[float], percent: float) -> None:
    found = percentile(samples, percent)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= percent / 100 * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < percent / 100 * len(samples) + 1e-9


@given(st.lists(st.integers(0, 1000), min_size=2, unique=True), st.integers(-50, 50), st.integers(-1000, 1000))
def test_the_slope_of_a_line_is_found(places: list[int], grows: int, start: int) -> None:
    assert slope([(x, start + grows * x) for x in places]) == pytest.approx(grows, abs=1e-6)


def test_a_slope_needs_two_places() -> None:
    assert slope([]) == slope([(1.0, 2.0), (1.0, 3.0)]) == 0.0


def test_times_are_shown_in_milliseconds() -> None:
    found = spread([0.001 * number for number in range(1, 101)])
    assert found == {"samples": 100, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0, "max_ms": 100.0}


def test_a_goal_that_is_just_reached_is_met() -> None:
    assert [goal.met for goal in (at_most("a", 3.0, 3.0), at_least("b", 3.0, 3.0), exactly("c", 3, 3))] == [True] * 3
    assert [goal.met for goal in (at_most("a", 3.1, 3.0), at_least("b", 2.9, 3.0), exactly("c", 2, 3))] == [False] * 3


def test_every_body_is_a_task_that_can_be_run() -> None:
    for body in (short(), modest("batch"), lasting(), chain(5), layered(250, 100)):
        analyze_task(task_from(body["task"]), files=())
    width = analyze_task(task_from(chain(7)["task"]), files=()).width
    assert width == 1
    layers = analyze_task(task_from(layered(250, 100)["task"]), files=())
    assert (layers.width, len(layers.waves)) == (100, 3)


def swapped(recomputed: float) -> dict[str, Any]:
    """Return a round whose answers took so many seconds where they were computed again, and else one."""
    ways = {"restored": 1.0, "recomputed": recomputed}
    return {"seconds": 10.0, **{way: {"second_answers_seconds": seconds} for way, seconds in ways.items()}}


def test_a_swap_is_judged_by_the_better_end_of_the_interval() -> None:
    for recomputed, met in (([9.0, 11.0, 10.0], True), ([4.0, 4.1, 6.0], True), ([3.0, 3.1, 3.2], False)):
        part = swap.result([swapped(seconds) for seconds in recomputed])
        assert [goal.met for goal in part.goals] == [met]
    once = swap.result([swapped(4.0)])
    assert once.figures["speedup"] == {"median": 4.0, "interval": None, "rounds": 1}
    assert not once.goals[0].met


async def test_rounds_of_a_swap_are_kept_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    async def one(folder: Path, number: int) -> dict[str, Any]:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(number)
        return swapped(5.0 + number)

    monkeypatch.setattr(swap, "_round", one)
    with pytest.raises(KeyboardInterrupt):
        await swap.measure(tmp_path, 3, tmp_path / "rounds.jsonl")
    assert measured == [0, 1]
    measured.clear()
    part = await swap.measure(tmp_path, 3, tmp_path / "rounds.jsonl")
    assert measured == [2]
    assert part.figures["seconds"] == 30.0
    assert [row["second_answers_seconds"] for row in part.figures["rounds"]["recomputed"]] == [5.0, 6.0, 7.0]
    monkeypatch.setattr(swap, "source_hash", lambda: "another engine")
    measured.clear()
    await swap.measure(tmp_path, 1, tmp_path / "rounds.jsonl")
    assert measured == [0]


def test_the_time_of_the_engine_does_not_count_as_the_daemons() -> None:
    def step(number: int, begun: float, done: float) -> list[AttemptStarted | AttemptGenerated | AttemptSucceeded]:
        name, usage = f"S{number}", Usage(queued_seconds=0.001, prefill_seconds=0.002, decode_seconds=0.003)
        return [
            AttemptStarted(at=begun, step=name, number=1, role="r", persona=None, model="m", reason=""),
            AttemptGenerated(at=done, step=name, number=1, usage=usage),
            AttemptSucceeded(at=done, step=name, number=1, outputs={}),
        ]

    found = figures([*step(1, 10.0, 10.008), *step(2, 10.009, 10.017)])
    assert found == {"wall_ms": 8.5, "engine_ms": 5.0, "overhead_ms": 3.5, "of_it_before_prefill_ms": 1.0}


def test_a_part_that_is_measured_again_takes_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "daemon.json"
    assert read(file) == {}
    write(file, merged(read(file), "chain", PartResult({"steps": 3}, [at_most("overhead", 2.0, 3.0)]), 0.5, 1.0))
    write(file, merged(read(file), "dag", PartResult({"steps": 9}, [exactly("done", 9, 9)]), 0.5, 1.0))
    write(file, merged(read(file), "chain", PartResult({"steps": 4}, [at_most("overhead", 4.0, 3.0)]), 0.5, 1.0))
    found = read(file)
    assert {name: part["steps"] for name, part in found["parts"].items()} == {"chain": 4, "dag": 9}
    assert [(goal["name"], goal["state"]) for goal in found["goals"]] == [("overhead", "missed"), ("done", "met")]


def test_each_part_names_the_machine_that_it_was_measured_on() -> None:
    before = {"parts": {"dag": {"machine": {"processor": "another", "cores": 1}, "goals": []}}}
    parts = merged(before, "chain", PartResult({}), 0.0, 0.0)["parts"]
    assert parts["dag"]["machine"] == {"processor": "another", "cores": 1}
    assert parts["chain"]["machine"] == machine()


@pytest.mark.parametrize("words", [["--only", "nothing"], ["--size", "chain"], ["--size", "chain=0"]])
def test_what_cannot_be_measured_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "chain" in capsys.readouterr().err


def test_the_published_results_are_of_these_parts() -> None:
    found = read(FOLDER / "daemon.json")
    parts = found.get("parts", {})
    assert parts.keys() <= PARTS.keys()
    assert found.get("goals", []) == [goal for part in parts.values() for goal in part["goals"]]
