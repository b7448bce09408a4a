"""Give the frontdoor an adapter in the registry's file, and take it back.

What the entry had before is in `promotions.json` of the trainings' folder, the newest promotion last.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import InputError, Problem
from orchestrator.registry.edit import change_role, replace_registry
from orchestrator.registry.options import Adapters, Lora
from orchestrator.registry.strict_yaml import parse_text, read_file
from orchestrator.run.frontdoor.planner import FRONTDOOR

PROMOTIONS: Final = "promotions.json"
ADAPTERS: Final = "adapters"
KEYS: Final = ("lora", "plans_by_cores")

Values = Mapping[str, Any]
"""Values of keys of the frontdoor's entry; None for a key that it does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    registry: str  # its file
    before: Values
    after: Values


def values_with(present: Adapters, adapter: Path, scale: float = 1.0) -> Values:
    """Return what the frontdoor's entry has with an adapter that was trained in addition to the present ones."""
    adapters = (*present, Lora(file=str(adapter), scale=scale))
    lora = [{"file": each.file, **({} if each.scale == 1.0 else {"scale": each.scale})} for each in adapters]
    return {"lora": lora, "plans_by_cores": True}


def keep_adapter(folder: Path, adapter: Path) -> Path:
    """Copy an adapter to where a registry may name it, and return that file. Its name says its content."""
    digest = hashlib.sha256(adapter.read_bytes()).hexdigest()
    copy = folder / ADAPTERS / f"frontdoor-{digest[:12]}.gguf"
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.exists():
        unfinished = copy.with_suffix(".part")
        shutil.copyfile(adapter, unfinished)
        os.replace(unfinished, copy)
    return copy


def promote(registry: Path, folder: Path, values: Values) -> Promotion:
    """Give the frontdoor what `values_with` has returned for an adapter. Raises RegistryError."""
    content = read_file(registry)
    promotion = Promotion(registry=str(registry), before=_values(content, registry), after=values)
    changed = change_role(content, registry, FRONTDOOR, promotion.after)
    # first, so that a kill between the two leaves nothing that cannot be undone
    _write(folder, [*promotions(folder), promotion])
    replace_registry(registry, content, changed)
    return promotion


def undo(registry: Path, folder: Path) -> Promotion:
    """Take the last promotion in this registry back, and return it. Raises InputError and RegistryError."""
    content, every = read_file(registry), promotions(folder)
    present = _values(content, registry)
    own = [at for at, promotion in enumerate(every) if promotion.registry == str(registry)]
    while own and every[own[-1]].after != present and every[own[-1]].before == present:
        del every[own.pop()]  # it was never written to the registry
    if not own:
        raise InputError(Problem("frontdoor undo", "nothing was promoted", "`orchestrator frontdoor train` first"))
    last = every.pop(own[-1])
    if last.after != present:
        problem = f"{registry}: the adapter of the role {FRONTDOOR} was changed since"
        raise InputError(Problem("frontdoor undo", problem, "a change of the file by hand"))
    replace_registry(registry, content, change_role(content, registry, FRONTDOOR, last.before))
    _write(folder, every)
    return last


def promotions(folder: Path) -> list[Promotion]:
    """Return all promotions that can be undone, the newest last."""
    file = folder / PROMOTIONS
    return [Promotion(**row) for row in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def _values(content: bytes, registry: Path) -> dict[str, Any]:
    data: Any = parse_text(content, registry.absolute()).data  # it has loaded as a registry
    entry = data["roles"][FRONTDOOR]
    return {key: entry.get(key) for key in KEYS}


def _write(folder: Path, every: list[Promotion]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{PROMOTIONS}.part"
    unfinished.write_text(json.dumps([asdict(promotion) for promotion in every], indent=1), encoding="utf-8")
    os.replace(unfinished, folder / PROMOTIONS)
