"""The gate smoke: start each Python file of a step once, and refuse exceptions that no input excuses."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.findings import Finding, format_findings
from orchestrator.run.gates.guard import files_of_command
from orchestrator.run.gates.jobs import CODE_LIMITS, files_of
from orchestrator.run.gates.planned import is_started, stem_of
from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.task.events import FailureKind, GateResult

PROGRAM: Final = (Path(__file__).parent / "inside" / "start_all.py").read_text(encoding="utf-8")
SECONDS: Final = 3  # a program that still runs then has started
_LIMITS: Final = replace(CODE_LIMITS, wall=30.0)

# Lines of a traceback: where each call was, and behind the last one which exception it was.
_FRAME: Final = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_EXCEPTION: Final = re.compile(r"^(?P<name>[\w.]+)(?:: (?P<message>.*))?$", re.MULTILINE)
_FROM: Final = re.compile(r"cannot import name '\w+' from '(?P<module>[\w.]+)'")
_MISTAKES: Final = frozenset(("NameError", "UnboundLocalError", "AttributeError", "TypeError"))
# Without arguments and input, a value may be missing that a user gives.
_EXCUSED: Final = re.compile(r"NoneType|required (?:positional|keyword-only) argument")


class Smoke(Gate):
    """Fails if a file that is started without arguments and input ends by a mistake in its code.

    Such mistakes are names, attributes and types that do not fit, and names that another output lacks. Exceptions that
    input, a network, a library or a package might prevent do not count, and neither does a program that does not end.
    """

    name = "smoke"
    fails_as = FailureKind.CODE
    sequential = True

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        started = [name for name in files_of(artifacts) if is_started(name)]
        files = files_of_command(artifacts, context)
        argv = ("python", "-I", "-c", PROGRAM, str(SECONDS), *started)
        outcome = await context.run(SandboxJob(argv=argv, files=files, limits=_LIMITS))
        if outcome.limit is not None:
            return self.passed()
        modules = {stem_of(name) for name in started}
        try:
            tracebacks: list[str] = json.loads(outcome.stdout)
            mistakes = [mistake for traceback in tracebacks for mistake in _mistakes(traceback, started, modules)]
        except (ValueError, TypeError) as error:
            raise GateError(f"the report of the starts cannot be read: {error}", final=True) from error
        return self.failed(format_findings(mistakes, files)) if mistakes else self.passed()


def _mistakes(traceback: str, started: Collection[str], modules: Collection[str]) -> Iterator[Finding]:
    frames = [*_FRAME.finditer(traceback)]
    own = [
        (name, int(frame["line"])) for frame in frames for name in started if f"/{frame['file']}".endswith(f"/{name}")
    ]
    ended = _EXCEPTION.search(traceback, frames[-1].end()) if frames else None
    if ended is None or not own or not _is_mistake(ended["name"], ended["message"] or "", modules):
        return
    name, line = own[-1]
    yield Finding(name, line, "", f"it ends at once when it is started: {ended[0]}")


def _is_mistake(exception: str, message: str, modules: Collection[str]) -> bool:
    if exception == "ImportError":
        missing = _FROM.match(message)
        return missing is not None and missing["module"] in modules
    return exception in _MISTAKES and not _EXCUSED.search(message)
