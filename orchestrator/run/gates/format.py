"""The gate format: format Python with ruff. Its changes are applied, not failed, since they keep the syntax tree."""

from collections.abc import Sequence

from orchestrator.run.fences import file_text
from orchestrator.run.gates import ruff
from orchestrator.run.gates.contract import Artifact, Gate, GateContext, Repaired
from orchestrator.run.gates.findings import format_findings
from orchestrator.run.gates.jobs import files_of
from orchestrator.task.events import FailureKind, GateResult

SYNTAX = ("E9",)


class Format(Gate):
    """Fails on invalid Python: as FORMAT if there is prose around fenced code, else as CODE."""

    name = "format"
    fails_as = FailureKind.FORMAT

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult | Repaired:
        files = files_of(context.select(artifacts, "python"))
        formatted = await ruff.reformat(files, context.run)
        if formatted is None:
            return await self._explain_invalid(files, context)
        # Models' answers end without a line break; adding one is not worth a note in the result.
        changed = [name for name in files if formatted[name].rstrip(b"\n") != files[name].rstrip(b"\n")]
        current = tuple(Artifact(artifact.name, formatted.get(artifact.file, artifact.data)) for artifact in artifacts)
        return Repaired(self.passed(f"formatted {', '.join(changed)}" if changed else ""), current)

    async def _explain_invalid(self, files: dict[str, bytes], context: GateContext) -> GateResult:
        findings = await ruff.check(files, SYNTAX, (), context.run)
        inner = {name: files.get(name, b"") for name in dict.fromkeys(finding.file for finding in findings)}
        inner = {name: file_text(data.decode("utf-8", "replace"), name).encode() for name, data in inner.items()}
        around = [name for name, data in inner.items() if data and data != files.get(name, b"").strip()]
        if around == [*inner] and inner and not await ruff.check(inner, SYNTAX, (), context.run):
            return self.failed(f"{', '.join(inner)}: there is text around the code; write the code alone")
        return self.failed(format_findings(findings, files), FailureKind.CODE)
