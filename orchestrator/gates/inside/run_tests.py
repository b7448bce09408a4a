"""Run pytest with the arguments of the command line, and write the results into `.tests.json`.

The report is written when pytest has ended: if a test or the code under test ends the process, there is none.
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


def short_message(longrepr: object) -> str:
    """Return the line that failed and pytest's explanation of it, from a short traceback."""
    lines = str(longrepr).splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("E ")]
    if not errors:
        return "\n".join(lines)[-TAIL:]
    return "\n".join(line.removeprefix("E ").strip() for line in lines[max(0, errors[0] - 1) :])[:TAIL]


class ResultCounter:
    """A pytest plugin that counts tests by result (`left` are those yet to run), and keeps messages of failed ones."""

    def __init__(self) -> None:
        self.passed = self.skipped = self.left = 0
        self.failed: list[tuple[str, str]] = []

    def pytest_collectstart(self, collector: Any) -> None:
        """Make files of the same name in two folders two modules, each of which can import the files beside it by name.

        Pytest's own option for that (importlib) confuses a folder with a module of the same name inside it.
        """
        if isinstance(collector, pytest.Module):
            name, file = collector.path.stem, str(collector.path)
            if getattr(sys.modules.get(name), "__file__", file) != file:
                del sys.modules[name]

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that could not be collected, or that skips itself."""
        self.skipped += report.skipped
        if report.failed:
            self.failed.append((report.nodeid, short_message(report.longrepr)))

    def pytest_collection_finish(self, session: Any) -> None:
        """Record how many tests will run."""
        self.left = len(session.items)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record one phase of a test: its setup, call or teardown."""
        if report.failed:
            self.failed.append((report.nodeid, short_message(report.longrepr)))
        elif report.when == "call" and report.passed:
            self.passed += 1
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped += 1
        self.left -= report.when == "teardown"


if find_spec("pytest") is None:
    write({"missing": "pytest"})
    sys.exit(1)

import pytest  # noqa: E402 - it may not be installed

seen = ResultCounter()
pytest.main(["--tb=short", *sys.argv[1:]], plugins=[seen])
write({"passed": seen.passed, "failed": seen.failed, "skipped": seen.skipped, "left": seen.left})
