"""Find the names that `complete` offers: of models, roles and personas, and where models come from.

The shell waits for the answer after each press of the key, so only a registry is loaded. What cannot be read completes
to nothing, since there is no place for an error.
"""

import glob
import os
from collections.abc import Callable, Iterable

import typer

from orchestrator.cli.registry import registry_of_jobs
from orchestrator.cli.settings import settings_so_far
from orchestrator.errors import OrchestratorError
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.models import Registry
from orchestrator.registry.sources.catalogue import read_catalogue
from orchestrator.registry.sources.local import models_in
from orchestrator.service.configuration import load_configuration, models_folder


def models(context: typer.Context, incomplete: str) -> list[str]:
    return _of_registry(context, incomplete, lambda registry: registry.models)


def roles(context: typer.Context, incomplete: str) -> list[str]:
    return _of_registry(context, incomplete, lambda registry: registry.roles)


def personas(context: typer.Context, incomplete: str) -> list[str]:
    # Also those that were made at run time.
    return _of_registry(context, incomplete, lambda registry: registry.personas)


def models_or_files(context: typer.Context, incomplete: str) -> list[str]:
    return [*dict.fromkeys([*models(context, incomplete), *_models_and_files(incomplete)])]


def sources(_context: typer.Context, incomplete: str) -> list[str]:
    return [*dict.fromkeys([*_beginning(incomplete, read_catalogue()), *_models_and_files(incomplete)])]


def _of_registry(context: typer.Context, incomplete: str, names: Callable[[Registry], Iterable[str]]) -> list[str]:
    try:
        return _beginning(incomplete, names(registry_of_jobs(settings_so_far(context))))
    except (OrchestratorError, RegistryError):
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(name for name in names if name.startswith(incomplete))]


def _models_and_files(incomplete: str) -> list[str]:
    folder = models_folder(load_configuration().models, os.environ)
    files = _beginning(incomplete, (file.stem for file in models_in(folder)))
    paths = sorted(glob.iglob(f"{glob.escape(incomplete)}*"))
    folders = [f"{path}/" for path in paths if os.path.isdir(path)]
    return [*files, *folders, *(path for path in paths if path.endswith(".gguf") and os.path.isfile(path))]
