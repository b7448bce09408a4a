"""Plans and one agent by the clock of a real machine: the figures, what the page says of them, and a real pair."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, results
from benchmarks.parl.clock import ClockBench, main, registry_with
from benchmarks.parl.pairs import BOTH_RIGHT, ClockedRun, Pair, completed, goal, rows_of
from orchestrator.memrl.parl.requests import held_out_requests
from orchestrator.memrl.parl.reward import MeasuredPlan
from orchestrator.registry.load import load_registry
from tests.memrl.parl.adapters import TINY

DIRECT = MeasuredPlan(score=1.0, seconds=10.0, serial_seconds=10.0, critical_steps=1, width=1, steps=1, used=1)


def pair(request: str, seconds: float, *, family: str = "gathered", agent_score: float = 1.0, **options: Any) -> Pair:
    plan = replace(DIRECT, seconds=seconds)
    agent = replace(DIRECT, score=agent_score)
    return Pair(
        request=request,
        family=family,
        wide=options.get("wide", True),
        simulated=options.get("simulated", 1.0),
        plan=ClockedRun(result=plan, wall_seconds=seconds + 5.0, computing_seconds=seconds),
        agent=ClockedRun(result=agent, wall_seconds=10.0, computing_seconds=9.0),
    )


PAIRS = [
    *(pair("r0", seconds, simulated=0.8) for seconds in (7.0, 8.0, 9.0)),
    *(pair("r1", seconds, simulated=0.6) for seconds in (11.0, 12.0, 13.0)),
    *(pair("r2", seconds, family="independent", agent_score=0.5) for seconds in (29.0, 30.0, 31.0)),
    *(pair("r3", seconds, family="chained", wide=False) for seconds in (14.0, 15.0, 16.0)),
]


def test_figures_are_means_over_requests_with_rounds_in_their_intervals() -> None:
    rows = {row["group"]: row for row in rows_of(PAIRS)}
    assert [*rows] == [BOTH_RIGHT, "wide", "gathered", "independent", "chained"]
    right = rows[BOTH_RIGHT]
    assert (right["requests"], right["pairs"]) == (2, 6)
    assert right["path"]["value"] == pytest.approx(1.0)
    assert right["longest"] == pytest.approx(1.2)
    assert 0.7 <= right["path"]["low"] < 0.8, "the quickest rounds of the quicker request"
    assert 1.2 < right["path"]["high"] <= 1.3
    assert right["wall"]["value"] == pytest.approx(1.5)
    assert right["simulated_path"] == pytest.approx(0.7)
    assert right["simulated_off"] == pytest.approx(0.25), "0 for one request, and half for the other"
    assert right["not_computing"] == {"plan": 0.0, "one agent": pytest.approx(0.1)}
    assert rows["wide"]["path"]["value"] == pytest.approx(5 / 3)
    assert rows["wide"]["right"] == {"plan": 1.0, "one agent": pytest.approx(2 / 3)}


def test_the_goal_is_of_wide_requests_that_both_answer_rightly() -> None:
    rows = rows_of(PAIRS)
    measured = goal(rows, None)
    assert measured is not None
    assert (measured["name"], measured["value"]) == (
        "wide requests on two real cores: critical path ÷ one agent's",
        1.0,
    )
    assert measured["met"]
    assert measured["interval"] == [pytest.approx(rows[0]["path"][end], abs=1e-4) for end in ("low", "high")]
    slow = goal(rows_of([pair("r0", 12.0)] * 3), "Qwen")
    assert slow is not None
    assert slow["name"].startswith("wide requests on two real cores, Qwen computes")
    assert not slow["met"]
    assert goal(rows_of([pair("r0", 9.0, agent_score=0.9)]), None) is None


def figures(**more: Any) -> dict[str, Any]:
    machine = {"processor": "CPU", "cores": 2}
    return {"command": "clock", "machine": machine, "rounds": 3, "texts": None, "rows": rows_of(PAIRS), **more}


def test_published_results_are_completed_and_the_page_follows() -> None:
    before = results.read(results.FOLDER / "parl.json")
    before = {key: value for key, value in before.items() if key != "clock"}
    others = [each for each in before["goals"] if not each["name"].startswith("wide requests on two real cores")]
    before["goals"] = others
    assert "Not measured: critical paths" in page.page({"parl": before})
    rows = rows_of(PAIRS)
    after = completed(before, "tiny-large", figures(), goal(rows, None))
    after = completed(after, "Qwen", figures(texts="tiny-large"), goal(rows, "Qwen"))
    after = completed(after, "Qwen", figures(texts="tiny-large"), goal(rows, "Qwen"))
    assert {name: after[name] for name in before if name != "goals"} == {
        name: before[name] for name in before if name != "goals"
    }
    assert after["goals"][: len(others)] == others
    assert len({each["name"] for each in after["goals"]}) == len(after["goals"]) == len(others) + 2
    text = page.page(results.with_states({"parl": after}))
    assert "Not measured: critical paths" not in text
    assert text.count("By the clock of CPU with 2 cores (`clock`)") == 2
    assert text.count("as many tokens as the answers of tiny-large have") == 1
    assert f"| {BOTH_RIGHT} | 2 | 1.0 | 1.00 | 1.00 | 1.00 (" in text


def test_a_file_stands_in_for_the_worker_with_the_embedded_answers(tmp_path: Path) -> None:
    base = load_registry(TINY.parents[1] / "model_registry.yaml")
    with registry_with(base, TINY / "small.gguf") as registry:
        assert registry.models[registry.roles["worker"].model].file == TINY / "small.gguf"
        assert registry.roles["worker"].system == base.roles["worker"].system
        bench = ClockBench(tmp_path, base, registry)
        timed = bench.choose(held_out_requests(2, "benchmark"), 1)
        assert [(request.family, row["wide"], row["both_right"]) for request, row in timed] == [
            ("independent", True, False),
            ("chained", False, True),
        ]
        answers = (tmp_path / "answers.jsonl").read_text()
        pairs, missing = bench.pairs(timed[:1], 1, 600)
        assert (missing, [*tmp_path.glob("run-*")]) == (0, [])
        assert (tmp_path / "answers.jsonl").read_text() == answers, "runs ask what simulations have asked"
        (measured,) = pairs
        assert (measured.plan.result.width, measured.plan.result.steps) == (2, 2)
        assert (measured.plan.result.right, measured.agent.result.score) == (True, 0.5)
        assert 0 < measured.plan.computing_seconds < measured.plan.wall_seconds
        assert bench.pairs(timed, 1, 0) == (pairs, 1), "it continues with the missing pair"


def test_a_worker_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--worker", str(tmp_path / "none.gguf"), "--folder", str(tmp_path)])
    assert "--worker" in capsys.readouterr().err.splitlines()[-1]
