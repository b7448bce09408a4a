"""Connect the engine of procedures to this installation, and say who calls."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.procedures.audit import Audit, AuditHead, Entry
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import PlanUnusable, ProcedureInvalid, StepFailed
from orchestrator.procedures.forms import Procedure
from orchestrator.procedures.library import library_of
from orchestrator.procedures.operations.frontdoor import FrontdoorOperations
from orchestrator.procedures.operations.memory import MemoryOperations
from orchestrator.procedures.operations.runs import RunOperations
from orchestrator.procedures.operations.state import Operations
from orchestrator.procedures.operations.tuning import TuningOperations
from orchestrator.procedures.plan import ProcedurePlan, plan_to_json
from orchestrator.procedures.ports import MAX_OUTPUT, Ended, Operation, ProcedurePorts, Program, Work, proposer
from orchestrator.procedures.upkeep import Installation, Upkeep
from orchestrator.run.sandbox.contract import SandboxJob, SandboxLimits
from orchestrator.run.sandbox.sandbox import SandboxOnDemand
from orchestrator.service.callers import Caller
from orchestrator.service.configuration import configuration_path, load_configuration
from orchestrator.service.schedules import Schedule

# Of the environment, for programs outside the sandbox.
SHELL_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
MAX_SHOWN_MISSED: Final = 200  # times that a schedule missed since its last execution, the newest


def procedures_engine(installation: Installation, environ: Mapping[str, str] = os.environ) -> ProcedureEngine:
    """Return the engine of procedures of an installation. It has to be closed."""
    ports, settings = procedure_ports(installation, environ), installation.configuration.procedures
    return ProcedureEngine(installation.home, ports, library_of(settings, environ), part_bytes=settings.audit_bytes)


def procedure_ports(installation: Installation, environ: Mapping[str, str] = os.environ) -> ProcedurePorts:
    """Return what procedures act on."""
    return ProcedurePorts(
        registry=installation.registry.absolute(),
        places={
            "home": str(installation.home),
            "registry": str(installation.registry.absolute()),
            "models": str(installation.models),
            "configuration": str(configuration_path(environ)),
        },
        operations={
            **Operations(installation).by_name(),
            **RunOperations(installation).by_name(),
            **MemoryOperations(installation, environ).by_name(),
            **TuningOperations(installation).by_name(),
            **FrontdoorOperations(installation).by_name(),
        },
        run_program=Programs(installation.configuration.procedures.commands).run,
    )


def known_operations(home: Path, registry: Path) -> Mapping[str, Operation[Any]]:
    """Return the operations that steps can call, by name, for checks: they cannot be carried out."""
    return procedure_ports(Installation.of(home, registry, load_configuration(), Upkeep())).operations


def described(procedure: Procedure) -> dict[str, Any]:
    """Return what lists say of a procedure, as JSON."""
    form = procedure.form
    return {
        "id": form.id,
        "version": form.version,
        "category": form.category,
        "description": form.description,
        "permissions": form.permissions.model_dump(mode="json"),
        "inputs": {name: field.model_dump(mode="json") for name, field in form.inputs.items()},
        "outputs": {name: field.description for name, field in form.outputs.items()},
        "steps": list(procedure.order),
    }


def procedure_body(procedure: Procedure) -> dict[str, Any]:
    return {**described(procedure), "file": str(procedure.path), "text": procedure.text.decode()}


def plan_body(plan: ProcedurePlan) -> dict[str, Any]:
    return {**plan_to_json(plan), "digest": plan.digest}


def entry_body(entry: Entry) -> dict[str, Any]:
    return {"number": entry.number, "at": entry.at, "kind": entry.kind, "execution": entry.execution, **entry.data}


def verified_body(log: Audit, expected: AuditHead | None) -> dict[str, Any]:
    """Check the audit log, and return the number of its entries, its start and its end, as JSON.

    Raises AuditDamaged, ProcedureRefused.
    """
    count = log.verify(expected)
    return {"verified": count, "after": log.beginning().number, "head": str(log.head())}


def execution_body(engine: ProcedureEngine, identity: str) -> dict[str, Any]:
    """Return an execution with its plan, or why there is none, as JSON. Raises ProcedureError."""
    execution = engine.execution(identity)
    if execution.state == "missed":
        return {**execution.to_json(), "needs_approval": False, "plan_of": None, "no_plan": ""}
    try:
        plan, needs_approval = plan_body(engine.plan_of(identity)), engine.needs_approval(identity)
    except PlanUnusable as error:
        return {**execution.to_json(), "needs_approval": False, "plan_of": None, "no_plan": str(error)}
    return {**execution.to_json(), "needs_approval": needs_approval, "plan_of": plan, "no_plan": ""}


def listing(engine: ProcedureEngine, schedules: Sequence[Schedule], now: float, *, by_daemon: bool) -> dict[str, Any]:
    """Return all procedures, the unusable files, and the schedules, as JSON. Reads the disk."""
    entries = list(engine.library.procedures())
    good = {procedure.id: procedure for procedure in entries if isinstance(procedure, Procedure)}
    return {
        "procedures": [described(procedure) for procedure in good.values()],
        "broken": [str(entry) for entry in entries if isinstance(entry, ProcedureInvalid)],
        "schedules": [
            _scheduled(engine, schedule, good.get(schedule.procedure), now, by_daemon) for schedule in schedules
        ],
    }


def schedule_caller(schedule: Schedule, owner: str = "") -> Caller:
    """Return the caller of a schedule's executions, which `owner` owns."""
    return Caller(f"the schedule {schedule.text!r}", frozenset({"schedule"}), person=False, key=owner)


def propose(engine: ProcedureEngine, name: str, inputs: Mapping[str, Any], run: str, owner: str) -> str:
    """Store the plan of a procedure that a run's plan requests, to wait for a person. Return a text about it.

    `owner`, the owner of the run, then owns what the procedure makes. The same proposal of the same run is stored once.
    Raises ProcedureError.
    """
    caller = Caller(proposer(run), frozenset({"model"}), person=False, key=owner)
    plan = engine.plan(name, inputs, caller, proposed=True)
    past = engine.executions_of(caller.name)
    waiting = [execution.id for execution in past if (execution.plan, execution.state) == (plan.digest, "planned")]
    identity = waiting[0] if waiting else engine.submit(plan, caller, proposed=True)
    return "\n".join(_proposal_lines(plan, identity))


# No file is quoted: readers of the run's artifacts may have no right to see it.
def _proposal_lines(plan: ProcedurePlan, identity: str) -> Iterator[str]:
    yield f"{plan.procedure} {plan.version}: {plan.description.strip()}"
    yield from (f"  {name} = {value}" for name, value in plan.inputs.items() if value is not None)
    yield ""
    for step in plan.steps:
        changes = f" changes {', '.join(step.changes)}" if step.changes else " changes nothing"
        yield f"{step.id} [{step.kind}]{changes if step.runs != 'no' else ' is skipped'}"
    if plan.destructive:
        yield "This procedure is destructive."
    yield f"\nNothing was changed. The plan waits for the approval of a person, as execution {identity}."
    yield f"Its exact changes: orchestrator procedures history {identity}"
    yield f"To approve and execute it: orchestrator procedures approve {identity} {plan.digest[:16]}"


def _scheduled(
    engine: ProcedureEngine, schedule: Schedule, procedure: Procedure | None, now: float, by_daemon: bool
) -> dict[str, Any]:
    caller = schedule_caller(schedule).name
    executed = next(iter(engine.executions_of(caller, 1)), None)
    past = engine.missed_by(caller, MAX_SHOWN_MISSED)
    missed = [execution for execution in past if executed is None or execution.planned > executed.planned]
    why_not = "" if by_daemon else "no daemon runs, so nothing is executed by schedule"
    if procedure is None:
        why_not = f"there is no procedure {schedule.procedure} that can be used"
    elif "schedule" not in procedure.form.permissions.roles:
        why_not = f"{schedule.procedure} may not be run by a schedule: its roles lack `schedule`"
    return {
        "schedule": schedule.text,
        "procedure": schedule.procedure,
        "next": schedule.after(now),
        "last": None if executed is None else {"id": executed.id, "at": executed.planned, "state": executed.state},
        "missed": [{"id": execution.id, "at": execution.planned, "why": execution.error} for execution in missed],
        "why_not": why_not,
    }


class Programs:
    """Runs the programs of steps: in the sandbox, or outside of it those that the configuration names."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = frozenset(allowed)

    def run(self, program: Program, work: Work) -> Ended:
        """Run a program to its end. Raises StepFailed if it cannot be run, or when its time is over."""
        return _in_sandbox(program, work) if program.sandbox else self._outside(program, work)

    def _outside(self, program: Program, work: Work) -> Ended:
        if program.command[0] not in self._allowed:
            accepted = ", ".join(sorted(self._allowed)) or "none, since [procedures] commands names none"
            raise StepFailed(f"{program.command[0]} may not be run outside the sandbox; accepted: {accepted}")
        environment = {name: os.environ[name] for name in SHELL_VARIABLES if name in os.environ}
        try:
            process = subprocess.Popen(  # noqa: S603 - the configuration allows it, and no shell reads the arguments
                program.command,
                cwd=program.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(f"{program.command[0]}: {error.strerror}") from error
        with process:
            try:
                out, errors = process.communicate(program.stdin.encode(), timeout=work.seconds_left)
            except subprocess.TimeoutExpired as error:
                raise StepFailed(f"{program.command[0]} was ended: its time is over") from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        code = process.returncode
        return Ended(exit_code=code if code >= 0 else 128 - code, stdout=_text(out), stderr=_text(errors))


def _in_sandbox(program: Program, work: Work) -> Ended:
    try:
        files = {name: path.read_bytes() for name, path in program.files.items()}
    except OSError as error:
        raise StepFailed(f"{error.filename}: {error.strerror}") from error
    limits = SandboxLimits(wall=work.seconds_left, output=MAX_OUTPUT)
    job = SandboxJob(argv=program.command, files=files, stdin=program.stdin.encode(), limits=limits)

    async def run() -> Ended:
        outcome = await (await SandboxOnDemand()()).run(job)
        if outcome.limit is not None:
            raise StepFailed(f"{program.command[0]} was ended by its limit of {outcome.limit}")
        code = 128 + (outcome.signal or 0) if outcome.exit_code is None else outcome.exit_code
        return Ended(exit_code=code, stdout=_text(outcome.stdout), stderr=_text(outcome.stderr))

    try:
        return asyncio.run(run())
    except OrchestratorError as error:
        raise StepFailed(str(error)) from error


def _text(data: bytes) -> str:
    return data[:MAX_OUTPUT].decode("utf-8", "replace")
