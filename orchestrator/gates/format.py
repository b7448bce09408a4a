"""Have Python formatted. What the formatter changes is applied and noted: it keeps the syntax tree."""

from collections.abc import Sequence

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates import ruff
from orchestrator.gates.contract import Artifact, Gate, GateContext, Repaired, Scope
from orchestrator.gates.evidence import evidence_of
from orchestrator.gates.jobs import files_of

FENCE = b"```"


class Format(Gate):
    """Fails for what is no Python: FORMAT if that is prose around a fenced block of code, else CODE, a syntax error."""

    name = "format"
    fails_as = FailureKind.FORMAT

    def idle(self, scope: Scope) -> str:
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
        if fenced := [name for name, data in files.items() if FENCE in data]:
            return self.failed(f"{', '.join(fenced)}: there is text around the code; write the code alone")
        findings = await ruff.check(files, ("E9",), (), context.run)
        return self.failed(evidence_of(findings, files), FailureKind.CODE)
