"""The commands about models: list, add and get them, and have the daemon load, unload or pin them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli import pool
from orchestrator.cli.complete import complete_role
from orchestrator.cli.daemon import DaemonClient, answers
from orchestrator.cli.get import get, read_model
from orchestrator.cli.on_demand import GroupOnDemand
from orchestrator.cli.registry import registry_of
from orchestrator.cli.root import CommandPlace
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import (
    glyphs,
    one_line,
    plain_table,
    print_json,
    print_notes,
    print_result,
    printable,
    size,
    write,
)
from orchestrator.errors import InputError, Problem
from orchestrator.pool.machine import memory_budget
from orchestrator.registry.checks import OTHER_TEMPLATE
from orchestrator.registry.compose import NothingAnswers, compose, unique
from orchestrator.registry.edit import made_for_model, save_entries
from orchestrator.registry.fit import Room
from orchestrator.registry.forms import usual_tier
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import PACKAGED, blank_registry, configured_registry, find_registry, load_registry
from orchestrator.registry.models import ModelEntry, Registry, RoleEntry
from orchestrator.registry.persona import NAME, NAME_RULE
from orchestrator.registry.propose import Proposal, count, full_path, propose
from orchestrator.registry.rows import model_rows, role_rows
from orchestrator.registry.sources.local import as_candidate, catalogue_entry
from orchestrator.registry.strict_yaml import write_section, write_yaml


class _ModelCommands(GroupOnDemand):
    places: ClassVar[Mapping[str, CommandPlace]] = {
        "try": CommandPlace(
            "orchestrator.cli.trial:try_model", "Ask a model three things, and say how quick it is and what works."
        ),
        "import": CommandPlace(
            "orchestrator.cli.import_models:import_models", "Take over the models of llama-swap or llama-server."
        ),
    }


app = typer.Typer(
    cls=_ModelCommands, rich_markup_mode=None, add_completion=False, subcommand_metavar="[COMMAND [ARGS]...]"
)


@app.callback(invoke_without_command=True)
def models(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List models, roles and personas."""
    if context.invoked_subcommand is not None:
        return
    registry = registry_of(settings(context))
    print_result(_registry_json(registry), lambda console: _print_registry(console, registry), as_json=as_json)


app.command("get")(get)
app.command("load")(pool.load)
app.command("unload")(pool.unload)
app.command("pin")(pool.pin)


@app.command("add")
def add(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.gguf", help="The model; of a split one, the first piece.")],
    name: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The model's id; made from the file's name without it.")
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="Give the model this role, which is added if it is new; several times for several.",
            autocompletion=complete_role,
        ),
    ] = None,
    save: Annotated[bool, typer.Option("--write", help="Add the entry to the registry.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Propose an entry of the registry for a model.

    The entry is made from the file's header and the available memory, and printed as YAML, with the reasons. --write
    leaves the rest of the registry as it is, with its comments, and writes nothing that could not be loaded.
    """
    options, role_names = settings(context), tuple(dict.fromkeys(roles or ()))
    registry = registry_to_add_to(options, save=save)
    proposal = _proposed(file, registry, memory_for_models(options, registry), name, role_names)
    _check(proposal, registry, role_names)
    changes = _role_entries(proposal, registry, role_names, file)
    if save:
        save_entries(registry, {proposal.id: proposal.entry}, {role: change.entry for role, change in changes.items()})
    warnings = [*proposal.warnings, *_lacking(registry, changes, file)]
    if as_json:
        print_json(_as_json(proposal, registry, changes, warnings, written=save))
        return
    write(lambda: print(printable(_as_yaml(proposal, registry, changes, written=save)), end=""))
    print_notes("warning", warnings)


def registry_to_add_to(options: Settings, *, save: bool) -> Registry:
    """Return the registry to add a model to; an empty one if its file is new or has no models. Raises RegistryError."""
    path = find_registry(options.registry_flag)
    # Write the user's own registry: the packaged one is only a default.
    if save and path == PACKAGED:
        path = configured_registry()
    return blank_registry(path) or load_registry(path)


def memory_for_models(options: Settings, registry: Registry | None) -> int:
    """Return the bytes that all models may take: what the registry sets, else what the daemon or this machine has."""
    if registry is not None and registry.defaults.memory is not None:
        return registry.defaults.memory
    if answers(options.home):
        with DaemonClient(options.home) as daemon:
            return int(daemon.ask("GET", "/v1/pool")["budget"])
    return memory_budget()


def _proposed(file: Path, registry: Registry, budget: int, name: str | None, roles: Sequence[str]) -> Proposal:
    header = read_model(file)
    try:
        full_path(file).as_posix().encode()
    except UnicodeEncodeError as error:
        raise InputError(Problem(str(file), "its name is not UTF-8, as the registry is", "another name")) from error
    hot = sum(model.memory.total for model in registry.models.values() if model.residency == "hot" and model.memory)
    return propose(header, file, registry, Room(budget=budget, hot=hot), name=name, roles=roles)


def _check(proposal: Proposal, registry: Registry, roles: Sequence[str]) -> None:
    for option, name in (("--id", proposal.id), *(("--role", role) for role in roles)):
        if not re.fullmatch(NAME, name):
            raise InputError(Problem(f"{option} {name}", "is no name", NAME_RULE))
    if proposal.id in registry.models:
        (free,) = unique([proposal.id], registry.models)
        conflict = f"is taken by {registry.models[proposal.id].file or 'a model that another server runs'}"
        raise InputError(Problem(f"--id {proposal.id}", conflict, f"a new one, such as {free}"))
    tiers = {role: registry.roles[role].tier if role in registry.roles else usual_tier(role) for role in roles}
    if proposal.why_no_prompt is not None and set(tiers.values()) != {"D"}:
        raise InputError(Problem(str(proposal.entry["file"]), proposal.why_no_prompt, OTHER_TEMPLATE))
    for role, tier in tiers.items():
        if proposal.why_no_text is not None and tier != "D":
            raise InputError(
                Problem(f"--role {role}", f"the model cannot have it: {proposal.why_no_text}", "a role of tier D")
            )


@dataclass(frozen=True, slots=True)
class _RoleChange:
    entry: Mapping[str, object]  # the keys that are added or changed
    left_out: tuple[str, ...] = ()  # keys that the role loses: they were made for its previous model
    kept: tuple[str, ...] = ()  # keys that stay, though perhaps chosen for the previous model


def _role_entries(
    proposal: Proposal, registry: Registry, roles: Sequence[str], file: Path
) -> Mapping[str, _RoleChange]:
    # In a new registry, the model gets all roles if none is named.
    if not registry.models and not roles:
        candidate = as_candidate(proposal.id, file, read_header(file), catalogue_entry(file))
        try:
            composed = compose([candidate], registry.path, proposal.room.budget)
        except NothingAnswers:
            accepted = "--role draft or --role embedder, or a model that answers for the first one"
            reason = f"would be the only model of a new registry, and {proposal.suits.why}"
            raise InputError(Problem(str(file), reason, accepted)) from None
        return {role: _RoleChange(entry) for role, entry in composed.role_entries.items()}
    return {role: _role_change(proposal, registry, role) for role in roles}


def _role_change(proposal: Proposal, registry: Registry, role: str) -> _RoleChange:
    if role not in registry.roles:
        return _RoleChange({"model": proposal.id, "tier": usual_tier(role)})
    before = registry.roles[role]
    system = before.system if before.has_own_system else ""
    own = {"max_tokens": before.max_tokens != registry.defaults.max_tokens, "sampling": before.sampling is not None}
    return _RoleChange(
        {"model": proposal.id},
        left_out=made_for_model(system, adapters=bool(before.lora)),
        kept=tuple(key for key, is_own in own.items() if is_own),
    )


def _lacking(registry: Registry, changes: Mapping[str, _RoleChange], file: Path) -> Iterator[str]:
    listed = catalogue_entry(file)
    for role, adapter in () if listed is None else listed.adapters.items():
        if role in changes and "lora" not in changes[role].entry:
            keys = f"`system: {adapter.system}` and `lora: [{{file: {adapter.path}}}]`"
            yield f"an adapter for this model as {role} ships, and the role does not use it: give the role {keys}"
    if not registry.models and changes and "frontdoor" not in changes:
        yield "there is no role frontdoor, so requests in words get no plan: give a model --role frontdoor too"


def _as_yaml(proposal: Proposal, registry: Registry, changes: Mapping[str, _RoleChange], *, written: bool) -> str:
    suits = f"suits: {proposal.suits.role or 'no role'} ({proposal.suits.why})"
    lines = [f"# {one_line(note)}\n" for note in (*proposal.notes, suits)]
    lines.append(write_section("models", {proposal.id: proposal.entry}))
    if changes:
        lines.append("roles:\n")
    for role, change in changes.items():
        lines += [f"  {role}:\n", write_yaml(change.entry, 4)]
        if change.left_out:
            lines.append(f"    # left out, as made for the model before: {', '.join(change.left_out)}\n")
        if change.kept:
            lines.append(f"    # kept, though perhaps chosen for the model before: {', '.join(change.kept)}\n")
    if written:
        lines.append(f"# written to {registry.path}\n")
    return "".join(lines)


def _as_json(
    proposal: Proposal,
    registry: Registry,
    changes: Mapping[str, _RoleChange],
    warnings: Sequence[str],
    *,
    written: bool,
) -> dict[str, Any]:
    fit, memory = proposal.fit, proposal.fit.memory
    return {
        "id": proposal.id,
        "entry": dict(proposal.entry),
        "roles": [{"name": role, **asdict(change)} for role, change in changes.items()],
        "suits": asdict(proposal.suits),
        "memory": {**asdict(memory), "total": memory.total, "budget": proposal.room.budget, "hot": proposal.room.hot},
        "fits": not fit.short,
        "notes": list(proposal.notes),
        "warnings": list(warnings),
        "registry": str(registry.path),
        "written": written,
    }


def _print_registry(console: Console, registry: Registry) -> None:
    console.print(Text(str(registry.path), style="dim"), soft_wrap=True)
    console.print()
    console.print(_model_table(registry))
    for model in registry.models.values():
        if model.why_not:
            console.print(Text(f"{glyphs(console).states['failed']} {one_line(model.why_not)}", style="red"))
    console.print()
    console.print(_role_table(registry, glyphs(console).arrow))
    if registry.personas:
        console.print()
        console.print(Text(f"Personas: {', '.join(registry.personas)}"))


def _model_table(registry: Registry) -> Table:
    titles = ("Model", "Kind", "Weights", "File", "Loaded", "Context", "Residency")
    table = plain_table(*titles, right=("Weights", "File", "Loaded", "Context"))
    for model in registry.models.values():
        header = model.header
        table.add_row(
            model.id,
            f"{header.architecture} {header.file_type}" if header else "server" if model.is_remote else "-",
            count(header.parameters) if header else "-",
            size(header.file_bytes) if header else "-",
            size(model.memory.total) if model.memory else "-",
            f"{model.slots} x {model.context}",
            model.residency if model.unavailable is None else "absent",
        )
    return table


def _role_table(registry: Registry, arrow: str) -> Table:
    table = plain_table("Role", "Tier", "Model", "Escalates to", "Does")
    for role in registry.roles.values():
        table.add_row(role.name, role.tier, role.model, _escalation(role, registry, arrow), one_line(role.description))
    return table


def _escalation(role: RoleEntry, registry: Registry, arrow: str) -> str:
    names = []
    following = role.escalates_to
    # Ends, since a registry has no cycles of escalation.
    while following is not None:
        level = registry.roles[following].level
        names.append(f"{following} ({level})" if level else following)
        following = registry.roles[following].escalates_to
    return f" {arrow} ".join(names) or "-"


def _registry_json(registry: Registry) -> Mapping[str, Any]:
    return {
        "registry": str(registry.path),
        "models": [asdict(row) | _places(registry.models[row.id]) for row in model_rows(registry)],
        "roles": [asdict(row) for row in role_rows(registry)],
        "personas": [{"name": item.name, "text": item.text} for item in registry.personas.values()],
    }


def _places(model: ModelEntry) -> dict[str, Any]:
    # Where it is, which callers of the API need not see.
    return {
        "file": None if model.file is None else str(model.file),
        "servers": [asdict(server) for server in model.servers],
    }
