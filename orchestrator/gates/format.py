"""Have Python formatted. What the formatter changes is applied and noted: it keeps the syntax tree."""

import re
from collections.abc import Sequence

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates import ruff
from orchestrator.gates.contract import Artifact, Gate, GateContext, Repaired, Scope
from orchestrator.gates.findings import format_findings
from orchestrator.gates.jobs import files_of

SYNTAX = ("E9",)
_FENCED = re.compile(rb"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


class Format(Gate):
    """Fails for what is no Python: FORMAT if that is prose around a fenced block of code, else CODE, a syntax error."""

    name = "format"
    fails_as = FailureKind.FORMAT

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.outputs("python") else "no output is Python"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        files = files_of(context.chosen(artifacts, "python"))
        formatted = await ruff.reformat(files, context.run)
        if formatted is None:
            return await self._no_python(files, context)
        # Answers come without a line break at their end: to add it is not worth a note.
        changed = [name for name in files if formatted[name].rstrip(b"\n") != files[name].rstrip(b"\n")]
        now = tuple(Artifact(one.name, formatted.get(one.file, one.data)) for one in artifacts)
        return Repaired(self.passed(f"formatted {', '.join(changed)}" if changed else ""), now)

    async def _no_python(self, files: dict[str, bytes], context: GateContext) -> GateResult:
        findings = await ruff.check(files, SYNTAX, (), context.run)
        first = {finding.file: finding.line for finding in reversed(findings)}
        fenced = {name: fenced_code(files.get(name, b""), line) for name, line in first.items()}
        if fenced and all(fenced.values()) and not await ruff.check(fenced, SYNTAX, (), context.run):
            return self.failed(f"{', '.join(fenced)}: there is text around the code; write the code alone")
        return self.failed(format_findings(findings, files), FailureKind.CODE)


def fenced_code(data: bytes, line: int) -> bytes:
    """Return the code in the fenced blocks of what is no Python from this line on; none if that is not for a fence.

    No line behind a fence is the first to be wrong, unless the fence stands in a string.
    """
    blocks = list(_FENCED.finditer(data))
    if not blocks or data.count(b"\n", 0, blocks[0].start()) + 1 < line:
        return b""
    return b"\n".join(block[1] for block in blocks).strip(b"\r\n")
