"""Carry out one execution: its steps in order, and their undoing when it fails.

The order of writes makes it durable. A step: `step_begun`; the checkpoint; `acting`, which names it; the action;
`step_done`. Undoing it: `undoing`; the compensation; putting back; `undone`.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

from orchestrator.procedures import checkpoints
from orchestrator.procedures.audit import Audit, Entry
from orchestrator.procedures.changes import FileChange, Files, digest_after, write_change
from orchestrator.procedures.durable import BeforeWrite
from orchestrator.procedures.errors import ChangedMeanwhile, ProcedureBusy, ProcedureError, ProcedureRefused, StepFailed
from orchestrator.procedures.execution import Execution, State, StepState, apply
from orchestrator.procedures.expressions import ExpressionError, NotKnownYet, evaluate, render_all
from orchestrator.procedures.forms import ActionForm, Procedure, StepForm, check_output, kind_of
from orchestrator.procedures.locks import Locks
from orchestrator.procedures.plan import (
    ProcedurePlan,
    content_digest,
    operation_of,
    own_change,
    own_outputs,
    render_action,
    resources_of,
)
from orchestrator.procedures.ports import Operation, ProcedurePorts, Program, Work
from orchestrator.procedures.resources import Resource, place_of, resource_to_json
from orchestrator.procedures.secret import Secrets
from orchestrator.registry.errors import GgufError, RegistryError

MAX_OUTPUTS: Final = 1 << 20  # of the outputs of a step, as JSON
SHOWN_OUTPUT: Final = 2000
UNDO_SECONDS: Final = 3600.0  # for an operation to stop what it started, if no plan sets a limit
UNDO: Final = "/undo"  # suffix of a compensation's idempotency key
_FAILURES: Final = (StepFailed, ChangedMeanwhile, ProcedureBusy, ExpressionError, NotKnownYet, OSError)
# needed exactly, so they are logged unmasked
_EXACT: Final = frozenset(
    {"resources", "checkpoint", "digest", "after", "at_end", "changed_since", "step", "state", "plan"}
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExecutionWatcher:
    """Callbacks for what happens in an execution, called from its thread."""

    observe: Callable[[Entry], None] = lambda _entry: None
    say: Callable[[str, str], None] = lambda _step, _text: None  # step id, progress


UNWATCHED: Final = ExecutionWatcher()
_Called = tuple[Operation[Any], Any]  # with its checked arguments


@dataclass(frozen=True, slots=True)
class _Action:
    kind: str
    arguments: Any
    change: FileChange | None
    called: _Called | None
    resources: tuple[Resource, ...]


class _StepValues(Mapping[str, Mapping[str, Any]]):
    # made only for the steps that expressions name, since there may be many
    def __init__(self, steps: Mapping[str, StepState]) -> None:
        self._steps = steps

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        step = self._steps[name]
        return {"state": step.state, **step.outputs}

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


@dataclass(eq=False, kw_only=True)
class _Recorded:
    """What this process does about an execution while it holds the locks."""

    execution: Execution
    folder: Path  # of its checkpoints
    audit: Audit
    ports: ProcedurePorts
    locks: Locks
    watcher: ExecutionWatcher
    before_write: BeforeWrite

    def append(self, kind: str, **data: Any) -> None:
        """Log an entry of the execution without secrets, and apply it."""
        masked = {key: value if key in _EXACT else self._masked(value) for key, value in data.items()}
        entry = self.audit.append(kind, self.execution.id, masked)
        apply(self.execution, entry)
        self.watcher.observe(entry)

    def _masked(self, value: Any) -> Any:
        return value

    def _recorded_call(self, state: StepState) -> _Called | None:
        # with the arguments that were logged
        for kind, arguments in (state.action or {}).items():
            try:
                return operation_of(kind, arguments, self.ports)
            except (StepFailed, KeyError, TypeError):  # the operation is one of another version
                return None
        return None

    def _restored(self, identity: str, state: StepState, displaced: Sequence[Resource] = ()) -> list[str]:
        # copies `displaced` first; returns what could not be put back
        if not state.checkpoint:
            return []
        try:
            self.locks.hold(resource.folder for resource in state.resources)
            with _guarded(self._recorded_call(state), undoing=True):
                self._keep(displaced, f"displaced-{state.number}-{identity}")
                checkpoints.restore(self.folder / state.checkpoint, state.digest, self.before_write)
        except _FAILURES as error:
            return [f"what it has changed could not be put back: {error}"]
        return []

    def _stop(self, identity: str, call: Callable[[], _Called | None], seconds: float) -> list[str]:
        # tells the operation that was called that it is undone; returns what could not be stopped
        work = Work(
            key=f"{self.execution.id}/{identity}",
            deadline=time.monotonic() + seconds,
            cancelled=Event(),
            say=lambda text: self.watcher.say(identity, self._masked(text)),
            attempt=max(1, self.execution.steps[identity].attempt),
            owner=self.execution.owner,
        )
        try:
            called = call()
            if called is not None and called[0].undone is not None:
                called[0].undone(called[1], work)
        except _FAILURES as error:
            return [f"what it has begun could not be stopped: {error}"]
        return []

    def _keep(self, displaced: Sequence[Resource], name: str) -> None:
        # what somebody else has changed, before it is put back
        if not displaced:
            return
        try:
            checkpoints.discard(self.folder / name)
            checkpoints.take(displaced, self.folder / name, self.before_write)
            self.append("displaced", what=[str(resource) for resource in displaced], kept=str(self.folder / name))
        except StepFailed as error:
            self.append("displaced", what=[str(resource) for resource in displaced], kept=f"nowhere: {error}")

    def _end(
        self, state: State, *, outputs: Mapping[str, Any] | None = None, error: str = "", look_at: Sequence[str] = ()
    ) -> Execution:
        steps = self.execution.steps.items()
        notes = [*look_at, *(f"step {name}: {step.error}" for name, step in steps if step.state == "not undone")]
        if state == "failed":
            notes += [
                f"step {name} has changed {resource}, which stays so"
                for name, step in steps
                if step.state == "done"
                for resource in step.resources
            ]
        notes += self.execution.displaced
        self.append(
            "ended",
            state=state,
            outputs=outputs or {},
            error=error,
            undone=[name for name, step in steps if step.state == "undone"],
            look_at=notes,
            at_end=self._at_end() if state in ("done", "failed") else {},
        )
        if state == "rolled back" and not self.execution.displaced:
            checkpoints.discard(self.folder)
        return self.execution

    def _at_end(self) -> dict[str, dict[str, str]]:
        # Fingerprints by step of what later steps may have changed too: the resources of checkpoints, and those that
        # are inside or around what a later step changed.
        prints_by_step: dict[str, dict[str, str]] = {}
        later, around = dict[Path, set[str]](), set[Path]()
        finished = [(name, step) for name, step in self.execution.acted() if step.state == "done"]
        for name, step in finished:  # the last one first
            prints = {}
            for resource in step.resources:
                path = place_of(resource)
                is_within = any(folder in later for folder in path.parents) or bool(
                    later.get(path, set()) - {str(resource)}
                )
                if _is_checkpoint(step) or path in around or is_within:
                    with suppress(StepFailed):  # it is then compared with what it was when the step was done
                        prints[str(resource)] = checkpoints.fingerprint(resource)
            if prints:
                prints_by_step[name] = prints
            for resource in step.resources:
                later.setdefault(place_of(resource), set()).add(str(resource))
                around.update(place_of(resource).parents)
        return prints_by_step


class RunWithoutPlan(_Recorded):
    """An interrupted execution whose plan cannot be used. It is undone by its checkpoints."""

    def put_back(self, why: str) -> Execution:
        """Put back what the checkpoints hold, the last step first, and end as `rollback failed` for the reason `why`.

        Compensations are only in the plan, so a person has to look at it.
        """
        self.append("interrupted", state=self.execution.state)
        self.append("rolling_back", why=why, force=False)
        for identity, state in self.execution.acted():
            self.append("undoing", step=identity)
            called = self._recorded_call(state)
            problems = self._restored(identity, state)
            problems += self._stop(identity, partial(self._recorded_call, state), UNDO_SECONDS)
            if called is not None and called[0].irreversible:
                problems.append(f"it cannot be undone: {called[0].irreversible}")
            if problems:
                self.append("not_undone", step=identity, error="; ".join(problems))
            else:
                self.append("undone", step=identity)
        note = "the plan cannot be used: what was changed is put back from copies, and no compensation is carried out"
        return self._end("rollback failed", error=why, look_at=[note])


@dataclass(eq=False, kw_only=True)
class RunningExecution(_Recorded):
    """One execution that this process carries out, holding the locks."""

    plan: ProcedurePlan
    procedure: Procedure
    cancelled: Event

    def __post_init__(self) -> None:
        self._planned = {step.id: step for step in self.plan.steps}
        self._secrets = Secrets(self.procedure, self.plan.inputs)
        self._inputs: Mapping[str, Any] = self.plan.inputs
        self._deadline = time.monotonic() + self.procedure.form.timeout_seconds

    def _masked(self, value: Any) -> Any:
        return self._secrets.masked(value)

    def go_on(self) -> Execution:
        """Carry out the remaining steps, verify, and end. After a failure, stop or undo all."""
        try:
            self._inputs = self._secrets.resolved()
        except StepFailed as error:
            return self._fail(str(error), self.procedure.form.on_failure)
        for identity in self.procedure.order:
            step, state = self.procedure.steps[identity], self.execution.steps.get(identity)
            if state is not None and state.state in ("done", "skipped"):
                continue
            failed_before = state is not None and state.state in ("failed", "not undone")
            why = state.error if state is not None and failed_before else self._step(step)
            policy = self._policy(step)
            if why and (policy != "continue" or self.cancelled.is_set()):
                return self._fail(f"step {identity}: {why}", policy)
        if why := self._verify():
            return self._fail(why, self.procedure.form.on_failure)
        try:
            outputs = {
                name: render_all(output.value, self._names()) for name, output in self.procedure.form.outputs.items()
            }
            for name, output in self.procedure.form.outputs.items():
                check_output(name, output, outputs[name])
        except (ExpressionError, ValueError) as failure:
            return self._fail(f"its outputs: {failure}", self.procedure.form.on_failure)
        return self._end("done", outputs=outputs)

    def put_back_interrupted(self) -> None:
        again = self.procedure.form.on_interruption == "resume"
        for identity, state in self.execution.acted():
            if state.state in ("acting", "undoing"):
                self._undo(identity, state, again=again)

    def check_undoable(self, *, force: bool) -> list[str]:
        """Raise ProcedureRefused if checkpoints are gone, and ChangedMeanwhile if resources differ, unless `force`.

        `force` returns the differing resources of checkpoint steps, see `_changed_since`.
        """
        checked, differing = set[str](), list[str]()
        for identity, state in self.execution.acted():
            if state.checkpoint and not (self.folder / state.checkpoint).is_dir():
                raise ProcedureRefused(f"step {identity} cannot be undone: its checkpoint was removed to free space")
            for resource in state.resources:
                name = str(resource)
                expected = state.at_end.get(name, state.after.get(name))
                if name in checked or expected is None:
                    continue
                checked.add(name)
                if force:
                    differing += [name] if _is_checkpoint(state) and _differs(resource, expected) else []
                elif checkpoints.fingerprint(resource) != expected:
                    change = f"{name} was changed since step {identity}"
                    raise ChangedMeanwhile(f"{change}; with --force it is put back too, and a copy of it is kept")
        return differing

    def roll_back(self, why: str, *, force: bool, changed_since: Sequence[str] = ()) -> Execution:
        """Undo all steps, the last one first, and end. `changed_since` is what `check_undoable` returned."""
        self.append("rolling_back", why=why, force=force, changed_since=list(changed_since))
        return self.roll_back_rest()

    def roll_back_rest(self) -> Execution:
        """Undo the steps that are not undone yet, and end."""
        try:
            self._inputs = self._secrets.resolved()
        except StepFailed:
            pass  # a compensation that needs the secret says so
        for identity, state in self.execution.acted():
            self._undo(identity, state, displaced=self._changed_since(state) if state.state == "done" else ())
        remaining = [name for name, step in self.execution.steps.items() if step.state == "not undone"]
        return self._end("rollback failed" if remaining else "rolled back", error=self.execution.error)

    def _step(self, step: StepForm) -> str:
        # with retries; returns why it has failed, or an empty text
        try:
            if step.when is not None and not evaluate(step.when, self._names()):
                self.append("step_skipped", step=step.id)
                return ""
            self._check_condition(step)
        except (ExpressionError, ChangedMeanwhile) as error:
            self.append("step_failed", step=step.id, attempt=0, error=str(error), restored=True)
            return str(error)
        error_text = ""
        for attempt in range(1, step.retries + (2 if step.on_failure != "retry" else 3)):
            error_text = self._attempt(step, attempt)
            state = self.execution.steps[step.id].state
            if not error_text or state == "not undone" or self.cancelled.is_set():
                break
        return error_text

    def _attempt(self, step: StepForm, attempt: int) -> str:
        self.append("step_begun", step=step.id, attempt=attempt)
        state = self.execution.steps[step.id]
        try:
            work = self._work(step, attempt=attempt)
            work.seconds_left  # noqa: B018 - raises if there are none
            action = self._prepared(step, resources_of(step.changes, self._names()))
            self._check_planned(step, action)
            self.locks.hold(resource.folder for resource in action.resources)
            with _guarded(action.called, undoing=False):
                try:
                    self._act(step, action, work)
                except _FAILURES as error:
                    return self._failed(step, state, attempt, str(error))
        except _FAILURES as error:
            return self._failed(step, state, attempt, str(error))
        return ""

    def _act(self, step: StepForm, action: _Action, work: Work) -> None:
        # raises what `_FAILURES` names
        number = 1 + max((earlier.number for earlier in self.execution.steps.values()), default=0)
        name = f"{number}-{step.id}" if action.resources else ""
        digest = self._checkpoint(action.resources, name) if name else ""
        self.append(
            "acting",
            step=step.id,
            action={action.kind: _summary(action)},
            checkpoint=name,
            digest=digest,
            resources=[resource_to_json(resource) for resource in action.resources],
        )
        outputs = self._perform(action, work)
        # What a checkpoint holds is changed by the steps that follow, so it is looked at when all have ended.
        after = checkpoints.fingerprints(() if action.kind == "checkpoint" else action.resources)
        self.append("step_done", step=step.id, outputs=outputs, after=after)

    def _failed(self, step: StepForm, state: StepState, attempt: int, error: str) -> str:
        # puts back what the attempt changed; returns why it has failed
        problems = self._put_back(step.id, state) if state.state in ("acting", "done") else []
        text = "; ".join((error, *problems))
        self.append("step_failed", step=step.id, attempt=attempt, error=text, restored=not problems)
        return text

    def _prepared(self, action: ActionForm, more: Sequence[Resource] = ()) -> _Action:
        kind = kind_of(action)
        arguments = render_action(action, self._names())
        change = own_change(kind, arguments, self.ports, Files())
        called = operation_of(kind, arguments, self.ports)
        resources = [*([change.resource] if change else []), *(called[0].changes(called[1]) if called else []), *more]
        if kind == "checkpoint":
            resources += resources_of(action.checkpoint, self._names())
        return _Action(kind, arguments, change, called, tuple(dict.fromkeys(resources)))

    def _check_condition(self, step: StepForm) -> None:
        # A step that the plan skips must not run because its condition holds now. After a failure it may: the approved
        # procedure can have conditions for that.
        has_failure = any(earlier.state in ("failed", "not undone") for earlier in self.execution.steps.values())
        if self._planned[step.id].runs == "no" and not has_failure:
            raise ChangedMeanwhile("its condition did not hold when the plan was made, and holds now; make a new plan")

    def _check_planned(self, step: StepForm, action: _Action) -> None:
        # raises ChangedMeanwhile unless the file is as it was planned, and becomes what was approved
        planned = self._planned[step.id]
        if action.change is None or not planned.after:
            return
        path = str(action.change.path)
        before, after = planned.before.get(path, ""), planned.after.get(path, "")
        if not before.startswith("copy of ") and content_digest(action.change.path, Files()) != before:
            raise ChangedMeanwhile(f"{path} is no longer what it was when the plan was made")
        source = action.change.after
        is_same_copy = isinstance(source, Path) and after == f"copy of {source}"  # an earlier step made the source
        if after != digest_after(action.change) and not is_same_copy:
            raise ChangedMeanwhile(f"{path} would become something else than what the plan says")

    def _checkpoint(self, resources: Sequence[Resource], name: str) -> str:
        checkpoints.discard(self.folder / name)  # of a process that was killed before it has written down that it acts
        return checkpoints.take(resources, self.folder / name, self.before_write)

    def _perform(self, action: _Action, work: Work) -> dict[str, Any]:
        # raises StepFailed, OSError
        if action.change is not None:
            write_change(action.change, self.before_write)
            return own_outputs(action.kind, action.change)
        if action.called is not None:
            return _call(*action.called, work, secret=bool(self._secrets))
        match action.kind:
            case "shell":
                return self._shell(action.arguments, work)
            case "wait":
                return _wait(action.arguments["seconds"], work)
            case _:
                return {}

    def _shell(self, arguments: Mapping[str, Any], work: Work) -> dict[str, Any]:
        program = Program(
            command=tuple(map(str, arguments["command"])),
            sandbox=arguments["sandbox"],
            folder=None if arguments["folder"] is None else Path(arguments["folder"]),
            files={name: Path(path) for name, path in arguments["files"].items()},
            stdin=str(arguments["stdin"]),
        )
        ended = self.ports.run_program(program, work)
        if ended.exit_code not in arguments["expect"]:
            message = (ended.stderr or ended.stdout).strip()[-SHOWN_OUTPUT:]
            raise StepFailed(f"{program.command[0]} ended with {ended.exit_code}: {message or 'it said nothing'}")
        return {"exit_code": ended.exit_code, "stdout": ended.stdout, "stderr": ended.stderr}

    def _undo(
        self, identity: str, state: StepState, *, again: bool = False, displaced: Sequence[Resource] = ()
    ) -> None:
        # `again`: the step runs again afterwards; `displaced` is copied before
        self.append("undoing", step=identity)
        if problems := self._put_back(identity, state, again=again, displaced=displaced):
            self.append("not_undone", step=identity, error="; ".join(problems))
        else:
            self.append("undone", step=identity, changed_nothing=self._changed_nothing(identity, state))

    def _changed_nothing(self, identity: str, state: StepState) -> bool:
        step = self.procedure.steps[identity]
        operation = self._operation(step)
        stops = operation is not None and operation.undone is not None
        return not state.resources and step.compensation is None and not stops

    def _put_back(
        self, identity: str, state: StepState, *, again: bool = False, displaced: Sequence[Resource] = ()
    ) -> list[str]:
        # returns what could not be undone
        step, problems = self.procedure.steps[identity], list[str]()
        if step.compensation is not None:
            try:
                action = self._prepared(step.compensation)
                self.locks.hold(resource.folder for resource in action.resources)
                self._perform(action, self._work(step, undoing=True))
            except _FAILURES as error:
                problems.append(f"its compensation has failed: {error}")
        problems += self._restored(identity, state, displaced)
        if not again and (operation := self._operation(step)) is not None and operation.undone is not None:
            problems += self._stop(identity, partial(self._rendered_call, step), self._seconds(step))
        if reason := self._irreversible(step):
            problems.append(f"it cannot be undone: {reason}")
        return problems

    def _rendered_call(self, step: StepForm) -> _Called | None:
        # raises what `_FAILURES` names
        return operation_of(kind_of(step), render_action(step, self._names()), self.ports)

    def _seconds(self, step: StepForm) -> float:
        return step.timeout_seconds or self.procedure.form.timeout_seconds

    def _irreversible(self, step: StepForm) -> str:
        if step.irreversible is not None or step.compensation is not None:
            return step.irreversible or ""
        operation = self._operation(step)
        return "" if operation is None else operation.irreversible

    def _operation(self, step: StepForm) -> Operation[Any] | None:
        kind = kind_of(step)
        named = getattr(getattr(step, kind), "operation", None)
        name = {"call": named, "memory": f"memory.{named}"}.get(kind, kind)
        return self.ports.operations.get(str(name))

    def _changed_since(self, state: StepState) -> list[Resource]:
        # by somebody else: the later steps are undone already
        if _is_checkpoint(state):
            return [resource for resource in state.resources if str(resource) in self.execution.changed_since]
        return [resource for resource in state.resources if _differs(resource, state.after.get(str(resource)))]

    def _verify(self) -> str:
        # the first condition that does not hold, or an empty text
        for check in self.procedure.form.verification:
            try:
                if not evaluate(check.that, self._names()):
                    return f"verification: {check.otherwise}"
            except ExpressionError as error:
                return f"verification: {error}"
        return ""

    def _policy(self, step: StepForm) -> str:
        return self.procedure.form.on_failure if step.on_failure in (None, "retry") else step.on_failure

    def _fail(self, error: str, policy: str) -> Execution:
        if policy == "rollback" or self.cancelled.is_set():
            return self.roll_back(error, force=False)
        return self._end("failed", error=error)

    def _names(self) -> dict[str, object]:
        return {"inputs": self._inputs, "places": self.ports.places, "steps": _StepValues(self.execution.steps)}

    def _work(self, step: StepForm, *, attempt: int = 1, undoing: bool = False) -> Work:
        deadline = time.monotonic() + self._seconds(step)
        return Work(
            key=f"{self.execution.id}/{step.id}{UNDO if undoing else ''}",
            deadline=deadline if undoing else min(deadline, self._deadline),
            cancelled=Event() if undoing else self.cancelled,
            say=lambda text: self.watcher.say(step.id, self._masked(text)),
            attempt=attempt,
            owner=self.execution.owner,
        )


def _is_checkpoint(state: StepState) -> bool:
    return "checkpoint" in (state.action or {})


def _differs(resource: Resource, expected: str | None) -> bool:
    try:
        return checkpoints.fingerprint(resource) != expected
    except StepFailed:  # whoever copies it tells why
        return True


def _guarded(called: _Called | None, *, undoing: bool) -> AbstractContextManager[object]:
    # held while resources are changed or put back
    return nullcontext() if called is None else called[0].guard(called[1], undoing)


def _call(operation: Operation[Any], arguments: Any, work: Work, *, secret: bool) -> dict[str, Any]:
    # With `secret`, only the kind of an unexpected error is logged, since the rest may contain it.
    try:
        outputs = dict(operation.run(arguments, work))
        text = json.dumps(outputs, allow_nan=False)
    except StepFailed:
        raise
    except (ProcedureError, RegistryError, GgufError) as error:
        raise StepFailed(str(error)) from error
    except Exception as error:
        cause = None if secret else error
        log.warning("operation %s has failed: %s", operation.name, type(error).__name__, exc_info=cause)
        raise StepFailed(f"{operation.name}: {error or type(error).__name__}") from error
    if len(text) > MAX_OUTPUTS:
        raise StepFailed(f"{operation.name} returns {len(text):,} bytes; accepted: at most {MAX_OUTPUTS:,}")
    return json.loads(text)  # type: ignore[no-any-return]


def _wait(seconds: object, work: Work) -> dict[str, Any]:
    try:
        duration = float(str(seconds))
    except ValueError as error:
        raise StepFailed(f"{seconds!r} is no number of seconds") from error
    remaining = work.seconds_left
    work.cancelled.wait(min(duration, remaining))
    if work.cancelled.is_set() or duration > remaining:
        work.seconds_left  # noqa: B018 - raises if it was cancelled, or if the time is over
        raise StepFailed(f"its time is over: it was to wait for {duration:g} s and had {remaining:g} s")
    return {"seconds": duration}


def _summary(action: _Action) -> Any:
    # without contents of files; their digests identify them
    if action.kind == "file_write":
        return {key: value for key, value in action.arguments.items() if key != "content"}
    return action.arguments
