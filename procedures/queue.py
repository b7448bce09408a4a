"""Execute procedures in the daemon: one at a time, in their turn and by schedule, and tell watchers what happens.

The engine blocks, so it works in threads. The process does not wait for the thread of an execution when it ends: what
is then interrupted is brought to its end at the next start, as after a crash. A calendar says which schedules are
due, and which of their times were missed.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self, TypeVar

import structlog

from orchestrator.procedures.audit import Entry
from orchestrator.procedures.durable import make_private_folder, replace_file
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import ProcedureError
from orchestrator.procedures.execution import Execution
from orchestrator.procedures.installation import schedule_caller
from orchestrator.procedures.run import ExecutionWatcher
from orchestrator.service.callers import Caller
from orchestrator.service.schedules import LATE_SECONDS, Schedule

FILE: Final = "schedules.json"
# A clock that is set back by more was wrong before; by less, nothing is executed twice (as in Debian's cron).
CLOCK_SET_SECONDS: Final = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class DueSchedule:
    schedule: Schedule
    at: float  # the last time that it was due, in seconds since the epoch
    missed: int  # how many times before that were missed
    is_late: bool  # that last time was missed too


class Calendar:
    """Stores in a file until when each schedule was handled, so that missed times are found.

    `folder` is that of the procedures of a state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._handled = _read(self._path)

    def begin(self, schedules: Sequence[Schedule], now: float) -> None:
        """Handle new schedules from now on, and forget those that are gone. Raises OSError."""
        # A moment far in the future comes from a wrong clock, so the schedule counts as new.
        earlier = {text: until for text, until in self._handled.items() if until <= now + CLOCK_SET_SECONDS}
        handled = {schedule.text: earlier.get(schedule.text, now) for schedule in schedules}
        if handled != self._handled:
            self._handled = handled
            self._write()

    def due(self, schedules: Sequence[Schedule], now: float) -> list[DueSchedule]:
        """Return the schedules whose time has come since they were handled last."""
        due_schedules = []
        for schedule in schedules:
            count, last = schedule.between(self._handled.get(schedule.text, now), now)
            if count:
                due_schedules.append(DueSchedule(schedule, last, count - 1, now - last > LATE_SECONDS))
        return due_schedules

    def handled(self, schedule: Schedule, until: float) -> None:
        """Note, durably, that a schedule was handled until a moment. Raises OSError."""
        self._handled[schedule.text] = until
        self._write()

    def _write(self) -> None:
        make_private_folder(self._path.parent)
        replace_file(self._path, json.dumps(self._handled).encode(), 0o600)


def _read(path: Path) -> dict[str, float]:
    try:
        stated = json.loads(path.read_bytes())
        return {str(text): float(until) for text, until in stated.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # then no time counts as missed
        return {}


T = TypeVar("T")
LONGEST_SLEEP: Final = 60.0  # seconds until the clock is read again, as it may be set, or the machine may have slept
MAX_PLANNERS: Final = 4
_LAST_KINDS: Final = frozenset({"ended", "withdrawn", "missed"})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step of an execution is. It is not in the audit log, and watchers may miss some of it."""

    step: str
    text: str


class _Follower:
    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.progress: dict[str, str] = {}  # of each step, only the latest that the watcher has not seen


class ProcedureQueue:
    """Executes procedures in this process. An async context manager; its exit does not wait for an execution.

    `schedules` returns those of the configuration in force, and `now` the seconds since the epoch. `owner` is the key
    of the caller who owns what schedules start. Without `acts_by_itself` nothing is executed but what is asked for.
    """

    def __init__(
        self,
        engine: ProcedureEngine,
        schedules: Callable[[], Sequence[Schedule]],
        now: Callable[[], float] = time.time,
        owner: str = "",
        *,
        acts_by_itself: bool = True,
    ) -> None:
        self.engine = engine
        self._schedules = schedules
        self._now = now
        self._owner = owner
        self._acts_by_itself = acts_by_itself
        self._turn = asyncio.Lock()
        self._planners = asyncio.Semaphore(MAX_PLANNERS)
        self._reconfigured = asyncio.Event()
        self._followers: defaultdict[str, set[_Follower]] = defaultdict(set)
        self._begun: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._at_work = 0  # threads of the engine: one at most, unless the daemon ends

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        by_itself = (self._resume(), self._keep_schedules()) if self._acts_by_itself else ()
        self._own: set[asyncio.Task[Any]] = {self._tasks.create_task(work) for work in by_itself}
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in (*self._own, *self._begun):
            task.cancel()
        await self._stack.__aexit__(*error)
        if not self._at_work:
            self.engine.close()

    def reconfigured(self) -> None:
        """Read the schedules again, because the configuration has changed."""
        self._reconfigured.set()

    async def drain(self) -> None:
        """Wait until all started and queued executions have ended."""
        while self._begun:
            await asyncio.wait(set(self._begun))

    async def planning(self, work: Callable[[], T]) -> T:
        """Return what `work`, which plans procedures, returns from a thread. Raises what it raises."""
        # Plans may ask this process what they would change, which takes a thread of the event loop. So they get other
        # threads, and only a few at a time.
        async with self._planners:
            result = await self._in_thread(work)
        if isinstance(result, Exception):
            raise result
        return result

    async def submit(
        self, name: str, inputs: Mapping[str, Any], caller: Caller, approved: str | None = None
    ) -> Execution:
        """Plan a procedure, keep the plan, and queue its execution if that needs no approval, or has it.

        Raises what `ProcedureEngine.plan_and_submit` raises.
        """
        identity = await self.planning(lambda: self.engine.plan_and_submit(name, inputs, caller, approved))
        if not await asyncio.to_thread(self.engine.needs_approval, identity):
            await self.begin(identity, caller)
        return await self.execution(identity)

    async def approve(self, identity: str, digest: str, caller: Caller) -> Execution:
        """Approve the plan of an execution, and queue it. Raises ProcedureError."""
        await asyncio.to_thread(self.engine.approve, identity, digest, caller)
        self._wake(identity)
        await self.begin(identity, caller)
        return await self.execution(identity)

    async def begin(self, identity: str, caller: Caller) -> None:
        """Queue an execution behind those before it. Raises ProcedureError if it may not start."""
        await asyncio.to_thread(self.engine.queue, identity, caller)
        self._wake(identity)
        self._carry_on(identity, caller)

    async def withdraw(self, identity: str, caller: Caller) -> Execution:
        """Give up an execution that has not started. Raises ProcedureError."""
        await asyncio.to_thread(self.engine.withdraw, identity, caller)
        self._wake(identity)
        return await self.execution(identity)

    async def cancel(self, identity: str, caller: Caller) -> Execution:
        """Stop an execution before its next action, and undo what it has done. Raises ProcedureError."""
        await asyncio.to_thread(self.engine.cancel, identity, caller)
        self._wake(identity)
        return await self.execution(identity)

    async def rollback(self, identity: str, caller: Caller, *, force: bool) -> Execution:
        """Undo an execution in its turn, also if the client leaves, and return it then. Raises ProcedureError."""
        work = partial(self.engine.rollback, identity, caller, force=force, watcher=self._watcher(identity))
        return await self._in_turn(work)

    async def recover(self, caller: Caller | None = None) -> list[Execution]:
        """Bring executions to their end that another process left interrupted. Raises ProcedureError.

        Without a caller, the daemon itself does so.
        """
        return await self._in_turn(lambda: self.engine.recover(caller))

    async def execution(self, identity: str) -> Execution:
        """Return an execution. Raises UnknownExecution."""
        return await asyncio.to_thread(self.engine.execution, identity)

    async def watch(self, identity: str, after: int = 0) -> AsyncGenerator[Entry | StepProgress, None]:
        """Yield the audit log's entries after number `after` and the progress of an execution, until it is over.

        Raises UnknownExecution.
        """
        await self.execution(identity)
        follower, audit = _Follower(), self.engine.audit
        self._followers[identity].add(follower)
        try:
            last = ""
            while True:
                follower.wake.clear()
                entries = await asyncio.to_thread(audit.entries, identity, after)
                for entry in entries:
                    yield entry
                    after = entry.number
                last = _last_kind(entries) or last
                if entries:
                    continue
                if not last:  # it was asked for what comes after the last entry
                    last = _last_kind(await asyncio.to_thread(audit.entries, identity))
                if last in _LAST_KINDS:
                    return
                while follower.progress:
                    step = next(iter(follower.progress))
                    yield StepProgress(step, follower.progress.pop(step))
                await follower.wake.wait()
        finally:
            self._followers[identity].discard(follower)
            if not self._followers[identity]:
                del self._followers[identity]

    async def _resume(self) -> None:
        try:
            await self._recover_interrupted()
            for identity in await asyncio.to_thread(self.engine.audit.queued):  # when the daemon ended
                name, roles = (await self.execution(identity)).queued_by
                self._carry_on(identity, Caller(name, roles, person=False))
        except Exception:
            log.exception("procedures that were queued cannot begin")

    async def _recover_interrupted(self) -> None:
        try:
            for execution in await self.recover():
                tell = log.error if execution.state == "rollback failed" else log.warning
                details = {"error": execution.error, "look_at": list(execution.look_at)}
                tell(
                    "an interrupted procedure was brought to its end",
                    execution=execution.id,
                    state=execution.state,
                    **details,
                )
        except ProcedureError as error:
            log.error("interrupted procedures cannot be brought to their end", error=str(error))

    def _carry_on(self, identity: str, caller: Caller) -> None:
        task = self._tasks.create_task(self._execute(identity, caller))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def _execute(self, identity: str, caller: Caller) -> None:
        structlog.contextvars.bind_contextvars(execution=identity)
        try:
            ended = await self._in_turn(partial(self.engine.execute, identity, caller, self._watcher(identity)))
            tell = log.info if ended.state == "done" else log.warning
            tell("a procedure has ended", procedure=ended.procedure, state=ended.state, error=ended.error)
        except ProcedureError as error:
            log.warning("a procedure does not begin", error=str(error))
            with suppress(ProcedureError):  # it was withdrawn before, or another process has begun it
                await asyncio.to_thread(self.engine.withdraw, identity, caller, str(error))
        except Exception:
            log.exception("a procedure broke down; it is brought to its end at the next start")
        finally:
            self._wake(identity)

    async def _in_turn(self, work: Callable[[], T]) -> T:
        async def outcome() -> T | Exception:
            async with self._turn:
                return await self._in_thread(work)

        # A task of its own, which is completed even if the caller is cancelled.
        task = self._tasks.create_task(outcome())
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        result = await asyncio.shield(task)
        if isinstance(result, Exception):
            raise result
        return result

    async def _in_thread(self, work: Callable[[], T]) -> T | Exception:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | Exception] = loop.create_future()

        def tell(result: T | Exception) -> None:
            self._at_work -= 1
            if not future.done():
                future.set_result(result)

        def run() -> None:
            result: T | Exception
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the caller raises it
                result = error
            with suppress(RuntimeError):  # the loop is closed: the daemon has ended
                loop.call_soon_threadsafe(tell, result)

        self._at_work += 1
        # A daemon thread does not keep the process from ending.
        Thread(target=run, name="procedure", daemon=True).start()
        return await future

    def _watcher(self, identity: str) -> ExecutionWatcher:
        # Both are called in the thread that executes.
        def observe(_: Entry) -> None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake, identity)

        def say(step: str, text: str) -> None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell, identity, step, text)

        return ExecutionWatcher(observe, say)

    def _wake(self, identity: str) -> None:
        for follower in self._followers.get(identity, ()):
            follower.wake.set()

    def _tell(self, identity: str, step: str, text: str) -> None:
        for follower in self._followers.get(identity, ()):
            follower.progress[step] = text
            follower.wake.set()

    async def _keep_schedules(self) -> None:
        calendar = await asyncio.to_thread(Calendar, self.engine.folder)
        while True:
            self._reconfigured.clear()
            schedules, now = self._schedules(), self._now()
            try:
                await asyncio.to_thread(calendar.begin, schedules, now)
                for due in await asyncio.to_thread(calendar.due, schedules, now):
                    await self._carry_out(due)
                    await asyncio.to_thread(calendar.handled, due.schedule, now)
            except Exception:
                log.exception("a schedule cannot be looked after")
            times = [time for schedule in schedules if (time := schedule.after(now)) is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LONGEST_SLEEP, max(0.0, min(times) - self._now())) if times else None):
                    await self._reconfigured.wait()

    async def _carry_out(self, due: DueSchedule) -> None:
        schedule, caller = due.schedule, schedule_caller(due.schedule, self._owner)
        if lost := due.missed + due.is_late:
            when = datetime.fromtimestamp(due.at).strftime("%Y-%m-%d %H:%M")
            often = "once" if lost == 1 else f"{lost} times"
            if due.is_late:
                times = f"{often}, at {when}" if lost == 1 else f"{often}, the last one at {when}"
            else:
                times = f"{often} before {when}"
            await self._miss(schedule, f"it was due {times}, while no daemon looked after it")
        if due.is_late:
            return
        try:
            past = await asyncio.to_thread(self.engine.executions_of, caller.name, 1)
            executed = past[0] if past else None
            if executed is not None and due.at <= executed.planned <= self._now():
                return  # the daemon was killed before it could note that
            if executed is not None and not executed.is_over:
                await self._miss(schedule, f"the execution before, {executed.id}, is still {executed.state}")
                return
            execution = await self.submit(schedule.procedure, schedule.inputs, caller)
            log.info("a procedure was due", schedule=schedule.text, execution=execution.id, state=execution.state)
            if execution.state == "planned":
                log.warning("a procedure that was due waits for an approval", execution=execution.id)
        except ProcedureError as error:
            await self._miss(schedule, str(error))

    async def _miss(self, schedule: Schedule, why: str) -> None:
        log.warning("a procedure that was due is not executed", schedule=schedule.text, why=why)
        await asyncio.to_thread(self.engine.miss, schedule_caller(schedule).name, schedule.procedure, why)


def _last_kind(entries: Sequence[Entry]) -> str:
    # A refusal does not change the execution.
    return next((entry.kind for entry in reversed(entries) if entry.kind != "refused"), "")
