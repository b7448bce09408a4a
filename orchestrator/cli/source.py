"""Read a request or a TaskIR document from an argument, a file or stdin, and tell the two apart.

Documents are not parsed here, since parsing needs more imports than all else that a command does with one.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.task.taskir.fields import MAX_BYTES, PRIOR_RUNS

STDIN = "-"
TASK_FILE: Final = "the name of a TaskIR file, or - for stdin"
WHERE: Final = f"a request in plain language, {TASK_FILE}"
# One word with a path separator or the suffix of a file is the name of a file. A word with a separator has to be
# ASCII, since sentences of some languages have no spaces.
_FILE: Final = re.compile(r"[!-~]*/[!-~]*|\S*[^\s.]\.[A-Za-z][A-Za-z0-9]{0,9}")
TASK_FIELD: Final = "task"  # of the API's body: the whole document
_NEAR: Final = 3  # the most similar names that are suggested
_SEARCHED: Final = 10_000  # the most files of a folder that are compared with a missing name


@dataclass(frozen=True, slots=True)
class Document:
    """A TaskIR document that is not parsed yet."""

    name: str  # the file, or stdin
    raw: bytes  # at most MAX_BYTES + 1

    def problem(self, problem: Problem) -> Problem:
        """Return a problem in this document with the name of the document."""
        return replace(problem, where=f"{self.name}: {problem.where}")


def read_source(argument: str) -> str | Document:
    """Return the request or the document of a command-line argument. Raises `InputError`.

    An argument is a file if it exists or looks like a file name (`_FILE`); `-` is stdin; anything else is the request.
    The content of a file or of stdin is a document if it starts with `{` or the name ends in `.json`, else a request.
    """
    if not _is_file(argument):
        return _request(argument, "the request")
    raw = read_raw(argument, "a file that exists, a request of several words, or - with a request on stdin")
    if argument.endswith(".json") or raw.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
        return Document(_name(argument), raw)
    try:
        return _request(raw.decode(), _name(argument))
    except UnicodeDecodeError as error:
        raise InputError(Problem(_name(argument), f"byte {error.start} is not UTF-8", "UTF-8 text")) from error


def read_document(argument: str) -> Document:
    """Return the document in a file or in stdin. Raises `InputError`."""
    return Document(_name(argument), read_raw(argument))


def read_raw(argument: str, accepted: str = TASK_FILE) -> bytes:
    """Return the bytes of a file or of stdin, at most MAX_BYTES + 1. Raises `InputError`."""
    if argument == STDIN:
        # One byte too many, so that the parser reports a document that is too long.
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with open(argument, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        near = _near_files(argument) if isinstance(error, FileNotFoundError) else []
        raise InputError(Problem(argument, reason, "; or ".join([*near, accepted]))) from error


@contextmanager
def problems_in(source: str | Document) -> Iterator[None]:
    """Add the name of the document to the places in it that an `InputError` names. A request has no such places."""
    try:
        yield
    except InputError as error:
        if isinstance(source, str):
            raise
        raise InputError(*(_in_document(problem, source) for problem in error.problems)) from error


def _in_document(problem: Problem, document: Document) -> Problem:
    if problem.where == TASK_FIELD:
        return document.problem(replace(problem, where="/"))
    # Places in a document are JSON pointers; all else that can be wrong with a job is an option of the command.
    in_it = problem.where.startswith("/") or problem.where == PRIOR_RUNS
    return document.problem(problem) if in_it else problem


def check_folder(folder: Path | None) -> Path | None:
    """Return the absolute path of `--dir`. Raises `InputError` if it cannot be read."""
    if folder is None:
        return None
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(Problem(f"--dir {folder}", reason, "a folder whose files the task may read"))
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InputError(Problem(f"--dir {folder}", "cannot be read", "a folder whose files the task may read"))
    return folder.absolute()


def _is_file(argument: str) -> bool:
    # What looks like a file name is one, even if there is no such file.
    return argument == STDIN or _FILE.fullmatch(argument) is not None or os.path.isfile(argument)


def _near_files(argument: str) -> list[str]:
    folder, name = os.path.split(argument)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _SEARCHED) if entry.is_file()]
    except OSError:
        return []
    return [os.path.join(folder, near) for near in get_close_matches(name, names, _NEAR)]


def _name(argument: str) -> str:
    return "stdin" if argument == STDIN else argument


def _request(text: str, where: str) -> str:
    if not text.strip():
        raise InputError(Problem(where, "is empty", WHERE))
    return text.strip()
