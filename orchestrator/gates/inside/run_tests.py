"""Run pytest with the arguments of the command line, and write what came of the tests into `.tests.json`.

The report is only there when pytest has come to its end: a test, or the code under test, that ends the process early
leaves none.
"""

import json
import sys
from importlib.util import find_spec
from typing import Any

TAIL = 1000


def write(report: dict[str, object]) -> None:
    """Write the report."""
    with open(".tests.json", "w", encoding="utf-8") as file:
        json.dump(report, file)


def said(longrepr: object) -> str:
    """Return the line that failed and what pytest found there, of a traceback in the short form."""
    lines = str(longrepr).splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("E ")]
    if not errors:
        return "\n".join(lines)[-TAIL:]
    return "\n".join(line.removeprefix("E ").strip() for line in lines[max(0, errors[0] - 1) :])[:TAIL]


class Report:
    """Counts the tests, those that are `left` too, and keeps what the failed ones say."""

    def __init__(self) -> None:
        self.passed = self.skipped = self.left = 0
        self.failed: list[tuple[str, str]] = []

    def pytest_collectstart(self, collector: Any) -> None:
        """Let files of one name in two folders be two modules, which import what lies beside them by its plain name.

        Pytest's own way to have that (importlib) takes a folder for the module of the same name that lies in it.
        """
        if isinstance(collector, pytest.Module):
            name, file = collector.path.stem, str(collector.path)
            if getattr(sys.modules.get(name), "__file__", file) != file:
                del sys.modules[name]

    def pytest_collectreport(self, report: Any) -> None:
        """Take in a file that was collected, or that skips itself."""
        self.skipped += report.skipped
        if report.failed:
            self.failed.append((report.nodeid, said(report.longrepr)))

    def pytest_collection_finish(self, session: Any) -> None:
        """Note how many tests are to run."""
        self.left = len(session.items)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take in one phase of a test."""
        if report.failed:
            self.failed.append((report.nodeid, said(report.longrepr)))
        elif report.when == "call" and report.passed:
            self.passed += 1
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped += 1
        self.left -= report.when == "teardown"


if find_spec("pytest") is None:
    write({"missing": "pytest"})
    sys.exit(1)

import pytest  # noqa: E402 - only where it is

seen = Report()
pytest.main(["--tb=short", *sys.argv[1:]], plugins=[seen])
write({"passed": seen.passed, "failed": seen.failed, "skipped": seen.skipped, "left": seen.left})
