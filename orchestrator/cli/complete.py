"""Complete names in the shell. What finds them is imported when a name is completed, not with every command."""

from pkgutil import resolve_name

import typer

PLACE = "orchestrator.cli.completions:"
RUNS = "orchestrator.cli.run_names:runs_named"  # which needs no registry


def complete_model(context: typer.Context, incomplete: str) -> list[str]:
    return _completed("models", context, incomplete)


def complete_role(context: typer.Context, incomplete: str) -> list[str]:
    return _completed("roles", context, incomplete)


def complete_persona(context: typer.Context, incomplete: str) -> list[str]:
    return _completed("personas", context, incomplete)


def complete_model_or_file(context: typer.Context, incomplete: str) -> list[str]:
    return _completed("models_or_files", context, incomplete)


def complete_source(context: typer.Context, incomplete: str) -> list[str]:
    return _completed("sources", context, incomplete)


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    runs: list[str] = resolve_name(RUNS)(context, incomplete)
    return runs


def _completed(kind: str, context: typer.Context, incomplete: str) -> list[str]:
    names: list[str] = resolve_name(PLACE + kind)(context, incomplete)
    return names
