"""The gate bench: time the task's bench command on a step's outputs."""

from collections.abc import Sequence

from orchestrator.run.gates.contract import Artifact, Gate, GateContext
from orchestrator.run.gates.findings import format_findings, output_tail
from orchestrator.run.gates.guard import files_of_command, refused
from orchestrator.run.gates.jobs import bench_limits, files_of, run_code
from orchestrator.task.events import FailureKind, GateResult

# The command is run at most this often, and its quickest run counts.
RUNS = 3


class BenchGate(Gate):
    """Fails if a run ends with an exit code other than 0, or if the quickest run takes too long."""

    name = "bench"
    fails_as = FailureKind.LOGIC
    sequential = True

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        bench = context.scope.commands.bench
        assert bench is not None, "the pipeline skips this gate without a command"
        files = files_of_command(artifacts, context)
        if problems := await refused(files_of(artifacts), bench.run, context.run):
            return self.failed(format_findings(problems, files), FailureKind.CODE)
        limits = bench_limits(bench.max_seconds)
        quickest = float("inf")
        for _ in range(RUNS):
            outcome = await run_code(context.run, bench.run, files, " ".join(bench.run), limits)
            if outcome.exit_code != 0:
                return self.failed(
                    f"{' '.join(bench.run)} failed\n{output_tail(outcome.stderr or outcome.stdout)}".strip()
                )
            quickest = min(quickest, outcome.seconds)
            if quickest <= bench.max_seconds:
                return self.passed(f"took {quickest:.3g} s of {bench.max_seconds:g} s")
        return self.failed(f"{' '.join(bench.run)} took {quickest:.3g} s; accepted: {bench.max_seconds:g} s at most")
