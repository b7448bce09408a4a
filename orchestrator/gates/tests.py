"""Run tests on what a step made, with pytest in the sandbox: the gates unit and integration."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates.contract import Artifact, Gate, GateContext, GateError, Scope, file_name
from orchestrator.gates.findings import Finding, format_findings, output_tail
from orchestrator.gates.jobs import files_of, paths, run_code
from orchestrator.gates.suites import integration_tests, unit_tests
from orchestrator.sandbox.contract import Outcome

PROGRAM = (Path(__file__).parent / "inside" / "run_tests.py").read_text(encoding="utf-8")
SETTINGS, REPORT = ".gate.ini", ".tests.json"
_OPTIONS = (f"--config-file={SETTINGS}", "--rootdir=.", "--noconftest", "--disable-plugin-autoload", "-q")
PYTEST = ("python", "-I", "-c", PROGRAM, *_OPTIONS)
"""Ours alone: no settings, plugins or conftest.py of whoever wrote the code. It needs SETTINGS, and leaves REPORT."""

SETTINGS_TEXT = b"[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n"


@dataclass(frozen=True, slots=True)
class Tested:
    """What came of the tests: how many passed, what others say, and how many (or whole files of them) were skipped."""

    passed: int
    failed: tuple[Finding, ...]
    skipped: int = 0


class Tests(Gate):
    """Fails for tests that fail, that cannot be collected, or of which there are none."""

    sequential = True

    @abstractmethod
    def tests(self, scope: Scope) -> tuple[str, ...]:
        """Return the names of the files with the tests."""

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        made = files_of(artifacts)
        files = {**context.reads, **context.tests, **made}
        named = [file_name(name) for name in self.tests(context.scope)]
        outcome = await run_code(
            context.run, (*PYTEST, *paths(named)), {**files, SETTINGS: SETTINGS_TEXT}, "pytest", (REPORT,)
        )
        tested = tested_in(outcome)
        if tested.failed:
            return self.failed(f"{format_findings(tested.failed, files)}\n{_counted(tested)}")
        if not tested.passed:
            return self.failed(f"{', '.join(named)}: no test has run")
        return self.passed(_counted(tested))


class Unit(Tests):
    """The tests of the modules that a step writes."""

    name = "unit"
    fails_as = FailureKind.CODE

    def skip_reason(self, scope: Scope) -> str:
        return "" if unit_tests(scope) else "there is no test_NAME.py for an output NAME.py"

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return unit_tests(scope)


class Integration(Tests):
    """The tests of how what a step writes goes with what it reads."""

    name = "integration"
    fails_as = FailureKind.LOGIC

    def skip_reason(self, scope: Scope) -> str:
        return "" if integration_tests(scope) else "the step reads no tests but those of its own outputs"

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return integration_tests(scope)


def tested_in(outcome: Outcome) -> Tested:
    """Return what came of the tests. Code that ended the process before its tests were done has failed them.

    Raises `GateError` where there is no pytest.
    """
    if REPORT not in outcome.files:
        how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        said = output_tail(outcome.stderr or outcome.stdout)
        return Tested(0, (Finding("the tests", 0, "", f"the process ended before they were done: {how} {said}"),))
    try:
        report: Mapping[str, Any] = json.loads(outcome.files[REPORT])
        if "missing" in report:
            raise GateError(f"{report['missing']} is not installed", final=True)
        failed = tuple(Finding(str(test), 0, "", str(said)) for test, said in report["failed"])
        if (left := int(report["left"])) and not failed:
            said = output_tail(outcome.stderr or outcome.stdout)
            failed = (Finding("the tests", 0, "", f"they were broken off, {left} were left to run: {said}"),)
        return Tested(int(report["passed"]), failed, int(report["skipped"]))
    except (ValueError, KeyError, TypeError) as error:
        return Tested(0, (Finding("the tests", 0, "", f"something has overwritten their report: {error}"),))


def _counted(tested: Tested) -> str:
    """Return the count as pytest tells it."""
    counts = ((len(tested.failed), "failed"), (tested.passed, "passed"), (tested.skipped, "skipped"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)
