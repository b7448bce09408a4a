"""Propose the registry's entry for a model from its file's header. Pure."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from registry import architectures
from registry.checks import why_no_draft, why_no_text
from registry.fit import SMALLEST, WORTH_HAVING, Fit, Room, fit
from registry.forms import EMBEDDER
from registry.gguf import GgufHeader
from registry.memory import size
from registry.models import Registry
from registry.options import PromptLookupOptions, SpeculationOptions
from registry.suits import Suits, suits

ID_LENGTH: Final = 64
NAME_LENGTH: Final = 120
LARGEST_DRAFT: Final = 2 * 10**9
SMALLER: Final = 4
"""How many times smaller a draft is: guessing has to cost little beside checking."""
WRITTEN: Final = (
    "context",
    "slots",
    "kv_type_k",
    "kv_type_v",
    "flash_attention",
    "speculation",
    "prompt_lookup",
)
"""The options that a proposed entry states, also where they are as they would be by default."""
_PIECE: Final = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An entry for `models:`, as YAML would have it, with the reasons. `warnings` are about what will not go well.

    `speechless` says why the model cannot write text, None if it can.
    """

    id: str
    entry: Mapping[str, object]
    suits: Suits
    speechless: str | None
    fit: Fit
    room: Room
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def propose(
    header: GgufHeader,
    file: Path,
    registry: Registry,
    room: Room,
    *,
    name: str | None = None,
    role: str | None = None,
) -> Proposal:
    """Propose an entry for the model in `file`, which is to have `role`. Its id is `name`, or made from the file's."""
    suited = suits(header, file.stem, drafts_for=_drafts_for(header, registry))
    embeds = (role or suited.role) == EMBEDDER
    draft = None if embeds else find_draft(header, registry, role)
    chosen = fit(
        header,
        room,
        None if draft is None else registry.models[registry.roles[draft].model].header,
        batch_invariant=registry.defaults.batch_invariant,
        embeds=embeds,
    )
    impossible = "it is to embed, and writes nothing" if embeds else why_not_drafted(header)
    options = replace(
        chosen.options,
        speculation=None if draft is None else SpeculationOptions(draft),
        prompt_lookup=PromptLookupOptions() if impossible is None else None,
    )
    written = asdict(options)
    if chosen.context < SMALLEST:
        del written["context"]
    entry: dict[str, object] = {"file": file_name(file, registry.path), "description": _description(header)}
    entry |= {name: written[name] for name in WRITTEN if written.get(name) is not None}
    return Proposal(
        id=name or id_from(file),
        entry=entry,
        suits=suited,
        speechless=why_no_text(header),
        fit=chosen,
        room=room,
        notes=(_memory(header, chosen, room, draft), *_acceleration(header, draft, impossible)),
        warnings=tuple(_warnings(header, file, chosen, room, registry)),
    )


def id_from(file: Path) -> str:
    """Make a model's id from the name of its file, without the number of a piece."""
    words = re.sub(r"[^a-z0-9_.-]+", "-", _PIECE.sub("", file.stem).lower())
    return words.strip("-._")[:ID_LENGTH].rstrip("-._") or "model"


def file_name(file: Path, registry: Path) -> str:
    """Return how a registry names a file: relative to itself if the file lies beside or below it, else in full."""
    full, folder = full_path(file), full_path(registry).parent
    if full.is_relative_to(folder):
        name = full.relative_to(folder).as_posix()
        return f"./{name}" if name.startswith("~") else name
    return str(full)


def full_path(file: Path) -> Path:
    """Return a path as the registry's entries have theirs."""
    return Path(os.path.normpath(file.absolute()))


def find_draft(header: GgufHeader, registry: Registry, own: str | None = None) -> str | None:
    """Return the role whose model can best draft for a model: of tier D before others, the smallest first.

    None if there is none, or the model cannot be drafted for. The role `own` will be the model's, which cannot draft
    for itself.
    """
    if why_not_drafted(header) is not None:
        return None
    able = [
        (role.tier != "D", small.parameters, role.name)
        for role in registry.roles.values()
        if role.name != own
        and (small := registry.models[role.model].header) is not None
        and small.parameters * SMALLER <= header.parameters
        and why_no_draft(header, small) is None
    ]
    return min(able)[2] if able else None


def why_not_drafted(header: GgufHeader) -> str | None:
    """Return why no tokens can be drafted for a model, by whatever way, or None if they can."""
    return why_no_text(header) or architectures.why_no_rollback(header.architecture)


def _drafts_for(header: GgufHeader, registry: Registry) -> str | None:
    """Return the largest model of the registry that this one could draft for."""
    if header.parameters > LARGEST_DRAFT:
        return None
    able = [
        (model.header.parameters, model.id)
        for model in registry.models.values()
        if model.header is not None
        and header.parameters * SMALLER <= model.header.parameters
        and why_no_draft(model.header, header) is None
    ]
    return max(able)[1] if able else None


def _description(header: GgufHeader) -> str:
    name = " ".join(header.name.split())[:NAME_LENGTH]
    return f"{name} ({header.architecture} {header.file_type}, {count(header.parameters)} weights)"


def count(number: int) -> str:
    """Write a number of weights as people read it: `512 K`, `2.3 M`, `7.1 B`."""
    for unit, letter in ((10**9, "B"), (10**6, "M")):
        if number >= unit:
            return f"{number / unit:.1f} {letter}"
    return f"{number / 1000:.0f} K"


def _memory(header: GgufHeader, chosen: Fit, room: Room, draft: str | None) -> str:
    made_for = f"the model was made for {header.context_length:,}"
    with_draft = "" if draft is None else f", the model of role {draft} with them,"
    return (
        f"memory: {chosen.options.slots} x {chosen.context:,} tokens ({made_for}){with_draft} take {chosen.memory} = "
        f"{size(chosen.memory.total)}, of {room}"
    )


def _acceleration(header: GgufHeader, draft: str | None, impossible: str | None) -> Iterator[str]:
    if impossible is not None:
        yield f"speculation and prompt_lookup are impossible: {impossible}"
        return
    without = f"no role has a model of the same vocabulary, {SMALLER} times smaller"
    yield f"speculation: {f'role {draft} has a small model of the same vocabulary' if draft else without}"
    if header.experts:
        used = f"{header.experts_used} of {header.experts} experts"
        yield f"experts: {used} are used a token; fewer are quicker and worse"


def _warnings(header: GgufHeader, file: Path, chosen: Fit, room: Room, registry: Registry) -> Iterator[str]:
    if chosen.short:
        yield (
            f"it does not fit: {size(chosen.memory.total)} with one slot of {chosen.context:,} tokens, "
            f"{size(chosen.short)} more than the {room} there are"
        )
    if header.chat_template is None and why_no_text(header) is None:
        yield "it has no chat template: roles and turns are written out in plain words, which it may not understand"
    if chosen.context < min(header.context_length, WORTH_HAVING) and not chosen.short:
        yield f"memory allows only {chosen.context:,} tokens of context"
    same = [model.id for model in registry.models.values() if model.file == full_path(file)]
    if same:
        yield f"the registry has this file already, as {', '.join(same)}"
