"""The commands about the installation: models, doctor, version."""

import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.doctor import Check, examine
from orchestrator.cli.errors import ExitCode
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import glyphs, make_console, one_line, print_json, size, write
from orchestrator.gates import BUILTIN_GATES
from registry.models import ModelEntry, Registry, RoleEntry

CHECK_STYLES = {"ok": "green", "note": "yellow", "broken": "bold red"}
CHECK_MARKS = {"ok": "done", "note": "waiting", "broken": "failed"}


def models(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List models, roles and personas."""
    registry = settings(context).registry()
    if as_json:
        print_json(_registry_json(registry))
        return
    console = make_console(sys.stdout)
    write(lambda: _print_registry(console, registry))


def doctor(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Check this installation.

    Exits with 1 if something that a run needs is missing or broken.
    """
    chosen = settings(context)
    checks = examine(chosen.registry_path, chosen.home, frozenset(BUILTIN_GATES))
    broken = [check for check in checks if check.state == "broken"]
    if as_json:
        told = [{"name": c.name, "state": c.state, "found": c.found, "mend": c.mend} for c in checks]
        print_json({"healthy": not broken, "checks": told})
    else:
        console = make_console(sys.stdout)
        write(lambda: _print_checks(console, checks))
    if broken:
        raise typer.Exit(ExitCode.FAILED)


def show_version(as_json: JsonFlag = False) -> None:
    """Print version numbers."""
    versions = {name: _version(name) for name in ("orchestrator", "llama-cpp-python")}
    versions["python"] = platform.python_version()
    if as_json:
        print_json(versions)
        return
    write(lambda: print("\n".join(f"{name} {number}" for name, number in versions.items())))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _print_checks(console: Console, checks: list[Check]) -> None:
    signs = glyphs(console)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark = Text(f"{signs.states[CHECK_MARKS[check.state]]} {check.state}", style=CHECK_STYLES[check.state])
        found = Text(one_line(check.found))
        if check.mend:
            found.append(f"\n{signs.arrow} {one_line(check.mend)}", style="dim")
        table.add_row(mark, Text(one_line(check.name)), found)
    console.print(table)
    broken = sum(check.state == "broken" for check in checks)
    console.print()
    console.print(Text(f"{broken} broken" if broken else "Everything that a run needs is there.", style="bold"))


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
    table = _table("Model", "Kind", "Weights", "File", "Loaded", "Context", "Residency")
    for model in registry.models.values():
        header = model.header
        table.add_row(
            model.id,
            f"{header.architecture} {header.file_type}" if header else "server" if model.remote else "-",
            _count(header.parameters) if header else "-",
            size(header.file_bytes) if header else "-",
            size(model.memory.total) if model.memory else "-",
            f"{model.slots} x {model.context}",
            model.residency if model.unavailable is None else "absent",
        )
    return table


def _role_table(registry: Registry, arrow: str) -> Table:
    table = _table("Role", "Tier", "Model", "Escalates to", "Does")
    for role in registry.roles.values():
        table.add_row(role.name, role.tier, role.model, _escalation(role, registry, arrow), one_line(role.description))
    return table


def _escalation(role: RoleEntry, registry: Registry, arrow: str) -> str:
    """Return the whole chain, each role with its level. A registry has no cycles of escalation."""
    names = []
    following = role.escalates_to
    while following is not None:
        level = registry.roles[following].level
        names.append(f"{following} ({level})" if level else following)
        following = registry.roles[following].escalates_to
    return f" {arrow} ".join(names) or "-"


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in titles:
        right = title in ("Weights", "File", "Loaded", "Context")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table


def _count(number: int) -> str:
    """Return a number of parameters as people read it: `512 K`, `2.3 M`, `7.1 B`."""
    for unit, name in ((10**9, "B"), (10**6, "M")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number / 1000:.0f} K"


def _registry_json(registry: Registry) -> Mapping[str, Any]:
    return {
        "registry": str(registry.path),
        "models": [_model_json(model) for model in registry.models.values()],
        "roles": [_role_json(role, registry) for role in registry.roles.values()],
        "personas": [{"name": item.name, "text": item.text} for item in registry.personas.values()],
    }


def _model_json(model: ModelEntry) -> Mapping[str, Any]:
    header = model.header
    return {
        "id": model.id,
        "file": None if model.file is None else str(model.file),
        "remote": None if model.remote is None else asdict(model.remote),
        "usable": model.why_not is None,
        "why_not": model.why_not,
        "residency": model.residency,
        "architecture": header.architecture if header else None,
        "parameters": header.parameters if header else None,
        "file_bytes": header.file_bytes if header else None,
        "memory_bytes": model.memory.total if model.memory else None,
        "context": model.context,
        "slots": model.slots,
    }


def _role_json(role: RoleEntry, registry: Registry) -> Mapping[str, Any]:
    return {
        "name": role.name,
        "tier": role.tier,
        "level": role.level,
        "model": role.model,
        "persona": role.persona,
        "escalates_to": role.escalates_to,
        "usable": registry.why_not(role.name) is None,
        "description": role.description,
    }
