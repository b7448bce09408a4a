"""The benchmark of routing scores as RouteLLM does, goes on where it stopped, and says what is wrong with its data."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing import __main__ as command
from benchmarks.routing.learners import Drawn, LogisticOnText, MeanOfSubject, PolicyLearner, RuleOfNeighbours, mean
from benchmarks.routing.outcomes import DataError, Outcomes, read_outcomes
from benchmarks.routing.routellm import SETTINGS
from benchmarks.routing.rows import RowLog, goal_with_interval, interval, source_digest
from benchmarks.routing.stream import STRONG, apgr, recovered_curve, run_stream, score, strong_share_for
from orchestrator.bench.goals import at_least, at_most

HEADER = "subject,prompt,weak_correct,strong_correct"


@pytest.fixture
def outcomes(tmp_path: Path) -> Outcomes:
    """Return 200 prompts, of which the weak model answers the short ones, and the strong model nearly all."""
    rng = np.random.default_rng(0)
    lines = [HEADER]
    for number in range(200):
        hard = number % 2
        prompt = f"Add {number} and 3." if not hard else f"Prove {number} lemmas; use (a), (b) and [c] = {number}!"
        lines.append(f's,"{prompt}",{int(not hard)},{int(rng.random() < 0.95)}')
    file = tmp_path / "mmlu.csv"
    file.write_text("\n".join(lines))
    return read_outcomes(file, tmp_path / "cache")


def test_a_random_router_has_half_and_one_that_knows_the_most() -> None:
    rng = np.random.default_rng(0)
    correct = (rng.random((20_000, 2)) < (0.5, 0.8)).astype(float)
    assert apgr(rng.random((20_000, 2)), correct) == pytest.approx(0.5, abs=0.02)
    best = apgr(correct, correct)
    assert best > 0.9
    assert apgr(-correct, correct) == pytest.approx(1 - best, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=50), st.integers(0, 99))
def test_the_sweep_goes_from_nothing_to_the_whole_gap(pairs: list[tuple[int, int]], seed: int) -> None:
    correct = np.array([*pairs, (0, 1), (0, 1)], dtype=float)
    correct = correct if correct[:, 1].sum() != correct[:, 0].sum() else np.vstack((correct, (0, 1)))
    curve = recovered_curve(np.random.default_rng(seed).random(correct.shape), correct)
    assert (curve[0], curve[-1]) == (0, pytest.approx(1))
    assert 0 <= strong_share_for(correct, correct, 0.95) <= 1


def test_the_policy_learns_and_keeps_its_budget(outcomes: Outcomes) -> None:
    order = np.random.default_rng(1).permutation(200).tolist()
    for mode in ("full", "uniform", "chosen"):
        rng = np.random.default_rng(2)
        trace = run_stream(outcomes, PolicyLearner(outcomes, SETTINGS, rng), mode, order, rng)
        found = score(trace)
        assert found.second_half > 0.7
        if mode == "chosen":
            assert found.strong_share <= 0.6
            assert found.recovered > 0.55


def test_simpler_methods_learn_what_they_are_told_and_a_draw_nothing(outcomes: Outcomes) -> None:
    order = np.random.default_rng(1).permutation(200).tolist()
    subjects = tuple("hard" if correct[0] == 0 else "easy" for correct in outcomes.correct)
    told = replace(outcomes, subjects=subjects)
    for mode in ("full", "chosen"):
        rng = np.random.default_rng(2)
        by_subject = score(run_stream(told, MeanOfSubject(told, rng), mode, order, rng))
        by_text = score(run_stream(outcomes, LogisticOnText(outcomes, rng), mode, order, rng))
        drawn = score(run_stream(outcomes, Drawn(rng), mode, order, rng))
        assert by_subject.second_half > 0.7
        assert by_text.second_half > 0.7
        assert 0.3 < drawn.apgr < 0.7
        if mode == "chosen":
            assert max(by_subject.strong_share, by_text.strong_share) <= 0.6


def test_neighbours_are_those_of_the_past(outcomes: Outcomes) -> None:
    learner = RuleOfNeighbours(outcomes, np.random.default_rng(0), mean, 10)
    assert learner.predict(0).tolist() == [0.5, 0.5]
    learner.learn(0, {STRONG: 1.0})
    assert learner.predict(0).tolist() == [0.5, 0.75]
    assert learner.seen.nearest(0, 5)[0].similarity == pytest.approx(1, abs=1e-3)


def test_the_same_seed_gives_the_same_scores(outcomes: Outcomes) -> None:
    def once() -> object:
        rng = np.random.default_rng(5)
        learner = PolicyLearner(outcomes, SETTINGS, rng)
        return score(run_stream(outcomes, learner, "chosen", list(range(60)), rng))

    assert once() == once()


def test_vectors_are_made_once(outcomes: Outcomes, tmp_path: Path) -> None:
    made = sorted(file.name for file in (tmp_path / "cache").iterdir())
    again = read_outcomes(tmp_path / "mmlu.csv", tmp_path / "cache")
    assert np.array_equal(again.vectors, outcomes.vectors)
    assert sorted(file.name for file in (tmp_path / "cache").iterdir()) == made
    assert len(made) == 2


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", f"{HEADER}\ns,p,yes,1\n", f"{HEADER}\ns,p\n"])
def test_a_file_that_holds_no_outcomes_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mmlu.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=r"mmlu\.csv"):
        read_outcomes(file, tmp_path)


def test_without_data_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ROUTELLM_DATA", raising=False)
    fixed = ["--folder", str(tmp_path), "--out", str(tmp_path / "out.json"), "--parts", "routellm"]
    assert command.main(fixed) == 1
    assert "--data" in capsys.readouterr().err
    assert command.main([*fixed, "--data", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_rows_are_made_once_and_a_line_that_was_cut_off_again(tmp_path: Path) -> None:
    file, made = tmp_path / "rows.jsonl", []

    def make() -> dict[str, int]:
        made.append(1)
        return {"value": len(made)}

    def say(line: str) -> None:
        """Print nothing."""

    assert RowLog(file, say).get(("a", "1"), make) == {"value": 1}
    assert RowLog(file, say).get(("a", "1"), make) == {"value": 1}
    file.write_text(file.read_text()[:-9])
    assert RowLog(file, say).get(("a", "1"), make) == {"value": 2}
    assert json.loads(file.read_text().splitlines()[-1])[1] == {"value": 2}


def test_rows_depend_on_what_the_sources_do_and_not_on_what_they_say(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text('"""Says."""\nx = 1\n')
    other.write_text('"""Says something else."""\n# and this\nx = 1\n')
    assert source_digest(one) == source_digest(other)
    other.write_text("x = 2\n")
    assert source_digest(one) != source_digest(other)


def test_an_interval_holds_the_mean_and_a_goal_is_met_if_its_better_end_is() -> None:
    middle, low, high = interval([0.6, 0.62, 0.64, 0.66, 0.68])
    assert low < middle < high
    assert middle == pytest.approx(0.64)
    assert goal_with_interval(at_least("a", middle, 0.66), low, high)["met"]
    assert not goal_with_interval(at_least("a", middle, 0.7), low, high)["met"]
    assert goal_with_interval(at_most("a", middle, 0.62), low, high)["met"]
    assert not goal_with_interval(at_most("a", middle, 0.5), low, high)["met"]
    assert interval([0.5]) == (0.5, 0.5, 0.5)


def test_a_budget_of_nothing_takes_the_weak_model_only(outcomes: Outcomes) -> None:
    rng = np.random.default_rng(0)
    exploration = replace(SETTINGS.exploration, method="off")
    learner = PolicyLearner(outcomes, replace(SETTINGS, budget=0.0, exploration=exploration), rng)
    trace = run_stream(outcomes, learner, "chosen", list(range(50)), rng)
    assert trace.chosen.sum() <= 1
