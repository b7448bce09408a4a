"""Drive the scheduler with everything at once: random DAGs that grow, failures, cancellations, crashes.

The `Driver` checks each command against its own ledger and the state's invariants after every event. The rules here
decide what happens next, and check order, limits and the end against a plain reading of the plan.
"""

from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.run.scheduler.commands import ExpandStep, StartAttempt
from orchestrator.task.events import AttemptStarted, EscalationTarget, FailureKind
from orchestrator.task.failures import MAX_RETRIES, EscalationChain
from orchestrator.task.states import State
from orchestrator.task.taskir.models import Agent, Parallelism, Step
from tests.orchestrator.scheduler_driver import Driver

ROLES = ("worker", "coder", "architect")
LADDER = {"worker": EscalationTarget("coder", "B1"), "coder": EscalationTarget("architect", "B2")}
CAPS = st.none() | st.integers(1, 3)


def times(seed: int) -> Callable[[Step], float]:
    """Return an estimate that gives every step some whole number of seconds, so that sums compare exactly."""
    return lambda step: float(1 + int(step.id[1:]) * (seed + 7) * 31 % 5)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, Step] = {}
        self.needs: dict[str, set[str]] = {}
        self.cancelled: set[str] = set()
        self.first: set[str] = set()
        self.stopped = False

    @initialize(
        mode=st.sampled_from(["as-planned", "as-planned", "discover", "serial"]),
        all_steps=CAPS,
        workers=CAPS,
        coders=CAPS,
        max_level=st.sampled_from(["B1", "B2"]),
        hurry=st.booleans(),
        seed=st.integers(0, 9),
        replans=st.integers(0, 2),
        checks=st.booleans(),
    )
    def accept(
        self,
        mode: str,
        all_steps: int | None,
        workers: int | None,
        coders: int | None,
        seed: int,
        replans: int,
        checks: bool,
        **escalation: Any,
    ) -> None:
        self.serial, self.drops = mode == "serial", mode == "discover"
        self.slots = {
            "all": 1 if self.serial else all_steps or inf,
            "workers": workers or inf,
            "coder": coders or inf,
        }
        run = {
            "mode": mode,
            "escalation": EscalationChain(LADDER, escalation["max_level"], escalation["hurry"]),
            "parallelism": Parallelism(max_concurrent_steps=all_steps, max_concurrent_workers=workers),
            "agents": (Agent(tier="C", role="coder", max_concurrency=coders),),
            "max_replans": replans,
            "checks_answer": checks,
        }
        self.driver = Driver(run, times(seed))

    # What may happen

    @precondition(lambda self: self.open and len(self.steps) < 14)
    @rule(data=st.data(), count=st.integers(0, 5))
    def plan(self, data: st.DataObject, count: int) -> None:
        first = len(self.steps) + 1
        numbers = list(range(first, first + count))
        order = data.draw(st.permutations(numbers))  # within one event, steps may name later ones
        added = {number: self._draw_step(data, number, self.steps.keys() | names(order[:place]))
                 for place, number in enumerate(order)}  # fmt: skip
        batch = tuple(added[number] for number in numbers)
        self.steps |= {step.id: step for step in batch}
        self._do(lambda: self.driver.plan(*batch, closed=False))

    def _draw_step(self, data: st.DataObject, number: int, known: Iterable[str]) -> Step:
        some = st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True) if known else st.just([])
        after, reads = data.draw(some), data.draw(some)
        each = data.draw(st.sampled_from([None, None, *reads]))
        needs = {*reads} if self.drops else {*reads, *after}
        self.needs[f"S{number}"] = needs
        return Step(
            id=f"S{number}",
            actor=data.draw(st.sampled_from(ROLES)),
            action="do it",
            outputs=(f"a{number}",),
            depends_on=tuple(after),
            inputs=tuple(artifact(step) for step in reads if step != each),
            foreach=each and artifact(each),
        )

    @precondition(lambda self: self.open and self.steps)
    @rule(data=st.data(), goes_on=st.booleans())
    def finish_plan(self, data: st.DataObject, goes_on: bool) -> None:
        self.open_plan = False
        after = self._pick(data, self.steps) if goes_on else None
        self._do(lambda: self.driver.end_rest(after) if self.is_rest else self.driver.close(after))

    @precondition(lambda self: self.driver.extending and not self.open_plan and self.driver.finish is None)
    @rule()
    def begin_rest(self) -> None:
        self.open_plan = self.is_rest = True
        self._do(self.driver.begin_rest)

    @precondition(lambda self: self._attempts(started=False))
    @rule(data=st.data(), role=st.sampled_from([None, *ROLES]))
    def start(self, data: st.DataObject, role: str | None) -> None:
        """Let an attempt begin, by any role that a router may choose: one that the limits admit."""
        step_id = self._pick(data, self._attempts(started=False))
        if role is None or self.driver.state.admits(step_id, role):
            self._do(lambda: self.driver.start(step_id, role))
            if role is not None:
                assert self.driver.state.steps[step_id].role == role, "who makes the attempt is who holds the slot"

    @precondition(lambda self: self._attempts(started=True))
    @rule(data=st.data(), outputs=st.sampled_from([{}, {"a": "digest"}]))
    def generate(self, data: st.DataObject, outputs: dict[str, str]) -> None:
        step_id = self._pick(data, self._attempts(started=True))
        if self.driver.state.steps[step_id].state is State.RUNNING:
            self._do(lambda: self.driver.generate(step_id, outputs))

    @precondition(lambda self: self.driver.working)
    @rule(data=st.data(), count=st.integers(0, 3))
    def succeed(self, data: st.DataObject, count: int) -> None:
        step_id = self._pick(data, self.driver.working)
        if isinstance(self.driver.working[step_id], ExpandStep):
            self._do(lambda: self.driver.expand(step_id, count))
        else:
            self._do(lambda: self.driver.succeed(step_id))

    @precondition(lambda self: self.driver.working)
    @rule(data=st.data(), kind=st.sampled_from(FailureKind))
    def fail(self, data: st.DataObject, kind: FailureKind) -> None:
        step_id = self._pick(data, self.driver.working)
        makes, before = self.driver.state.steps[step_id].role, len(self.driver.state.steps[step_id].failures)
        self._do(lambda: self.driver.fail(step_id, kind))
        failures = self.driver.state.steps[step_id].failures
        if len(failures) > before:  # the failure of a step that was cancelled meanwhile does not count
            assert failures[-1].role == makes, "who made the attempt is who has failed"

    @precondition(lambda self: self.driver.to_cancel)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        step_id = self._pick(data, self.driver.to_cancel)
        self._do(lambda: self.driver.stopped(step_id))

    @precondition(lambda self: self._attempts(started=True))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        step_id = self._pick(data, self._attempts(started=True))
        before = self.driver.state.steps[step_id].failures
        self._do(lambda: self.driver.retry(step_id))
        assert self.driver.state.steps[step_id].failures == before

    @precondition(lambda self: self.driver.to_restart)
    @rule(data=st.data())
    def restarted(self, data: st.DataObject) -> None:
        step_id = self._pick(data, self.driver.to_restart)
        cancelled, before = step_id in self.driver.to_cancel, self.driver.state.steps[step_id]
        self._do(lambda: self.driver.restarted(step_id))
        after = self.driver.state.steps[step_id]
        assert after.failures == before.failures, "a retry of the user is no failure"
        assert cancelled or after.state in (State.READY, State.RUNNING), "it is made again"

    @precondition(lambda self: len(self.steps) > 2)
    @rule(data=st.data())
    def prioritise(self, data: st.DataObject) -> None:
        step_id = self._pick(data, self.driver.state.steps)
        self.first.add(step_id)
        before = [*self.needs[family(step_id)]] if "[" in step_id else [step_id]
        while before:
            self.first.add(step := before.pop())
            before += self.driver.state.graph.before[step]
        self._do(lambda: self.driver.prioritise(step_id))

    @precondition(lambda self: self.driver.checking)
    @rule(data=st.data())
    def check_answer(self, data: st.DataObject) -> None:
        some = st.lists(st.sampled_from(sorted(self.steps)), max_size=3, unique=True) if self.steps else st.just([])
        doubtful = data.draw(some)
        self._do(lambda: self.driver.check(**dict.fromkeys(doubtful, "It is doubtful.")))
        assert self.driver.repairing <= set(doubtful), "nothing else is repaired"

    @precondition(lambda self: len(self.steps) > 3)
    @rule(data=st.data())
    def cancel_step(self, data: st.DataObject) -> None:
        step_id = self._pick(data, self.driver.state.steps)
        self.cancelled.add(step_id)
        self._do(lambda: self.driver.cancel(step_id))

    @precondition(lambda self: len(self.steps) > 9)
    @rule()
    def cancel_run(self) -> None:
        self.stopped = True
        self._do(self.driver.cancel)

    @rule(seed=st.none() | st.integers(0, 9))
    def crash(self, seed: int | None) -> None:
        self.open_plan = self.open_plan and not self.is_rest  # whoever was writing the rest has to be asked again
        self._do(lambda: self.driver.crash(None if seed is None else times(seed)))

    # What must hold

    open_plan, is_rest = True, False

    @property
    def open(self) -> bool:
        return self.open_plan and self.driver.finish is None

    def _attempts(self, *, started: bool) -> list[str]:
        """Return whose attempts are asked for, and have or have not started since."""
        begun = {(e.step, e.number) for e in self.driver.journal if isinstance(e, AttemptStarted)}
        return [
            step_id
            for step_id, command in self.driver.working.items()
            if isinstance(command, StartAttempt) and ((step_id, command.number) in begun) is started
        ]

    @staticmethod
    def _pick(data: st.DataObject, among: Iterable[str]) -> str:
        return data.draw(st.sampled_from(sorted(among)))

    def _do(self, something: Callable[[], None]) -> None:
        graph = self.driver.state.graph
        something()
        for step_id in graph.steps:
            assert self.driver.state.graph.before[step_id] == graph.before[step_id], "what was accepted is frozen"
        for command in self.driver.latest:
            if isinstance(command, StartAttempt | ExpandStep):
                self._may_start(command)

    def _may_start(self, command: StartAttempt | ExpandStep) -> None:
        step_id = command.step.id
        assert self.needs[family(step_id)] <= self.driver.done, "nothing starts before its dependencies are done"
        for other in self.driver.in_state(State.READY):
            if self._could_have_started_instead(other, step_id):
                assert self._place(step_id) <= self._place(other), f"{other} has less slack than {step_id}"

    def _could_have_started_instead(self, other: str, started: str) -> bool:
        held = [lane for step_id in self.driver.working if step_id != started for lane in self._lanes(step_id)]
        return all(held.count(lane) < self.slots[lane] for lane in self._lanes(other))

    def _lanes(self, step_id: str) -> list[str]:
        view = self.driver.state.steps[step_id]
        if view.step.foreach and view.item is None:
            return ["all"]
        return {"worker": ["all", "workers"], "coder": ["all", "workers", "coder"]}.get(view.role, ["all"])

    def _place(self, step_id: str) -> tuple[float, int, int]:
        """Return where a step stands: by the work that begins with it and cannot be shortened, then by age."""
        graph, item = self.driver.state.graph, self.driver.state.steps[step_id].item or 0
        if not self.first.isdisjoint((step_id, family(step_id))):
            order = graph.order if self.serial else list(self.steps)
            return (-inf, order.index(family(step_id)), item)
        if self.serial:
            return (0.0, graph.order.index(family(step_id)), item)

        @cache
        def work(step: str) -> float:
            own = self.driver.estimate(self.steps[step])
            return own + max((work(later) for later in self.steps if step in graph.before[later]), default=0.0)

        return (-work(family(step_id)), list(self.steps).index(family(step_id)), item)

    @invariant()
    def limits_hold(self) -> None:
        if self.steps:
            held = [lane for step_id in self.driver.working for lane in self._lanes(step_id)]
            assert all(held.count(lane) <= slots for lane, slots in self.slots.items())

    @invariant()
    def retries_are_bounded(self) -> None:
        for view in self.driver.state.steps.values() if self.steps else ():
            assert len(view.failures) <= (1 + MAX_RETRIES) * (1 + len(LADDER))

    def teardown(self) -> None:
        """Whatever has happened, the run ends, and only what had to be is not done."""
        if not hasattr(self, "driver"):
            return
        assert self.driver.end().status in ("done", "failed", "cancelled")
        failed = set(self.driver.in_state(State.FAILED))
        lost = {family(step_id) for step_id in failed | self.cancelled}
        for step_id in self.driver.state.graph.order:
            view = self.driver.state.steps[step_id]
            spoilt = step_id in lost or not self.needs[step_id].isdisjoint(lost)
            if spoilt:
                lost.add(step_id)
            elif not self.stopped:
                assert view.state is State.DONE, "independent branches survive"


def names(numbers: Iterable[int]) -> set[str]:
    return {f"S{number}" for number in numbers}


def artifact(step_id: str) -> str:
    return f"a{step_id[1:]}"


def family(step_id: str) -> str:
    """Return the step of the plan that a step is, or is a child of."""
    return step_id.partition("[")[0]


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
