"""Run tests on what a step made, with pytest in the sandbox: the gates unit and integration.

A test is a file called `test_NAME.py` or `NAME_test.py`, and belongs to the module `NAME.py`. It comes from the user or
from a model:

- *unit tests* are the tests that the step writes itself, and those that belong to a module that it writes. These may be
  among what it reads, or among the task's inputs, where the model that writes the module does not see them;
- *integration tests* are all other tests that the step reads. They may use everything that it reads and writes.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates.contract import Artifact, Gate, GateContext, GateError, Scope, file_name
from orchestrator.gates.findings import Finding, format_findings, output_tail
from orchestrator.gates.jobs import files_of, path_arguments, run_code
from orchestrator.sandbox import JobOutcome

PROGRAM = (Path(__file__).parent / "inside" / "run_tests.py").read_text(encoding="utf-8")
SETTINGS, REPORT = ".gate.ini", ".tests.json"
_OPTIONS = (f"--config-file={SETTINGS}", "--rootdir=.", "--noconftest", "--disable-plugin-autoload", "-q")
PYTEST = ("python", "-I", "-c", PROGRAM, *_OPTIONS)
"""The command that runs pytest. It reads the file SETTINGS, which has to be in the job, and writes the file REPORT.

Settings, plugins and conftest.py files of whoever wrote the code are ignored.
"""

SETTINGS_TEXT = b"[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n"
"""What the file SETTINGS contains."""


@dataclass(frozen=True, slots=True)
class PytestReport:
    """The results of a pytest run."""

    passed: int
    """How many tests passed."""
    failed: tuple[Finding, ...]
    """One finding for each test that failed, and for each file that could not be collected."""
    skipped: int = 0
    """How many tests were skipped; a file that skips itself as a whole counts as one."""


class PytestGate(Gate):
    """Fails if a test fails, if a file of tests cannot be collected, or if no test has run."""

    sequential = True

    @abstractmethod
    def tests(self, scope: Scope) -> tuple[str, ...]:
        """Return the names of the files that contain the tests."""

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        files = {**context.reads, **context.tests, **files_of(artifacts)}
        names = [file_name(name) for name in self.tests(context.scope)]
        outcome = await run_code(
            context.run, (*PYTEST, *path_arguments(names)), {**files, SETTINGS: SETTINGS_TEXT}, "pytest", (REPORT,)
        )
        report = read_report(outcome)
        if report.failed:
            return self.failed(f"{format_findings(report.failed, files)}\n{_format_counts(report)}")
        if not report.passed:
            return self.failed(f"{', '.join(names)}: no test has run")
        return self.passed(_format_counts(report))


class Unit(PytestGate):
    """Runs the tests of the modules that a step writes."""

    name = "unit"
    fails_as = FailureKind.CODE

    def skip_reason(self, scope: Scope) -> str:
        return "" if unit_tests(scope) else "there is no test_NAME.py for an output NAME.py"

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return unit_tests(scope)


class Integration(PytestGate):
    """Runs the tests of how the files that a step writes work together with the files that it reads."""

    name = "integration"
    fails_as = FailureKind.LOGIC

    def skip_reason(self, scope: Scope) -> str:
        return "" if integration_tests(scope) else "the step reads no tests but those of its own outputs"

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return integration_tests(scope)


def module_under_test(name: str) -> str | None:
    """Return the name of the module that a test file tests, without `.py`, or None if `name` is not a test file."""
    if not file_name(name).endswith(".py"):
        return None
    stem = _stem(name)
    if stem.startswith("test_"):
        return stem.removeprefix("test_")
    return stem.removesuffix("_test") if stem.endswith("_test") else None


def unit_tests(scope: Scope) -> tuple[str, ...]:
    """Return the names of a step's unit tests: first its outputs, then what it reads, then inputs of the task."""
    written = [name for name in scope.step.outputs if module_under_test(name) is not None]
    modules = {_stem(name) for name in scope.outputs("python")}
    given = [name for name in (*scope.step.inputs, *scope.task_inputs) if module_under_test(name) in modules]
    return tuple(dict.fromkeys([*written, *given]))


def integration_tests(scope: Scope) -> tuple[str, ...]:
    """Return the names of a step's integration tests, in the order in which the step reads them."""
    units = unit_tests(scope)
    return tuple(
        name for name in dict.fromkeys(scope.step.inputs) if module_under_test(name) is not None and name not in units
    )


def unseen_tests(scope: Scope) -> tuple[str, ...]:
    """Return the unit tests that the step neither reads nor writes: inputs of the task that only the gate reads."""
    seen = {*scope.step.inputs, *scope.step.outputs}
    return tuple(name for name in unit_tests(scope) if name not in seen)


def read_report(outcome: JobOutcome) -> PytestReport:
    """Return the results that a run of `PYTEST` wrote into the file REPORT.

    Code that ended the process before all tests were done has failed them, and so has code that overwrote the report.
    Raises `GateError` if pytest is not installed.
    """
    if REPORT not in outcome.files:
        how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        output = output_tail(outcome.stderr or outcome.stdout)
        return PytestReport(
            0, (Finding("the tests", 0, "", f"the process ended before they were done: {how} {output}"),)
        )
    try:
        report: Mapping[str, Any] = json.loads(outcome.files[REPORT])
        if "missing" in report:
            raise GateError(f"{report['missing']} is not installed", final=True)
        failed = tuple(Finding(str(test), 0, "", str(message)) for test, message in report["failed"])
        if (left := int(report["left"])) and not failed:
            output = output_tail(outcome.stderr or outcome.stdout)
            failed = (Finding("the tests", 0, "", f"they were broken off, {left} were left to run: {output}"),)
        return PytestReport(int(report["passed"]), failed, int(report["skipped"]))
    except (ValueError, KeyError, TypeError) as error:
        return PytestReport(0, (Finding("the tests", 0, "", f"something has overwritten their report: {error}"),))


def _format_counts(report: PytestReport) -> str:
    """Return the counts in pytest's own words: "1 failed, 2 passed"."""
    counts = ((len(report.failed), "failed"), (report.passed, "passed"), (report.skipped, "skipped"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _stem(name: str) -> str:
    return file_name(name).rpartition("/")[2].removesuffix(".py")
