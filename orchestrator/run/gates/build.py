"""The gate build: run the task's build command on a step's outputs, or compile their Python if there is none."""

import json
from collections.abc import Sequence
from pathlib import Path

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.findings import Finding, format_findings, output_tail
from orchestrator.run.gates.guard import files_of_command, refused
from orchestrator.run.gates.jobs import files_of, path_arguments, run_code, run_tool
from orchestrator.task.events import FailureKind, GateResult

PROGRAM = (Path(__file__).parent / "inside" / "compile_all.py").read_text(encoding="utf-8")


class Build(Gate):
    """Fails if the command ends with an exit code other than 0, or if Python does not compile."""

    name = "build"
    fails_as = FailureKind.CODE

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        if context.scope.commands.build:
            return await self._by_command(context.scope.commands.build, artifacts, context)
        files = files_of(context.select(artifacts, "python"))
        argv = ("python", "-I", "-c", PROGRAM, *path_arguments(files))
        findings = _findings((await run_tool(context.run, argv, files, (0,))).stdout)
        return self.failed(format_findings(findings, files)) if findings else self.passed()

    async def _by_command(
        self, command: tuple[str, ...], artifacts: Sequence[Artifact], context: GateContext
    ) -> GateResult:
        files = files_of_command(artifacts, context)
        if problems := await refused(files_of(artifacts), command, context.run):
            return self.failed(format_findings(problems, files))
        outcome = await run_code(context.run, command, files, " ".join(command))
        if outcome.exit_code == 0:
            return self.passed()
        how = f"signal {outcome.signal}" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
        return self.failed(f"{' '.join(command)}: {how}\n{output_tail(outcome.stderr or outcome.stdout)}".strip())


def _findings(report: bytes) -> list[Finding]:
    try:
        return [Finding(path.removeprefix("./"), line, "", message) for path, line, message in json.loads(report)]
    except (ValueError, TypeError, AttributeError) as error:
        raise GateError(f"the compiler gave a report that cannot be read: {error}", final=True) from error
