"""The texts that an attempt may read and write. Its rights come from the TaskIR, never from what a model writes.

It reads the user's files and its step's inputs, and writes its step's outputs. It reads no other artifacts, so that
what it finds does not depend on which steps were done by then.
"""

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from orchestrator.run.steps.files import SeenFiles, UnreadableFile
from orchestrator.task.taskir.models import find_name

MAX_TEXTS_BYTES = 64 * 1024 * 1024  # of text that one call may read


class NoSuchText(Exception):
    """A name that cannot be read or written here. The message says which names can be."""


class Workspace:
    """The texts of one attempt: `files` under `directory`, `inputs` by name, and written `outputs`.

    What was written hides an input of that name, and an input hides a file. Calls may block on the disk and raise
    `NoSuchText`.
    """

    def __init__(
        self,
        directory: Path | None,
        files: Iterable[str],
        inputs: Mapping[str, str],
        outputs: Collection[str],
        seen_files: SeenFiles | None = None,
    ) -> None:
        self._directory = directory
        self._seen_files = seen_files or SeenFiles()
        self._files = frozenset(files)
        self.inputs = dict(inputs)
        self.outputs = tuple(outputs)
        self.written: dict[str, str] = {}

    def names(self, pattern: str = "*") -> tuple[str, ...]:
        """Return the names that match a shell pattern, in order; `*` matches any characters, `/` too."""
        return tuple(sorted(fnmatch.filter({*self._files, *self.inputs, *self.written}, pattern)))

    def read(self, name: str) -> str:
        if (stored_name := find_name(name, {*self.written, *self.inputs, *self._files})) is None:
            raise NoSuchText(f"there is no {name!r}; accepted: {_name_list(self.names())}")
        if (text := self.written.get(stored_name, self.inputs.get(stored_name))) is not None:
            return text
        if self._directory is None:
            raise NoSuchText(f"there is no {name!r}; accepted: {_name_list(self.names())}")
        try:
            return self._seen_files.read_text(self._directory, stored_name)
        except UnreadableFile as error:
            raise NoSuchText(str(error)) from error

    def texts(self, pattern: str = "*") -> dict[str, str]:
        """Return all texts with matching names. Files that are no text are left out."""
        matches: dict[str, str] = {}
        size = 0
        for name in self.names(pattern):
            try:
                matches[name] = self.read(name)
            except NoSuchText:
                continue
            size += len(matches[name])
            if size > MAX_TEXTS_BYTES:
                most = MAX_TEXTS_BYTES // 2**20
                raise NoSuchText(f"{pattern!r} matches more than {most} MiB; accepted: a pattern that matches less")
        return matches

    def write(self, name: str, text: str) -> None:
        """Write one of the step's outputs; a second time replaces the first."""
        if name not in self.outputs:
            raise NoSuchText(f"{name!r} is no output of this step; accepted: {_name_list(self.outputs)}")
        self.written[name] = text


def _name_list(names: Collection[str], most: int = 20) -> str:
    shown = ", ".join(list(names)[:most])
    return f"{shown}, … ({len(names)} in all)" if len(names) > most else shown or "none"
