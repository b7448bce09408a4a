"""`orchestrator models import`: import the models of llama-swap or llama-server, and report what is left out."""

import itertools
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.get import downloads
from orchestrator.cli.models import memory_for_models, registry_to_add_to
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, print_json, print_notes, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.registry.checks import (
    BASE_MODEL,
    NO_BASE_MODEL,
    OTHER_TEMPLATE,
    is_base,
    why_no_draft,
    why_no_drafts,
    why_no_prompt,
)
from orchestrator.registry.compose import NothingAnswers, compose, unique
from orchestrator.registry.edit import save_entries
from orchestrator.registry.forms import EMBEDDER, usual_tier
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.llama_server import ServedModel, Servers
from orchestrator.registry.models import Registry
from orchestrator.registry.options import PromptLookupOptions, SpeculationOptions
from orchestrator.registry.propose import DRAFT, file_name, full_path, id_from
from orchestrator.registry.server_files import header_of, read_servers, usable_aliases, usable_id
from orchestrator.registry.sources.local import as_candidate, catalogue_entry, find_here
from orchestrator.registry.strict_yaml import write_section

Entry = Mapping[str, object]


@dataclass(slots=True)
class _Import:
    """Entries for a registry, made from the models of other servers."""

    registry: Registry
    servers: Servers
    folder: Path = field(default_factory=downloads)
    models: dict[str, Entry] = field(default_factory=dict)
    roles: dict[str, dict[str, object]] = field(default_factory=dict)
    # The files of the models that can be read, and their headers
    headers: dict[str, tuple[Path, GgufHeader]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # about models that are imported

    def run(self) -> None:
        files = [(model, self._file(model, model.file, model.hub)) for model in self.servers.models]
        usable = [(model, file) for model, file in files if file is not None and self._answers(model, file)]
        ids = unique((usable_id(model.id) for model, _ in usable), self._names() | set(self.registry.personas))
        for id, (model, file) in zip(ids, usable, strict=True):
            self.models[id] = self._entry(id, model, file)
        # Only now, since the draft model may be one of the entries above.
        for id, (model, _) in zip(ids, usable, strict=True):
            self._draft(id, model)
        self._idle()

    def _names(self) -> set[str]:
        return {*self.registry.models, *self.registry.roles, *self.models}

    def _leave_out(self, model: ServedModel, option: str, reason: str) -> None:
        self.servers.leave_out(model.where, option, reason)

    def _answers(self, model: ServedModel, file: Path) -> bool:
        header = header_of(file)
        # A template that drops words excludes the model. A model without a template is imported with a warning.
        why = None if header is None else why_no_prompt(header)
        if header is not None and is_base(header):
            warning = f"{model.where}: {file}: {BASE_MODEL}; accepted for roles that answer: {NO_BASE_MODEL}"
            self.warnings.append(warning)
        if why is not None:
            self._leave_out(model, str(file), f"{why}; accepted: {OTHER_TEMPLATE}")
        return why is None

    def _file(self, model: ServedModel, file: Path | None, hub: str | None) -> Path | None:
        if file is not None:
            return full_path(file)
        assert hub is not None, "a model that is taken has a file or comes from a hub"
        # Nothing is downloaded: a model of a hub has to be on this machine already.
        path = find_here(hub, self.folder) or _in_cache(hub)
        if path is None:
            self._leave_out(model, hub, f"it is not here: `orchestrator models get {hub}`, and import once more")
        return path

    def _entry(self, id: str, model: ServedModel, file: Path) -> dict[str, object]:
        header = header_of(file)
        if header is None:
            self._leave_out(model, str(file), "cannot be read, so the model cannot be used yet")
        else:
            self.headers[id] = file, header
        options = self._sized(model, header)
        entry: dict[str, object] = {"file": file_name(file, self.registry.path)}
        if "description" in options:
            entry["description"] = options.pop("description")
        if aliases := self._aliases(id, model):
            entry["aliases"] = aliases
        if model.hot:
            entry["residency"] = "hot"
        if model.embeds:
            self._embedder(id, model)
        if model.lookup:
            options |= self._lookup(model, header)
        return entry | options

    def _sized(self, model: ServedModel, header: GgufHeader | None) -> dict[str, object]:
        # The options of a model, whose context may be too long.
        options, context = dict(model.options), model.options.get("context")
        if header is not None and isinstance(context, int) and context > header.context_length:
            reason = f"the model was made for {header.context_length:,}, which is taken instead"
            self._leave_out(model, f"{context:,} tokens of context", reason)
            options["context"] = context = header.context_length
        if "cells" in options and isinstance(context, int):
            if self.registry.defaults.batch_invariant:
                del options["cells"]
                reason = "the registry's batch_invariant gives every slot cells of its own"
                self._leave_out(model, "a cache that the slots share", reason)
            else:
                options["cells"] = max(64, context)
        return options

    def _aliases(self, id: str, model: ServedModel) -> list[str]:
        aliases, refused = usable_aliases(model, id)
        taken = self._names() | set(self.registry.personas)
        taken |= {name for entry in self.models.values() for name in _aliases_of(entry)}
        taken |= {name for entry in self.registry.models.values() for name in entry.aliases}
        self.servers.not_taken += refused
        for name in aliases:
            if name in taken:
                self._leave_out(model, f"alias {name}", "the name is taken")
        return [name for name in aliases if name not in taken]

    def _embedder(self, id: str, model: ServedModel) -> None:
        # There is only one embedder: vectors of two models are never mixed.
        has = self.registry.roles[EMBEDDER].model if EMBEDDER in self.registry.roles else None
        if EMBEDDER in self.roles:
            has = str(self.roles[EMBEDDER]["model"])
        if has is None:
            self.roles[EMBEDDER] = {"model": id, "tier": usual_tier(EMBEDDER)}
        else:
            self._leave_out(model, "embedding", f"the role {EMBEDDER} has the model {has}, and stays with it")

    def _lookup(self, model: ServedModel, header: GgufHeader | None) -> dict[str, object]:
        if header is not None and (reason := why_no_drafts(header)) is not None:
            self._leave_out(model, "spec-type", reason)
            return {}
        return {"prompt_lookup": asdict(PromptLookupOptions(**_drafted(model)))}

    def _draft(self, id: str, model: ServedModel) -> None:
        if model.draft is None and model.draft_hub is None:
            return
        file = self._file(model, model.draft, model.draft_hub)
        if file is None:
            return
        header, target = header_of(file), self.headers.get(id)
        name, subject = file_name(file, self.registry.path), f"the draft model {file.name}"
        if target is not None and (reason := why_no_drafts(target[1])) is not None:
            self._leave_out(model, subject, reason)
        elif header is None:
            self._leave_out(model, str(file), "cannot be read, so nothing can draft with it yet")
        elif target is not None and (reason := why_no_draft(target[1], header)) is not None:
            self._leave_out(model, subject, reason)
        elif (drafting := self._with_file(file, name)) == id:
            self._leave_out(model, subject, "it is the model itself")
        else:
            if drafting is None:
                (drafting,) = unique([id_from(file)], self._names())
                self.models[drafting] = {"file": name}
                self.headers[drafting] = file, header
            options = SpeculationOptions(self._draft_role(drafting), **_drafted(model))
            self.models[id] = {**self.models[id], "speculation": asdict(options)}

    def _with_file(self, file: Path, name: str) -> str | None:
        imported = (id for id, entry in self.models.items() if entry.get("file") == name)
        registered = (model.id for model in self.registry.models.values() if model.file == file)
        return next(itertools.chain(imported, registered), None)

    def _draft_role(self, drafting: str) -> str:
        models = {name: role.model for name, role in self.registry.roles.items()}
        models |= {name: str(entry["model"]) for name, entry in self.roles.items() if name not in models}
        role = next((name for name, model in models.items() if model == drafting), None)
        if role is None:
            (role,) = unique([DRAFT], models)
            self.roles[role] = {"model": drafting, "tier": "D"}
        return role

    def _idle(self) -> None:
        stated = {model.id: model.idle_seconds for model in self.servers.models if model.idle_seconds is not None}
        if stated:
            longest = f"{max(stated.values()):g}"
            times = ", ".join(f"{name} {seconds:g} s" for name, seconds in stated.items())
            reason = f"the registry has one such time for all models: `defaults: {{idle_unload_seconds: {longest}}}`"
            self.servers.leave_out("ttl", times, reason)

    def give_roles(self, budget: int) -> None:
        """Add the roles that `orchestrator init` would give to the models of a new registry."""
        candidates = [
            as_candidate(id, file, header, catalogue_entry(file)) for id, (file, header) in self.headers.items()
        ]
        try:
            composed = compose(candidates, self.registry.path, budget)
        except NothingAnswers as error:
            reason = f"a new registry needs a model that answers: {error}"
            raise InputError(Problem(str(self.registry.path), reason, "one that is here")) from error
        busy = {entry["model"] for entry in self.roles.values()}
        for name, role in composed.role_entries.items():
            if name not in self.roles and not name.startswith(DRAFT) and role["model"] not in busy:
                self.roles[name] = dict(role)

    def as_yaml(self, *, written: bool) -> str:
        sections: tuple[tuple[str, Mapping[str, Entry]], ...] = (("models", self.models), ("roles", self.roles))
        text = "".join(write_section(name, entries) for name, entries in sections if entries)
        return text + (f"# written to {self.registry.path}\n" if written else "")

    def as_json(self, *, written: bool) -> dict[str, Any]:
        return {
            "models": {name: dict(entry) for name, entry in self.models.items()},
            "roles": self.roles,
            "not_taken": [asdict(skipped) for skipped in self.servers.not_taken],
            "warnings": self.warnings,
            "registry": str(self.registry.path),
            "written": written,
        }


def _in_cache(hub: str) -> Path | None:
    cache = Path(os.environ.get("LLAMA_CACHE") or Path.home() / ".cache" / "llama.cpp")
    repo, _, quantisation = hub.removeprefix("hf:").partition(":")
    # llama.cpp names the files of its cache OWNER_REPO_FILE.
    prefix = repo.replace("/", "_")
    paths = sorted(cache.glob(f"{prefix}*.gguf"))
    fitting = [path for path in paths if quantisation.lower() in path.name.removeprefix(prefix).lower()]
    return fitting[0] if fitting else None


def _aliases_of(entry: Entry) -> list[str]:
    aliases = entry.get("aliases", [])
    return aliases if isinstance(aliases, list) else []


def _drafted(model: ServedModel) -> dict[str, int]:
    return {} if model.draft_tokens is None else {"k": model.draft_tokens}


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
    registry, servers = registry_to_add_to(options, save=save), read_servers(file)
    imported = _Import(registry, servers)
    imported.run()
    if not imported.models:
        raise InputError(
            *(Problem(f"{file}: {skipped.where}", skipped.what, skipped.reason) for skipped in servers.not_taken)
            or (Problem(str(file), "names no model that can be taken", "models that llama-server runs"),)
        )
    if not registry.models:
        imported.give_roles(memory_for_models(options, registry))
    if save:
        save_entries(registry, imported.models, imported.roles)
    if as_json:
        print_json(imported.as_json(written=save))
        return
    write(lambda: print(printable(imported.as_yaml(written=save)), end=""))
    print_notes("not taken", (one_line(str(skipped)) for skipped in servers.not_taken))
    print_notes("warning", map(one_line, imported.warnings))
