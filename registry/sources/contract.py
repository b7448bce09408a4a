"""Define what the sources of models exchange with their callers: files, models, progress and errors."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class SourceError(Exception):
    """A model could not be got from its source. Only resumable parts stay on disk.

    `where` is the user's text, or the address or file that caused the error.
    """

    def __init__(self, where: str, what: str, accepted: str = "") -> None:
        super().__init__(f"{where}: {what}{f'; accepted: {accepted}' if accepted else ''}")
        self.where = where
        self.what = what
        self.accepted = accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file that can be downloaded."""

    url: str
    name: str  # on this machine, without folders
    size: int | None = None  # bytes; None if the source does not state it
    sha256: str | None = None  # hexadecimal; None if the source does not state it
    headers: dict[str, str] = field(default_factory=dict)  # such as a token; not sent to another host after a redirect
    if_refused: str = ""  # what would be accepted after a 401 or 403; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A model that is on this machine now."""

    file: Path  # GGUF; of several pieces the first
    source: str  # exact, with version, file and quantisation
    downloaded: int = 0  # bytes; 0 if the model was here already
    # What its bytes were compared with, as a clause; empty for a file that is used in place. The header is always read,
    # which reveals a truncated file.
    checked: str = ""


class DownloadProgress(Protocol):
    """Receives the progress of downloads."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """Begin the file `name` of `size` bytes (None if unknown); an earlier transfer has left `done` bytes of it."""

    def advance(self, count: int) -> None:
        """`count` more bytes of the file were transferred."""

    def end(self, checked: str) -> None:
        """The file is complete. `checked` is a clause that says what it was compared with."""


class NoProgress:
    """Ignores the progress of downloads."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """Ignore it."""

    def advance(self, count: int) -> None:
        """Ignore it."""

    def end(self, checked: str) -> None:
        """Ignore it."""
