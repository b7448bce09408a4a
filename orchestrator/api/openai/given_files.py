"""Read the files that come with a request to a run: uploaded ones, or parts of messages.

Only UTF-8 text is accepted, within the size limit of files in a folder.
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

FILE_TYPES: Final = frozenset({"file", "input_file"})  # in /v1/chat/completions, in /v1/responses
MAX_FILES: Final = 64  # of one request


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file as a request gives it."""

    where: str  # path in the request, for errors
    name: str  # empty if the request has none
    id: str | None  # of an uploaded file; None if the content is in the request
    data: str  # a `data:` address or base64; empty for an uploaded file


def read_files(files: Sequence[GivenFile], uploaded: UploadedFiles, access: Access) -> dict[str, bytes]:
    """Return the files as UTF-8 text, by the names under which a run's steps read them. Blocks on the disk.

    Raises InputError if a file is unknown, the caller may not see it, it is too large or not text, its name is invalid
    or taken by another file, or if there are too many.
    """
    if len(files) > MAX_FILES:
        raise InputError(Problem(files[MAX_FILES].where, f"is file {MAX_FILES + 1}", f"at most {MAX_FILES} files"))
    contents: dict[str, bytes] = {}
    for number, file in enumerate(files, start=1):
        name, data = _read(file, number, uploaded, access)
        if contents.setdefault(name, data) != data:
            raise InputError(Problem(file.where, f"there is another file {name!r}", "another name"))
    return contents


def _read(file: GivenFile, number: int, uploaded: UploadedFiles, access: Access) -> tuple[str, bytes]:
    if file.id is None:
        name, data = file.name or f"file{number}.txt", _decoded(file)
    else:
        try:
            upload = uploaded.find(file.id)
            if not access.sees(upload.owner):
                raise UnknownFile(file.id)
            name, data = file.name or upload.name, uploaded.read(file.id)
        except UnknownFile as error:
            raise InputError(Problem(f"{file.where}/file_id", str(error))) from error
    name = plain_name(name, f"{file.where}/filename")
    if len(data) > MAX_FILE_BYTES:
        raise InputError(Problem(file.where, f"{name} has {len(data)} bytes", f"at most {MAX_FILE_BYTES}"))
    try:
        return name, data.decode("utf-8-sig").encode()
    except UnicodeDecodeError as error:
        problem = f"{name} is no text in UTF-8 (byte {error.start})"
        raise InputError(Problem(file.where, problem, "a text file")) from error


def plain_name(path: str, where: str) -> str:
    """Return the name of a file without the folders that a client puts before it. Raises InputError at `where`."""
    name = PurePosixPath(path.replace("\\", "/")).name
    if name in ("", ".", "..") or len(name) > MAX_NAME or re.fullmatch(NAME, name) is None:
        accepted = f"a name of at most {MAX_NAME} characters without control characters"
        raise InputError(Problem(where, f"{path!r:.80} is no name of a file", accepted))
    return name


def _decoded(file: GivenFile) -> bytes:
    head, comma, rest = file.data.partition(",")
    is_address = comma and head.lower().startswith("data:")
    if is_address and not head.lower().endswith(";base64"):
        return unquote_to_bytes(rest)
    try:
        return base64.b64decode("".join((rest if is_address else file.data).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        accepted = "data:text/plain;base64,… or base64 alone"
        raise InputError(Problem(f"{file.where}/file_data", f"is not base64: {error}", accepted)) from error
