"""Read a request in plain language or a TaskIR document from an argument, a file or stdin, and tell them apart."""

import os
import sys
from pathlib import Path

from orchestrator.errors import InputError, Problem
from orchestrator.taskir import MAX_BYTES, TaskIR, parse_task

STDIN = "-"
WHERE = "a request in plain language, the name of a TaskIR file, or - for stdin"


def read_source(argument: str) -> str | TaskIR:
    """Return the request or the task that an argument of the command line gives. Raises `InputError`.

    An argument that names a file, or that ends in `.json` and has no white space, is a file; `-` is stdin; anything
    else is the request itself. The content of a file or of stdin is a task if it begins with `{`, or if the file's name
    ends in `.json`; else it is a request.
    """
    if not _is_file(argument):
        return _request(argument, "the request")
    raw = read_raw(argument)
    if argument.endswith(".json") or raw.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
        return _task(raw, argument)
    try:
        return _request(raw.decode(), _name(argument))
    except UnicodeDecodeError as error:
        raise InputError(Problem(_name(argument), f"byte {error.start} is not UTF-8", "UTF-8 text")) from error


def read_task(argument: str) -> TaskIR:
    """Return the task in a file or in stdin. Raises `InputError`."""
    return _task(read_raw(argument), argument)


def read_raw(argument: str) -> bytes:
    """Return the bytes of a file or of stdin, at most one more than a TaskIR may have. Raises `InputError`."""
    if argument == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with open(argument, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(Problem(argument, reason, WHERE)) from error


def check_folder(folder: Path | None) -> Path | None:
    """Return the absolute path of the folder given as `--dir`. Raises `InputError` if it cannot be read."""
    if folder is None:
        return None
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(Problem(f"--dir {folder}", what, "a folder whose files the task may read"))
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InputError(Problem(f"--dir {folder}", "cannot be read", "a folder whose files the task may read"))
    return folder.absolute()


def _is_file(argument: str) -> bool:
    """Return whether an argument is meant as a file. A word that ends in .json is, even if there is no such file."""
    document = argument.endswith(".json") and not any(sign.isspace() for sign in argument)
    return argument == STDIN or document or os.path.isfile(argument)


def _name(argument: str) -> str:
    return "stdin" if argument == STDIN else argument


def _task(raw: bytes, argument: str) -> TaskIR:
    try:
        return parse_task(raw)
    except InputError as error:
        problems = (Problem(f"{_name(argument)}: {item.where}", item.what, item.accepted) for item in error.problems)
        raise InputError(*problems) from error


def _request(text: str, where: str) -> str:
    if not text.strip():
        raise InputError(Problem(where, "is empty", WHERE))
    return text.strip()
