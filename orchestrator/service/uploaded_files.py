"""Keep the files that clients upload in the state folder, so that requests can name them by their ids.

Each file is a file of its own, beside one with its description. A file is there from the moment its description is.
"""

import json
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from orchestrator.errors import OrchestratorError
from orchestrator.run.journal import Home
from orchestrator.run.journal.errors import write_error
from orchestrator.service.configuration import FolderSettings
from orchestrator.service.errors import FolderFull
from orchestrator.service.quota import why_full

MAX_FILES: Final = 10_000
"""How many uploaded files are kept at most."""
_ID: Final = re.compile(r"file-[0-9a-f]{24}")


class UnknownFile(OrchestratorError):
    """No uploaded file has an id: there was none, or it has been deleted."""

    def __init__(self, file: str) -> None:
        super().__init__(f"there is no file {file!r}; accepted: the id of an uploaded file, as /v1/files lists them")
        self.file = file


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """What is known of an uploaded file."""

    id: str
    name: str
    purpose: str
    """What the client wants it for, in the client's words."""
    bytes: int
    created: float
    """When it was uploaded, in seconds since the epoch."""
    owner: str = ""
    """The key of the caller who has uploaded it; empty for files of early versions."""


class UploadedFiles:
    """The uploaded files of a state folder. Its methods read and write files: call them in a thread.

    `settings` returns how much they may take, and `now` the seconds since the epoch.
    """

    def __init__(
        self, home: Path, settings: Callable[[], FolderSettings], now: Callable[[], float] = time.time
    ) -> None:
        self._home = home
        self._folder = Home(home).files
        self._settings = settings
        self._now = now
        self._lock = Lock()

    def store(self, name: str, purpose: str, data: bytes, owner: str = "") -> UploadedFile:
        """Keep a file, and return its description. Raises FolderFull, DiskFull, JournalError, and what `now` raises."""
        settings = self._settings()
        if (reason := why_full(self._home, settings)) is not None:
            raise FolderFull(reason)
        with self._lock:
            self._check_room(len(data), settings.max_uploaded_bytes)
            made = UploadedFile(f"file-{secrets.token_hex(12)}", name, purpose, len(data), self._now(), owner)
            self._write(self._content(made.id), data)
            try:
                self._write(self._description(made.id), json.dumps(asdict(made)).encode())
            except OrchestratorError:
                self._content(made.id).unlink(missing_ok=True)
                raise
        return made

    def all(self) -> list[UploadedFile]:
        """Return all files, the newest first."""
        try:
            names = [path.stem for path in self._folder.glob("file-*.json")]
        except OSError:
            return []
        found = [file for name in names if (file := self._described(name)) is not None]
        return sorted(found, key=lambda file: (file.created, file.id), reverse=True)

    def find(self, file: str) -> UploadedFile:
        """Return the description of a file. Raises UnknownFile."""
        found = self._described(file)
        if found is None:
            raise UnknownFile(file)
        return found

    def read(self, file: str) -> bytes:
        """Return the bytes of a file. Raises UnknownFile."""
        self.find(file)
        try:
            return self._content(file).read_bytes()
        except FileNotFoundError as error:  # it was deleted meanwhile
            raise UnknownFile(file) from error

    def delete(self, file: str) -> None:
        """Remove a file. Runs that have read it keep its text. Raises UnknownFile."""
        self.find(file)
        with self._lock:
            try:
                self._description(file).unlink()
            except FileNotFoundError as error:
                raise UnknownFile(file) from error
            self._content(file).unlink(missing_ok=True)

    def _check_room(self, size: int, most: int) -> None:
        """Raise FolderFull where there is no room for `size` further bytes."""
        kept = self.all()
        if len(kept) >= MAX_FILES:
            raise FolderFull(f"{len(kept)} files are uploaded, and no more may be; accepted when some are deleted")
        taken = sum(file.bytes for file in kept)
        if taken + size > most:
            more = "or raise [folder] max_uploaded_bytes in the configuration"
            state = f"the file has {size} bytes, and uploaded files take {taken} of the {most} bytes that they may take"
            raise FolderFull(f"{state}; accepted when others are deleted, {more}")

    def _described(self, file: str) -> UploadedFile | None:
        """Return the description of a file, or None where there is none that can be read."""
        if not _ID.fullmatch(file):
            return None
        try:
            return UploadedFile(**json.loads(self._description(file).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, path: Path, data: bytes) -> None:
        written = path.with_name(f"{path.name}.tmp")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written.write_bytes(data)
            os.replace(written, path)
        except OSError as error:
            with suppress(OSError):
                written.unlink(missing_ok=True)
            raise write_error(path, "cannot be written", error) from error

    def _content(self, file: str) -> Path:
        return self._folder / file

    def _description(self, file: str) -> Path:
        return self._folder / f"{file}.json"
