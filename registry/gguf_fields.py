"""Look up the metadata of a GGUF file by key and type.

Most keys belong to the architecture, and are given without its name: `block_count` for `llama.block_count`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf_reader import Array, RawHeader, Scalar

MAX_SIZE: Final = 1 << 31


class Fields:
    """The metadata of one file. Every method raises GgufError for a value of another type or out of bounds."""

    def __init__(self, path: Path, raw: RawHeader) -> None:
        self._path = path
        self._entries = raw.entries  # values of any type
        self.architecture = self.text("general.architecture")

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text of a full key."""
        value = self._entries.get(key, default)
        if isinstance(value, str):
            return value
        raise self.error(f"{key} is missing" if value is None else f"{key} is not a text")

    def named(self, key: str, names: Mapping[int, str]) -> str | None:
        """Return the name of the number of a full key, or None."""
        value = self._entries.get(key)
        return names.get(value) if isinstance(value, int) else None

    def size(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """Return a whole number of the architecture."""
        full = f"{self.architecture}.{key}"
        value = self._entries.get(full, default)
        if value is None:
            raise self.error(f"{full} is missing")
        return self._checked(full, value, most)

    def per_layer(self, key: str, layers: int, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a whole number of the architecture for each layer; the file may state one for all of them."""
        full = f"{self.architecture}.{key}"
        if full not in self._entries:
            return default
        value = self._entries[full]
        if not isinstance(value, Array):
            return (self._checked(full, value, MAX_SIZE),) * layers
        if len(value.numbers) != layers:
            raise self.error(f"{full} has {value.length} items, but the model has {layers} layers")
        return tuple(self._checked(full, number, MAX_SIZE) for number in value.numbers)

    def list_of(self, key: str, least: int) -> tuple[int | float, ...] | None:
        """Return the numbers of an array of the architecture that has `least` items or more, else None."""
        value = self._entries.get(f"{self.architecture}.{key}")
        return value.numbers if isinstance(value, Array) and len(value.numbers) >= least else None

    def vocabulary(self) -> Array:
        """Return the tokens."""
        tokens = self._entries.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Array) or not tokens.length:
            raise self.error("holds no vocabulary (tokenizer.ggml.tokens)")
        return tokens

    def error(self, reason: str) -> GgufError:
        return GgufError(self._path, reason)

    def _checked(self, full: str, value: Scalar | Array, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            shown = f"an array of {value.length}" if isinstance(value, Array) else repr(value)[:80]
            raise self.error(f"{full} is {shown}; accepted: a whole number up to {most:,}")
        return value
