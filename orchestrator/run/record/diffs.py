"""Compare two versions of a file, as a unified diff for `patch` and `git apply`."""

import difflib
from collections.abc import Iterator

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import RunResult

NO_END = "\\ No newline at end of file\n"


def unified_diff(name: str, old: bytes | None, new: bytes) -> str:
    """Return how the file `name` differs; empty for equal versions. `old` is None for a new file."""
    if old == new:
        return ""
    before, after = f"a/{name}" if old is not None else "/dev/null", f"b/{name}"
    first, second = _text(old or b""), _text(new)
    if first is None or second is None:
        return f"Binary files {before} and {after} differ\n"
    if old is None and not new:
        return f"--- {before}\n+++ {after}\n"
    end = "\t" if " " in name else ""  # else patch ends the name at the space
    return "".join(_ended(difflib.unified_diff(_lines(first), _lines(second), before + end, after + end)))


def result_diff(journal: JournalReader, result: RunResult) -> str:
    """Return the diff of a result against the file that it replaces. Blocks on the disk."""
    old = journal.get(result.original) if result.original else None
    return unified_diff(result.name, old, journal.get(result.digest))


def _text(data: bytes) -> str | None:
    # None if it is no text.
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    # As for patch, only "\n" ends a line.
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _ended(lines: Iterator[str]) -> Iterator[str]:
    # A line without an end gets a note.
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{NO_END}"
