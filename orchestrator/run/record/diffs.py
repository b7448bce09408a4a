"""Compare two versions of a file, as a unified diff that `patch` and `git apply` read."""

import difflib
from collections.abc import Iterator

from orchestrator.run.journal import JournalReader
from orchestrator.run.record.results import RunResult

NO_END = "\\ No newline at end of file\n"


def unified_diff(name: str, old: bytes | None, new: bytes) -> str:
    """Return how the file `name` differs; an empty string for equal versions. `old` is None for a new file."""
    if old == new:
        return ""
    before, after = f"a/{name}" if old is not None else "/dev/null", f"b/{name}"
    first, second = _text(old or b""), _text(new)
    if first is None or second is None:
        return f"Binary files {before} and {after} differ\n"
    if old is None and not new:
        return f"--- {before}\n+++ {after}\n"
    end = "\t" if " " in name else ""  # without it, patch takes the name to end at the space
    return "".join(_ended(difflib.unified_diff(_lines(first), _lines(second), before + end, after + end)))


def result_diff(journal: JournalReader, result: RunResult) -> str:
    """Return how a result of a run differs from the file that it is a new version of. Blocks on the disk."""
    old = journal.get(result.original) if result.original else None
    return unified_diff(result.name, old, journal.get(result.digest))


def _text(data: bytes) -> str | None:
    """Return the text of a file, or None if it is none."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Return the lines with their ends. Only "\\n" ends a line, as for patch."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _ended(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of a diff, each with its end, or with a note that it has none."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{NO_END}"
