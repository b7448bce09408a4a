"""Refuse code that reaches for what runs or judges it, before a gate runs it.

The programs of `inside` go into the sandbox as text, so that they import nothing of ours there.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.run.gates.contract import Artifact, GateContext, GateError, RunJob
from orchestrator.run.gates.findings import Finding
from orchestrator.run.gates.jobs import files_of, run_tool
from orchestrator.run.gates.planned import file_name

_FOLDER = Path(__file__).parent / "inside"
_PACKAGE = "orchestrator.run.gates.inside"
BOOT = (_FOLDER / "boot.py").read_text(encoding="utf-8")
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py"))}

# Starts a program that it reads from stdin.
COMMAND = ("python", "-I", "-c", BOOT)


def program(names: Sequence[str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program: modules in import order, the last of which has `main`, and the spec that `main` gets."""
    return {
        "modules": {f"{_PACKAGE}.{name}": _TEXTS[name] for name in names},
        "main": f"{_PACKAGE}.{names[-1]}",
        "spec": spec,
    }


def document(names: Sequence[str], spec: Mapping[str, Any]) -> bytes:
    return json.dumps(program(names, spec)).encode()


MODULES = ("guard",)
# Names of files that check others.
_CHECKS = re.compile(r"(?:^|/)(?:test|bench)[^/]*\Z|[^/]*_(?:test|bench)\.[^/]*\Z")


def guarded(
    files: Mapping[str, bytes], programs: Collection[str] = (), tests: Collection[str] = ()
) -> dict[str, dict[str, object]]:
    """Return the Python files as the guard reads them; `programs` are those that a command starts."""
    return {
        name: {"text": data.decode("utf-8", "replace"), "program": name in programs, "tests": name in tests}
        for name, data in files.items()
        if name.endswith(".py")
    }


def files_of_command(artifacts: Sequence[Artifact], context: GateContext) -> dict[str, bytes]:
    return {**context.reads, **files_of(artifacts), **kept_checks(context)}


def kept_checks(context: GateContext) -> dict[str, bytes]:
    """Return the user's tests and benches that the step reads and may not replace."""
    names = [name for name in context.reads if name in context.users and _CHECKS.search(name)]
    # A step that writes only tests and benches may replace them. One that writes other code must pass them.
    replaced = context.step.outputs if all(map(_CHECKS.search, context.scope.outputs("python", "shell"))) else ()
    return {name: context.reads[name] for name in names if name not in map(file_name, replaced)}


async def refused(files: Mapping[str, bytes], command: Sequence[str], run: RunJob) -> list[Finding]:
    """Return what the guard finds in files that a command runs. Raises GateError."""
    programs = {part.removeprefix("./") for argument in command for part in re.split(r"[\s;&|()]+", argument)}
    tests = [name for name in files if _CHECKS.search(name)]
    spec = {"guarded": guarded(files, programs, tests)}
    if not spec["guarded"]:
        return []
    outcome = await run_tool(run, COMMAND, {}, (0,), stdin=document(MODULES, spec))
    try:
        return read_problems(json.loads(outcome.stdout))
    except (ValueError, TypeError) as error:
        raise GateError(f"the guard gave a report that cannot be read: {error}", final=True) from error


def read_problems(rows: Sequence[tuple[str, int, str]]) -> list[Finding]:
    return [Finding(str(file), int(line), "", str(message)) for file, line, message in rows]
