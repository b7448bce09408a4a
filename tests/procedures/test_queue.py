"""Procedures in a daemon: one at a time, told to watchers, by schedule, and not lost by a restart."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from orchestrator.procedures.audit import Entry
from orchestrator.procedures.engine import ProcedureEngine
from orchestrator.procedures.errors import ChangedMeanwhile, ProcedureForbidden, ProcedureRefused, UnknownExecution
from orchestrator.procedures.execution import Execution
from orchestrator.procedures.installation import listing
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.queue import Calendar, ProcedureQueue, StepProgress
from orchestrator.procedures.retention import plan_file
from orchestrator.service.callers import Caller
from orchestrator.service.schedules import Schedule, schedules_from
from tests.procedures.maintained import HEAD, OWNER, NoArguments, contents, everything, make_engine, make_world

FREE = "permissions: {roles: [owner, operator, schedule], requires_approval: false}\n"
HELD = f"id: held\n{HEAD}{FREE}steps:\n  - id: hold\n    call: {{operation: hold}}\n"
ASKS = f"id: asks\n{HEAD}permissions: {{roles: [owner, schedule]}}\nsteps:\n  - id: wait\n    wait: {{seconds: 0}}\n"
OPERATOR = Caller("the API's token from 127.0.0.1", frozenset({"operator"}), person=True)


class Gate:
    """An operation that waits until the test lets it go on, and how many of it were under way at once."""

    def __init__(self) -> None:
        self.opened = Event()
        self.begun = Event()
        self.at_once = self.most = self.count = 0

    def hold(self, _arguments: NoArguments, work: Work) -> Mapping[str, Any]:
        self.at_once += 1
        self.count += 1
        self.most = max(self.most, self.at_once)
        self.begun.set()
        work.say("waiting")
        self.opened.wait(60)
        self.at_once -= 1
        return {}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path / "world")


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def engine(world: Path, gate: Gate) -> ProcedureEngine:
    return engine_of(world, gate)


def engine_of(world: Path, gate: Gate) -> ProcedureEngine:
    hold = Operation(name="hold", description="Wait.", form=NoArguments, run=gate.hold)
    return make_engine(world.parent / "home", world, HELD, ASKS, everything(), more={"hold": hold})


def none() -> Sequence[Schedule]:
    return ()


async def over(queue: ProcedureQueue, identity: str) -> Execution:
    """Return an execution when it is over."""
    async for _ in queue.watch(identity):
        pass
    return await queue.execution(identity)


async def test_executions_are_carried_out_one_at_a_time_and_in_order(engine: ProcedureEngine, gate: Gate) -> None:
    async with ProcedureQueue(engine, none) as queue:
        made = [await queue.submit("held", {}, OWNER) for _ in range(3)]
        assert made[0].state in ("queued", "running"), "it may have begun before this looks"
        assert [one.state for one in made[1:]] == ["queued"] * 2
        await asyncio.to_thread(gate.begun.wait, 60)
        assert (await queue.execution(made[0].id)).state == "running"
        gate.opened.set()
        await queue.drain()
        states = [(await queue.execution(one.id)).state for one in made]
    assert (states, gate.most, gate.count) == (["done"] * 3, 1, 3)
    begun = [entry.execution for entry in engine.audit.entries() if entry.kind == "begun"]
    assert begun == [one.id for one in made]


async def test_watchers_see_every_entry_and_progress_and_can_come_back(engine: ProcedureEngine, gate: Gate) -> None:
    async with ProcedureQueue(engine, none) as queue:
        made = await queue.submit("held", {}, OWNER)
        seen: list[Entry] = []
        async for update in queue.watch(made.id):
            if isinstance(update, StepProgress):
                assert update == StepProgress("hold", "waiting")
                gate.opened.set()
            else:
                seen.append(update)
                if update.kind == "acting":
                    await asyncio.to_thread(gate.begun.wait, 60)
                    gate.opened.set()
        kinds = ["planned", "queued", "begun", "step_begun", "acting", "step_done", "ended"]
        assert [entry.kind for entry in seen] == kinds
        rest = [update async for update in queue.watch(made.id, seen[3].number)]
        assert rest == seen[4:]
        assert [update async for update in queue.watch(made.id, seen[-1].number)] == []
        with pytest.raises(UnknownExecution):
            await anext(queue.watch("nothing"))


async def test_an_approval_begins_the_plan_that_was_shown_and_no_other(engine: ProcedureEngine, world: Path) -> None:
    inputs, before = {"folder": str(world)}, contents(world)
    async with ProcedureQueue(engine, none) as queue:
        waits = await queue.submit("everything", inputs, OWNER)
        assert waits.state == "planned"
        with pytest.raises(ProcedureForbidden, match="needs one of the roles owner"):
            await queue.approve(waits.id, waits.plan, OPERATOR)
        with pytest.raises(ProcedureForbidden, match="accepted: owner"):
            await queue.submit("everything", inputs, OPERATOR)
        with pytest.raises(ChangedMeanwhile, match="another one now"):
            await queue.submit("everything", inputs, OWNER, "0" * 64)
        await queue.approve(waits.id, waits.plan[:12], OWNER)
        done = await over(queue, waits.id)
        assert (done.state, done.approved_by) == ("done", OWNER.name)
        undone = await queue.rollback(waits.id, OWNER, force=False)
        assert undone.state == "rolled back"
        assert contents(world) == before
        at_once = await queue.submit("everything", {**inputs, "fail": True}, OWNER, engine_digest(engine, inputs))
        failed = await over(queue, at_once.id)
    assert failed.state == "rolled back"
    assert contents(world) == before
    assert [line.partition(":")[0] for line in failed.undone] == [
        f"step {name}" for name in failed.steps if name != "last"
    ]
    assert failed.changed == []


def engine_digest(engine: ProcedureEngine, inputs: Mapping[str, Any]) -> str:
    return engine.plan("everything", {**inputs, "fail": True}, OWNER).digest


async def test_what_was_queued_or_interrupted_goes_on_after_a_restart(world: Path, gate: Gate) -> None:
    engine = engine_of(world, gate)
    async with ProcedureQueue(engine, none) as queue:
        first, second = [(await queue.submit("held", {}, OWNER)).id for _ in range(2)]
        await asyncio.to_thread(gate.begun.wait, 60)
    killed = Gate()
    killed.opened.set()
    gate.opened.set()  # the thread of the daemon that has ended; a killed one would be gone
    for thread in threading.enumerate():
        if thread.name == "procedure":
            await asyncio.to_thread(thread.join, 60)
    assert engine.execution(first).state == "done"
    engine.close()
    again = engine_of(world, killed)
    async with ProcedureQueue(again, none) as queue:
        assert (await over(queue, second)).state == "done"
    assert killed.count == 1


async def test_one_that_has_not_begun_is_cancelled_and_a_running_one_undoes_what_it_did(
    engine: ProcedureEngine, gate: Gate
) -> None:
    async with ProcedureQueue(engine, none) as queue:
        running, waiting = [(await queue.submit("held", {}, OWNER)).id for _ in range(2)]
        await asyncio.to_thread(gate.begun.wait, 60)
        assert (await queue.cancel(waiting, OWNER)).state == "withdrawn"
        await queue.cancel(running, OWNER)
        gate.opened.set()
        assert (await over(queue, running)).state in ("rolled back", "done")
        await queue.drain()
        with pytest.raises(ProcedureRefused, match="under way"):
            await queue.cancel(waiting, OWNER)
    assert gate.count == 1


async def test_a_refusal_after_the_end_does_not_keep_watchers_waiting(engine: ProcedureEngine, world: Path) -> None:
    async with ProcedureQueue(engine, none) as queue:
        waits = await queue.submit("everything", {"folder": str(world)}, OWNER)
        await queue.withdraw(waits.id, OWNER)
        with pytest.raises(ProcedureForbidden):
            await queue.withdraw(waits.id, OPERATOR)
        async with asyncio.timeout(60):
            kinds = [update.kind async for update in queue.watch(waits.id) if isinstance(update, Entry)]
            assert kinds == ["planned", "withdrawn", "refused"]
            assert [update async for update in queue.watch(waits.id, engine.audit.head().number)] == []


async def test_one_that_cannot_begin_is_withdrawn_and_does_not_stay_queued(engine: ProcedureEngine, gate: Gate) -> None:
    async with ProcedureQueue(engine, none) as queue:
        await queue.submit("held", {}, OWNER)
        waits = await queue.submit("held", {}, OWNER)
        await asyncio.to_thread(gate.begun.wait, 60)
        plan_file(engine.folder, waits.id).write_text("{")
        gate.opened.set()
        ended = await over(queue, waits.id)
    assert ended.state == "withdrawn"
    assert "the plan cannot be read" in ended.error


async def scheduled(engine: ProcedureEngine, line: str, since: str, now: str) -> list[Execution]:
    """Return the executions after a daemon has looked after a schedule at a moment, as it did before `since`."""
    schedules, moment = schedules_from([line]), datetime.fromisoformat(now).timestamp()
    Calendar(engine.folder).begin(schedules, datetime.fromisoformat(since).timestamp())
    async with ProcedureQueue(engine, lambda: schedules, lambda: moment, owner="user:ann") as queue:
        while Calendar(engine.folder).due(schedules, moment):  # noqa: ASYNC110 - only the file tells it
            await asyncio.sleep(0.01)
        await queue.drain()
    return engine.executions()


async def test_what_is_due_is_executed_and_what_was_missed_is_told(engine: ProcedureEngine, gate: Gate) -> None:
    gate.opened.set()
    done, missed = await scheduled(engine, "0 * * * * held", "2100-03-01T08:30:00", "2100-03-01T11:00:01")
    assert (done.state, done.caller) == ("done", "the schedule '0 * * * * held'")
    assert done.owner == "user:ann", "who owns the state folder, and so what its schedules make"
    assert missed.state == "missed"
    assert "due 2 times" in missed.error
    told = listing(engine, schedules_from(["0 * * * * held"]), 0.0, by_daemon=True)["schedules"][0]
    assert (told["last"]["id"], told["missed"], told["why_not"]) == (done.id, [], "")


async def test_one_that_needs_an_approval_waits_and_the_next_one_is_not_piled_upon_it(engine: ProcedureEngine) -> None:
    (waits,) = await scheduled(engine, "0 * * * * asks", "2100-03-01T10:30:00", "2100-03-01T11:00:01")
    assert waits.state == "planned"
    missed, _ = await scheduled(engine, "0 * * * * asks", "2100-03-01T10:30:00", "2100-03-01T12:00:01")
    assert "is still planned" in missed.error
    assert missed.state == "missed"


@pytest.mark.parametrize(
    ("line", "told"),
    [("0 * * * * nothing", "no procedure 'nothing'"), ("0 * * * * everything folder=/x", "accepted: owner")],
)
async def test_what_cannot_be_executed_by_schedule_is_told(engine: ProcedureEngine, line: str, told: str) -> None:
    (missed,) = await scheduled(engine, line, "2100-03-01T10:30:00", "2100-03-01T11:00:01")
    assert missed.state == "missed"
    assert told in missed.error
    (listed,) = listing(engine, schedules_from([line]), 0.0, by_daemon=True)["schedules"]
    assert listed["why_not"]
    assert [one["why"] for one in listed["missed"]] == [missed.error]
