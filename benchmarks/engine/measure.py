"""Measure the cells of a group in rounds, in which every system gets the same load, one system after the other.

The machine is noisy, and slower at times. So rounds are short, the order of the systems changes from round to round,
and only rounds with the same number are compared.
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
from benchmarks.engine.rows import EngineRow
from benchmarks.engine.start import LONGEST, MOST_DRAFTS
from benchmarks.engine.system import Measured, RequestLoad, System, Tokens
from benchmarks.engine.systems.ceiling import Ceiling
from benchmarks.engine.systems.served import Served, ServerFailed, until_quiet

Key = tuple[str, State]  # the name of a system and the state that it was measured in
Loads = Callable[[int], Mapping[State, RequestLoad]]  # returns the loads of a round, by its number
# Measures a system in the round with a number, in every state.
OneRound = Callable[[System, int], Awaitable[dict[State, Measured]]]
WARM_UP = -1  # the number of the first round, which is not measured, because the first steps of any kind are slower
# A pause before each system's turn, because threads of the system before still spin for some milliseconds.
REST_SECONDS = 0.1

# How long all servers have been quiet when a server gets its next load, and when the next server has its turn. Our
# engine begins to measure steps, if it wants to, when it has had nothing to do for a second.
NEXT_LOAD_SECONDS, NEXT_SYSTEM_SECONDS = 0.25, 1.5
USER_WARM_UP = 8  # how many tokens a request generates in the round that is not measured, for cells of the user's path


class WrongAnswer(Exception):
    """A system's answer is not the model's, or its prompt does not have the tokens of the others' prompts."""


async def measure(
    cell: Cell,
    systems: Sequence[System],
    loads: Loads,
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[EngineRow] = (),
) -> list[EngineRow]:
    """Return a row for each system and state. If there are rows `before`, the rounds continue after theirs.

    Raises WrongAnswer.
    """

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


async def measure_prepared(
    cell: Cell,
    systems: Sequence[System],
    loads_of: Callable[[int], tuple[RequestLoad, RequestLoad]],
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[EngineRow] = (),
) -> list[EngineRow]:
    """Return the same for a cell in which a load that is not measured prepares each round.

    It is the first turn of a conversation or, to measure decoding alone, the prompts.
    """

    async def measured(system: System, number: int) -> dict[State, Measured]:
        before_it, load = loads_of(number)
        await _checked(cell, system, before_it)
        return {"warm": await _checked(cell, system, load)}

    return await _rounds(cell, systems, measured, rounds, tell, before)


async def measure_user(
    cell: UserCell,
    systems: Sequence[System],
    loads: Loads,
    rounds: Rounds,
    tell: Callable[[str], None],
    before: Sequence[EngineRow] = (),
) -> list[EngineRow]:
    """Return the same for a cell of the user's path. Busy loops begin before a load and end after it.

    Each load begins when all servers are quiet, so that a system is not disturbed by what the others do when idle.
    """
    servers = [system for system in systems if isinstance(system, Served)]

    async def measured(system: System, number: int) -> dict[State, Measured]:
        by_state: dict[State, Measured] = {}
        for state, load in loads(number).items():
            if not await until_quiet(servers, NEXT_LOAD_SECONDS if by_state else NEXT_SYSTEM_SECONDS):
                tell(f"{cell.name}: servers compute without a request; {system.name} is measured beside that")
            if number == WARM_UP:
                await system.run(replace(load, answer=min(USER_WARM_UP, load.answer)))
                break
            with busy_loops(cell.busy(state)):
                by_state[state] = whole_answers(load, await _checked(cell, system, load))
        return by_state

    return await _rounds(cell, systems, measured, rounds, tell, before)


def whole_answers(load: RequestLoad, measured: Measured) -> Measured:
    """Return what a load would have taken, at the same tokens per second, if no answer were shorter than asked for.

    Trained models end their texts, and two systems need not end the same ones, because their rounding differs. `tokens`
    remains the number that was made. A run of steps is returned unchanged. Raises ServerFailed if all answers are
    empty.
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
    before: Sequence[EngineRow],
) -> list[EngineRow]:
    """Do the rounds, and return a row for each system and state. A server that fails is left out of this cell."""
    by_key: dict[Key, list[Measured]] = {}
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
                by_key = {key: measured for key, measured in by_key.items() if key[0] != system.name}
                seconds = {key: each for key, each in seconds.items() if key[0] != system.name}
                continue
            if number != WARM_UP:
                for state, each in states.items():
                    by_key.setdefault((system.name, state), []).append(each)
                    seconds.setdefault((system.name, state), []).append(each.seconds)
    return [_row(cell, name, state, all_of_it) for (name, state), all_of_it in by_key.items()]


def _ratios(seconds: Mapping[Key, Sequence[float]]) -> Iterator[Ratio]:
    """Yield the ratios of our systems to every other system in the same state, including our other ones."""
    for (name, state), others in seconds.items():
        for (mine, of_mine), ours in seconds.items():
            if mine.startswith(OURS) and of_mine == state and mine != name:
                yield ratio(others, ours)


def step_times(target: Ceiling, drafter: Ceiling, prompts: Sequence[Tokens]) -> tuple[StepTimes, StepTimes]:
    """Return the median times of steps after such prompts, with drafts from prompt lookup and from a draft model."""
    rounds = [(target.steps(prompt, MOST_DRAFTS + 1), drafter.steps(prompt, 1)) for prompt in prompts]
    steps = tuple(map(median, zip(*(of_target for of_target, _ in rounds), strict=True)))
    return StepTimes(steps, 0.0), StepTimes(steps, median(of_draft[0] for _, of_draft in rounds))


def with_bounds(
    rows: Sequence[EngineRow],
    loads: Sequence[RequestLoad],
    models: tuple[Next, Next],
    times: tuple[StepTimes, StepTimes],
) -> list[EngineRow]:
    """Return the rows with the best speed-up that speculation could reach for these loads of single requests.

    `models` are the words that follow each word for the target and for the draft model.
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
    """Return the systems in the order of round `number`: each of them is the first in turn."""
    first = number % len(systems) if systems else 0
    return [*systems[first:], *systems[:first]]


async def _checked(cell: Cell, system: System, load: RequestLoad) -> Measured:
    """Run a load, and compare the numbers of prompt tokens and the answers with the expected ones. Raises
    WrongAnswer."""
    measured = await system.run(load)
    asked = tuple(len(prompt.tokens) for prompt in load.prompts)
    if not load.steps and measured.asked not in (None, asked):
        raise WrongAnswer(f"{cell.name}: {system.name} makes {measured.asked} tokens of prompts of {asked}")
    if load.texts is not None and measured.texts is not None:
        for said, right in zip(measured.texts, load.texts, strict=True):
            if said.split() != right.split():
                raise WrongAnswer(f"{cell.name}: {system.name} says {said!r}; the model says {right!r}")
    return measured


def _row(cell: Cell, system: str, state: State, measured: Sequence[Measured]) -> EngineRow:
    return EngineRow(
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
