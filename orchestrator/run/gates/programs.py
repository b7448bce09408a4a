"""Send the programs of `inside` into the sandbox as text, so that they import nothing of ours there."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "inside"
_PACKAGE = "orchestrator.run.gates.inside"
BOOT = (_FOLDER / "boot.py").read_text(encoding="utf-8")
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py"))}

# Starts a program that it reads from stdin.
COMMAND = ("python", "-I", "-c", BOOT)


def program(names: Sequence[str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program: modules in import order, the last of which has `main`, and the spec that `main` gets."""
    return {
        "modules": {f"{_PACKAGE}.{name}": _TEXTS[name] for name in names},
        "main": f"{_PACKAGE}.{names[-1]}",
        "spec": spec,
    }


def document(names: Sequence[str], spec: Mapping[str, Any]) -> bytes:
    return json.dumps(program(names, spec)).encode()
