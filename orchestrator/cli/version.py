"""The command that prints version numbers."""

import platform
from importlib.metadata import PackageNotFoundError, version

from orchestrator.cli.settings import JsonFlag
from orchestrator.cli.terminal import print_lines


def show_version(as_json: JsonFlag = False) -> None:
    """Print version numbers."""
    versions = {name: _version(name) for name in ("orchestrator", "llama-cpp-python")}
    versions["python"] = platform.python_version()
    print_lines(versions, (f"{name} {number}" for name, number in versions.items()), as_json=as_json)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
