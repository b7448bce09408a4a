"""Resolve the secrets among the inputs of a procedure, and keep them out of everything that is written down."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from procedures.errors import StepFailed
from procedures.forms import Procedure

MASK: Final = "(secret)"
SHORTEST: Final = 4
"""Shorter secrets are not looked for in texts, in which they would be found everywhere."""


class Secrets:
    """The secrets of one execution. Inputs give only where each is: `env:NAME` or `file:PATH`."""

    def __init__(self, procedure: Procedure, inputs: Mapping[str, Any]) -> None:
        self._inputs = dict(inputs)
        self._names = [
            name for name, entry in procedure.form.inputs.items() if entry.type == "secret" and inputs.get(name)
        ]
        self._values: list[str] = []

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._names)

    def resolved(self) -> dict[str, Any]:
        """Return all inputs, with secrets in place of their references. Raises StepFailed for one that is not there."""
        values = {name: _secret(name, str(self._inputs[name])) for name in self._names}
        self._values = sorted(filter(None, values.values()), key=len, reverse=True)
        return {**self._inputs, **values}

    def masked(self, value: Any) -> Any:
        """Return a value as JSON has it without any of the secrets that were resolved."""
        if isinstance(value, str):
            for secret in self._values:
                if len(secret) >= SHORTEST:
                    value = value.replace(secret, MASK)
            return value
        if isinstance(value, Mapping):
            return {key: self.masked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(item) for item in value]
        return value


def _secret(name: str, reference: str) -> str:
    kind, _, where = reference.partition(":")
    if kind == "env":
        if (found := os.environ.get(where)) is None:
            raise StepFailed(f"the secret {name} is to be in the environment variable {where}, which is not set")
        return found
    try:
        return Path(where).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailed(f"the secret {name} cannot be read from {where}: {reason}") from error
