"""What the sources of models give and get."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class SourceError(Exception):
    """A model cannot be had from where the user said. Nothing half-done is left but what a second try goes on with.

    `where` is what the user wrote, or the address or file that did not do; `what` is wrong with it; `accepted` says
    what would do, or is empty.
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
    """The name that the file gets, without folders."""
    size: int | None = None
    """Bytes; None where the source does not say."""
    sha256: str | None = None
    """The SHA-256 of the whole file in hexadecimal digits; None where the source does not say."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with the request, such as a token. They are not sent on to another host after a redirect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A model that lies on this machine now."""

    file: Path
    """The GGUF file; of a model in several pieces, the first one."""
    source: str
    """Where it came from, exactly: with the version, the file and the quantisation."""
    downloaded: int = 0
    """Bytes that were transferred; 0 where the model was here already."""


class DownloadProgress(Protocol):
    """Is told how a download goes."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """A file is about to be transferred. It has `size` bytes, None if unknown, of which `done` are here already."""

    def advance(self, count: int) -> None:
        """Further bytes of it have come."""

    def end(self) -> None:
        """The file is complete."""


class NoProgress:
    """Ignores how a download goes."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """Ignore it."""

    def advance(self, count: int) -> None:
        """Ignore it."""

    def end(self) -> None:
        """Ignore it."""
