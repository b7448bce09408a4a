"""The gate format: format Python with ruff. Its changes are applied, not failed, since they keep the syntax tree."""

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
    """Fails if an artifact is not valid Python: as FORMAT if there is prose around fenced code, else as CODE."""

    name = "format"
    fails_as = FailureKind.FORMAT

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.outputs("python") else "no output is Python"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        files = files_of(context.select(artifacts, "python"))
        formatted = await ruff.reformat(files, context.run)
        if formatted is None:
            return await self._explain_invalid(files, context)
        # Models' answers end without a line break; adding one is not worth a note in the result.
        changed = [name for name in files if formatted[name].rstrip(b"\n") != files[name].rstrip(b"\n")]
        current = tuple(Artifact(one.name, formatted.get(one.file, one.data)) for one in artifacts)
        return Repaired(self.passed(f"formatted {', '.join(changed)}" if changed else ""), current)

    async def _explain_invalid(self, files: dict[str, bytes], context: GateContext) -> GateResult:
        findings = await ruff.check(files, SYNTAX, (), context.run)
        first = {finding.file: finding.line for finding in reversed(findings)}
        fenced = {name: fenced_code(files.get(name, b""), line) for name, line in first.items()}
        if fenced and all(fenced.values()) and not await ruff.check(fenced, SYNTAX, (), context.run):
            return self.failed(f"{', '.join(fenced)}: there is text around the code; write the code alone")
        return self.failed(format_findings(findings, files), FailureKind.CODE)


def fenced_code(data: bytes, line: int) -> bytes:
    """Return the code inside the fenced blocks (```) of an answer, or nothing if its text is not to blame.

    `line` is where the first syntax error is. If it comes before the first fence begins, then the answer is code that
    is wrong by itself, and the fence belongs to a string in it.
    """
    blocks = list(_FENCED.finditer(data))
    if not blocks or data.count(b"\n", 0, blocks[0].start()) + 1 < line:
        return b""
    return b"\n".join(block[1] for block in blocks).strip(b"\r\n")
