"""Turn every way a command can end into an exit code and a message.

Exit codes: 0 done, 1 failed, 2 bad input, 3 a request needs something that is not here, 130 cancelled.

A message goes to stderr. Under `--json` it is one JSON object on stdout instead: `error`, and `problems` for input.
"""

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from orchestrator.cli.terminal import discard_output, harden_streams, print_json, printable, write
from orchestrator.errors import InputError, OrchestratorError, Problem, RequestIncomplete, leaves
from orchestrator.registry.errors import GgufError, RegistryError

MAX_PROBLEMS = 20


class ExitCode(IntEnum):
    """A usage error counts as bad input. INCOMPLETE: a request needs a file or a tool that is not here."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3
    CANCELLED = 130


STATUS_CODES = {"done": ExitCode.DONE, "failed": ExitCode.FAILED, "cancelled": ExitCode.CANCELLED}


def run_code(status: str, missing: Sequence[str]) -> ExitCode:
    """Return the exit code of a run. `missing` lists what the request needs and does not have."""
    return ExitCode.INCOMPLETE if missing else STATUS_CODES.get(status, ExitCode.FAILED)


class Cancelled(Exception):
    """The user interrupted a command before it had a run to report on."""


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """Why a command did not succeed, as it is printed."""

    code: ExitCode
    message: str
    problems: tuple[Problem, ...] = ()  # printed instead of the message
    defect: bool = False  # of the program, so that a traceback is printed too
    usage: bool = False  # the message is the help of a group of commands


class Boundary(TyperGroup):
    """The outermost command. It turns every error of a command into one message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "orchestrator",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and leave by `SystemExit`, whatever `standalone_mode` says."""
        harden_streams()
        words = list(sys.argv[1:] if args is None else args)
        try:
            result = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
            code = result if isinstance(result, int) else ExitCode.DONE
            write(lambda: None)
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the edge of the program: everything becomes an exit code
            code = _report(next(leaves(error)), as_json=_wants_json(words))
        raise SystemExit(int(code))


def _wants_json(words: Sequence[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _report(error: BaseException, *, as_json: bool) -> int:
    failure = failure_of(error)
    printed = as_json and _print_json(failure)
    discard_output()
    with suppress(OSError):  # stderr cannot be written either
        if failure.defect:
            write(lambda: traceback.print_exception(error))
        if not printed:  # also JSON that stdout could not take
            write(lambda: print("\n".join(_lines(failure)), file=sys.stderr))
    return failure.code


def _print_json(failure: CommandFailure) -> bool:
    message: dict[str, Any] = {"error": failure.message}
    if failure.problems:
        message["problems"] = [asdict(problem) for problem in failure.problems]
    try:
        print_json(message)
    except OSError:
        return False
    return True


def _lines(failure: CommandFailure) -> list[str]:
    lines = [f"error: {problem}" for problem in failure.problems[:MAX_PROBLEMS]] or [f"error: {failure.message}"]
    if len(failure.problems) > MAX_PROBLEMS:
        lines.append(f"and {len(failure.problems) - MAX_PROBLEMS} more problems")
    if failure.code is ExitCode.CANCELLED or failure.usage:
        lines = failure.message.splitlines()
    return [printable(line) for line in lines]


def failure_of(error: BaseException) -> CommandFailure:
    match error:
        case RequestIncomplete():
            return CommandFailure(ExitCode.INCOMPLETE, "; ".join(error.missing), error.problems)
        case InputError():
            return CommandFailure(ExitCode.BAD_INPUT, str(error), error.problems)
        case RegistryError():
            problems = tuple(Problem(item.place, item.what, item.accepted) for item in error.problems)
            return CommandFailure(ExitCode.BAD_INPUT, str(error), problems)
        case typer.TyperException() if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it
            return CommandFailure(ExitCode.BAD_INPUT, error.format_message(), usage=True)
        case typer.TyperException():
            return CommandFailure(ExitCode.BAD_INPUT, error.format_message().replace("Value error, ", ""))
        case KeyboardInterrupt() | Cancelled() | typer.Abort():
            return CommandFailure(ExitCode.CANCELLED, "cancelled")
        case OrchestratorError() | GgufError():
            return CommandFailure(ExitCode.FAILED, str(error))
        case OSError(strerror=str(reason), filename=file):
            return CommandFailure(ExitCode.FAILED, f"{file}: {reason}" if file else reason)
        case _:
            return CommandFailure(ExitCode.FAILED, f"internal error: {type(error).__name__}: {error}", defect=True)
