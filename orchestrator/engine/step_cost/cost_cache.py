"""Keep what was measured of models in a folder, under what it depends on, so that each is measured once on a machine:
its cost models, and the kind of attention that takes less time.

A cache: whatever cannot be read is as good as absent.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

import msgspec

from orchestrator.engine.step_cost.model import Points, StepCostModel

SCHEMA = 4
_HEADER = 1 << 20

Attention = Literal["on", "off"]
"""Whether attention is computed as flash attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What a measurement depends on. The file is known by size, time of change and the SHA-256 of its first MiB;
    `settings` names whatever else changes the speed (KV types, flash attention, experts, batch_invariant)."""

    file_bytes: int
    file_mtime_ns: int
    file_sha256: str
    llama_cpp: str
    threads: int
    cpu: str
    settings: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32] + ".json"


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    many: Points
    one: Points
    prefill: float
    per_cell: float


class _StoredAttention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    attention: Attention


_Form = TypeVar("_Form", _Stored, _StoredAttention)


def cache_key(file: Path, *, llama_cpp: str, threads: int, cpu: str, settings: str) -> CacheKey:
    """Return the key for a model file. Raises OSError where it cannot be read."""
    with file.open("rb") as source:
        header = source.read(_HEADER)
    status = file.stat()
    return CacheKey(
        file_bytes=status.st_size,
        file_mtime_ns=status.st_mtime_ns,
        file_sha256=hashlib.sha256(header).hexdigest(),
        llama_cpp=llama_cpp,
        threads=threads,
        cpu=cpu,
        settings=settings,
    )


def load(folder: Path, key: CacheKey) -> StepCostModel | None:
    """Return the cost model stored for this very key, or None: there is none, it is damaged, or of another schema."""
    try:
        stored = _read(folder, key, _Stored)
        return None if stored is None else StepCostModel(stored.many, stored.one, stored.prefill, stored.per_cell)
    except ValueError:
        return None


def store(folder: Path, key: CacheKey, costs: StepCostModel) -> None:
    """Put a cost model in the place of what was stored for this key, whole or not at all. Raises OSError."""
    _write(folder, _Stored(SCHEMA, key, costs.many, costs.one, costs.prefill, costs.per_cell))


def load_attention(folder: Path, key: CacheKey) -> Attention | None:
    """Return the attention stored for this very key, or None, as `load` does."""
    stored = _read(folder, key, _StoredAttention)
    return None if stored is None else stored.attention


def store_attention(folder: Path, key: CacheKey, attention: Attention) -> None:
    """Put a choice in the place of what was stored for this key, as `store` does. Raises OSError."""
    _write(folder, _StoredAttention(SCHEMA, key, attention))


def _read(folder: Path, key: CacheKey, form: type[_Form]) -> _Form | None:
    try:
        stored = msgspec.json.decode((folder / key.name).read_bytes(), type=form)
    except (OSError, ValueError, msgspec.DecodeError):
        return None
    return stored if stored.schema == SCHEMA and stored.key == key else None


def _write(folder: Path, form: _Stored | _StoredAttention) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{form.key.name}.{uuid4().hex}"
    try:
        unfinished.write_bytes(msgspec.json.encode(form))
        unfinished.replace(folder / form.key.name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
