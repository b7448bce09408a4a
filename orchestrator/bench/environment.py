"""What a measurement was made on."""

import platform
from importlib.metadata import version
from typing import Any

from orchestrator.engine.processor import cpu_model, usable_cpus


def machine() -> dict[str, Any]:
    """Return the processor of this machine, and how many of its logical cores this process may use."""
    return {"processor": cpu_model(), "cores": usable_cpus()}


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
