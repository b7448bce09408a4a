"""A request in plain language is told from a TaskIR document, and either is read from where it is."""

import io
import json
import sys
from pathlib import Path

import pytest

from orchestrator.cli.documents import read_request_or_task, read_task
from orchestrator.cli.source import check_folder
from orchestrator.errors import InputError
from orchestrator.task.taskir.models import TaskIR

TASK = {
    "objective": "Try it",
    "plan": {"steps": [{"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["a.txt"]}]},
}


class _Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def _problem(argument: str) -> str:
    with pytest.raises(InputError) as caught:
        read_request_or_task(argument)
    return str(caught.value)


def test_plain_text_is_a_request() -> None:
    assert read_request_or_task(" Summarize a.txt ") == "Summarize a.txt"
    assert read_request_or_task("x" * 10_000) == "x" * 10_000
    assert read_request_or_task("null \0 byte") == "null \0 byte"


def test_a_name_that_ends_in_json_or_exists_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(TASK))
    task = read_request_or_task(str(file))
    assert isinstance(task, TaskIR)
    assert task.objective == "Try it"
    other = tmp_path / "task"
    other.write_text("\n " + json.dumps(TASK))
    assert read_request_or_task(str(other)) == task
    request = tmp_path / "request.txt"
    request.write_text("Summarize a.txt\n")
    assert read_request_or_task(str(request)) == "Summarize a.txt"


def test_stdin_holds_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b"Summarize a.txt\n"))
    assert read_request_or_task("-") == "Summarize a.txt"
    monkeypatch.setattr(sys, "stdin", _Stdin(json.dumps(TASK).encode()))
    assert isinstance(read_request_or_task("-"), TaskIR)


@pytest.mark.parametrize("argument", ["", "  \n"])
def test_an_empty_request_is_refused(argument: str) -> None:
    assert "the request: is empty" in _problem(argument)


def test_a_missing_file_is_named() -> None:
    assert _problem("no/such/file.json").startswith("no/such/file.json: No such file")


@pytest.mark.parametrize("name", ["gates.jsn", "tasks/gates.json", "notes.txt", "./gates", "/etc/none/", "a/b"])
def test_a_word_that_looks_like_a_file_is_no_request(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = _problem(name)
    assert told.startswith(f"{name}: No such file or directory; accepted: ")
    assert "a request of several words, or - with a request on stdin" in told


def test_files_with_near_names_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gates.json", "sub/gates.json", "other.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert "accepted: gates.json; or a file that exists" in _problem("gates.jsn")
    assert "accepted: sub/gates.json; or a file that exists" in _problem("sub/gate.json")
    with pytest.raises(InputError, match=r"accepted: gates\.json; or the name of a TaskIR file"):
        read_task("gates.jsn")


@pytest.mark.parametrize("words", ["doctor", "Summarize!", "Why?", "3.5", "etc.", "请读/写文件", "a b.txt", "and / or"])
def test_other_words_are_requests(words: str) -> None:
    assert read_request_or_task(words) == words


def test_a_sentence_that_ends_with_a_file_s_name_is_a_request() -> None:
    assert read_request_or_task("Extract the names from stock.json") == "Extract the names from stock.json"


def test_problems_in_a_file_say_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(TASK | {"objektive": 1}))
    assert f"{file}: /objektive: unknown field" in _problem(str(file))
    file.write_text("{")
    assert _problem(str(file)).startswith(f"{file}: ")
    file.write_bytes(b"\xff\xfe")
    assert _problem(str(file)).startswith(f"{file}: ")


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "request.txt"
    file.write_bytes(b"caf\xe9")
    assert f"{file}: byte 3 is not UTF-8" in _problem(str(file))


def test_a_folder_in_place_of_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        read_task(str(tmp_path))


def test_the_folder_has_to_be_one(tmp_path: Path) -> None:
    assert check_folder(None) is None
    assert check_folder(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not a folder"):
        check_folder(tmp_path / "file")
    with pytest.raises(InputError, match="does not exist"):
        check_folder(tmp_path / "missing")
