"""The benchmark of procedures goes on where it was stopped, and writes its results when nothing is missing."""

import json
from pathlib import Path

import pytest

from benchmarks.procedures import __main__ as bench

SMALL = ["--kills", "4", "--entries", "200", "--gib", "0.001953125", "--workers", "1"]


def measure(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> int:
    words = ["bench", *SMALL, "--kept", str(folder / "kept"), "--write", str(folder / "found.json"), *more]
    monkeypatch.setattr("sys.argv", words)
    return bench.main()


def test_what_was_measured_is_kept_until_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ACTIONS", 3)
    assert measure(monkeypatch, tmp_path, "--only", "rollback", "--only", "audit") == 0
    assert not (tmp_path / "found.json").exists()
    assert "not measured yet: actions, kills" in capsys.readouterr().out
    measure(monkeypatch, tmp_path)
    told = capsys.readouterr().out
    assert "rollback: was measured already" in told
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["part"] for row in found["rows"]] == list(bench.PARTS)
    assert found["rows"][3]["kills"] + found["rows"][3]["second_kills"] >= 4
    assert {goal["name"]: goal["state"] for goal in found["goals"]}["half-changed after a kill"] == "met"
    assert not any((tmp_path / "kept").iterdir())
