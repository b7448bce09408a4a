"""The command that prints version numbers."""

import platform
from importlib.metadata import PackageNotFoundError, version

from orchestrator.cli.settings import JsonFlag
from orchestrator.cli.terminal import print_json, write


def show_version(as_json: JsonFlag = False) -> None:
    """Print version numbers."""
    versions = {name: _version(name) for name in ("orchestrator", "llama-cpp-python")}
    versions["python"] = platform.python_version()
    if as_json:
        print_json(versions)
        return
    write(lambda: print("\n".join(f"{name} {number}" for name, number in versions.items())))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
