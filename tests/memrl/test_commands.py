"""The commands about what the router has learned, without a daemon."""

import json
import re
from pathlib import Path

import pytest

from tests.orchestrator.cli.cli_command import Cli

TASK = {
    "objective": "Greet",
    "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "Say hello.", "outputs": ["o"], "max_tokens": 4}]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one task, which is done correctly whatever is written."""
    made = tmp_path / "tasks"
    made.mkdir()
    (made / "greet.json").write_text(json.dumps(TASK))
    (made / "greet.checks.json").write_text(json.dumps({"o": {"matches": ".*"}}))
    return made


def test_training_is_learned_from_told_and_asked(command: Cli, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--folder", folder, "--tasks", "4", "--width", "2", "--out", page)
    told = command("memory", "train", *options, "--json").json
    assert [one["tasks"] for one in told["points"]] == [2, 4]
    text = page.read_text()
    assert text.count("<svg") == 6
    assert not re.search(r"(?:src|href|url)\s*[=(]|<script|@import", text), "it works offline"
    assert all(f"<td>{one['q']:.4f}</td>" in text for one in told["points"])
    again = command("memory", "train", *options, "--json").json
    assert len(again["points"]) == 2
    stats = command("memory", "stats", "--json").json
    count = stats["stats"]["outcomes"]  # four tasks, each of which may have been tried more than once
    assert (count >= 4, stats["outcomes"] >= count, stats["problem"]) == (True, True, "")
    lines = command("memory", "stats").out
    assert f"Ready        {stats['ready']} of the 200 outcomes that advice needs; at most 50 of one caller" in lines
    assert re.search(rf"Caller       .*: {count} outcomes, \d+ not forced, counted as", lines)
    shown = command("memory", "explain", "last")
    assert re.match(r"S1, attempt 1: \w+ on tiny-", shown.out), "training tries every role now and then"
    assert "the rules: worker on tiny-large" in shown.out
    choice = command("memory", "explain", "last", "--json").json["choices"][0]
    best = choice["advice"]["estimates"][0]
    assert f"confidence {choice['advice']['confidence']:.2f}; advice is followed from 0.60 on" in shown.out
    assert f"{best['worth']:.3f} ± {best['error']:.3f}" in shown.out
    assert f"{best['head_part']:.0%}" in shown.out
    assert any(line.startswith("> ") for line in shown.out.splitlines()), "what was taken is marked"
    assert f"{best['role']} {best['model']}" in shown.out, "no name is broken where there are 80 columns"
    numbers = re.findall(r"\b\d+\b", shown.out)  # a line may end between an episode and its Q
    assert all(str(voice["episode"]) in numbers for voice in best["voices"])
    asked = command("memory", "ask", "MATCH (a:Attempt) RETURN count(*)", "--json").json
    assert asked["rows"] == [[count]]
    assert command("memory", "rebuild").out == "index and graph were rebuilt\n"
    judged = command("memory", "evaluate", "rules", "--json").json
    assert (judged["choices"] >= 1, judged["router"]) == (True, "rules")
    assert "doubly robust" in command("memory", "evaluate", "random").out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("evaluate", "magic"), 2, "ROUTER: 'magic' was not found; accepted: rules, memory, best, random"),
        (("evaluate", "rules"), 2, "the journal has no choice that the memory advised on"),
        (("ask", "CREATE (:Run {name: 'x'})"), 2, "CYPHER: "),
        (("explain", "nothing"), 2, "RUN: there are no runs"),
        (("train", "--folder", "."), 2, "holds no task"),
        (("train", "--out", "no/such/folder.html"), 2, "--out no/such/folder.html: cannot be written there"),
        (("train", "--family", "magic"), 2, "--family: 'magic' was not found"),
    ],
)
def test_bad_input_is_told(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command("memory", *words)
    assert (result.code, result.out) == (code, "")
    assert told in result.err


def test_a_damaged_memory_is_told(command: Cli, home: Path) -> None:
    (home / "memory").mkdir(parents=True)
    (home / "memory" / "memory.db").write_bytes(b"no database" * 1000)
    result = command("memory", "stats")
    assert result.code == 1
    assert "memory.db" in result.err
