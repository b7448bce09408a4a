"""Send the programs of `inside` into the sandbox, as texts on stdin, so that they import nothing of ours there."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "inside"
_PACKAGE = "orchestrator.run.gates.inside"
BOOT = (_FOLDER / "boot.py").read_text(encoding="utf-8")
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py"))}

COMMAND = ("python", "-I", "-c", BOOT)
"""The command that starts a program, which comes through its stdin."""


def program(names: Sequence[str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program: its modules in the order of imports, the last of which has `main`, and what that is given."""
    return {
        "modules": {f"{_PACKAGE}.{name}": _TEXTS[name] for name in names},
        "main": f"{_PACKAGE}.{names[-1]}",
        "spec": spec,
    }


def document(names: Sequence[str], spec: Mapping[str, Any]) -> bytes:
    """Return a program as `COMMAND` reads it from stdin."""
    return json.dumps(program(names, spec)).encode()
