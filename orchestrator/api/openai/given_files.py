"""Read the files that come with a request to a run, for its steps: uploaded ones, or parts of messages.

Only text in UTF-8 is taken, of the size that files of a folder may have.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote_to_bytes

from orchestrator.errors import InputError, Problem
from orchestrator.run.steps.files import MAX_FILE_BYTES
from orchestrator.service.callers import Access
from orchestrator.service.uploaded_files import UnknownFile, UploadedFiles
from orchestrator.task.taskir.fields import MAX_NAME, NAME

FILE_TYPES: Final = frozenset({"file", "input_file"})
"""The types of the parts of messages that are files: of /v1/chat/completions, and of /v1/responses."""
MAX_FILES: Final = 64
"""How many files one request may have."""


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file as a request gives it."""

    where: str
    """The path to it in the request, for errors."""
    name: str
    """What it is called; empty where the request does not say it."""
    id: str | None
    """The id of an uploaded file; None for one whose content is in the request."""
    data: str
    """The content: a `data:` address, or base64; empty for an uploaded file."""


def read_files(given: Sequence[GivenFile], uploaded: UploadedFiles, access: Access) -> dict[str, bytes]:
    """Return the texts of files in UTF-8, by the names that a run's steps read them by. Blocks on the disk.

    Raises InputError for a file that is unknown or that the caller may not see, is no text, too large, or has a name
    that cannot be one, for another one of the same name, and for too many files.
    """
    if len(given) > MAX_FILES:
        raise InputError(Problem(given[MAX_FILES].where, f"is file {MAX_FILES + 1}", f"at most {MAX_FILES} files"))
    found: dict[str, bytes] = {}
    for number, file in enumerate(given, start=1):
        name, data = _read(file, number, uploaded, access)
        if found.setdefault(name, data) != data:
            raise InputError(Problem(file.where, f"there is another file {name!r}", "another name"))
    return found


def _read(file: GivenFile, number: int, uploaded: UploadedFiles, access: Access) -> tuple[str, bytes]:
    if file.id is None:
        name, data = file.name or f"file{number}.txt", _decoded(file)
    else:
        try:
            kept = uploaded.find(file.id)
            if not access.sees(kept.owner):
                raise UnknownFile(file.id)
            name, data = file.name or kept.name, uploaded.read(file.id)
        except UnknownFile as error:
            raise InputError(Problem(f"{file.where}/file_id", str(error))) from error
    name = plain_name(name, f"{file.where}/filename")
    if len(data) > MAX_FILE_BYTES:
        raise InputError(Problem(file.where, f"{name} has {len(data)} bytes", f"at most {MAX_FILE_BYTES}"))
    try:
        return name, data.decode("utf-8-sig").encode()
    except UnicodeDecodeError as error:
        what = f"{name} is no text in UTF-8 (byte {error.start})"
        raise InputError(Problem(file.where, what, "a text file")) from error


def plain_name(given: str, where: str) -> str:
    """Return the name of a file without the folders that a client puts before it. Raises InputError; see `where`."""
    name = PurePosixPath(given.replace("\\", "/")).name
    if name in ("", ".", "..") or len(name) > MAX_NAME or re.fullmatch(NAME, name) is None:
        accepted = f"a name of at most {MAX_NAME} characters without control characters"
        raise InputError(Problem(where, f"{given!r:.80} is no name of a file", accepted))
    return name


def _decoded(file: GivenFile) -> bytes:
    """Return the content of a file that is in the request. Raises InputError."""
    head, comma, rest = file.data.partition(",")
    is_address = comma and head.lower().startswith("data:")
    if is_address and not head.lower().endswith(";base64"):
        return unquote_to_bytes(rest)
    try:
        return base64.b64decode("".join((rest if is_address else file.data).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        accepted = "data:text/plain;base64,… or base64 alone"
        raise InputError(Problem(f"{file.where}/file_data", f"is not base64: {error}", accepted)) from error
