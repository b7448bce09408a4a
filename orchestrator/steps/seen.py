"""Record which versions of the user's files an attempt has seen.

What an attempt makes may be written over these files later, but only if they are still the same.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orchestrator.journal.objects import digest_of
from orchestrator.steps.files import MAX_FILE_BYTES, MissingFile, UnreadableFile, read_bytes, text_of

MOST_READS: Final = 1000
"""Of so many files an attempt records that it has read them: a search may read all that there are."""
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

    def keep_originals(self, folder: Path, names: Iterable[str]) -> None:
        """Keep the files under `folder` that have these names."""
        for name in names:
            try:
                self.originals[name] = read_bytes(folder, name)
            except MissingFile:
                self.originals[name] = None
            except UnreadableFile:
                continue
