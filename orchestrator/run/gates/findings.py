"""Format what tools found for the next attempt's prompt: the first problems, each with the line of text it is in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_EVIDENCE = 600
"""How many characters of evidence one gate may add to the next prompt."""

MAX_MESSAGE = 200
"""How many characters of a tool's message are kept."""

MAX_LINE = 120
"""How many characters of a line of the artifact are quoted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that a tool has found."""

    file: str
    """The name of the file, or of a test."""
    line: int
    """The line, from 1; 0 stands for the file as a whole."""
    code: str
    """The code of the rule, such as F821; empty where the tool has none."""
    message: str


def format_findings(findings: Sequence[Finding], files: Mapping[str, bytes]) -> str:
    """Return the first findings, each with its line out of `files` (contents by name), and how many more there are.

    The text has about `MAX_EVIDENCE` characters at most, and at least the first finding is in it.
    """
    lines: list[str] = []
    length = 0
    for number, finding in enumerate(findings):
        text = _format_finding(finding, files.get(finding.file, b""))
        length += len(text) + 1
        if lines and length > MAX_EVIDENCE:
            return "\n".join([*lines, f"and {len(findings) - number} more"])
        lines.append(text)
    return "\n".join(lines)


def output_tail(output: bytes, limit: int = MAX_EVIDENCE) -> str:
    """Return the last lines of a program's output, up to `limit` characters: errors are usually written last."""
    text = output.decode("utf-8", "replace").strip()
    if len(text) <= limit:
        return text
    tail = text[-limit:]
    return "… " + (tail.partition("\n")[2] or tail)


def clip(text: str, limit: int) -> str:
    """Return the text on one line, with `…` in place of what is beyond `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _format_finding(finding: Finding, data: bytes) -> str:
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    code = f"{finding.code} " if finding.code else ""
    head = f"{where}: {code}{clip(finding.message, MAX_MESSAGE)}"
    lines = data.decode("utf-8", "replace").splitlines()
    line = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
    return f"{head}\n    {clip(line, MAX_LINE)}" if line else head
