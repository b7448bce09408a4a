"""Store the files that clients upload in the state folder, so that requests can name them by id.

Each file is a file of its own, next to one with its description. A file exists once its description does.
"""

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from orchestrator.errors import OrchestratorError
from orchestrator.files import replace_file
from orchestrator.run.journal.errors import write_error
from orchestrator.run.journal.home import Home
from orchestrator.service.configuration import FolderSettings
from orchestrator.service.errors import FolderFull
from orchestrator.service.quota import why_full

MAX_FILES: Final = 10_000
_ID: Final = re.compile(r"file-[0-9a-f]{24}")


class UnknownFile(OrchestratorError):
    """No uploaded file has an id: there was none, or it was deleted."""

    def __init__(self, file: str) -> None:
        super().__init__(f"there is no file {file!r}; accepted: the id of an uploaded file, as /v1/files lists them")
        self.file = file


@dataclass(frozen=True, slots=True)
class UploadedFile:
    id: str
    name: str
    purpose: str  # in the client's words
    bytes: int
    created: float  # seconds since the epoch
    owner: str = ""  # the uploader's key; empty for files of early versions


class UploadedFiles:
    """The uploaded files of a state folder. Blocks on the disk.

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
        """Store a file. Raises FolderFull, DiskFull, JournalError, and what `now` raises."""
        settings = self._settings()
        if (reason := why_full(self._home, settings)) is not None:
            raise FolderFull(reason)
        with self._lock:
            self._check_room(len(data), settings.max_uploaded_bytes)
            uploaded = UploadedFile(f"file-{secrets.token_hex(12)}", name, purpose, len(data), self._now(), owner)
            self._write(self._content(uploaded.id), data)
            try:
                self._write(self._description(uploaded.id), json.dumps(asdict(uploaded)).encode())
            except OrchestratorError:
                self._content(uploaded.id).unlink(missing_ok=True)
                raise
        return uploaded

    def all(self) -> list[UploadedFile]:
        """Return all files, the newest first."""
        try:
            names = [path.stem for path in self._folder.glob("file-*.json")]
        except OSError:
            return []
        files = [file for name in names if (file := self._described(name)) is not None]
        return sorted(files, key=lambda file: (file.created, file.id), reverse=True)

    def find(self, file: str) -> UploadedFile:
        """Return the description of a file. Raises UnknownFile."""
        uploaded = self._described(file)
        if uploaded is None:
            raise UnknownFile(file)
        return uploaded

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
        files = self.all()
        if len(files) >= MAX_FILES:
            raise FolderFull(f"{len(files)} files are uploaded, and no more may be; accepted when some are deleted")
        used = sum(file.bytes for file in files)
        if used + size > most:
            more = "or raise [folder] max_uploaded_bytes in the configuration"
            state = f"the file has {size} bytes, and uploaded files take {used} of the {most} bytes that they may take"
            raise FolderFull(f"{state}; accepted when others are deleted, {more}")

    def _described(self, file: str) -> UploadedFile | None:
        if not _ID.fullmatch(file):
            return None
        try:
            return UploadedFile(**json.loads(self._description(file).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # there is none that can be read
            return None

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, data)
        except OSError as error:
            raise write_error(path, "cannot be written", error) from error

    def _content(self, file: str) -> Path:
        return self._folder / file

    def _description(self, file: str) -> Path:
        return self._folder / f"{file}.json"
