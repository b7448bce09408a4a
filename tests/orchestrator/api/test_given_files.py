"""Files in requests: what is text becomes an input of the run, and all else is refused by its place."""

import base64
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.api.openai import given_files
from orchestrator.api.openai.given_files import GivenFile, read_files
from orchestrator.errors import InputError
from orchestrator.service.callers import Access
from orchestrator.service.configuration import FolderSettings
from orchestrator.service.uploaded_files import UploadedFiles

ANN = Access("token:ann", words=("read:own", "submit"))


@pytest.fixture
def uploaded(tmp_path: Path) -> UploadedFiles:
    return UploadedFiles(tmp_path, lambda: FolderSettings(min_free_bytes=0))


def inline(data: str, name: str = "a.txt") -> GivenFile:
    return GivenFile("messages/0/content/0", name, None, data)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (in_base64("é\n".encode()), "é\n"),
        (f"data:text/plain;base64,{in_base64(b'one')}", "one"),
        (f"data:text/plain;charset=utf-8;BASE64,{in_base64(b'one')}", "one"),
        ("data:text/plain,one%20two", "one two"),
        (in_base64(b"\xef\xbb\xbfone"), "one"),
        ("", ""),
        ("b25l\n", "one"),
    ],
)
def test_the_content_is_read_in_each_form(uploaded: UploadedFiles, data: str, text: str) -> None:
    assert read_files([inline(data)], uploaded, ANN) == {"a.txt": text.encode()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_every_text_comes_back(uploaded: UploadedFiles, text: str) -> None:
    assert (
        read_files([inline(in_base64(text.encode()))], uploaded, ANN)["a.txt"] == text.removeprefix("\ufeff").encode()
    )


def test_names_are_those_of_the_client_without_folders(uploaded: UploadedFiles) -> None:
    names = ["notes/b.txt", r"C:\notes\c.txt", ""]
    assert [*read_files([inline("", name) for name in names], uploaded, ANN)] == ["b.txt", "c.txt", "file3.txt"]


def test_an_uploaded_file_is_found_by_its_id(uploaded: UploadedFiles) -> None:
    kept = uploaded.store("a.txt", "user_data", b"one", ANN.key)
    assert read_files([GivenFile("x", "", kept.id, "")], uploaded, ANN) == {"a.txt": b"one"}
    assert read_files([GivenFile("x", "b.txt", kept.id, "")], uploaded, ANN) == {"b.txt": b"one"}
    assert read_files([inline(in_base64(b"one")), GivenFile("x", "", kept.id, "")], uploaded, ANN) == {"a.txt": b"one"}


def test_the_file_of_another_caller_is_as_unknown_as_one_that_does_not_exist(uploaded: UploadedFiles) -> None:
    kept = uploaded.store("a.txt", "user_data", b"one", "token:ben")
    messages = []
    for file in (kept.id, "file-" + "0" * 24):
        with pytest.raises(InputError) as refused:
            read_files([GivenFile("x", "", file, "")], uploaded, ANN)
        messages.append(str(refused.value).replace(file, "FILE"))
    assert messages[0] == messages[1]
    everybody = Access("token", words=("operator",))
    assert read_files([GivenFile("x", "", kept.id, "")], uploaded, everybody) == {"a.txt": b"one"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([inline("%")], "messages/0/content/0/file_data: is not base64"),
        ([inline(in_base64(b"\xff"))], "a.txt is no text in UTF-8"),
        ([inline("", "a\nb")], "is no name of a file"),
        ([inline("", "..")], "is no name of a file"),
        ([inline("", "a" * 300)], "is no name of a file"),
        ([inline(""), inline(in_base64(b"1"))], "there is another file 'a.txt'"),
        ([GivenFile("input/0/content/1", "", "file-1", "")], "input/0/content/1/file_id: there is no file 'file-1'"),
        ([inline("")] * 65, "at most 64 files"),
    ],
)
def test_what_cannot_be_an_input_is_refused(uploaded: UploadedFiles, files: list[GivenFile], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_files(files, uploaded, ANN)


def test_a_file_may_be_as_large_as_one_of_a_folder(uploaded: UploadedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_files, "MAX_FILE_BYTES", 3)
    assert read_files([inline(in_base64(b"123"))], uploaded, ANN) == {"a.txt": b"123"}
    with pytest.raises(InputError, match="has 4 bytes; accepted: at most 3"):
        read_files([inline(in_base64(b"1234"))], uploaded, ANN)
