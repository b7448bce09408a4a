"""Find the build of llama.cpp that an engine loads: the one that the registry names, or a default.

Nothing is loaded here, so that the daemon and its commands can check a library that would end their process.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "ORCHESTRATOR_LLAMA_LIBRARY"  # names the default, in place of the installed one
_FILE: Final = "libllama.so"
_SELF: Final = Path("/proc/self/exe")
_ELF: Final = b"\x7fELF"


def library_file(name: str | Path) -> Path:
    """Return the file of a library that is named by its file or by its folder."""
    path = Path(name)
    return path / _FILE if path.is_dir() else path


def installed_library() -> Path | None:
    """Return the library in the package llama-cpp-python, or None without the package. The package is not imported."""
    package = find_spec("llama_cpp")
    return None if package is None or package.origin is None else Path(package.origin).parent / "lib" / _FILE


def default_library(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the library for models that name none: the environment's, else the installed one; None without any."""
    named = environment.get(ENVIRONMENT)
    return library_file(named).absolute() if named else installed_library()


def why_no_library(file: Path) -> str | None:
    """Return why a file is no library that a process here can load, or None if it seems to be one."""
    try:
        with file.open("rb") as opened, _SELF.open("rb") as own:
            header, ours = opened.read(20), own.read(20)
    except FileNotFoundError:
        return "there is no such file"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if header[:4] != _ELF:
        return "it is no shared library"
    # Class, byte order and machine, as the ELF specification places them.
    if header[4:6] != ours[4:6] or header[18:20] != ours[18:20]:
        return "it was built for another kind of machine"
    return None
