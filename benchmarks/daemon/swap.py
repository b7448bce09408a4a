"""Let two models take turns in memory, and time how conversations continue after each swap.

Four conversations of 2,000 tokens alternate between the models, so each second answer comes from an engine that has
just been loaded. It restores what the engine before it computed, or computes all of it again. Loading takes the same
time in both cases and is not counted. Files are read from the page cache where they are still there, as in use.

Each round is kept in a file when it is over, so a run that was stopped continues with the next one. Rounds of another
engine, machine or version of this benchmark do not count.
"""

import json
import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Final

import structlog

from benchmarks.daemon.figures import PartResult
from benchmarks.daemon.process import BenchmarkFailed
from benchmarks.engine.models import SMALL, Generated
from benchmarks.engine.paired import ratio
from benchmarks.engine.report import source_hash
from benchmarks.engine.words import COUNT, FIRST, text_of, tokens_of
from benchmarks.results import ROOT
from benchmarks.routing.rows import Row, RowLog
from orchestrator.bench import environment
from orchestrator.bench.goals import Goal
from orchestrator.engine.contract import Generation, Message
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry

MODELS: Final = {"a": SMALL, "b": replace(SMALL, seed=SMALL.seed + 1)}
CONVERSATIONS: Final = 4
TOKENS: Final = 2000
QUESTION: Final = 16  # tokens of the second question
ANSWER: Final = 16  # tokens
GOAL: Final = 5.0
WAYS: Final = ("restored", "recomputed")
BUILD: Final = ROOT / "build" / "bench"
ROUNDS: Final = BUILD / "swap.jsonl"  # keeps the rounds; remove it to measure them again


async def measure(folder: Path, rounds: int, file: Path = ROUNDS) -> PartResult:
    """Measure both ways in each of `rounds` rounds, in alternating order, with other conversations in each round.

    Rounds that are in `file` are not measured again.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    log, rows = RowLog(file), list[Row]()
    stamp = json.dumps([environment.machine(), environment.versions("llama-cpp-python"), source_hash()])
    for number in range(rounds):
        key = ("swap", str(number), stamp)
        row = log.find(key, Path(__file__))
        rows.append(log.add(key, await _round(folder, number), Path(__file__)) if row is None else row)
    return result(rows)


async def _round(folder: Path, number: int) -> Row:
    begun, row = perf_counter(), Row()
    registry = _registry(folder, BUILD / "models", MODELS)
    for way in WAYS if number % 2 == 0 else reversed(WAYS):
        row[way] = await _measured(folder / f"{number}-{way}", registry, number, restores=way == "restored")
    return {**row, "seconds": round(perf_counter() - begun, 1)}


def result(rounds: Sequence[Row]) -> PartResult:
    """Return the figures and the goal, which is judged by the better end of the interval, as other ratios are."""
    by_way = {way: [row[way] for row in rounds] for way in WAYS}
    seconds = {way: [float(each["second_answers_seconds"]) for each in by_way[way]] for way in WAYS}
    speedup = ratio(seconds["recomputed"], seconds["restored"])
    interval = None if speedup.rounds == 1 else [round(speedup.low, 2), round(speedup.high, 2)]
    figures = {
        "conversations": CONVERSATIONS,
        "tokens_each": TOKENS,
        "seconds": round(sum(row["seconds"] for row in rounds), 1),  # of all rounds, also those of earlier runs
        "speedup": {"median": round(speedup.median, 2), "interval": interval, "rounds": speedup.rounds},
        "rounds": by_way,
    }
    reached = speedup.median >= GOAL or (interval is not None and interval[1] >= GOAL)
    name = "second answers after a swap, recomputed over restored"
    return PartResult(figures, [Goal(name, round(speedup.median, 2), f">= {GOAL:g}", reached)])


async def _measured(folder: Path, registry: Registry, number: int, *, restores: bool) -> Row:
    rng = random.Random(f"swap/{number}")  # noqa: S311 (prompts, no secrets)
    texts = [_words(rng, TOKENS) for _ in range(CONVERSATIONS)]
    names = [list(MODELS)[index % len(MODELS)] for index in range(CONVERSATIONS)]
    histories: list[tuple[Message, ...]] = [(Message("user", text),) for text in texts]
    answers: list[float] = []
    cached: list[int] = []
    prefixes = folder / "prefixes" if restores else None
    async with Pool(registry, folder / "logs", prefixes=prefixes) as pool:
        for index, name in enumerate(names):
            completion = await pool.generate(name, _request(histories[index]))
            question = Message("user", _words(rng, QUESTION))
            histories[index] = (*histories[index], Message("assistant", completion.text), question)
            await pool.unload(name)
        for index, name in enumerate(names):
            await pool.load(name)
            begun = perf_counter()
            completion = await pool.generate(name, _request(histories[index]))
            answers.append(perf_counter() - begun)
            cached.append(completion.usage.cached_tokens)
            await pool.unload(name)
    if min(cached) < TOKENS if restores else max(cached) > QUESTION:
        raise BenchmarkFailed(f"the second answers reuse {cached} tokens of {TOKENS}")
    return {"second_answers_seconds": round(sum(answers), 4), "answers_seconds": [round(each, 4) for each in answers]}


def _request(messages: tuple[Message, ...]) -> Generation:
    return Generation(messages=messages, max_tokens=ANSWER, ignore_end=True)


def _words(rng: random.Random, count: int) -> str:
    text = text_of(FIRST + rng.randrange(COUNT) for _ in range(count))
    assert len(tokens_of(text)) == count, "every word is a token"
    return text


def _registry(folder: Path, models: Path, entries: dict[str, Generated]) -> Registry:
    lines = [f"defaults: {{residency: warm, context: {2 * TOKENS}, slots: 4}}", "models:"]
    lines += [f"  {name}: {{file: '{model.write(models)}'}}" for name, model in entries.items()]
    lines += ["roles:", "  worker: {model: a, tier: C}"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model_registry.yaml"
    path.write_text("\n".join(lines))
    return load_registry(path)
