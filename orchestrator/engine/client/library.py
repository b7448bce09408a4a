"""Ask a process of its own about a build of llama.cpp, which may be for another processor and end that process."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from orchestrator.engine.client.spawn import describe_exit, engine_environment
from orchestrator.engine.errors import EngineError

_SECONDS = 60


class LibraryFailed(EngineError):
    """A build of llama.cpp that engines cannot use. The message says why and what would be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFacts:
    file: str
    build: str  # its version; see `engine.llama.binding.build`
    extensions: tuple[str, ...]  # of processors that it was built for
    lacking: tuple[str, ...]  # what it cannot be used for, each with the functions that it lacks
    files: tuple[str, ...]  # of llama.cpp and ggml that were loaded with it

    @property
    def strangers(self) -> tuple[str, ...]:
        """The files that were loaded from another folder than the library's own."""
        folder = Path(self.file).resolve().parent
        return tuple(file for file in self.files if Path(file).resolve().parent != folder)


def probe_library(name: str | None = None) -> LibraryFacts:
    """Load a library in a process of its own and describe it; without a name the default. Raises LibraryFailed."""
    command = [sys.executable, "-m", "orchestrator.engine.llama.probe", *filter(None, [name])]
    try:
        ended = subprocess.run(  # noqa: S603 (our own interpreter and module)
            command, capture_output=True, timeout=_SECONDS, check=False, env=engine_environment()
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise LibraryFailed(str(error)) from error
    if ended.returncode == 1 and (message := ended.stderr.decode("utf-8", "replace").strip()):
        raise LibraryFailed(message.splitlines()[-1])
    if ended.returncode:
        log = ended.stderr.decode("utf-8", "replace")
        raise LibraryFailed(f"a process that loaded it {describe_exit(ended.returncode, log)}")
    return msgspec.json.decode(ended.stdout, type=LibraryFacts)
