"""Say what operations act on: the files of an installation, and what only the owner of its state folder can do."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from orchestrator.errors import OrchestratorError
from orchestrator.memrl.learning import Learning, memory_closed, memory_of
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Work
from orchestrator.registry.errors import GgufError, RegistryError
from orchestrator.registry.forms import Form
from orchestrator.registry.sources.contract import SourceError
from orchestrator.run.journal.home import Home
from orchestrator.run.personas import PersonaProposal
from orchestrator.service.backup import Backup
from orchestrator.service.configuration import Configuration, models_folder
from orchestrator.service.extent import Extent
from orchestrator.service.retention import Retention, VacuumRequest, VacuumResult
from orchestrator.service.service import Service
from orchestrator.task.personas import Placed

T = TypeVar("T")


# For threads: enters a context manager of a service's event loop, and only once if it is nested.
class _Held:
    def __init__(self, upkeep: "Upkeep", enter: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._upkeep = upkeep
        self._enter = enter
        self._depth = 0
        self._stack = AsyncExitStack()

    def __enter__(self) -> None:
        if not self._depth:
            run_or_fail(lambda: self._upkeep.service.wait_for(self._stack.enter_async_context(self._enter())))
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            run_or_fail(lambda: self._upkeep.service.wait_for(self._stack.aclose()))


class Upkeep:
    """What only the owner of the state folder can do, in other threads than that of its service's event loop.

    Without a service nothing of that can be done, which is enough to plan most procedures. Calls raise StepFailed if
    they cannot be carried out, and the errors of the work itself.
    """

    def __init__(self, service: Service | None = None) -> None:
        self._owner = service
        self._journal_closed = _Held(self, lambda: self.service.closed("a procedure replaces the journal"))

    @property
    def service(self) -> Service:
        """The service of this process. Raises StepFailed if there is none."""
        if self._owner is None:
            raise StepFailed("this can only be done by `orchestrator procedures`, or by the daemon")
        return self._owner

    def backup(self) -> Backup:
        return self._wait_for(Extent.JOURNAL, lambda service: service.backup())

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        """Remove runs and chats, and return what was removed, or would be."""
        retention = Retention.of(self.service.configuration.retention, request)
        return self._wait_for(
            Extent.JOURNAL,
            lambda service: service.vacuum(retention, dry_run=request.dry_run, purge_outcomes=request.outcomes),
        )

    def with_runs(self, work: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, in the event loop of the service that carries out runs."""
        return self._wait_for(Extent.RUNS, work, with_registry=True)

    def add_persona(self, proposal: PersonaProposal) -> Placed:
        """Add a persona, unless one says nearly the same, and return which one to use."""
        return self._wait_for(Extent.JOURNAL, lambda service: service.folder.personas.add(proposal), with_registry=True)

    def retire_persona(self, name: str) -> None:
        self._wait_for(Extent.JOURNAL, lambda service: service.folder.personas.retire(name), with_registry=True)

    def token_changed(self) -> None:
        """Note that the file of the API's token has changed."""
        self.service.read_tokens()

    def personas_put_back(self) -> None:
        """Note that the personas in the journal were put back to what they were."""
        self.service.wait_for(self.service.reload_personas())

    def memory(self) -> AbstractContextManager[Learning]:
        """Return a context manager with the memory of learned routing."""
        return memory_of(self.service)

    def memory_closed(self) -> AbstractContextManager[None]:
        """Return a context manager in which nobody has the memory's database open."""
        return _Held(self, lambda: memory_closed(self.service))

    def journal_closed(self) -> AbstractContextManager[None]:
        """Return a context manager in which no daemon has the journal open. It may be nested."""
        return self._journal_closed

    def _wait_for(
        self, extent: Extent, work: Callable[[Service], Coroutine[Any, Any, T]], *, with_registry: bool = False
    ) -> T:
        async def done() -> T:
            async with self.service.opened(extent, with_registry=with_registry) as service:
                return await work(service)

        return self.service.wait_for(done())


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
