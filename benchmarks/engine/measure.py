"""Measure the cells of a group: rounds in which every system gets the same load, one system after the other.

The machine is noisy, and slower at times. So a round is short, the systems take turns in another order each time, and
only rounds with the same number are compared.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from benchmarks.engine.bound import Propose, StepTimes, best_speedup, by_lookup, by_model
from benchmarks.engine.busy import busy_loops
from benchmarks.engine.cells import Cell, State, UserCell
from benchmarks.engine.chain import Next, walk
from benchmarks.engine.names import OURS, speculating
from benchmarks.engine.paired import Ratio, Rounds, ratio
from benchmarks.engine.rows import Row
from benchmarks.engine.start import LONGEST, MOST_DRAFTS
from benchmarks.engine.system import Load, Measured, System, Tokens
from benchmarks.engine.systems.ceiling import Ceiling
from benchmarks.engine.systems.served import Served, ServerFailed, until_quiet

Key = tuple[str, State]
"""The name of a system and the state that it was measured in."""
Loads = Callable[[int], Mapping[State, Load]]
"""Gives the loads of a round."""
OneRound = Callable[[System, int], Awaitable[dict[State, Measured]]]
"""Measures a system in a round, in every state."""
WARM_UP = -1
"""The number of a round that is not measured: the first steps of any kind are slower."""
REST_SECONDS = 0.1
"""A pause before each system's turn: threads of the one before still spin for some milliseconds, on its cores."""

NEXT_LOAD_SECONDS, NEXT_SYSTEM_SECONDS = 0.25, 1.5
"""How long all servers have been quiet when a server gets its next load, and when the next server has its turn. Our
engine begins to measure steps, if it wants to, when it has had nothing to do for a second."""
USER_WARM_UP = 8
"""How many tokens a request gets to generate in the round that is not measured, of a cell of the user's path."""


class WrongAnswer(Exception):
    """A system did not say what the model does, or was not asked the same."""


async def measure(
    cell: Cell,
    systems: Sequence[System],
    loads: Loads,
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[Row] = (),
) -> list[Row]:
    """Return a row for each system and state; of the rounds after those that are in the rows `before`, if any are."""

    async def measured(system: System, number: int) -> dict[State, Measured]:
        if number == WARM_UP:
            load = next(iter(loads(number).values()))
            await system.run(replace(load, answer=min(2, load.answer), texts=None))
            return {}
        return {
            state: await _checked(cell, system, load.first(cell.requests(system.name, state)))
            for state, load in loads(number).items()
        }

    return await _rounds(cell, systems, measured, rounds, tell, before)


async def measure_task(
    cell: Cell,
    systems: Sequence[System],
    load_of: Callable[[int], Load],
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[Row] = (),
) -> list[Row]:
    """Return the same for a cell with a task. Every prompt is computed before its round: only decoding is measured."""

    async def measured(system: System, number: int) -> dict[State, Measured]:
        load = load_of(number)
        await system.run(replace(load, answer=1, texts=None))
        return {"warm": await _checked(cell, system, load)}

    return await _rounds(cell, systems, measured, rounds, tell, before)


async def measure_user(
    cell: UserCell,
    systems: Sequence[System],
    loads: Loads,
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[Row] = (),
) -> list[Row]:
    """Return the same for a cell of the user's path. Busy loops begin before a load and end after it.

    Each load begins when all servers are quiet, so that what one of them does in idle moments disturbs no other.
    """
    servers = [system for system in systems if isinstance(system, Served)]

    async def measured(system: System, number: int) -> dict[State, Measured]:
        found: dict[State, Measured] = {}
        for state, load in loads(number).items():
            if not await until_quiet(servers, NEXT_LOAD_SECONDS if found else NEXT_SYSTEM_SECONDS):
                tell(f"{cell.name}: servers compute without a request; {system.name} is measured beside that")
            if number == WARM_UP:
                await system.run(replace(load, answer=min(USER_WARM_UP, load.answer)))
                break
            with busy_loops(cell.busy(state)):
                found[state] = whole_answers(load, await _checked(cell, system, load))
        return found

    return await _rounds(cell, systems, measured, rounds, tell, before)


def whole_answers(load: Load, measured: Measured) -> Measured:
    """Return what a load would have taken, at the same tokens a second, had no answer been shorter than was asked for.

    Real models end texts, and two systems need not end the same ones: rounding differs. `tokens` stay those that were
    made. A run of steps is returned as it is. Raises ServerFailed where there is not a single token.
    """
    wanted = len(load.prompts) * load.answer
    if load.steps or measured.tokens >= wanted:
        return measured
    if not measured.tokens:
        raise ServerFailed("all answers are empty")
    return replace(measured, seconds=measured.seconds * wanted / measured.tokens)


async def _rounds(
    cell: Cell,
    systems: Sequence[System],
    measured: OneRound,
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[Row],
) -> list[Row]:
    """Do the rounds, and return a row for each system and state. A peer's server that fails has none in this cell."""
    found: dict[Key, list[Measured]] = {}
    seconds: dict[Key, list[float]] = {(row.system, row.state): list(row.seconds) for row in before}
    partners, begun = list(systems), time.monotonic()
    first = max(map(len, seconds.values()), default=0)
    for number in itertools.chain((WARM_UP,), itertools.count(first)):
        if rounds.enough(number, time.monotonic() - begun, _ratios(seconds)):
            break
        for system in in_turn(partners, number):
            await asyncio.sleep(REST_SECONDS)
            try:
                states = await measured(system, number)
            except ServerFailed as error:
                tell(f"left out of {cell.name}: {error}")
                partners.remove(system)
                found = {key: measured for key, measured in found.items() if key[0] != system.name}
                seconds = {key: each for key, each in seconds.items() if key[0] != system.name}
                continue
            if number != WARM_UP:
                for state, each in states.items():
                    found.setdefault((system.name, state), []).append(each)
                    seconds.setdefault((system.name, state), []).append(each.seconds)
    return [_row(cell, name, state, all_of_it) for (name, state), all_of_it in found.items()]


def _ratios(seconds: Mapping[Key, Sequence[float]]) -> Iterator[Ratio]:
    """Yield how ours compare with each other system in the same state, and with each other."""
    for (name, state), others in seconds.items():
        for (mine, of_mine), ours in seconds.items():
            if mine.startswith(OURS) and of_mine == state and mine != name:
                yield ratio(others, ours)


def step_times(target: Ceiling, drafter: Ceiling, prompts: Sequence[Tokens]) -> tuple[StepTimes, StepTimes]:
    """Return how long steps take behind such prompts (medians): with looked-up drafts, and with those of a model."""
    rounds = [(target.steps(prompt, MOST_DRAFTS + 1), drafter.steps(prompt, 1)) for prompt in prompts]
    steps = tuple(map(median, zip(*(of_target for of_target, _ in rounds), strict=True)))
    return StepTimes(steps, 0.0), StepTimes(steps, median(of_draft[0] for _, of_draft in rounds))


def with_bounds(
    rows: Sequence[Row], loads: Sequence[Load], models: tuple[Next, Next], times: tuple[StepTimes, StepTimes]
) -> list[Row]:
    """Return the rows with the best speed-up that lookup and drafts could bring to these loads of single requests.

    `models` are what target and draft model say.
    """
    target, drafter = models
    prompts = [load.prompts[0].tokens for load in loads]
    answers = [walk(target, prompt[-1], loads[0].answer) for prompt in prompts]
    by_method: dict[str, list[Callable[[], Propose]]] = {
        "lookup": [lambda prompt=prompt: by_lookup(prompt, LONGEST) for prompt in prompts],  # type: ignore[misc]
        "draft": [lambda: by_model(drafter) for _ in prompts],
    }
    bounds = {
        speculating(OURS, method): best_speedup(answers, proposals, of_method)
        for (method, proposals), of_method in zip(by_method.items(), times, strict=True)
    }
    return [replace(row, bound=bounds.get(row.system)) for row in rows]


def in_turn(systems: Sequence[System], number: int) -> list[System]:
    """Return the systems in the order of round `number`: each begins in turn."""
    first = number % len(systems) if systems else 0
    return [*systems[first:], *systems[:first]]


async def _checked(cell: Cell, system: System, load: Load) -> Measured:
    """Do a load and compare prompts and answers with what they should be. Raises WrongAnswer."""
    measured = await system.run(load)
    asked = tuple(len(prompt.tokens) for prompt in load.prompts)
    if not load.steps and measured.asked not in (None, asked):
        raise WrongAnswer(f"{cell.name}: {system.name} makes {measured.asked} tokens of prompts of {asked}")
    if load.texts is not None and measured.texts is not None:
        for said, right in zip(measured.texts, load.texts, strict=True):
            if said.split() != right.split():
                raise WrongAnswer(f"{cell.name}: {system.name} says {said!r}; the model says {right!r}")
    return measured


def _row(cell: Cell, system: str, state: State, measured: Sequence[Measured]) -> Row:
    return Row(
        cell=cell.name,
        model=cell.model,
        width=cell.width,
        requests=cell.requests(system, state),
        prefix=cell.prefix,
        state=state,
        system=system,
        task=cell.task,
        tokens=round(median(each.tokens for each in measured)),
        seconds=tuple(each.seconds for each in measured),
        llama_seconds=sum(each.llama_seconds for each in measured),
        own_seconds=sum(each.own_seconds for each in measured),
        split_cache=measured[-1].split_cache,
        lost=sum(each.lost for each in measured),
    )
