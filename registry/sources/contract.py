"""Define what the sources of models exchange with their callers: files, models, progress and errors."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class SourceError(Exception):
    """A model could not be got from its source. All that is left on disk is what the next try can resume.

    `where` is what the user wrote, or the address or file that caused the error. `what` says what is wrong with it.
    `accepted` says what would be accepted, or is empty.
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
    name: str
    """The name of the file on this machine, without folders."""
    size: int | None = None
    """The size in bytes; None if the source does not state it."""
    sha256: str | None = None
    """The SHA-256 of the whole file in hexadecimal digits; None if the source does not state it."""
    headers: dict[str, str] = field(default_factory=dict)
    """HTTP headers for the request, such as a token. They are not sent to another host after a redirect."""
    if_refused: str = ""
    """What would be accepted where the server does not let the user have the file (401 or 403); empty if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A model that is on this machine now."""

    file: Path
    """The GGUF file. For a model in several pieces, it is the first one."""
    source: str
    """The exact source, with the version, the file and the quantisation."""
    downloaded: int = 0
    """How many bytes were transferred; 0 if the model was here already."""
    checked: str = ""
    """What its bytes were compared with, as a clause; empty for a file that is used where it is. Besides, the header of
    every model is read, by which a file that is cut short is noticed."""


class DownloadProgress(Protocol):
    """Receives the progress of downloads."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """Begin a file. It has `size` bytes (None if unknown), of which `done` were transferred before."""

    def advance(self, count: int) -> None:
        """Count `count` more bytes of the file as transferred."""

    def end(self, checked: str) -> None:
        """End the file, which is complete. `checked` is a clause that says what it was compared with."""


class NoProgress:
    """Ignores the progress of downloads."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """Ignore it."""

    def advance(self, count: int) -> None:
        """Ignore it."""

    def end(self, checked: str) -> None:
        """Ignore it."""
