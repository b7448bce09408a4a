"""Propose a registry entry for a model from the header of its file. Pure."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.registry.checks import (
    BASE_MODEL,
    NO_BASE_MODEL,
    is_base,
    why_no_draft,
    why_no_drafts,
    why_no_prompt,
    why_no_text,
    why_not_drafted,
)
from orchestrator.registry.fit import SMALLEST, WORTH_HAVING, Fit, Room, fit
from orchestrator.registry.forms import EMBEDDER, RERANKER
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.memory import size
from orchestrator.registry.models import Registry
from orchestrator.registry.options import MAX_ROLLBACK, SpeculationOptions

ID_LENGTH: Final = 64
NAME_LENGTH: Final = 120
LARGEST_DRAFT: Final = 2 * 10**9
SMALLER: Final = 4  # a draft model must be this many times smaller than its target, to be cheap next to verification
# Stated in a proposed entry even if they are the defaults.
WRITTEN: Final = (
    "context",
    "slots",
    "kv_type_k",
    "kv_type_v",
    "flash_attention",
    "speculation",
    "prompt_lookup",
    "mtp",
)
DRAFT: Final = "draft"
LARGE: Final = 20 * 10**9  # from this many weights on, a model suits the role to which others escalate
_WORDS: Final = {
    EMBEDDER: frozenset({"embed", "embedding", "embeddings", "bge", "gte", "e5"}),
    DRAFT: frozenset({"draft", "drafter"}),
    "coder": frozenset(
        {"code", "coder", "codellama", "codeqwen", "starcoder", "starcoder2", "codestral", "codegemma", "devstral"}
    ),
    "judge": frozenset({"judge", "prometheus"}),
}
_PIECE: Final = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Suits:
    """The role that a model suits, or None, and why."""

    role: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed entry for `models:` in the registry's file, with the reasons."""

    id: str
    entry: Mapping[str, object]  # as in YAML
    suits: Suits
    why_no_text: str | None  # None if it generates text
    why_no_prompt: str | None  # why its chat template is unusable; None if it is not
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
    roles: Sequence[str] = (),
) -> Proposal:
    """Propose an entry for the model in `file`, which gets the `roles`; its id is `name`, or made from `file`."""
    suited = suits(header, file.stem, drafts_for=_drafts_for(header, registry))
    embeds = not {EMBEDDER, RERANKER}.isdisjoint(roles or (suited.role,))
    draft = None if embeds else find_draft(header, registry, roles)
    fitted = fit(
        header,
        room,
        None if draft is None else registry.models[registry.roles[draft].model].header,
        batch_invariant=registry.defaults.batch_invariant,
        embeds=embeds,
    )
    no_drafts = "it is to embed or to rank, so it generates no text" if embeds else why_not_drafted(header)
    if no_drafts is None and not fitted.drafts:
        no_drafts = (
            f"{header.architecture} has recurrent layers, whose states take {1 + MAX_ROLLBACK} times the memory then: "
            "too much next to its weights, or of the memory there is"
        )
    draft = draft if fitted.drafts else None
    options = replace(fitted.options, speculation=None if draft is None else SpeculationOptions(draft))
    written = asdict(options)
    if fitted.context < SMALLEST:
        del written["context"]
    entry: dict[str, object] = {"file": file_name(file, registry.path), "description": describe(header)}
    entry |= {name: written[name] for name in WRITTEN if written.get(name) is not None}
    return Proposal(
        id=name or id_from(file),
        entry=entry,
        suits=suited,
        why_no_text=why_no_text(header),
        why_no_prompt=why_no_prompt(header),
        fit=fitted,
        room=room,
        notes=(
            _memory(header, fitted, room, draft),
            *_acceleration(header, draft, no_drafts, mtp=options.mtp is not None),
        ),
        warnings=tuple(_warnings(header, file, fitted, room, registry)),
    )


def suits(header: GgufHeader, stem: str, *, drafts_for: str | None) -> Suits:
    """Guess the role of a model whose file is named `stem`; `drafts_for` is a larger one with the same vocabulary."""
    words = frozenset(re.findall(r"[a-z]+\d*", f"{stem} {header.name}".lower()))
    named = next((role for role, keywords in _WORDS.items() if words & keywords), None)
    if header.pooling == "rank":
        return Suits(RERANKER, "it ranks texts")
    if (reason := why_no_text(header)) is not None:
        embeds = header.pooling is not None or named == EMBEDDER or "bert" in header.architecture
        return Suits(EMBEDDER if embeds else None, reason)
    if named == EMBEDDER:
        return Suits(EMBEDDER, "its name says that it embeds")
    if drafts_for is not None and named in (None, DRAFT):
        return Suits(DRAFT, f"it is much smaller than {drafts_for} and has the same vocabulary")
    if is_base(header):
        return Suits(None, BASE_MODEL)
    if named is not None and named != DRAFT:
        return Suits(named, "its name says so")
    if header.parameters >= LARGE:
        return Suits("architect", f"it is large: {header.parameters / 1e9:.0f} B weights")
    return Suits("worker", "it is a general model of no great size")


def id_from(file: Path) -> str:
    """Make a model's id from the name of its file, without the number of a piece."""
    words = re.sub(r"[^a-z0-9_.-]+", "-", _PIECE.sub("", file.stem).lower())
    return words.strip("-._")[:ID_LENGTH].rstrip("-._") or "model"


def file_name(file: Path, registry: Path) -> str:
    """Return a file's name for a registry: relative if the file is in or below its folder, else absolute."""
    full, folder = full_path(file), full_path(registry).parent
    if full.is_relative_to(folder):
        name = full.relative_to(folder).as_posix()
        return f"./{name}" if name.startswith("~") else name
    return str(full)


def full_path(file: Path) -> Path:
    """Return an absolute, normalised path, as in the entries of a loaded registry."""
    return Path(os.path.normpath(file.absolute()))


def find_draft(header: GgufHeader, registry: Registry, own: Sequence[str] = ()) -> str | None:
    """Return the role whose model drafts best for a model, or None: tier D first, then smaller models.

    `own` are the roles for the model itself.
    """
    if why_not_drafted(header) is not None:
        return None
    able = [
        (role.tier != "D", small.parameters, role.name)
        for role in registry.roles.values()
        if role.name not in own
        and (small := registry.models[role.model].header) is not None
        and can_draft(header, small)
    ]
    return min(able)[2] if able else None


def can_draft(target: GgufHeader, draft: GgufHeader) -> bool:
    """Return whether a model has the vocabulary of a target and is much smaller."""
    return draft.parameters * SMALLER <= target.parameters and why_no_draft(target, draft) is None


def _drafts_for(header: GgufHeader, registry: Registry) -> str | None:
    # The largest model that this one could draft for.
    if header.parameters > LARGEST_DRAFT:
        return None
    able = [
        (model.header.parameters, model.id)
        for model in registry.models.values()
        if model.header is not None and can_draft(model.header, header)
    ]
    return max(able)[1] if able else None


def describe(header: GgufHeader) -> str:
    """Return what a model is, in a few words."""
    name = " ".join(header.name.split())[:NAME_LENGTH]
    return f"{name} ({header.architecture} {header.file_type}, {count(header.parameters)} weights)"


def count(number: int) -> str:
    """Format a number of weights for people, such as `512 K`, `2.3 M` or `7.1 B`."""
    for unit, letter in ((10**9, "B"), (10**6, "M")):
        if number >= unit:
            return f"{number / unit:.1f} {letter}"
    return f"{number / 1000:.0f} K"


def _memory(header: GgufHeader, fitted: Fit, room: Room, draft: str | None) -> str:
    made_for = f"the model was made for {header.context_length:,}"
    with_draft = "" if draft is None else f", the model of role {draft} with them,"
    return (
        f"memory: {fitted.options.slots} x {fitted.context:,} tokens ({made_for}){with_draft} take {fitted.memory} = "
        f"{size(fitted.memory.total)}, of {room}"
    )


def _acceleration(header: GgufHeader, draft: str | None, no_drafts: str | None, *, mtp: bool) -> Iterator[str]:
    if no_drafts is not None:
        left_out = "left out" if why_no_drafts(header) is None else "impossible"
        yield f"speculation and prompt_lookup are {left_out}: {no_drafts}"
        return
    if mtp:
        yield "mtp: the model has an MTP head, which drafts tokens"
    without = f"no role has a model of the same vocabulary, {SMALLER} times smaller"
    yield f"speculation: {f'role {draft} has a small model of the same vocabulary' if draft else without}"
    if header.experts:
        used = f"{header.experts_used} of {header.experts} experts"
        yield f"experts: {used} are used a token; fewer are quicker and worse"


def _warnings(header: GgufHeader, file: Path, fitted: Fit, room: Room, registry: Registry) -> Iterator[str]:
    if fitted.short:
        yield (
            f"it does not fit: {size(fitted.memory.total)} with one slot of {fitted.context:,} tokens, "
            f"{size(fitted.short)} more than the {room} there are"
        )
    if is_base(header):
        yield f"{BASE_MODEL}: roles and turns are written in plain words; better is {NO_BASE_MODEL}"
    if fitted.context < min(header.context_length, WORTH_HAVING) and not fitted.short:
        yield f"memory allows only {fitted.context:,} tokens of context"
    same = [model.id for model in registry.models.values() if model.file == full_path(file)]
    if same:
        yield f"the registry has this file already, as {', '.join(same)}"
