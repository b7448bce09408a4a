"""Record which versions of the user's files an attempt has seen.

What an attempt makes may be written over these files later, but only if they are still the same.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from orchestrator.run.journal.objects import digest_of
from orchestrator.run.steps.files import MAX_FILE_BYTES, MissingFile, UnreadableFile, read_bytes, text_of

MOST_READS: Final = 1000
"""The most files that an attempt records as read: a search may read all that there are."""
NO_FILE: Final = ""
"""What stands for the digest of a file that does not exist."""


class SeenFiles:
    """The files of the user's folder that one attempt has seen. Calls block on the disk."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        """The digest of each file that was read, by name, as it was when it was read first; of the first files only."""
        self.originals: dict[str, bytes | None] = {}
        """The files with the names of the step's outputs, as they are before the step writes these; None for no file.

        A file that cannot be read is not among them.
        """

    def read_text(self, folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> str:
        """Return the text of the file `name` under `folder`, as `files.read_text` does. Raises `UnreadableFile`."""
        data = read_bytes(folder, name, limit)
        self.add(name, digest_of(data))
        return text_of(name, data)

    def add(self, name: str, digest: str) -> None:
        """Take note of a file that was read."""
        if len(self.digests) < MOST_READS:
            self.digests.setdefault(name, digest)

    def with_line_ends(self, outputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return texts that a model wrote, in which the lines of new versions end as in their originals.

        Models write "\\n", and mostly none at the end. A diff would otherwise show lines that nobody has changed.
        """
        return {name: _with_ends_of(self.originals.get(name) or b"", data) for name, data in outputs.items()}

    def keep_originals(self, folder: Path, names: Iterable[str]) -> None:
        """Keep the files under `folder` that have these names."""
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
