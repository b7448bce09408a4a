"""Keep what was measured of models in a folder, so that each model is measured once on a machine.

Stored are step costs and the kind of attention that takes less time, each under a key of everything that it depends on.
The folder is a cache: a file that cannot be read counts as absent.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

import msgspec

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost.model import Points, StepCostModel

SCHEMA = 4
_HASHED_BYTES = 1 << 20

Attention = Literal["on", "off"]
"""Whether flash attention is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What a measurement depends on. The model file is identified by its size, its time of change and a hash."""

    file_bytes: int
    file_mtime_ns: int
    file_sha256: str
    """The SHA-256 of its first MiB."""
    llama_cpp: str
    """The version of llama.cpp."""
    threads: int
    cpu: str
    """The processor, as `processor.cpu_model` returns it."""
    settings: str
    """Whatever else changes the speed: KV types, flash attention, experts, batch_invariant."""

    @property
    def name(self) -> str:
        """The name of the file that is stored under this key."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32] + ".json"


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    many: Points
    """What `StepCostModel.decode` is called in files."""
    one: Points
    """What `StepCostModel.verify` is called in files."""
    prefill: float
    per_cell: float


class _StoredAttention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    attention: Attention


_Form = TypeVar("_Form", _Stored, _StoredAttention)


def cache_key(file: Path, *, llama_cpp: str, threads: int, cpu: str, settings: str) -> CacheKey:
    """Return the key for a model file. Raises OSError if the file cannot be read."""
    with file.open("rb") as source:
        header = source.read(_HASHED_BYTES)
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


def key_of(spec: EngineSpec, llama_cpp: str, threads: int, *settings: object) -> CacheKey | None:
    """Return the key for a model that is loaded as `spec` says on this machine, or None if its file cannot be read.

    `settings` are what the measurement depends on besides the KV types.
    """
    try:
        return cache_key(
            Path(spec.file),
            llama_cpp=llama_cpp,
            threads=threads,
            cpu=cpu_model(),
            settings="/".join(map(str, (spec.kv_type_k, spec.kv_type_v, *settings))),
        )
    except OSError:
        return None


def load(folder: Path, key: CacheKey) -> StepCostModel | None:
    """Return the step costs stored under exactly this key, or None if there are none that can be read."""
    try:
        stored = _read(folder, key, _Stored)
        return None if stored is None else StepCostModel(stored.many, stored.one, stored.prefill, stored.per_cell)
    except ValueError:
        return None


def store(folder: Path, key: CacheKey, costs: StepCostModel) -> None:
    """Replace the step costs stored under this key, completely or not at all. Raises OSError."""
    _write(folder, _Stored(SCHEMA, key, costs.decode, costs.verify, costs.prefill, costs.per_cell))


def load_attention(folder: Path, key: CacheKey) -> Attention | None:
    """Return the kind of attention stored under exactly this key, or None if there is none that can be read."""
    stored = _read(folder, key, _StoredAttention)
    return None if stored is None else stored.attention


def store_attention(folder: Path, key: CacheKey, attention: Attention) -> None:
    """Replace the kind of attention stored under this key, completely or not at all. Raises OSError."""
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
