"""`orchestrator models import`: import the models of llama-swap or llama-server, and report what is left out."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.get import downloads
from orchestrator.cli.models import memory_for_models, registry_to_add_to
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, print_json, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.registry.checks import BASE_MODEL, NO_BASE_MODEL, OTHER_TEMPLATE, is_base, why_no_draft, why_no_prompt
from orchestrator.registry.compose import NothingAnswers, compose, unique
from orchestrator.registry.edit import save_entries
from orchestrator.registry.forms import EMBEDDER, usual_tier
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.llama_server import NotTaken, ServedModel, Servers
from orchestrator.registry.models import Registry
from orchestrator.registry.options import PromptLookupOptions, SpeculationOptions
from orchestrator.registry.propose import DRAFT, file_name, full_path, id_from, why_not_drafted
from orchestrator.registry.server_files import header_of, read_servers, usable_aliases, usable_id
from orchestrator.registry.sources.local import as_candidate, catalogue_entry, find_here
from orchestrator.registry.strict_yaml import write_section

Entry = Mapping[str, object]


@dataclass(slots=True)
class _Imported:
    models: dict[str, Entry] = field(default_factory=dict)
    roles: dict[str, dict[str, object]] = field(default_factory=dict)
    # The files of the models that can be read, and their headers
    headers: dict[str, tuple[Path, GgufHeader]] = field(default_factory=dict)
    not_taken: list[NotTaken] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # about models that are imported


def import_models(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="llama-swap's config.yaml, or a preset file (INI) of llama-server.")
    ],
    save: Annotated[bool, typer.Option("--write", help="Add the entries to the registry.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Take over the models of llama-swap or llama-server.

    Entries of the registry are printed as YAML: files, context (the servers' is for all slots together), slots,
    threads, cache types, draft models, adapters and aliases. What a registry cannot say is named with the reason.
    """
    options = settings(context)
    registry = registry_to_add_to(options, save=save)
    imported = _imported(read_servers(file), registry)
    if not imported.models:
        raise InputError(
            *(Problem(f"{file}: {skipped.where}", skipped.what, skipped.reason) for skipped in imported.not_taken)
            or (Problem(str(file), "names no model that can be taken", "models that llama-server runs"),)
        )
    if not registry.models:
        _give_roles(imported, registry, memory_for_models(options, registry))
    if save:
        save_entries(registry, imported.models, imported.roles)
    if as_json:
        print_json(_as_json(imported, registry, written=save))
        return
    write(lambda: print(printable(_as_yaml(imported, registry, written=save)), end=""))
    lines = "".join(f"not taken: {printable(one_line(str(skipped)))}\n" for skipped in imported.not_taken)
    lines += "".join(f"warning: {printable(one_line(text))}\n" for text in imported.warnings)
    write(lambda: print(lines, end="", file=sys.stderr))


def _imported(servers: Servers, registry: Registry) -> _Imported:
    imported = _Imported(not_taken=servers.not_taken)
    folder = downloads()
    files = [(model, _file(model, model.file, model.hub, folder, imported)) for model in servers.models]
    here = [(model, file) for model, file in files if file is not None and _answers(model, file, imported)]
    used_names = {*registry.models, *registry.roles, *registry.personas}
    ids = unique((usable_id(model.id) for model, _ in here), used_names)
    for id, (model, file) in zip(ids, here, strict=True):
        imported.models[id] = _entry(id, model, file, registry, imported)
    # Only now, since the draft model may be one of the entries above.
    for id, (model, _) in zip(ids, here, strict=True):
        _draft(id, model, folder, registry, imported)
    _idle(servers.models, imported)
    return imported


def _answers(model: ServedModel, file: Path, imported: _Imported) -> bool:
    header = header_of(file)
    # A template that drops words excludes the model. A model without a template is imported with a warning.
    why = None if header is None else why_no_prompt(header)
    if header is not None and is_base(header):
        warning = f"{model.where}: {file}: {BASE_MODEL}; accepted for roles that answer: {NO_BASE_MODEL}"
        imported.warnings.append(warning)
    if why is not None:
        imported.not_taken.append(NotTaken(model.where, str(file), f"{why}; accepted: {OTHER_TEMPLATE}"))
    return why is None


def _file(model: ServedModel, file: Path | None, hub: str | None, folder: Path, imported: _Imported) -> Path | None:
    if file is not None:
        return full_path(file)
    assert hub is not None, "a model that is taken has a file or comes from a hub"
    # Nothing is downloaded: a model of a hub has to be on this machine already.
    path = find_here(hub, folder) or _in_cache(hub)
    if path is None:
        reason = f"it is not here: `orchestrator models get {hub}`, and import once more"
        imported.not_taken.append(NotTaken(model.where, hub, reason))
    return path


def _in_cache(hub: str) -> Path | None:
    cache = Path(os.environ.get("LLAMA_CACHE") or Path.home() / ".cache" / "llama.cpp")
    repo, _, quantisation = hub.removeprefix("hf:").partition(":")
    # llama.cpp names the files of its cache OWNER_REPO_FILE.
    prefix = repo.replace("/", "_")
    paths = sorted(cache.glob(f"{prefix}*.gguf"))
    fitting = [path for path in paths if quantisation.lower() in path.name.removeprefix(prefix).lower()]
    return fitting[0] if fitting else None


def _entry(id: str, model: ServedModel, file: Path, registry: Registry, imported: _Imported) -> dict[str, object]:
    header = header_of(file)
    if header is None:
        imported.not_taken.append(NotTaken(model.where, str(file), "cannot be read, so the model cannot be used yet"))
    else:
        imported.headers[id] = file, header
    options = dict(model.options)
    if header is not None and isinstance(context := options.get("context"), int) and context > header.context_length:
        options["context"] = header.context_length
        reason = f"the model was made for {header.context_length:,}, which is taken instead"
        imported.not_taken.append(NotTaken(model.where, f"{context:,} tokens of context", reason))
    if "cells" in options and isinstance(context := options.get("context"), int):
        if registry.defaults.batch_invariant:
            del options["cells"]
            reason = "the registry's batch_invariant gives every slot cells of its own"
            imported.not_taken.append(NotTaken(model.where, "a cache that the slots share", reason))
        else:
            options["cells"] = max(64, context)
    aliases, refused = usable_aliases(model, id)
    used_names = {name for other_entry in imported.models.values() for name in _aliases_of(other_entry)}
    used_names |= {*registry.models, *registry.roles, *registry.personas, *imported.models}
    used_names |= {name for other_entry in registry.models.values() for name in other_entry.aliases}
    refused += [NotTaken(model.where, f"alias {name}", "the name is taken") for name in aliases if name in used_names]
    imported.not_taken += refused
    entry: dict[str, object] = {"file": file_name(file, registry.path)}
    if "description" in options:
        entry["description"] = options.pop("description")
    if free := [name for name in aliases if name not in used_names]:
        entry["aliases"] = free
    if model.hot:
        entry["residency"] = "hot"
    if model.embeds:
        _embedder(id, model, registry, imported)
    if model.lookup:
        options |= _lookup(model, header, imported)
    return entry | options


def _embedder(id: str, model: ServedModel, registry: Registry, imported: _Imported) -> None:
    # There is only one embedder: vectors of two models are never mixed.
    has = registry.roles[EMBEDDER].model if EMBEDDER in registry.roles else None
    if EMBEDDER in imported.roles:
        has = str(imported.roles[EMBEDDER]["model"])
    if has is None:
        imported.roles[EMBEDDER] = {"model": id, "tier": usual_tier(EMBEDDER)}
    else:
        reason = f"the role {EMBEDDER} has the model {has}, and stays with it"
        imported.not_taken.append(NotTaken(model.where, "embedding", reason))


def _lookup(model: ServedModel, header: GgufHeader | None, imported: _Imported) -> dict[str, object]:
    if header is not None and (reason := why_not_drafted(header)) is not None:
        imported.not_taken.append(NotTaken(model.where, "spec-type", reason))
        return {}
    k = {} if model.draft_tokens is None else {"k": model.draft_tokens}
    return {"prompt_lookup": asdict(PromptLookupOptions(**k))}


def _aliases_of(entry: Entry) -> list[str]:
    aliases = entry.get("aliases", [])
    return aliases if isinstance(aliases, list) else []


def _draft(id: str, model: ServedModel, folder: Path, registry: Registry, imported: _Imported) -> None:
    if model.draft is None and model.draft_hub is None:
        return
    file = _file(model, model.draft, model.draft_hub, folder, imported)
    if file is None:
        return
    header = header_of(file)
    target = imported.headers.get(id)
    if target is not None and (reason := why_not_drafted(target[1])) is not None:
        imported.not_taken.append(NotTaken(model.where, f"the draft model {file.name}", reason))
        return
    if header is None:
        imported.not_taken.append(NotTaken(model.where, str(file), "cannot be read, so nothing can draft with it yet"))
        return
    if target is not None and (reason := why_no_draft(target[1], header)) is not None:
        imported.not_taken.append(NotTaken(model.where, f"the draft model {file.name}", reason))
        return
    name = file_name(file, registry.path)
    drafting = next((other_id for other_id, entry in imported.models.items() if entry.get("file") == name), None)
    drafting = drafting or next(
        (registered.id for registered in registry.models.values() if registered.file == file), None
    )
    if drafting == id:
        imported.not_taken.append(NotTaken(model.where, f"the draft model {file.name}", "it is the model itself"))
        return
    if drafting is None:
        used_names = {*registry.models, *registry.roles, *imported.models}
        (drafting,) = unique([id_from(file)], used_names)
        imported.models[drafting] = {"file": name}
        imported.headers[drafting] = file, header
    k = {} if model.draft_tokens is None else {"k": model.draft_tokens}
    options = SpeculationOptions(_draft_role(drafting, registry, imported), **k)
    imported.models[id] = {**imported.models[id], "speculation": {"draft": options.draft, "k": options.k}}


def _draft_role(drafting: str, registry: Registry, imported: _Imported) -> str:
    for name, role in registry.roles.items():
        if role.model == drafting:
            return name
    for name, entry in imported.roles.items():
        if entry["model"] == drafting:
            return name
    # No role has this model yet.
    (name,) = unique([DRAFT], {*registry.roles, *imported.roles})
    imported.roles[name] = {"model": drafting, "tier": "D"}
    return name


def _idle(models: list[ServedModel], imported: _Imported) -> None:
    stated = {model.id: model.idle_seconds for model in models if model.idle_seconds is not None}
    if stated:
        longest = f"{max(stated.values()):g}"
        times = ", ".join(f"{name} {seconds:g} s" for name, seconds in stated.items())
        reason = f"the registry has one such time for all models: `defaults: {{idle_unload_seconds: {longest}}}`"
        imported.not_taken.append(NotTaken("ttl", times, reason))


def _give_roles(imported: _Imported, registry: Registry, budget: int) -> None:
    candidates = [
        as_candidate(id, file, header, catalogue_entry(file)) for id, (file, header) in imported.headers.items()
    ]
    try:
        # The roles that `orchestrator init` would give
        composed = compose(candidates, registry.path, budget)
    except NothingAnswers as error:
        raise InputError(
            Problem(str(registry.path), f"a new registry needs a model that answers: {error}", "one that is here")
        ) from error
    busy = {entry["model"] for entry in imported.roles.values()}
    for name, role in composed.role_entries.items():
        if name not in imported.roles and not name.startswith(DRAFT) and role["model"] not in busy:
            imported.roles[name] = dict(role)


def _as_yaml(imported: _Imported, registry: Registry, *, written: bool) -> str:
    sections: tuple[tuple[str, Mapping[str, Entry]], ...] = (("models", imported.models), ("roles", imported.roles))
    text = "".join(write_section(name, entries) for name, entries in sections if entries)
    return text + (f"# written to {registry.path}\n" if written else "")


def _as_json(imported: _Imported, registry: Registry, *, written: bool) -> dict[str, Any]:
    return {
        "models": {name: dict(entry) for name, entry in imported.models.items()},
        "roles": imported.roles,
        "not_taken": [
            {"where": skipped.where, "what": skipped.what, "reason": skipped.reason} for skipped in imported.not_taken
        ],
        "warnings": imported.warnings,
        "registry": str(registry.path),
        "written": written,
    }
