"""Responses that are stored: a conversation is found by its last one, and the oldest ones are removed."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run.journal.errors import JournalError
from orchestrator.service import stored_responses
from orchestrator.service.stored_responses import StoredResponse, StoredResponses, UnknownResponse


def name(number: int) -> str:
    return f"resp_{number:024x}"


def turn(number: int, previous: int | None = None, owner: str = "token:ann") -> StoredResponse:
    answer: dict[str, Any] = {"output": [{"said": number}]}
    return StoredResponse(None if previous is None else name(previous), [{"asked": number}], answer, owner)


def sees(owner: str) -> bool:
    return owner == "token:ann"


def test_a_conversation_is_followed_back_to_its_begin(tmp_path: Path) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    for number in range(3):
        kept.store(name(number), turn(number, number - 1 if number else None))
    items = [{"asked": 0}, {"said": 0}, {"asked": 1}, {"said": 1}, {"asked": 2}, {"said": 2}]
    assert StoredResponses(tmp_path / "responses", "resp").conversation(name(2), sees) == items
    assert kept.conversation(name(1), sees) == items[:4]
    kept.delete(name(0))
    with pytest.raises(UnknownResponse, match=name(0)):
        kept.conversation(name(2), sees)
    assert kept.load(name(2)) == turn(2, 1)


def test_a_conversation_does_not_continue_what_belongs_to_another_caller(tmp_path: Path) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    kept.store(name(0), turn(0, owner="token:ben"))
    kept.store(name(1), turn(1, 0))
    for number in (0, 1):
        with pytest.raises(UnknownResponse, match=name(0)):
            kept.conversation(name(number), sees)


def test_a_response_of_an_early_version_belongs_to_nobody(tmp_path: Path) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    kept.store(name(0), turn(0))
    file = tmp_path / "responses" / f"{name(0)}.json"
    body = json.loads(file.read_text())
    del body["owner"]
    file.write_text(json.dumps(body))
    assert kept.load(name(0)) == turn(0, owner="")


@pytest.mark.parametrize("wrong", ["", "resp_1", "../api", name(7)])
def test_an_id_of_nothing_is_refused(tmp_path: Path, wrong: str) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    for action in (kept.load, kept.delete, partial(kept.conversation, sees=sees)):
        with pytest.raises(UnknownResponse, match="no response"):
            action(wrong)


def test_a_circle_ends(tmp_path: Path) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    kept.store(name(0), turn(0, 0))
    with pytest.raises(UnknownResponse):
        kept.conversation(name(0), sees)


def test_the_oldest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_responses, "MAX_RESPONSES", 5)
    monkeypatch.setattr(stored_responses, "_SPARE", 2)
    kept = StoredResponses(tmp_path / "responses", "resp")
    for number in range(20):
        kept.store(name(number), turn(number))
        file = tmp_path / "responses" / f"{name(number)}.json"
        os.utime(file, (number, number))
        assert len(list(file.parent.iterdir())) <= 8
    assert kept.load(name(19)) == turn(19)
    with pytest.raises(UnknownResponse):
        kept.load(name(0))


def test_all_together_stay_below_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    kept.store(name(0), turn(0))
    file = tmp_path / "responses" / f"{name(0)}.json"
    monkeypatch.setattr(stored_responses, "MAX_BYTES", 4 * file.stat().st_size)
    os.utime(file, (0, 0))
    for number in range(1, 10):
        kept.store(name(number), turn(number))
        assert len(list(file.parent.iterdir())) <= 4
    assert kept.load(name(9)) == turn(9)
    with pytest.raises(UnknownResponse):
        kept.load(name(0))


def test_a_file_that_cannot_be_written_or_read_is_no_crash(tmp_path: Path) -> None:
    kept = StoredResponses(tmp_path / "responses", "resp")
    kept.store(name(0), turn(0))
    for text in ("{", "[]", "{}", "1"):
        (tmp_path / "responses" / f"{name(0)}.json").write_text(text)
        with pytest.raises(UnknownResponse):
            kept.load(name(0))
    blocked = StoredResponses(tmp_path / "file" / "responses", "resp")
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        blocked.store(name(0), turn(0))
