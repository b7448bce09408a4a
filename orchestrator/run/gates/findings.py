"""Format tools' findings for the next attempt's prompt, each with the line of text that it is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_EVIDENCE = 600  # characters that one gate may add to the next prompt

MAX_MESSAGE = 200  # characters of a tool's message

MAX_LINE = 120  # characters of a quoted line


@dataclass(frozen=True, slots=True)
class Finding:
    file: str  # or a test's name
    line: int  # from 1; 0 stands for the whole file
    code: str  # of the rule, such as F821; empty if the tool has none
    message: str


def format_findings(findings: Sequence[Finding], files: Mapping[str, bytes]) -> str:
    """Return the first findings with their lines from `files` (contents by name), and how many more there are.

    The text has about `MAX_EVIDENCE` characters at most, but at least one finding.
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
    text = output.decode("utf-8", "replace").strip()
    if len(text) <= limit:
        return text
    # The end, since errors usually come last.
    tail = text[-limit:]
    return "… " + (tail.partition("\n")[2] or tail)


def clip(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _format_finding(finding: Finding, data: bytes) -> str:
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    code = f"{finding.code} " if finding.code else ""
    head = f"{where}: {code}{clip(finding.message, MAX_MESSAGE)}"
    lines = data.decode("utf-8", "replace").splitlines()
    line = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
    return f"{head}\n    {clip(line, MAX_LINE)}" if line else head
