"""Make results and a picture of a timeline from rows. Pure, except that it asks for versions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any, Final

from benchmarks.engine.goals import EngineGoal, FoundValue, WantedGoal, judge
from benchmarks.engine.paired import Ratio, ratio
from benchmarks.peers.rows import CacheState, GrowthRow, PeerRow, Stamp
from benchmarks.peers.suite import SUITE, PeerWorkload
from benchmarks.peers.systems import AGENT, DISCOVER, GREEDY, LANGGRAPH, OURS, WAVES
from orchestrator.bench import environment
from orchestrator.bench.critical_path.page import timeline_picture

PEERS: Final = (AGENT, LANGGRAPH, GREEDY, WAVES, DISCOVER)
LEARNED: Final = 3  # the first round, counted from 1, before which a task of the workload has run twice at least
ABOUT: Final = {
    "ours": "our orchestrator, with the plan as it is: `orchestrator run`",
    "ours, discover": "the same with --mode discover, for plans with an order that no artifact asks for",
    "waves": "our orchestrator with a barrier between waves, where that changes anything",
    "one agent": "llama-cpp-python, one conversation that does step after step; what it has read or written stays in "
    "its context",
    "LangGraph": "a StateGraph with a node for each step, langchain-openai, and llama-server with a slot for each step "
    "that can run at once",
    "greedy executor": "as LLMCompiler does it: a step starts when those that it waits for are done, on llama-server "
    "with as many slots",
    "prompts": "all get the prompts of our own run, and the others write exactly as many tokens for each as our run "
    "did, without a grammar and whatever the model would like; one agent is told only what its context lacks",
    "cold": "every round has a new task, so no cache holds more of it than the system prompt",
    "warm": "the same task once more, right after the cold one",
    "ratio": "the time of the other system over ours in the same round: the median over rounds, and a 95 % interval",
}


def ratio_of(rows: Sequence[PeerRow], model: str, workload: str, state: CacheState, system: str) -> Ratio | None:
    """Return the time of a system over ours in the rounds that both did; None without such rounds."""
    theirs, ours = (_seconds(rows, model, workload, state, name) for name in (system, OURS))
    both = sorted(theirs.keys() & ours.keys())
    return ratio([theirs[at] for at in both], [ours[at] for at in both]) if both else None


def goals(rows: Sequence[PeerRow], growth: Sequence[GrowthRow]) -> list[EngineGoal]:
    """Return the goals and their results."""
    prefixed = [workload for workload in SUITE if workload.prefix]
    long = [workload for workload in prefixed if workload.prefix >= 1000]
    served = (LANGGRAPH, GREEDY)
    wanted = [
        WantedGoal("LangGraph, greedy executor ÷ ours, shared prefix, cold", 1.5, _found(rows, prefixed, served)),
        WantedGoal("LangGraph, greedy executor ÷ ours, 16 share 1,000 tokens, cold", 3.0, _found(rows, long, served)),
        WantedGoal("LangGraph, greedy executor ÷ ours, cold", 1.0, _found(rows, SUITE, served)),
        WantedGoal("LangGraph, greedy executor ÷ ours, warm", 1.0, _found(rows, SUITE, served, "warm")),
        WantedGoal("one agent ÷ ours, 16 longer notes", 2.2, _found(rows, [o for o in SUITE if o.decodes], (AGENT,))),
        WantedGoal("waves ÷ ours, irregular lengths", 1.15, _found(rows, SUITE, (WAVES,))),
        WantedGoal("efficiency, the best schedule's time ÷ ours", 0.85, _efficiencies(rows)),
        WantedGoal("predicted path off the measured one, share", 0.25, _mispredicted(rows), least=False),
        WantedGoal("our own time per step, ms", 3.0, _per_step(growth), least=False),
        WantedGoal("tokens that we write off what the others write, share", 0.02, _off_tokens(rows), least=False),
    ]
    return [judge(each) for each in wanted]


def document(
    rows: Sequence[PeerRow],
    growth: Sequence[GrowthRow],
    stamp: Stamp,
    models: Mapping[str, Mapping[str, Any]],
    left: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the results as they are written. `models` describes the models, `left` names what is not complete."""
    machines = {(row.model, row.workload): row.machine for row in rows}
    ratios = [
        {
            "model": model,
            "machine": machines[model, workload.name],
            "workload": workload.name,
            "state": state,
            "system": system,
            **_interval(each),
        }
        for model in dict.fromkeys(row.model for row in rows)
        for workload in SUITE
        for state in ("cold", "warm")
        for system in PEERS
        if (each := ratio_of(rows, model, workload.name, state, system)) is not None
    ]
    return {
        "command": "make bench",
        **stamp,
        "machines": [*dict.fromkeys((*(row.machine for row in rows), *(row.machine for row in growth)))],
        "models": dict(models),
        "workloads": {workload.name: workload.about for workload in SUITE},
        "about": ABOUT,
        "left": {model: [*names] for model, names in left.items() if names},
        "ratios": ratios,
        "efficiency": _by_workload(rows),
        "growth": [
            {**asdict(row), "seconds": round(row.seconds, 4), "ms_per_step": round(row.per_step, 3)} for row in growth
        ],
        "rows": [_row(row) for row in rows],
        "goals": [asdict(goal) for goal in goals(rows, growth)],
    }


def picture(rows: Iterable[PeerRow], workload: str = "irregular") -> str | None:
    """Return an SVG of the timeline of our last cold run of a workload, or None without one."""
    wanted = (workload, OURS, "cold")
    runs = [(row.model, row.run) for row in rows if (row.workload, row.system, row.state) == wanted and row.run]
    if not runs:
        return None
    model, run = runs[-1]
    return timeline_picture(f"{workload} on {model}: {run.steps} steps in {run.wall:.2f} s", run)


def printed(rows: Sequence[PeerRow], growth: Sequence[GrowthRow]) -> str:
    """Return all ratios and goals as text."""
    lines = [f"{'model':10} {'workload':12} {'state':5} {'system':16} {'seconds':>8}  {'÷ ours':24} rounds"]
    for model in dict.fromkeys(row.model for row in rows):
        for workload in SUITE:
            for state in ("cold", "warm"):
                for system in (OURS, *PEERS):
                    gain = ratio_of(rows, model, workload.name, state, system)
                    if gain is None:
                        continue
                    seconds = median(_seconds(rows, model, workload.name, state, system).values())
                    shown = "" if system == OURS else f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})"
                    lines.append(
                        f"{model:10} {workload.name:12} {state:5} {system:16} {seconds:8.2f}  {shown:24} {gain.rounds}"
                    )
    lines += [f"{row.steps:7} steps: {row.seconds:.2f} s, {row.per_step:.2f} ms each" for row in growth]
    for goal in goals(rows, growth):
        value = "none" if goal.value is None else f"{goal.value:.2f}"
        where = "" if goal.where is None else f"; {goal.reached} of {goal.cells}, worst: {goal.where}"
        lines.append(f"{'met' if goal.met else 'NOT':4} {goal.name}: {value} ({goal.goal}){where}")
    return "\n".join(lines)


def _found(
    rows: Sequence[PeerRow], workloads: Sequence[PeerWorkload], systems: Sequence[str], state: CacheState = "cold"
) -> list[FoundValue]:
    values = []
    for model in dict.fromkeys(row.model for row in rows):
        for workload in workloads:
            for system in systems:
                quotient = ratio_of(rows, model, workload.name, state, system)
                if quotient is not None:
                    where = f"{model}, {workload.name}, {state}, {system}"
                    values.append(FoundValue(quotient.median, where, quotient.rounds, (quotient.low, quotient.high)))
    return values


def _own(rows: Sequence[PeerRow]) -> dict[tuple[str, str], list[PeerRow]]:
    """Return our own rows by model and workload."""
    by_workload: dict[tuple[str, str], list[PeerRow]] = {}
    for row in rows:
        if row.system == OURS and row.own is not None:
            by_workload.setdefault((row.model, row.workload), []).append(row)
    return by_workload


def _efficiencies(rows: Sequence[PeerRow]) -> list[FoundValue]:
    return [
        FoundValue(
            median(_efficiency(row) for row in workload_rows),
            f"{model}, {workload}",
            len({row.number for row in workload_rows}),
        )
        for (model, workload), workload_rows in _own(rows).items()
    ]


def _efficiency(row: PeerRow) -> float:
    """Return what the best schedule takes at least over what our run took, acceptance and all."""
    assert row.own is not None, "only our own rows have a report"
    return row.own.best / row.seconds


def _mispredicted(rows: Sequence[PeerRow]) -> list[FoundValue]:
    values = []
    for (model, workload), workload_rows in _own(rows).items():
        later = [
            row.own for row in workload_rows if row.number + 1 >= LEARNED and row.own is not None and row.own.path > 0
        ]
        if later:
            wrong = median(abs(row.predicted / row.path - 1) for row in later)
            values.append(FoundValue(wrong, f"{model}, {workload}", len({row.number for row in workload_rows})))
    return values


def _off_tokens(rows: Sequence[PeerRow]) -> list[FoundValue]:
    """Return by how much the numbers of tokens differ, which a grammar decides for us and the recording for others."""
    values = []
    for model, workload in _own(rows):
        workload_rows = [row for row in rows if (row.model, row.workload) == (model, workload)]
        theirs = {row.number: row.tokens for row in workload_rows if row.system in (LANGGRAPH, GREEDY, AGENT)}
        off = [abs(row.tokens / theirs[row.number] - 1) for row in workload_rows if row.own and row.number in theirs]
        if off:
            values.append(FoundValue(median(off), f"{model}, {workload}", len(theirs)))
    return values


def _per_step(growth: Sequence[GrowthRow]) -> list[FoundValue]:
    """Return the milliseconds for each step. A size counts as a round for each of its steps, and as five at least."""
    return [FoundValue(row.per_step, f"{row.steps} steps", max(5, row.steps)) for row in growth]


def _by_workload(rows: Sequence[PeerRow]) -> dict[str, dict[str, float]]:
    by_model: dict[str, dict[str, float]] = {}
    for (model, workload), workload_rows in _own(rows).items():
        by_model.setdefault(model, {})[workload] = round(median(_efficiency(row) for row in workload_rows), 4)
    return by_model


def _seconds(rows: Sequence[PeerRow], model: str, workload: str, state: CacheState, system: str) -> dict[int, float]:
    wanted = (model, workload, state, system)
    return {row.number: row.seconds for row in rows if (row.model, row.workload, row.state, row.system) == wanted}


def _interval(quotient: Ratio) -> dict[str, float | int | None]:
    has_interval = quotient.rounds > 1
    return {
        "median": round(quotient.median, 4),
        "low": round(quotient.low, 4) if has_interval else None,
        "high": round(quotient.high, 4) if has_interval else None,
        "rounds": quotient.rounds,
    }


def _row(row: PeerRow) -> dict[str, Any]:
    fields = asdict(replace(row, run=None, seconds=round(row.seconds, 4)))
    return {name: value for name, value in fields.items() if value is not None}


def stamp(threads: int, systems: Sequence[str]) -> Stamp:
    """Return what else the figures depend on than models, tasks and our own code."""
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "numpy"),
        "threads": threads,
        "systems": [*systems],
    }
