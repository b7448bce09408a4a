"""The commands about personas, without a daemon."""

from pathlib import Path

import pytest

from tests.orchestrator.cli.cli_command import Cli

RHYMES = "Write in verse, and let every line rhyme."


def test_a_persona_is_added_listed_shown_and_retired(command: Cli) -> None:
    assert command("personas", "add", "poet", "--text", RHYMES, "--json").json == {
        "name": "poet",
        "new": True,
        "similarity": 1.0,
    }
    listed = command("personas", "list", "--json").json["personas"]
    assert {one["name"]: one["maker"] for one in listed} == {
        **dict.fromkeys(("bullets", "table", "terse", "annotated"), "file"),
        "poet": "user",
    }
    assert RHYMES in command("personas", "show", "poet").out
    assert "poet" in command("personas", "list").out
    assert {one["name"]: one["uses"] for one in command("personas", "stats", "--json").json["personas"]}["poet"] == []
    assert command("personas", "retire", "poet").out == "poet retired\n"
    assert "poet" not in command("personas", "list").out
    assert "poet" in command("personas", "list", "--retired").out
    assert "by a user" in command("personas", "show", "poet").out


def test_a_near_duplicate_is_not_added(command: Cli) -> None:
    command("personas", "add", "poet", "--text", RHYMES)
    said = command("personas", "add", "bard", "--text", "Write in verse and let every line rhyme!").out
    assert said.startswith("poet says nearly the same (0.")
    assert command("personas", "add", "poet", "--text", RHYMES).out.startswith("poet says the same already")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "ters"), "NAME: there is no persona 'ters'; accepted: terse?"),
        (("retire", "terse"), "the persona terse stands in the registry's file of personas"),
        (("add", "a b", "--text", "x"), "persona.name: 'a b' is no name"),
        (("add", "coder", "--text", "x"), "'coder' is the name of the role coder already"),
        (("add", "big", "--text", "@big.txt"), "has more than 65,536 bytes"),
        (("add", "gone", "--text", "@gone.txt"), "--text @gone.txt: cannot be read: No such file"),
    ],
)
def test_bad_input_is_told(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "big.txt").write_text("x" * (1 << 20))
    monkeypatch.chdir(tmp_path)
    result = command("personas", *words)
    assert (result.code, result.out) == (2, "")
    assert told in result.err
