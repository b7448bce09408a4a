"""Run hidden tests of model-written code in the sandbox, within limits."""

import ast
import asyncio
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.sandbox import Sandbox

_LIMITS: Final = SandboxLimits(wall=60, cpu=10, niceness=0)
_SAID: Final = 200
_RUNNER: Final = """
import sys, traceback
sys.path.insert(0, ".")
try:
    import hidden_cases
    cases = [(name, case) for name, case in vars(hidden_cases).items() if name.startswith("test_")]
    for name, case in cases:
        try:
            case()
        except BaseException as error:
            print(f"failed {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    print(f"ran {len(cases)}")
except BaseException as error:
    print(f"failed to import: {type(error).__name__}: {error}")
"""
_PYTEST: Final = """
import os, sys
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the plugins of this installation take seconds to load
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", ".", sys.argv[1]]))
"""


def failures_of(
    tests: str,
    files: Mapping[str, str],
    framework: Literal["functions", "pytest"] = "functions",
    name: str = "hidden_cases.py",
) -> list[str]:
    """Return which tests fail next to these files, one sentence each; nothing if all pass.

    `functions`: plain functions whose names start with `test_`. `pytest`: whatever pytest collects from `name`.
    Raises SandboxUnavailable.
    """
    if unparsed := [
        fault for file, content in {**files, name: tests}.items() for fault in _syntax_faults(file, content)
    ]:
        return unparsed
    sources = {file: content.encode() for file, content in files.items()}
    if framework == "pytest":
        return _of_pytest(_run(("python", "-c", _PYTEST, name), sources, name, tests))
    sources["hidden_runner.py"] = _RUNNER.encode()
    return _of_functions(_run(("python", "hidden_runner.py"), sources, "hidden_cases.py", tests), _count(tests))


def parse_python(source: str) -> ast.Module:
    """Return the tree of model-written Python. Raises ValueError for what is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from error


def _syntax_faults(file: str, content: str) -> list[str]:
    try:
        if file.endswith(".py"):
            parse_python(content)
    except ValueError as error:
        return [f"{file} is no Python: {error}"]
    return []


def _count(tests: str) -> int:
    return sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in ast.parse(tests).body)


def _of_functions(outcome: JobOutcome, count: int) -> list[str]:
    said = outcome.stdout.decode(errors="replace").splitlines()
    failed = [f"{line[:_SAID]}" for line in said if line.startswith("failed ")]
    # Code that ends the process, or is ended by a limit, has passed nothing.
    return failed or ([] if f"ran {count}" in said else [f"the tests did not end: {_end(outcome)}"])


def _of_pytest(outcome: JobOutcome) -> list[str]:
    if outcome.exit_code == 0:
        return []
    said = outcome.stdout.decode(errors="replace").strip().splitlines()
    return [f"its tests fail: {(said[-1] if said else _end(outcome))[:_SAID]}"]


def _end(outcome: JobOutcome) -> str:
    return outcome.limit or f"exit code {outcome.exit_code}, {outcome.stderr.decode(errors='replace')[-_SAID:]}"


def _run(argv: tuple[str, ...], files: dict[str, bytes], name: str, tests: str) -> JobOutcome:
    job = SandboxJob(argv=argv, files={**files, name: tests.encode()}, limits=_LIMITS)
    return asyncio.run(_sandbox().run(job))


@cache
def _sandbox() -> Sandbox:
    return asyncio.run(Sandbox.probe())
