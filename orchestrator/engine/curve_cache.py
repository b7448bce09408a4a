"""Keep measured curves in a folder, each under what it depends on, so that a model is measured once on a machine.

A cache: whatever cannot be read is as good as absent.
"""

import hashlib
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec

from orchestrator.engine.curve import Curve, Points

SCHEMA = 3
_HEADER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveKey:
    """What a curve depends on. The file is known by size, time of change and the SHA-256 of its first MiB; `settings`
    names whatever else changes the speed (KV types, flash attention, experts, exact)."""

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
    key: CurveKey
    many: Points
    one: Points
    prefill: float
    per_cell: float


def curve_key(file: Path, *, llama_cpp: str, threads: int, cpu: str, settings: str) -> CurveKey:
    """Return the key for a model file. Raises OSError where it cannot be read."""
    with file.open("rb") as source:
        header = source.read(_HEADER)
    status = file.stat()
    return CurveKey(
        file_bytes=status.st_size,
        file_mtime_ns=status.st_mtime_ns,
        file_sha256=hashlib.sha256(header).hexdigest(),
        llama_cpp=llama_cpp,
        threads=threads,
        cpu=cpu,
        settings=settings,
    )


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, or at least its architecture."""
    with suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def load(folder: Path, key: CurveKey) -> Curve | None:
    """Return the curve stored for this very key, or None: there is none, it is damaged, or of another schema."""
    try:
        stored = msgspec.json.decode((folder / key.name).read_bytes(), type=_Stored)
        if stored.schema != SCHEMA or stored.key != key:
            return None
        return Curve(stored.many, stored.one, stored.prefill, stored.per_cell)
    except (OSError, ValueError, msgspec.DecodeError):
        return None


def store(folder: Path, key: CurveKey, curve: Curve) -> None:
    """Put a curve in the place of what was stored for this key, whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    form = _Stored(SCHEMA, key, curve.many, curve.one, curve.prefill, curve.per_cell)
    unfinished = folder / f"{key.name}.{uuid4().hex}"
    try:
        unfinished.write_bytes(msgspec.json.encode(form))
        unfinished.replace(folder / key.name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
