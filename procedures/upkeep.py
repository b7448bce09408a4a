"""Say what operations act on: the files of an installation, and what only the owner of its state folder can do."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from orchestrator.errors import OrchestratorError
from orchestrator.memrl.learning import Learning
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Work
from orchestrator.registry.errors import GgufError, RegistryError
from orchestrator.registry.forms import Form
from orchestrator.registry.sources.contract import SourceError
from orchestrator.run.journal.home import Home
from orchestrator.run.personas import PersonaProposal
from orchestrator.service.backup import Backup
from orchestrator.service.configuration import Configuration, models_folder
from orchestrator.service.retention import VacuumRequest, VacuumResult
from orchestrator.service.service import Service
from orchestrator.task.personas import Placed

T = TypeVar("T")


class Upkeep:
    """What only the owner of the state folder can do: its daemon, or this process if there is none.

    This class can do nothing of that, which is enough to plan most procedures. Every call raises StepFailed if it
    cannot be carried out, and the errors of the work itself.
    """

    def backup(self) -> Backup:
        raise _not_here()

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        """Remove runs and chats, and return what was removed, or would be."""
        raise _not_here()

    def with_runs(self, work: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, in the event loop of the service that carries out runs."""
        raise _not_here()

    def add_persona(self, proposal: PersonaProposal) -> Placed:
        """Add a persona, unless one says nearly the same, and return which one to use."""
        raise _not_here()

    def retire_persona(self, name: str) -> None:
        raise _not_here()

    def token_changed(self) -> None:
        """Note that the file of the API's token has changed. Without a daemon nobody has read it."""

    def personas_put_back(self) -> None:
        """Note that the personas in the journal were put back to what they were."""

    def memory(self) -> AbstractContextManager[Learning]:
        """Return a context manager with the memory of learned routing."""
        raise _not_here()

    def memory_closed(self) -> AbstractContextManager[object]:
        """Return a context manager in which nobody has the memory's database open."""
        raise _not_here()

    def journal_closed(self) -> AbstractContextManager[object]:
        """Return a context manager in which no daemon has the journal open. It may be nested."""
        return nullcontext()


def _not_here() -> StepFailed:
    return StepFailed("this can only be done by `orchestrator procedures`, or by the daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the operations act on."""

    home: Path
    registry: Path
    models: Path  # the folder for downloads
    token: Path  # the file of the API's token
    upkeep: Upkeep
    configuration: Configuration = field(default_factory=Configuration)

    @classmethod
    def of(
        cls,
        home: Path,
        registry: Path,
        configuration: Configuration,
        upkeep: Upkeep,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        return cls(
            home=home,
            registry=registry.absolute(),
            models=models_folder(configuration.models, environ),
            token=Home(home).token,
            upkeep=upkeep,
            configuration=configuration,
        )


class NoArguments(Form):
    """No arguments."""


def run_to_end(work: Coroutine[Any, Any, T], step: Work) -> T:
    """Run a coroutine to its end in this thread. Raises StepFailed if it fails, or when the step's time is over."""

    async def limited() -> T:
        async with asyncio.timeout(step.seconds_left):
            return await work

    try:
        return asyncio.run(limited())
    except TimeoutError as error:
        raise StepFailed("its time is over") from error
    except OrchestratorError as error:
        raise StepFailed(str(error)) from error


def run_or_fail(work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises StepFailed instead of the errors of the packages that do the work."""
    try:
        return work()
    except (OrchestratorError, RegistryError, GgufError, SourceError) as error:
        raise StepFailed(str(error)) from error
