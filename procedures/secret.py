"""Resolve the secret inputs of a procedure, and mask them in everything that is logged."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.expressions import with_texts
from orchestrator.procedures.forms import Procedure

MASK: Final = "(secret)"
SHORTEST: Final = 4  # shorter secrets are not masked: they would match everywhere


class Secrets:
    """The secrets of one execution. Inputs have only references: `env:NAME` or `file:PATH`."""

    def __init__(self, procedure: Procedure, inputs: Mapping[str, Any]) -> None:
        self._inputs = dict(inputs)
        self._names = [
            name for name, entry in procedure.form.inputs.items() if entry.type == "secret" and inputs.get(name)
        ]
        self._values: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._names)

    def resolved(self) -> dict[str, Any]:
        """Return all inputs with resolved secrets. Raises StepFailed if one is missing."""
        values = {name: _secret(name, str(self._inputs[name])) for name in self._names}
        self._values = sorted(filter(None, values.values()), key=len, reverse=True)
        return {**self._inputs, **values}

    def masked(self, value: Any) -> Any:
        """Return a JSON value without the resolved secrets."""
        return with_texts(value, self._masked_text)

    def _masked_text(self, text: str) -> str:
        for secret in self._values:
            if len(secret) >= SHORTEST:
                text = text.replace(secret, MASK)
        return text


def _secret(name: str, reference: str) -> str:
    kind, _, where = reference.partition(":")
    if kind == "env":
        if (value := os.environ.get(where)) is None:
            raise StepFailed(f"the secret {name} is to be in the environment variable {where}, which is not set")
        return value
    try:
        return Path(where).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailed(f"the secret {name} cannot be read from {where}: {reason}") from error
