"""Plan, approve, execute, roll back and recover procedures.

Every action is in the audit log before it is done, and what it changes is in a checkpoint before that. The state is a
fold over the log (`execution`), so a process that finds an execution interrupted continues where the log ends: it puts
back what the interrupted step changed, and then undoes or resumes the execution, as the procedure says. A rollback is
interrupted and continued in the same way.
"""

import errno
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from orchestrator.procedures import checkpoints
from orchestrator.procedures.audit import PART_BYTES, Audit, Entry
from orchestrator.procedures.durable import BeforeWrite, make_private_folder, no_fault, replace_file
from orchestrator.procedures.errors import (
    ChangedMeanwhile,
    PlanUnusable,
    ProcedureError,
    ProcedureForbidden,
    ProcedureInvalid,
    ProcedureRefused,
    UnknownExecution,
)
from orchestrator.procedures.execution import Execution, execution_of
from orchestrator.procedures.forms import Procedure, procedure_from
from orchestrator.procedures.library import Library
from orchestrator.procedures.locks import Locks
from orchestrator.procedures.plan import ProcedurePlan, make_plan, plan_from_json, plan_to_json
from orchestrator.procedures.ports import ProcedurePorts, require_role
from orchestrator.procedures.retention import KEPT_CHECKPOINTS, plan_file
from orchestrator.procedures.run import UNWATCHED, ExecutionWatcher, RunningExecution, RunWithoutPlan
from orchestrator.service.callers import Caller

DAMAGED: Final = ".damaged"  # suffix of a plan's file that was set aside
_NOT_BEGUN: Final = ("planned", "approved", "queued")
ONLY_PERSONS: Final = "only a person may, who is a caller with the role `approver` in [procedures] callers"


class ProcedureEngine:
    """Executes procedures on one state folder. Blocks; one execution at a time over all processes."""

    def __init__(
        self,
        home: Path,
        ports: ProcedurePorts,
        library: Library,
        before_write: BeforeWrite = no_fault,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`home` is the state folder; tests that kill the process pass `before_write`.

        A part of the audit log with more than `part_bytes` is sealed before the next execution starts.
        """
        self.folder = home / "procedures"
        self.ports = ports
        self.library = library
        self.audit = Audit(self.folder, before_write)
        self.part_bytes = part_bytes
        self._before_write = before_write
        self._cancelled: dict[str, Event] = {}
        # held from checking whether an execution has started until what depends on it is logged
        self._deciding = Lock()

    def close(self) -> None:
        self.audit.close()

    def plan(self, name: str, inputs: Mapping[str, Any], caller: Caller, *, proposed: bool = False) -> ProcedurePlan:
        """Return the plan of a procedure; changes and logs nothing. Raises ProcedureError.

        `proposed`: the caller needs no right to run it, see `submit`.
        """
        procedure = self.library.procedure(name)
        if not proposed:
            require_role(caller, procedure.form.permissions.roles, f"run {procedure.id}")
        return make_plan(procedure, inputs, self.ports)

    def submit(self, plan: ProcedurePlan, caller: Caller, *, proposed: bool = False) -> str:
        """Keep a plan for approval and execution, and return the id of its execution. Raises ProcedureError.

        `proposed`: the caller needs no right to run it, but a person with that right has to approve the plan.
        """
        if plan.problems:
            raise ProcedureRefused("this plan would fail:\n" + "\n".join(plan.problems))
        if not proposed:
            require_role(caller, plan.roles, f"run {plan.procedure}")
        identity = _new_identity()
        path = self._plan_path(identity)
        try:
            make_private_folder(path.parent)
            replace_file(path, json.dumps(plan_to_json(plan)).encode(), 0o600, self._before_write)
        except OSError as error:
            raise ProcedureError(f"{path}: the plan cannot be written: {error.strerror}") from error
        self.audit.append(
            "planned",
            identity,
            {
                "procedure": plan.procedure,
                "version": plan.version,
                "plan": plan.digest,
                "inputs": dict(plan.inputs),
                "caller": caller.name,
                "owner": caller.key,
                "roles": sorted(caller.roles),
            },
        )
        return identity

    def plan_and_submit(self, name: str, inputs: Mapping[str, Any], caller: Caller, approved: str | None) -> str:
        """Plan a procedure, keep the plan and return the id of its execution.

        `approved` is the digest of the plan that the caller has seen and approves. Raises ProcedureError,
        ChangedMeanwhile if the plan has changed, and ProcedureForbidden if a caller who is no person approves; then
        nothing is kept.
        """
        plan = self.plan(name, inputs, caller)
        if approved is not None and plan.digest != approved:
            raise ChangedMeanwhile(f"the plan is another one now: {plan.digest}; look at it, and approve that one")
        if approved is not None and plan.needs_approval and not caller.person:
            raise ProcedureForbidden(f"{caller.name} may not approve this plan: {ONLY_PERSONS}")
        identity = self.submit(plan, caller)
        if approved is not None and plan.needs_approval:
            self.approve(identity, plan.digest, caller)
        return identity

    def approve(self, identity: str, digest: str, caller: Caller) -> None:
        """Approve the plan with this digest, or at least its first 8 digits. May be repeated.

        Raises ProcedureForbidden if the caller is no person or may not run the procedure, and ProcedureRefused for
        another plan.
        """
        with self._deciding:
            execution, plan = self._planned(identity)
            if not caller.person:
                self._refuse(identity, caller, f"approve: {ONLY_PERSONS}")
            self._check_roles(plan, identity, caller)
            if len(digest) < 8 or not execution.plan.startswith(digest):
                raise ProcedureRefused(
                    f"the plan of {identity} is {execution.plan}; accepted: that digest, or its beginning"
                )
            if execution.state == "approved":
                return
            if execution.state != "planned":
                raise ProcedureRefused(f"{identity} is {execution.state}; accepted: an execution that is planned")
            data = {"plan": execution.plan, "caller": caller.name, "roles": sorted(caller.roles)}
            self.audit.append("approved", identity, data)

    def withdraw(self, identity: str, caller: Caller, why: str = "") -> None:
        """Give up an execution that has not started. Raises ProcedureRefused."""
        with self._deciding:
            execution = self.execution(identity)
            self._check_may_stop(execution, caller)
            if execution.state not in _NOT_BEGUN:
                raise ProcedureRefused(f"{identity} is {execution.state}; accepted: an execution that has not begun")
            self._give_up(identity, caller, why or f"{caller.name} withdrew it")

    def _give_up(self, identity: str, caller: Caller, why: str) -> None:
        self.audit.append("withdrawn", identity, {"why": why, "caller": caller.name})

    def queue(self, identity: str, caller: Caller) -> None:
        """Log that an execution waits for its turn, so that a restart does not lose it. Raises as `execute` does."""
        with self._deciding:
            self._check_startable(identity, caller)
            self.audit.append("queued", identity, {"caller": caller.name, "roles": sorted(caller.roles)})

    def needs_approval(self, identity: str) -> bool:
        """Whether an execution still needs a person's approval. Raises UnknownExecution, PlanUnusable."""
        execution, plan = self._planned(identity)
        return _needs_approval(execution, plan)

    def miss(self, schedule: str, procedure: str, why: str) -> str:
        """Log that a schedule was due and nothing was executed; return the id of that entry in the history."""
        identity = _new_identity()
        self.audit.append("missed", identity, {"schedule": schedule, "procedure": procedure, "why": why})
        return identity

    def begin_new_log(self, caller: Caller) -> Entry:
        """Set the damaged audit log aside and start a new one, see `Audit.begin_anew`.

        Raises ProcedureForbidden unless the caller is the owner in person, and ProcedureRefused for an intact log.
        """
        if not caller.person:
            raise ProcedureForbidden(f"{caller.name} may not begin a new audit log: only a person may")
        require_role(caller, ("owner",), "begin a new audit log")
        with Locks(self.folder):
            return self.audit.begin_anew(caller.name)

    def execute(self, identity: str, caller: Caller, watcher: ExecutionWatcher = UNWATCHED) -> Execution:
        """Execute a submitted plan, and return the execution when it has ended, also in failure.

        Raises ProcedureRefused without a needed approval, ChangedMeanwhile if the plan would differ now, and
        ProcedureBusy.
        """
        self._check_startable(identity, caller)
        with Locks(self.folder) as locks:
            self._recover(locks, watcher)
            self.audit.seal(self.part_bytes)
            plan = self._check_startable(identity, caller)  # another process may have begun it meanwhile
            self._check_current(identity, plan)
            with self._deciding:
                self._check_startable(identity, caller)  # it may have been withdrawn meanwhile
                run = self._run(identity, plan, locks, watcher)
                run.append("begun", caller=caller.name, plan=plan.digest)
            return self._ended(run.go_on())

    def rollback(
        self, identity: str, caller: Caller, *, force: bool = False, watcher: ExecutionWatcher = UNWATCHED
    ) -> Execution:
        """Undo everything that an ended execution has changed, and return it.

        Raises ChangedMeanwhile if something was changed since. `force` puts that back too, and keeps a copy of it.
        """
        self._check_roles(self._planned(identity)[1], identity, caller)
        with Locks(self.folder) as locks:
            self._recover(locks, watcher)
            execution, plan = self._planned(identity)
            if execution.state not in ("done", "failed", "rollback failed"):
                status = f"{identity} is {execution.state}"
                raise ProcedureRefused(f"{status}; accepted: an execution that is done or failed")
            run = self._run(identity, plan, locks, watcher)
            changed = run.check_undoable(force=force)
            return self._ended(run.roll_back(f"{caller.name} asked for it", force=force, changed_since=changed))

    def recover(self, caller: Caller | None = None, watcher: ExecutionWatcher = UNWATCHED) -> list[Execution]:
        """Finish every interrupted execution, and return them. `caller` is None when a process starts.

        If a plan cannot be used, its checkpoints are put back as far as they go. Raises ProcedureForbidden unless the
        caller is owner or operator, and ProcedureBusy.
        """
        if caller is not None:
            require_role(caller, ("owner", "operator"), "bring interrupted executions to their end")
        if not self.audit.not_ended():
            return []
        with Locks(self.folder) as locks:
            return self._recover(locks, watcher)

    def cancel(self, identity: str, caller: Caller) -> None:
        """Stop an execution of this process before its next action, and undo it; withdraw it if it has not started.

        Raises ProcedureForbidden, and ProcedureRefused if it is over.
        """
        with self._deciding:  # it may begin at this moment
            execution = self.execution(identity)
            self._check_may_stop(execution, caller)
            if execution.is_over:
                raise ProcedureRefused(f"{identity} is {execution.state}; accepted: an execution that is under way")
            if execution.state in _NOT_BEGUN:
                self._give_up(identity, caller, f"{caller.name} cancelled it before it began")
            elif (event := self._cancelled.get(identity)) is not None:
                event.set()

    def stop(self) -> bool:
        """Stop the executions of this process before their next action, and undo them; return whether there are any.

        Signal handlers may call it.
        """
        events = list(self._cancelled.values())
        for event in events:
            event.set()
        return bool(events)

    def execution(self, identity: str) -> Execution:
        """Raises UnknownExecution."""
        entries = self.audit.entries(identity)
        if not entries:
            raise UnknownExecution(identity)
        return execution_of(identity, entries)

    def executions(self, limit: int | None = None) -> list[Execution]:
        """Newest first."""
        return [self.execution(identity) for identity in self.audit.executions(limit)]

    def executions_of(self, caller: str, limit: int | None = None) -> list[Execution]:
        """Return the executions of a caller, newest first, without missed schedules."""
        return [
            self.execution(identity) for identity in self.audit.executions(limit, caller=caller, kinds=("planned",))
        ]

    def missed_by(self, schedule: str, limit: int | None = None) -> list[Execution]:
        """The missed times of a schedule, newest first."""
        return [
            self.execution(identity) for identity in self.audit.executions(limit, caller=schedule, kinds=("missed",))
        ]

    def plan_of(self, identity: str) -> ProcedurePlan:
        """Raises UnknownExecution, and PlanUnusable if the plan is not what was kept."""
        return self._planned(identity)[1]

    def _recover(self, locks: Locks, watcher: ExecutionWatcher) -> list[Execution]:
        return [self._finish(identity, locks, watcher) for identity in self.audit.not_ended()]

    def _finish(self, identity: str, locks: Locks, watcher: ExecutionWatcher) -> Execution:
        try:
            execution, plan = self._planned(identity)
            run = self._run(identity, plan, locks, watcher)
        except PlanUnusable as error:
            return self._finish_without_plan(identity, error, locks, watcher)
        run.append("interrupted", state=execution.state)
        if execution.state == "rolling back":
            return run.roll_back_rest()
        run.put_back_interrupted()
        if run.procedure.form.on_interruption == "resume":
            return run.go_on()
        return run.roll_back("the process that executed it was killed", force=False)

    def _finish_without_plan(
        self, identity: str, error: PlanUnusable, locks: Locks, watcher: ExecutionWatcher
    ) -> Execution:
        # puts back what checkpoints hold, and sets the plan aside
        run = RunWithoutPlan(
            execution=self.execution(identity),
            folder=self.folder / "checkpoints" / identity,
            audit=self.audit,
            ports=self.ports,
            locks=locks,
            watcher=watcher,
            before_write=self._before_write,
        )
        ended = run.put_back(str(error))
        try:
            if error.path.exists():
                self._before_write("set the plan aside")
                error.path.replace(error.path.with_name(error.path.name + DAMAGED))
        except OSError as failure:
            raise ProcedureError(f"{error.path}: cannot be set aside: {failure.strerror}") from failure
        return ended

    def _planned(self, identity: str) -> tuple[Execution, ProcedurePlan]:
        execution, path = self.execution(identity), self._plan_path(identity)
        try:
            plan = plan_from_json(json.loads(path.read_bytes()))
        except FileNotFoundError as error:
            raise PlanUnusable(path, "the plan is not there any more") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise ProcedureError(f"{path}: the plan cannot be read now: {error.strerror}") from error
            raise PlanUnusable(path, f"the plan cannot be read: {error}") from error
        if plan.digest != execution.plan:
            raise PlanUnusable(path, "the plan is not the one that was submitted")
        return execution, plan

    def _check_current(self, identity: str, plan: ProcedurePlan) -> None:
        # Raises ChangedMeanwhile if a plan with the same inputs would be different now.
        now = make_plan(self._procedure(identity, plan), plan.inputs, self.ports)
        if now.digest != plan.digest:
            differing = [
                planned.id for planned, current in zip(plan.steps, now.steps, strict=True) if planned != current
            ]
            where = f" (at {', '.join(differing)})" if differing else ""
            changed = f"what the plan would change is no longer as it was{where}"
            why = f"{changed}; plan it again, and have the new plan approved"
            self.audit.append("withdrawn", identity, {"why": why, "caller": "the engine"})
            raise ChangedMeanwhile(why)

    def _procedure(self, identity: str, plan: ProcedurePlan) -> Procedure:
        # raises PlanUnusable if this version of the program refuses the procedure
        try:
            return procedure_from(plan.definition.encode(), Path(plan.path))
        except ProcedureInvalid as error:
            raise PlanUnusable(self._plan_path(identity), f"this version cannot carry it out: {error}") from error

    def _check_startable(self, identity: str, caller: Caller) -> ProcedurePlan:
        # Raises ProcedureRefused unless this caller may start it now. Withdraws it and raises PlanUnusable if its plan
        # cannot be used.
        try:
            execution, plan = self._planned(identity)
            self._procedure(identity, plan)
        except PlanUnusable as error:
            if self.execution(identity).state in _NOT_BEGUN:
                self.audit.append("withdrawn", identity, {"why": str(error), "caller": "the engine"})
            raise
        if execution.state not in _NOT_BEGUN:
            raise ProcedureRefused(f"{identity} is {execution.state}; accepted: an execution that has not begun")
        self._check_roles(plan, identity, caller)
        if _needs_approval(execution, plan):
            raise ProcedureRefused(f"{identity} needs a person's approval of its plan {execution.plan[:16]}")
        return plan

    def _check_may_stop(self, execution: Execution, caller: Caller) -> None:
        # Only the owner may stop an execution whose plan cannot be used. Raises ProcedureForbidden.
        try:
            self._check_roles(self.plan_of(execution.id), execution.id, caller)
        except PlanUnusable:
            require_role(caller, ("owner",), f"stop {execution.id}, whose plan cannot be used")

    def _check_roles(self, plan: ProcedurePlan, identity: str, caller: Caller) -> None:
        if not caller.roles & set(plan.roles):
            self._refuse(identity, caller, f"needs one of the roles {', '.join(plan.roles)}")

    def _refuse(self, identity: str, caller: Caller, why: str) -> None:
        self.audit.append("refused", identity, {"caller": caller.name, "roles": sorted(caller.roles), "why": why})
        raise ProcedureForbidden(f"{caller.name} may not do this: {why}")

    def _run(self, identity: str, plan: ProcedurePlan, locks: Locks, watcher: ExecutionWatcher) -> RunningExecution:
        return RunningExecution(
            execution=self.execution(identity),
            plan=plan,
            procedure=self._procedure(identity, plan),
            folder=self.folder / "checkpoints" / identity,
            audit=self.audit,
            ports=self.ports,
            locks=locks,
            watcher=watcher,
            cancelled=self._cancelled.setdefault(identity, Event()),
            before_write=self._before_write,
        )

    def _ended(self, execution: Execution) -> Execution:
        # checkpoints of executions that ended long ago are removed
        self._cancelled.pop(execution.id, None)
        retained = {*self.audit.executions(KEPT_CHECKPOINTS, kinds=("begun",)), execution.id}
        folder = self.folder / "checkpoints"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in retained:
                checkpoints.discard(path)
        return execution

    def _plan_path(self, identity: str) -> Path:
        if os.sep in identity or identity.startswith("."):
            raise UnknownExecution(identity)
        return plan_file(self.folder, identity)


def _new_identity() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def _needs_approval(execution: Execution, plan: ProcedurePlan) -> bool:
    # because of the procedure, or of who proposed it
    return not execution.approved_by and (plan.needs_approval or not set(execution.roles) & set(plan.roles))
