"""Load the registry that the global options name."""

from dataclasses import replace
from pathlib import Path

from orchestrator.cli.daemon import DaemonClient, answers
from orchestrator.cli.settings import Settings
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.personas import in_use


def registry_of(options: Settings) -> Registry:
    """Load the registry, with the personas that were made at run time. Raises `RegistryError`."""
    return with_made_personas(load_registry(find_registry(options.registry_flag)), options.home)


def registry_of_jobs(options: Settings) -> Registry:
    """Load the registry that jobs run with: the one that --registry names, else the daemon's, if one answers.

    Raises RegistryError, and the errors of `DaemonClient`.
    """
    if options.registry_flag is not None or not answers(options.home):
        return registry_of(options)
    with DaemonClient(options.home) as daemon:
        return registry_of(replace(options, registry_flag=Path(daemon.ask("GET", "/v1/registry")["path"])))


def with_made_personas(registry: Registry, home: Path) -> Registry:
    """Return the registry with the personas that were made at run time in a state folder."""
    try:
        with JournalReader.open_to_read(home) as journal:
            return registry.with_personas(entry.persona for entry in in_use(journal.personas()).values())
    except JournalError:  # whoever needs the journal itself gets the error
        return registry
