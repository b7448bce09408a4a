"""Write the results of benchmarks as JSON, with the machine and the versions that they were measured with."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orchestrator.engine.processor import cpu_model

FOLDER = Path(__file__).with_name("results")


def machine() -> dict[str, Any]:
    """Return the processor and the number of logical cores of this machine."""
    return {"processor": cpu_model(), "cores": os.cpu_count()}


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def with_section(text: str, begin: str, end: str, section: str) -> str:
    """Return a text in which `section` stands between the lines `begin` and `end`.

    Raises ValueError for a text that lacks these.
    """
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the text lacks the lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{section}{end}{after}"


def write(file: Path, results: dict[str, Any]) -> None:
    """Write results as JSON. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
