"""Carry out the workloads in rounds, in which every system gets the same task, one system after the other.

The order of the systems changes from round to round, and only rounds with the same number are compared. The rows of a
round are kept together, so a round that was interrupted is measured again as a whole.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.engine.measure import REST_SECONDS
from benchmarks.engine.system import SystemSetup
from benchmarks.engine.systems.served import until_quiet
from benchmarks.peers.rows import CacheState, OwnFigures, PeerRow, Stamp, append, machine_of
from benchmarks.peers.suite import ROLE, PeerWorkload, discovered_width, has_needless_order, has_use_for_barriers
from benchmarks.peers.systems import (
    AGENT,
    DISCOVER,
    GREEDY,
    LANGGRAPH,
    OURS,
    WAVES,
    GreedyExecutor,
    LangGraph,
    OneAgent,
    OurTasks,
    PeerFailed,
    TaskSystem,
    room_for_one_agent,
    start_server,
)
from benchmarks.peers.trace import CallTrace, NotRecorded, Recorder, read_trace, write_trace
from orchestrator.bench.critical_path.workloads import tokens_per_word
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.task.taskir.models import TaskIR

# The number of the round that is not measured, in which each system does something for the first time.
WARM_UP: Final = -1
FIRST_CALLS: Final = 2  # how many calls of it the peers carry out, for some would take long for all
# Systems that have not computed for this long are ready to be measured. Our engine measures a model itself, after a
# second without requests.
SETTLED_SECONDS: Final = 2.5
RECORDING_SLOTS: Final = 16
RECORDING_CONTEXT: Final = 5120  # the widest task ends with a prompt of about 3,400 tokens
CONTEXT_STEP: Final = 256  # contexts are a multiple of this many tokens
# Tokens that a prompt may have more than recorded, as an artifact that is written again may be split otherwise.
SPARE_TOKENS: Final = 32
# Where slots that each have room for the longest sequence would take more cells than this, sequences share the cells of
# a cache with room for the whole task. Of 100 steps only the last is long, and three caches must fit into memory.
MOST_CELLS: Final = 1 << 16
# The systems that do each task twice. One agent has the whole task in its context when it has done it.
WARM: Final = (OURS, LANGGRAPH, GREEDY)
MODEL: Final = "measured"  # what the model is called in the registries

Round = tuple[TaskIR, CallTrace]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPlan:
    """What is measured, and where everything is."""

    folder: Path  # Keeps recorded prompts, state folders and logs
    server: Path  # the binary of llama-server
    python: Path  # the interpreter with the packages of LangGraph
    systems: tuple[str, ...]
    workloads: tuple[PeerWorkload, ...]
    rounds: int
    threads: int
    file: Path  # Keeps the rows
    stamp: Stamp
    product: str  # the hash of our code, which the rows of a round have in common
    deadline: float  # no round begins after this time of `time.monotonic`
    tell: Callable[[str], None]
    known: Sequence[PeerRow] = field(default=())  # what was measured before
    settled_seconds: float = SETTLED_SECONDS

    @property
    def over(self) -> bool:
        """Whether no further round may begin."""
        return time.monotonic() >= self.deadline

    def left(self, model: str, workload: PeerWorkload) -> list[int]:
        """Return the rounds of a workload that are not measured yet: none if another machine has measured them all."""
        wanted = (model, workload.name, self.product)
        rows = [row for row in self.known if (row.model, row.workload, row.product) == wanted]
        this_machine = machine_of(self.stamp)
        left = {
            machine: sorted({*range(self.rounds)} - {row.number for row in rows if row.machine == machine})
            for machine in {this_machine, *(row.machine for row in rows)}
        }
        return left[this_machine] if all(left.values()) else []


async def measure(plan: PeerPlan, model: str, file: Path) -> list[str]:
    """Measure the remaining workloads of the model in `file`; return the names of those that are not complete.

    A workload that cannot be measured is reported, and the others continue. Raises JournalError, PoolError and
    EngineError.
    """
    unfinished = []
    for workload in plan.workloads:
        numbers = plan.left(model, workload)
        try:
            complete = not numbers or await _workload(plan, workload, model, file, numbers)
        except (NotRecorded, PeerFailed) as error:
            plan.tell(f"{model}, {workload.name}: {error}")
            complete = False
        if not complete:
            unfinished.append(workload.name)
    return unfinished


async def _workload(plan: PeerPlan, workload: PeerWorkload, model: str, file: Path, numbers: Sequence[int]) -> bool:
    """Measure some rounds of a workload. Return False if the time was up before the last one began."""
    if plan.over:
        return False
    rounds = await _rounds(plan, workload, model, file)
    async with _started(plan, model, file, rounds) as systems:
        for number in numbers:
            if plan.over:
                return False
            begun = time.monotonic()
            turns = [await _turn(plan, workload, system, rounds[number]) for system in _rotated(systems, number)]
            rows = [
                replace(row, model=model, workload=workload.name, number=number, product=plan.product)
                for turn in turns
                for row in turn
            ]
            append(plan.file, plan.stamp, *rows)
            times = ", ".join(f"{row.system} {row.seconds:.2f} s" for row in rows if row.state == "cold")
            plan.tell(f"{model}, {workload.name}, round {number} in {time.monotonic() - begun:.0f} s; cold: {times}")
    return True


async def _turn(plan: PeerPlan, workload: PeerWorkload, system: TaskSystem, round_: Round) -> list[PeerRow]:
    """Return the rows of a system in one round, or none if it fails."""
    states: tuple[CacheState, ...] = ("cold", "warm") if workload.warm and system.name in WARM else ("cold",)
    rows = []
    await asyncio.sleep(REST_SECONDS)
    for state in states:
        try:
            took = await system.run(*round_)
        except PeerFailed as error:
            plan.tell(str(error))
            return []
        rows.append(
            PeerRow(
                system=system.name,
                state=state,
                seconds=took.seconds,
                tokens=took.tokens,
                prompt_tokens=took.prompt_tokens,
                own=None if took.measurement is None else OwnFigures.of(took.measurement),
                run=took.measurement,
            )
        )
    return rows


def _rotated(systems: Sequence[TaskSystem], number: int) -> list[TaskSystem]:
    at = number % len(systems)
    return [*systems[at:], *systems[:at]]


async def _rounds(plan: PeerPlan, workload: PeerWorkload, model: str, file: Path) -> dict[int, Round]:
    """Return the tasks of the rounds with their calls. What was not recorded before is recorded now."""
    ratio = tokens_per_word(file)
    tasks = {number: workload.task(number, ratio) for number in (WARM_UP, *range(plan.rounds))}
    files = {number: plan.folder / "calls" / f"{_digest(plan, file, task)}.json" for number, task in tasks.items()}
    traces = {number: read_trace(files[number]) for number in tasks}
    if missing := [number for number, trace in traces.items() if trace is None]:
        plan.tell(f"{model}, {workload.name}: recording {len(missing)} tasks")
        context = min(RECORDING_CONTEXT, read_header(file).context_length)
        registry = _registry(plan, "recording", file, RECORDING_SLOTS, context)
        async with Recorder(_home(plan, model, "recording"), registry) as recorder:
            for number in missing:
                traces[number] = trace = await recorder.record(tasks[number])
                write_trace(files[number], trace)
    return {number: (task, recorded) for number, task in tasks.items() if (recorded := traces[number]) is not None}


@asynccontextmanager
async def _started(
    plan: PeerPlan, model: str, file: Path, rounds: Mapping[int, Round]
) -> AsyncIterator[list[TaskSystem]]:
    """Start the systems that take part, let each do something that is not measured, and wait until all are quiet.

    Ours does the whole task, as its engine adapts to what it is asked for; the others do the first calls.
    """
    traces = [trace for _, trace in rounds.values()]
    longest = max(trace.longest for trace in traces) + SPARE_TOKENS
    width = max(trace.width for trace in traces)
    context = _stepped(longest)
    pool = None if width * context <= MOST_CELLS else max(_room(trace) for trace in traces)
    setup = SystemSetup(model=file, width=width, context=context, threads=plan.threads, folder=plan.folder, pool=pool)
    roomy = max((room_for_one_agent(setup, trace) for trace in traces), key=lambda agent_setup: agent_setup.context)
    discovered = max(discovered_width(task) for task, _ in rounds.values())

    async def ours(system: OurTasks) -> OurTasks:
        slots = max(width, discovered) if system.name == DISCOVER else width
        registry = _registry(plan, f"{model}-{slots}", file, slots, context, pool)
        return await system.open(_home(plan, model, system.name), registry)

    starters: dict[str, Callable[[], Awaitable[TaskSystem]]] = {
        OURS: lambda: ours(OurTasks(OURS)),
        AGENT: lambda: OneAgent.start(roomy),
        LANGGRAPH: lambda: _langgraph(plan, setup),
        GREEDY: lambda: _greedy(plan, setup),
        WAVES: lambda: ours(OurTasks.waves()),
        DISCOVER: lambda: ours(OurTasks(DISCOVER, "discover")),
    }
    task, trace = rounds[WARM_UP]
    async with AsyncExitStack() as stack:
        systems = []
        for name in _taking_part(plan, task):
            system = await starters[name]()
            stack.push_async_callback(system.close)
            systems.append(system)
        for system in systems:
            await system.run(task, CallTrace(trace.calls[:FIRST_CALLS]))
        await until_quiet(systems, plan.settled_seconds)
        yield systems


def _stepped(tokens: int) -> int:
    return CONTEXT_STEP * -(-tokens // CONTEXT_STEP)


def _room(trace: CallTrace) -> int:
    """Return how many cells hold all calls of a task at once."""
    return _stepped(sum(call.prompt_tokens + call.tokens + SPARE_TOKENS for call in trace.calls))


async def _greedy(plan: PeerPlan, setup: SystemSetup) -> GreedyExecutor:
    return GreedyExecutor(await start_server(setup, plan.server, GREEDY))


async def _langgraph(plan: PeerPlan, setup: SystemSetup) -> LangGraph:
    served = await start_server(setup, plan.server, LANGGRAPH)
    try:
        return await LangGraph.start(served, plan.python)
    except BaseException:
        await served.close()
        raise


def _taking_part(plan: PeerPlan, task: TaskIR) -> list[str]:
    """Return the systems for a task. Waves and `discover` take part only where they change something."""
    idle = {WAVES} if not has_use_for_barriers(task) else set()
    idle |= {DISCOVER} if not has_needless_order(task) else set()
    return [
        name for name in (OURS, AGENT, LANGGRAPH, GREEDY, WAVES, DISCOVER) if name in plan.systems and name not in idle
    ]


def _home(plan: PeerPlan, model: str, name: str) -> Path:
    """Return the state folder of one of our orchestrators, which keeps what it has learned of lengths and times."""
    home = plan.folder / "state" / f"{model}-{name.replace(', ', '-')}"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _registry(plan: PeerPlan, name: str, file: Path, slots: int, context: int, pool: int | None = None) -> Registry:
    """Return a registry of one model with the shipped prompts, in a file that is replaced."""
    model = {"file": str(file), "residency": "hot", "context": context, "slots": slots, "threads": plan.threads}
    model |= {} if pool is None else {"cells": pool}
    roles = {"frontdoor": {"model": MODEL, "tier": "A"}, ROLE: {"model": MODEL, "tier": "C"}}
    path = plan.folder / f"{name}.registry.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"models": {MODEL: model}, "roles": roles}), encoding="utf-8")  # JSON is YAML
    return load_registry(path)


def _digest(plan: PeerPlan, file: Path, task: TaskIR) -> str:
    """Return what the calls of a task depend on: the task, the model, the versions and our own code."""
    content = json.dumps(
        [task.model_dump_json(), file.name, os.stat(file).st_size, plan.stamp, plan.product], sort_keys=True
    )
    return hashlib.sha256(content.encode()).hexdigest()[:24]
