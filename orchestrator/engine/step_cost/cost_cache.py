"""Store measurements of models in a folder: step costs, and those of both kinds of attention.

A key names everything that a measurement depends on. An unreadable file counts as absent.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.processor import cpu_model
from orchestrator.engine.step_cost.attention import MeasuredAttention
from orchestrator.engine.step_cost.model import Points, StepCostModel

SCHEMA = 4
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    file_bytes: int
    file_mtime_ns: int
    file_sha256: str  # of the first MiB only
    llama_cpp: str
    threads: int
    cpu: str  # from `processor.cpu_model`
    settings: str  # everything else that affects speed: KV types, flash attention, experts, batch_invariant

    @property
    def name(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32] + ".json"


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    many: Points  # the stored name of `StepCostModel.decode`
    one: Points  # the stored name of `StepCostModel.verify`
    prefill: float
    per_cell: float


class _StoredAttention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: CacheKey
    measured: MeasuredAttention


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
    """Return the key for a model loaded with `spec`, or None if its file cannot be read.

    `settings` are what the measurement depends on in addition to the KV types.
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
    try:
        stored = _read(folder, key, _Stored)
        return None if stored is None else StepCostModel(stored.many, stored.one, stored.prefill, stored.per_cell)
    except ValueError:
        return None


def store(folder: Path, key: CacheKey, costs: StepCostModel) -> None:
    """Replace the stored step costs atomically. Raises OSError."""
    _write(folder, _Stored(SCHEMA, key, costs.decode, costs.verify, costs.prefill, costs.per_cell))


def load_attention(folder: Path, key: CacheKey) -> MeasuredAttention | None:
    stored = _read(folder, key, _StoredAttention)
    return None if stored is None else stored.measured


def store_attention(folder: Path, key: CacheKey, measured: MeasuredAttention) -> None:
    """Replace what is stored of both kinds of attention atomically. Raises OSError."""
    _write(folder, _StoredAttention(SCHEMA, key, measured))


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
