"""Give the engine of procedures what it acts on in this installation, and say who calls."""

import asyncio
import getpass
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.errors import OrchestratorError
from orchestrator.runs.sandboxes import SandboxOnDemand
from orchestrator.sandbox import SandboxJob, SandboxLimits
from orchestrator.service.configuration import Configuration, configuration_path, procedures_folder
from orchestrator.service.memory_operations import MemoryOperations
from orchestrator.service.operations import Installation, Operations
from orchestrator.service.run_operations import RunOperations
from orchestrator.service.tuning import TuningOperations
from procedures.engine import Engine
from procedures.errors import StepFailed
from procedures.library import SHIPPED, Library
from procedures.ports import MAX_OUTPUT, Caller, Ended, Ports, Program, Work

SHELL_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""What a program outside the sandbox gets of the environment."""


def procedures_engine(
    installation: Installation, configuration: Configuration, environ: Mapping[str, str] = os.environ
) -> Engine:
    """Return the engine of procedures of an installation. It has to be closed."""
    folder = procedures_folder(configuration.procedures, environ)
    ports = Ports(
        registry=installation.registry.absolute(),
        places={
            "home": str(installation.home),
            "registry": str(installation.registry.absolute()),
            "models": str(installation.models),
            "configuration": str(configuration_path(environ)),
        },
        operations={
            **Operations(installation).by_name(),
            **RunOperations(installation).by_name(),
            **MemoryOperations(installation, environ).by_name(),
            **TuningOperations(installation).by_name(),
        },
        run_program=Programs(configuration.procedures.commands).run,
    )
    return Engine(installation.home, ports, Library((folder, SHIPPED)))


def owner() -> Caller:
    """Return the user of this process as a caller: a person, whom the state folder belongs to."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "user"
    return Caller(f"{name} (user {os.getuid()})", frozenset({"owner", "operator"}), person=True)


class Programs:
    """Runs the programs of steps: in the sandbox, or outside of it those that the configuration names."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = frozenset(allowed)

    def run(self, program: Program, work: Work) -> Ended:
        """Run a program to its end. Raises StepFailed if it cannot be run, or when its time is over."""
        return _in_sandbox(program, work) if program.sandbox else self._outside(program, work)

    def _outside(self, program: Program, work: Work) -> Ended:
        if program.command[0] not in self._allowed:
            accepted = ", ".join(sorted(self._allowed)) or "none, since [procedures] commands names none"
            raise StepFailed(f"{program.command[0]} may not be run outside the sandbox; accepted: {accepted}")
        kept = {name: os.environ[name] for name in SHELL_VARIABLES if name in os.environ}
        try:
            process = subprocess.Popen(  # noqa: S603 - the configuration allows it, and no shell reads the arguments
                program.command,
                cwd=program.folder,
                env=kept,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(f"{program.command[0]}: {error.strerror}") from error
        with process:
            try:
                out, told = process.communicate(program.stdin.encode(), timeout=work.seconds_left)
            except subprocess.TimeoutExpired as error:
                raise StepFailed(f"{program.command[0]} was ended: its time is over") from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        code = process.returncode
        return Ended(exit_code=code if code >= 0 else 128 - code, stdout=_text(out), stderr=_text(told))


def _in_sandbox(program: Program, work: Work) -> Ended:
    try:
        files = {name: path.read_bytes() for name, path in program.files.items()}
    except OSError as error:
        raise StepFailed(f"{error.filename}: {error.strerror}") from error
    limits = SandboxLimits(wall=work.seconds_left, output=MAX_OUTPUT)
    job = SandboxJob(argv=program.command, files=files, stdin=program.stdin.encode(), limits=limits)

    async def run() -> Ended:
        outcome = await (await SandboxOnDemand()()).run(job)
        if outcome.limit is not None:
            raise StepFailed(f"{program.command[0]} was ended by its limit of {outcome.limit}")
        code = 128 + (outcome.signal or 0) if outcome.exit_code is None else outcome.exit_code
        return Ended(exit_code=code, stdout=_text(outcome.stdout), stderr=_text(outcome.stderr))

    try:
        return asyncio.run(run())
    except OrchestratorError as error:
        raise StepFailed(str(error)) from error


def _text(data: bytes) -> str:
    return data[:MAX_OUTPUT].decode("utf-8", "replace")
