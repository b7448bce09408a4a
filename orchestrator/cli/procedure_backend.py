"""Plan and execute procedures: in the daemon of the state folder, or in this process if there is none.

Both return the bodies of the HTTP API.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import time
from types import FrameType
from typing import Any, Final, Protocol

from orchestrator.cli.client import Client
from orchestrator.cli.daemon import DaemonClient, answers, path_part
from orchestrator.cli.logs import log_to
from orchestrator.cli.memory import rebuild_index_and_graph
from orchestrator.cli.personas import add_persona, retire_persona
from orchestrator.cli.registry import registry_of, registry_path
from orchestrator.cli.settings import Settings
from orchestrator.cli.state_folder import vacuumed
from orchestrator.cli.terminal import write
from orchestrator.memrl.memory import Compacted
from orchestrator.procedures.audit import AuditHead, Entry
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.ports import Caller
from orchestrator.procedures.run import ExecutionWatcher
from orchestrator.run.journal.home import Home, HomeLock
from orchestrator.run.journal.journal import Journal
from orchestrator.run.personas import PersonaProposal
from orchestrator.service.backup import Backup, make_backup
from orchestrator.service.callers import Callers
from orchestrator.service.configuration import Configuration, load_configuration
from orchestrator.service.learning import compact_memory, offline
from orchestrator.service.operations import Installation, Upkeep, run_or_fail
from orchestrator.service.procedures import (
    entry_body,
    execution_body,
    listing,
    plan_body,
    procedure_body,
    procedures_engine,
    verified_body,
)
from orchestrator.service.retention import VacuumRequest, VacuumResult
from orchestrator.service.schedules import schedules_from
from orchestrator.task.personas import Placed

Body = dict[str, Any]
Tell = Callable[[str, str], None]  # called with the id of a step, and what happens in it
# The kinds of audit entries that are shown while a procedure is executed.
SHOWN_KINDS: Final = ("acting", "step_done", "step_failed", "undone", "not_undone")
RECOVERED: Final = "it was interrupted; `orchestrator procedures recover` brings it to its end"
STOPPING: Final = "\nit stops before its next action, and is undone then; ctrl-C once more leaves that for later\n"


class ProcedureBackend(Protocol):
    """What the commands about procedures need.

    Every call raises ProcedureError, and NoDaemon, DaemonGone, DaemonRefused and InputError if a daemon does the work.
    Calls with `tell` return the execution when it is over.
    """

    def listing(self) -> Body: ...

    def procedure(self, name: str) -> Body: ...

    def plan(self, name: str, inputs: Mapping[str, Any]) -> Body: ...

    def begin(self, name: str, inputs: Mapping[str, Any], digest: str | None, tell: Tell) -> Body:
        """Plan a procedure and execute it, or keep a plan that needs an approval; `digest` is the one approved."""

    def approve(self, execution: str, digest: str, tell: Tell) -> Body: ...

    def withdraw(self, execution: str) -> Body: ...

    def execution(self, execution: str) -> Body: ...

    def executions(self, limit: int) -> list[Body]: ...

    def rollback(self, execution: str, *, force: bool, tell: Tell) -> Body: ...

    def recover(self, tell: Tell) -> list[Body]: ...

    def audit(self, limit: int) -> Body: ...

    def verify(self, head: AuditHead | None) -> Body: ...

    def new_log(self) -> Body: ...


class EmbeddedProcedures:
    """A `ProcedureBackend` that works in this process, for its user `caller`."""

    def __init__(self, engine: ProcedureEngine, caller: Caller) -> None:
        self._engine = engine
        self._caller = caller

    def listing(self) -> Body:
        schedules = schedules_from(load_configuration().procedures.schedules)
        return listing(self._engine, schedules, time(), by_daemon=False)

    def procedure(self, name: str) -> Body:
        return procedure_body(self._engine.library.procedure(name))

    def plan(self, name: str, inputs: Mapping[str, Any]) -> Body:
        return plan_body(self._engine.plan(name, inputs, self._caller))

    def begin(self, name: str, inputs: Mapping[str, Any], digest: str | None, tell: Tell) -> Body:
        identity = self._engine.plan_and_submit(name, inputs, self._caller, digest)
        if self._engine.needs_approval(identity):
            return self._engine.execution(identity).to_json()
        return self._execute(identity, tell)

    def approve(self, execution: str, digest: str, tell: Tell) -> Body:
        self._engine.approve(execution, digest, self._caller)
        return self._execute(execution, tell)

    def withdraw(self, execution: str) -> Body:
        self._engine.withdraw(execution, self._caller)
        return self._engine.execution(execution).to_json()

    def execution(self, execution: str) -> Body:
        return execution_body(self._engine, execution)

    def executions(self, limit: int) -> list[Body]:
        return [execution.to_json() for execution in self._engine.executions(limit)]

    def rollback(self, execution: str, *, force: bool, tell: Tell) -> Body:
        with _when_interrupted(RECOVERED):
            return self._engine.rollback(execution, self._caller, force=force, watcher=_watcher(tell)).to_json()

    def recover(self, tell: Tell) -> list[Body]:
        with _when_interrupted(RECOVERED):
            return [execution.to_json() for execution in self._engine.recover(self._caller, _watcher(tell))]

    def audit(self, limit: int) -> Body:
        log = self._engine.audit
        return {"head": str(log.head()), "entries": [entry_body(entry) for entry in log.last(limit)]}

    def verify(self, head: AuditHead | None) -> Body:
        return verified_body(self._engine.audit, head)

    def new_log(self) -> Body:
        return entry_body(self._engine.begin_new_log(self._caller))

    def _execute(self, execution: str, tell: Tell) -> Body:
        with _when_interrupted(RECOVERED), _stopped_by_ctrl_c(self._engine):
            return self._engine.execute(execution, self._caller, _watcher(tell)).to_json()


class DaemonProcedures:
    """A `ProcedureBackend` that asks the daemon of a state folder."""

    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon

    def listing(self) -> Body:
        return self._daemon.ask("GET", "/v1/procedures")

    def procedure(self, name: str) -> Body:
        return self._daemon.ask("GET", f"/v1/procedures/{path_part('NAME', name)}")

    def plan(self, name: str, inputs: Mapping[str, Any]) -> Body:
        path = f"/v1/procedures/{path_part('NAME', name)}/plan"
        return self._daemon.ask("POST", path, json={"inputs": dict(inputs)})

    def begin(self, name: str, inputs: Mapping[str, Any], digest: str | None, tell: Tell) -> Body:
        path = f"/v1/procedures/{path_part('NAME', name)}/executions"
        execution = self._daemon.ask("POST", path, json={"inputs": dict(inputs), "digest": digest})
        return execution if execution["state"] == "planned" else self._follow(execution["id"], tell)

    def approve(self, execution: str, digest: str, tell: Tell) -> Body:
        self._daemon.ask("POST", self._path(execution, "/approve"), json={"digest": digest})
        return self._follow(execution, tell)

    def withdraw(self, execution: str) -> Body:
        return self._daemon.ask("POST", self._path(execution, "/withdraw"))

    def execution(self, execution: str) -> Body:
        return self._daemon.ask("GET", self._path(execution))

    def executions(self, limit: int) -> list[Body]:
        rows: list[Body] = self._daemon.ask("GET", "/v1/procedures/executions", params={"limit": limit})["executions"]
        return rows

    def rollback(self, execution: str, *, force: bool, tell: Tell) -> Body:
        return self._daemon.ask("POST", self._path(execution, "/rollback"), json={"force": force})

    def recover(self, tell: Tell) -> list[Body]:
        recovered: list[Body] = self._daemon.ask("POST", "/v1/procedures/recover")["recovered"]
        return recovered

    def audit(self, limit: int) -> Body:
        return self._daemon.ask("GET", "/v1/procedures/audit", params={"limit": limit})

    def verify(self, head: AuditHead | None) -> Body:
        query = {} if head is None else {"head": str(head)}
        return self._daemon.ask("GET", "/v1/procedures/audit/verify", params=query)

    def new_log(self) -> Body:
        return self._daemon.ask("POST", "/v1/procedures/audit/new")

    def _follow(self, execution: str, tell: Tell) -> Body:
        going_on = f"the daemon goes on with it; `orchestrator procedures cancel {execution}` has it stopped and undone"
        with _when_interrupted(going_on):
            for name, data in self._daemon.events(self._path(execution, "/events")):
                if name == "progress":
                    tell(data["step"], data["text"])
                elif data["kind"] in SHOWN_KINDS:
                    tell(data["step"], shown_kind(data["kind"]))
        return self._daemon.ask("GET", self._path(execution))

    @staticmethod
    def _path(execution: str, rest: str = "") -> str:
        return f"/v1/procedures/executions/{path_part('EXECUTION', execution)}{rest}"


class EmbeddedUpkeep(Upkeep):
    """The `Upkeep` of procedures in this process, for a state folder without a daemon."""

    def __init__(self, options: Settings, configuration: Configuration) -> None:
        self._options = options
        self._memory = configuration.memory

    def backup(self) -> Backup:
        with Journal.open(self._options.home) as journal:
            return make_backup(journal)

    def vacuum(self, request: VacuumRequest) -> VacuumResult:
        return vacuumed(self._options, request)

    def runs(self) -> Client:
        return Client(self._options)

    def add_persona(self, proposal: PersonaProposal) -> Placed:
        about = proposal.description
        return add_persona(self._options, proposal.name, proposal.text, about, distinct=proposal.distinct)

    def retire_persona(self, name: str) -> None:
        retire_persona(self._options, name)

    def rebuild_memory(self) -> None:
        rebuild_index_and_graph(self._options, self._memory)

    def compact_memory(self) -> Compacted:
        with offline(self._options.home, registry_of(self._options), self._memory) as learning:
            return compact_memory(learning)

    @contextmanager
    def memory_closed(self) -> Iterator[None]:
        with ExitStack() as stack:
            run_or_fail(lambda: stack.enter_context(HomeLock(Home(self._options.home))))
            yield


@contextmanager
def procedure_backend(options: Settings) -> Iterator[ProcedureBackend]:
    """Return the backend of the state folder: its daemon if one answers, else this process.

    This process first finishes interrupted executions; a daemon does so when it starts.
    """
    if answers(options.home):
        with DaemonClient(options.home) as daemon:
            if options.registry_flag is not None:
                daemon.check_registry(options.registry_flag)
            yield DaemonProcedures(daemon)
        return
    with embedded_engine(options) as engine:
        callers = Callers(options.home, load_configuration().server.callers)
        yield EmbeddedProcedures(engine, callers.user().caller)


@contextmanager
def embedded_engine(options: Settings) -> Iterator[ProcedureEngine]:
    """Return the procedure engine of this process, which logs to the state folder from now on."""
    log_to(Home(options.home).logs / "orchestrator.log")
    configuration = load_configuration()
    upkeep = EmbeddedUpkeep(options, configuration)
    installation = Installation.of(options.home, registry_path(options), configuration, upkeep)
    engine = procedures_engine(installation, configuration)
    try:
        yield engine
    finally:
        engine.close()


def shown_kind(kind: str) -> str:
    """Return the text for an audit entry of one of the `SHOWN_KINDS`."""
    return kind.replace("_", " ").removeprefix("step ")


@contextmanager
def _stopped_by_ctrl_c(engine: ProcedureEngine) -> Iterator[None]:
    earlier = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(earlier):
        yield
        return

    # The first ctrl-C stops the execution and undoes it; the second one interrupts the process.
    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, earlier)
        if engine.stop():
            os.write(2, STOPPING.encode())  # unlike print, this may interrupt another one
        else:
            earlier(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


@contextmanager
def _when_interrupted(consequence: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        write(lambda: print(f"\n{consequence}", file=sys.stderr, flush=True))
        raise


def _watcher(tell: Tell) -> ExecutionWatcher:
    def observe(entry: Entry) -> None:
        if entry.kind in SHOWN_KINDS:
            tell(entry.data["step"], shown_kind(entry.kind))

    return ExecutionWatcher(observe, tell)
