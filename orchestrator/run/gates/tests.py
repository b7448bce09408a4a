"""The gates unit and integration: run tests on a step's outputs with pytest in the sandbox."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.findings import Finding, format_findings, output_tail
from orchestrator.run.gates.guard import BOOT, COMMAND, document, guarded, kept_checks, program, read_problems
from orchestrator.run.gates.jobs import files_of, not_installed, run_code
from orchestrator.run.gates.planned import (
    Scope,
    file_name,
    integration_tests,
    module_under_test,
    stem_of,
    unit_tests,
)
from orchestrator.run.sandbox.contract import JobOutcome
from orchestrator.task.events import FailureKind, GateResult

_JUDGING = ("values", "hiding", "canaries", "guard", "supervise")
_RUNNING = ("values", "run_tests")
_SETTINGS = ".gate.ini"
# Settings, plugins and conftest.py files of whoever wrote the code are ignored.
_OPTIONS = (f"--config-file={_SETTINGS}", "--rootdir=.", "--noconftest", "--disable-plugin-autoload", "-pno:terminal")


@dataclass(frozen=True, slots=True)
class PytestRun:
    """A pytest job of two processes: the one that judges never imports the code under test."""

    files: Mapping[str, bytes]  # those of tests are empty
    stdin: bytes
    secret: str  # a report without it does not count

    argv = COMMAND

    @classmethod
    def plan(
        cls, files: Mapping[str, bytes], tests: Sequence[str], checked: Collection[str], own: Collection[str] = ()
    ) -> "PytestRun":
        """Plan to run `tests`, which are among the files.

        Of the Python that models wrote, `checked` is code under test, which must not reach for the tests, and `own` are
        tests, which must not reach for pytest.
        """
        texts = {name: data for name, data in files.items() if name in tests or module_under_test(name) is not None}
        secret = secrets.token_hex(16)
        spec = {
            "secret": secret,
            "tests": {name: data.decode("utf-8", "replace") for name, data in texts.items()},
            "run": list(tests),
            "guarded": guarded(
                {name: data for name, data in files.items() if name in checked or name in own}, tests=own
            ),
            "boot": BOOT,
            "worker": program(_RUNNING, {"arguments": _OPTIONS}),
        }
        # Modules in `src` are imported as in a project that is installed, or by the name of the folder.
        path = ". src" if any(name.startswith("src/") for name in files) else "."
        settings = {_SETTINGS: f"[pytest]\npythonpath = {path}\naddopts = -p no:cacheprovider\n".encode()}
        return cls({**files, **dict.fromkeys(texts, b""), **settings}, document(_JUDGING, spec), secret)

    def read(self, outcome: JobOutcome) -> "PytestReport":
        """Return the results. Raises GateError if pytest is not installed.

        Without a report that has the secret, the tests have failed.
        """
        try:
            report: Mapping[str, Any] = json.loads(outcome.stdout)
            if report["secret"] != self.secret:
                raise ValueError("it lacks their secret")
        except (ValueError, KeyError, TypeError) as error:
            return PytestReport(0, (Finding("the tests", 0, "", _without_report(outcome, error)),))
        return _read(report, outcome)


@dataclass(frozen=True, slots=True)
class PytestReport:
    passed: int
    failed: tuple[Finding, ...]  # a failed test, or a file that could not be collected
    skipped: int = 0  # a file that skips itself counts as one


class PytestGate(Gate):
    """Fails if a test fails, a file of tests cannot be collected, or no test has run."""

    sequential = True

    @abstractmethod
    def tests(self, scope: Scope) -> tuple[str, ...]:
        """Return the names of test files."""

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        written = files_of(artifacts)
        names = list(dict.fromkeys(file_name(name) for name in self.tests(context.scope)))
        users = {name: data for name, data in kept_checks(context).items() if module_under_test(name) is not None}
        users |= context.tests
        files = {**context.reads, **written, **users}
        trusted = {*users, *(context.users - written.keys())}
        models = [name for name in files if name.endswith(".py") and name not in trusted]
        own = [name for name in models if module_under_test(name) is not None or stem_of(name) == "conftest"]
        run = PytestRun.plan(files, names, [name for name in models if name not in own], own)
        outcome = await run_code(context.run, run.argv, run.files, "pytest", stdin=run.stdin)
        report = run.read(outcome)
        if report.failed:
            return self.failed(format_report(report, files))
        if not report.passed:
            return self.failed(f"{', '.join(names)}: no test has run")
        return self.passed("; ".join([format_report(report, files), *_notes(names, written, users)]))


class Unit(PytestGate):
    name = "unit"
    fails_as = FailureKind.CODE

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return unit_tests(scope)


class Integration(PytestGate):
    name = "integration"
    fails_as = FailureKind.LOGIC

    def tests(self, scope: Scope) -> tuple[str, ...]:
        return integration_tests(scope)


def _read(report: Mapping[str, Any], outcome: JobOutcome) -> PytestReport:
    if "missing" in report:
        raise GateError(not_installed(report["missing"]), final=True)
    if "refused" in report:
        return PytestReport(0, tuple(read_problems(report["refused"])))
    failed = [Finding(str(test), 0, "", str(message)) for test, message in report["failed"]]
    if failed and failed[0].file == "the tests" and (output := output_tail(outcome.stderr)):
        failed[0] = replace(failed[0], message=f"{failed[0].message}: {output}")
    return PytestReport(int(report["passed"]), tuple(failed), int(report["skipped"]))


def _without_report(outcome: JobOutcome, error: Exception) -> str:
    if outcome.stdout:
        return f"something else than the tests has written their report: {error}"
    how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
    return f"the process ended before they were done: {how} {output_tail(outcome.stderr)}"


def _notes(names: Sequence[str], written: Collection[str], users: Collection[str]) -> list[str]:
    # What limits the weight of tests that have passed.
    replaced = [name for name in names if name in written and name in users]
    notes = [f"{', '.join(replaced)}: the user's file counts, not the step's"] if replaced else []
    if all(name in written and name not in users for name in names):
        notes.append("all of them were written by the step itself")
    return notes


def format_report(report: PytestReport, files: Mapping[str, bytes]) -> str:
    """Return the first failures and the counts in pytest's words, such as "1 failed, 2 passed"."""
    counts = ((len(report.failed), "failed"), (report.passed, "passed"), (report.skipped, "skipped"))
    counted = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"{format_findings(report.failed, files)}\n{counted}" if report.failed else counted
