"""Run tests on what a step made, with pytest in the sandbox: the gates unit and integration.

A test is a file called `test_NAME.py` or `NAME_test.py`, and belongs to the module `NAME.py`. It comes from the user or
from a model:

- *unit tests* are the tests that the step writes itself, and those that belong to a module that it writes. These may be
  among what it reads, or among the task's inputs, where the model that writes the module does not see them;
- *integration tests* are all other tests that the step reads. They may use everything that it reads and writes.
"""

import json
import secrets
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError, Scope, file_name
from orchestrator.run.gates.findings import Finding, format_findings, output_tail
from orchestrator.run.gates.guard import guarded, kept_checks, read_problems
from orchestrator.run.gates.jobs import files_of, run_code
from orchestrator.run.gates.programs import BOOT, COMMAND, document, program
from orchestrator.run.sandbox import JobOutcome
from orchestrator.task.events import FailureKind, GateResult

_JUDGING = ("values", "hiding", "canaries", "guard", "supervise")
_RUNNING = ("values", "run_tests")
_SETTINGS = ".gate.ini"
_OPTIONS = (f"--config-file={_SETTINGS}", "--rootdir=.", "--noconftest", "--disable-plugin-autoload", "-pno:terminal")
"""Settings, plugins and conftest.py files of whoever wrote the code are ignored."""


@dataclass(frozen=True, slots=True)
class PytestRun:
    """A run of tests as a job: two processes, of which the one that judges never imports the code under test."""

    files: Mapping[str, bytes]
    """The files of the job, in which those of tests are empty."""
    stdin: bytes
    secret: str
    """What a report has to contain."""

    argv = COMMAND

    @classmethod
    def plan(
        cls, files: Mapping[str, bytes], tests: Sequence[str], checked: Collection[str], own: Collection[str] = ()
    ) -> "PytestRun":
        """Plan to run `tests`, which are among the files.

        Of the Python that models wrote, `checked` is the code under test, which must not reach for the tests, and `own`
        are tests, which must not reach for what runs them.
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
        """Return the results. Without a report that has the secret, the tests have failed.

        Raises `GateError` if pytest is not installed.
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
        written = files_of(artifacts)
        names = list(dict.fromkeys(file_name(name) for name in self.tests(context.scope)))
        users = {name: data for name, data in kept_checks(context).items() if module_under_test(name) is not None}
        users |= context.tests
        files = {**context.reads, **written, **users}
        given = {*users, *(context.users - written.keys())}
        models = [name for name in files if name.endswith(".py") and name not in given]
        own = [name for name in models if module_under_test(name) is not None or _stem(name) == "conftest"]
        run = PytestRun.plan(files, names, [name for name in models if name not in own], own)
        outcome = await run_code(context.run, run.argv, run.files, "pytest", stdin=run.stdin)
        report = run.read(outcome)
        if report.failed:
            return self.failed(format_report(report, files))
        if not report.passed:
            return self.failed(f"{', '.join(names)}: no test has run")
        return self.passed("; ".join([format_report(report, files), *_notes(names, written, users)]))


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


def tests_own_module(scope: Scope) -> bool:
    """Return whether a step has unit tests of a module that it writes itself."""
    modules = {_stem(name) for name in scope.outputs("python")}
    return any(module_under_test(name) in modules for name in unit_tests(scope))


def integration_tests(scope: Scope) -> tuple[str, ...]:
    """Return the names of a step's integration tests, in the order in which the step reads them."""
    units = unit_tests(scope)
    return tuple(
        name for name in dict.fromkeys(scope.step.inputs) if module_under_test(name) is not None and name not in units
    )


def unseen_tests(scope: Scope) -> tuple[str, ...]:
    """Return the unit tests among the inputs of the task that the step does not read.

    A step may write a file of the same name. The input counts then, not what the step wrote.
    """
    return tuple(name for name in unit_tests(scope) if name in scope.task_inputs and name not in scope.step.inputs)


def _read(report: Mapping[str, Any], outcome: JobOutcome) -> PytestReport:
    if "missing" in report:
        raise GateError(f"{report['missing']} is not installed", final=True)
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
    """Return what limits the weight of tests that have passed."""
    replaced = [name for name in names if name in written and name in users]
    notes = [f"{', '.join(replaced)}: the user's file counts, not the step's"] if replaced else []
    if all(name in written and name not in users for name in names):
        notes.append("all of them were written by the step itself")
    return notes


def format_report(report: PytestReport, files: Mapping[str, bytes]) -> str:
    """Return the first failures and the counts in pytest's own words, such as "1 failed, 2 passed"."""
    counts = ((len(report.failed), "failed"), (report.passed, "passed"), (report.skipped, "skipped"))
    counted = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"{format_findings(report.failed, files)}\n{counted}" if report.failed else counted


def _stem(name: str) -> str:
    return file_name(name).rpartition("/")[2].removesuffix(".py")
