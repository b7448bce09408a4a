"""Record which versions of the user's files an attempt has seen.

Its results may replace these files later, but only if they are still the same.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from orchestrator.run.journal.objects import digest_of
from orchestrator.run.steps.files import MAX_FILE_BYTES, MissingFile, UnreadableFile, read_bytes, text_of

MOST_READS: Final = 1000  # files that are recorded; a search may read all that there are
NO_FILE: Final = ""  # in place of the digest of a missing file


class SeenFiles:
    """Files of the user's folder that one attempt has seen. Calls block on the disk."""

    def __init__(self) -> None:
        # By name, as of the first read; only of the first MOST_READS files.
        self.digests: dict[str, str] = {}
        # Files named like the step's outputs, before it writes them; None for no file. Unreadable ones are missing.
        self.originals: dict[str, bytes | None] = {}

    def read_text(self, folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> str:
        """Record a file and return its text, as `files.read_text` does. Raises `UnreadableFile`."""
        data = read_bytes(folder, name, limit)
        self.add(name, digest_of(data))
        return text_of(name, data)

    def add(self, name: str, digest: str) -> None:
        if len(self.digests) < MOST_READS:
            self.digests.setdefault(name, digest)

    def with_line_ends(self, outputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return texts of a model with the line ends of their originals."""
        # Models write "\n", and mostly none at the end. A diff would show lines that nobody has changed.
        return {name: _with_ends_of(self.originals.get(name) or b"", data) for name, data in outputs.items()}

    def keep_originals(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            try:
                self.originals[name] = read_bytes(folder, name)
            except MissingFile:
                self.originals[name] = None
            except UnreadableFile:
                continue


def _with_ends_of(original: bytes, data: bytes) -> bytes:
    if original.endswith(b"\n") and data and not data.endswith(b"\n"):
        data += b"\n"
    only_crlf = b"\n" in original and original.count(b"\n") == original.count(b"\r\n")
    return data.replace(b"\n", b"\r\n") if only_crlf and b"\r" not in data else data
