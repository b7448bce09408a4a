"""Tell what tools found, shortened to what the next attempt can learn from: the first problems, each with its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_EVIDENCE = 600
"""Characters of one gate's evidence: it goes into the next prompt."""

MAX_MESSAGE = 200
MAX_LINE = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem in a file. Lines count from 1; 0 stands for the file as a whole."""

    file: str
    line: int
    code: str
    message: str


def format_findings(findings: Sequence[Finding], files: Mapping[str, bytes]) -> str:
    """Return the first findings with the text of their lines, and how many there are besides."""
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
    """Return the last lines of a program's output, where programs say what stopped them."""
    text = output.decode("utf-8", "replace").strip()
    if len(text) <= limit:
        return text
    tail = text[-limit:]
    return "… " + (tail.partition("\n")[2] or tail)


def clip(text: str, limit: int) -> str:
    """Return the text on one line, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _format_finding(finding: Finding, data: bytes) -> str:
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    code = f"{finding.code} " if finding.code else ""
    head = f"{where}: {code}{clip(finding.message, MAX_MESSAGE)}"
    lines = data.decode("utf-8", "replace").splitlines()
    line = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
    return f"{head}\n    {clip(line, MAX_LINE)}" if line else head
