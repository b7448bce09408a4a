"""Measure the CPU time of a decision with many episodes in the memory: of its parts, and of the whole router."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import numpy as np

from benchmarks.routing.rows import BenchmarkPart, Row
from orchestrator.bench.goals import at_most
from orchestrator.memrl.episodes import Action, Outcome, Situation, situation_of
from orchestrator.memrl.memory import Memory, MemoryOptions
from orchestrator.memrl.policy import Policy
from orchestrator.memrl.reward import staged
from orchestrator.memrl.router import NEIGHBOURS, HybridRouter, Learned, Vector, candidates
from orchestrator.memrl.vectors import IndexSettings
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.routing import DecisionContext, by_rules
from orchestrator.task import lexical
from orchestrator.task.taskir.models import Step

REGISTRY = Path(__file__).parents[2] / "model_registry.yaml"
WIDTH = lexical.LEARNING_DIMENSIONS
DECISIONS = 1000
BATCH = 1000
TAUGHT = 5000  # outcomes that the policy learns from; it grows with the number of actions only
SYLLABLES = ("ka", "zil", "mor", "the", "ran", "bo", "lin", "sa", "dur", "ve", "pok", "ith", "gra", "no", "quel", "tis")
WORDS_A_TEXT = 30


@dataclass(slots=True)
class Spent:
    """CPU seconds of decisions."""

    embedding: list[float] = field(default_factory=list)
    retrieval: list[float] = field(default_factory=list)
    choice: list[float] = field(default_factory=list)
    # Of whole decisions by the router, with the rules, what the candidates are, and what is journaled.
    router: list[float] = field(default_factory=list)


def run(episodes: int) -> BenchmarkPart:
    """Return the CPU time of decisions with `episodes` episodes in memory, by part, in milliseconds."""
    with TemporaryDirectory() as folder:
        spent, actions = asyncio.run(measure(Path(folder), episodes))
    parts = {"embedding": spent.embedding, "retrieval": spent.retrieval, "choice": spent.choice}
    together = [sum(times) for times in zip(*parts.values(), strict=True)]
    times_by_part = {**parts, "these three": together, "the whole router": spent.router}
    rows = [_row(name, times, episodes, actions) for name, times in times_by_part.items()]
    name = f"CPU time of a decision at {episodes:,} episodes, 99th percentile, ms"
    goals = [at_most(f"{name}: {row['part']}", row["p99_ms"], 2.0) for row in rows[-2:]]
    return BenchmarkPart(
        rows, [{"name": goal.name, "value": goal.value, "goal": goal.goal, "met": goal.met} for goal in goals]
    )


async def measure(folder: Path, episodes: int) -> tuple[Spent, int]:
    """Return the CPU time of each decision, one thread's, and between how many actions they are made."""
    rng = np.random.default_rng(0)
    registry = load_registry(REGISTRY)
    context = _context(registry, "Extract the names.")
    actions = candidates(context, by_rules(context))
    policy = Policy(WIDTH)
    _fill(folder, policy, actions, episodes, rng)
    memory = Memory.open(folder, lexical.NAME, WIDTH)
    memory._index.wait()
    router = HybridRouter(lambda: Learned(memory, policy, _embed, Lock()), lambda: "on", rng)
    spent = Spent()
    try:
        for _ in range(DECISIONS):
            _decide(memory, policy, actions, spent, rng)
            asked = _context(registry, _text(rng))
            begin = time.thread_time()
            decision = await router.choose(asked)
            spent.router.append(time.thread_time() - begin)
            assert decision.advice is not None, decision.reason
    finally:
        memory.close()
    return spent, len(actions)


def _decide(memory: Memory, policy: Policy, actions: Sequence[Action], spent: Spent, rng: np.random.Generator) -> None:
    situation = _situation(_text(rng))
    begin = time.thread_time()
    vector = lexical.embed([situation.text], WIDTH)[0]
    embedded = time.thread_time()
    near = memory.retrieve(vector, NEIGHBOURS, policy.settings.retrieval.threshold)
    retrieved = time.thread_time()
    policy.choose(situation, vector, near, actions, rng=rng)
    spent.choice.append(time.thread_time() - retrieved)
    spent.retrieval.append(retrieved - embedded)
    spent.embedding.append(embedded - begin)


def _fill(folder: Path, policy: Policy, actions: Sequence[Action], episodes: int, rng: np.random.Generator) -> None:
    """Let a memory observe `episodes` outcomes of different situations, and the policy the first of them.

    Similar episodes are not searched for and no lists are trained meanwhile, which would only take longer.
    """
    quick = MemoryOptions(most_alike=0, index=IndexSettings(flat_numbers=1 << 40))
    memory = Memory.open(folder, lexical.NAME, WIDTH, quick)
    try:
        for begin in range(0, episodes, BATCH):
            situations = [_situation(_text(rng)) for _ in range(min(BATCH, episodes - begin))]
            vectors = lexical.embed([situation.text for situation in situations], WIDTH)
            with memory.batch():
                for number, (situation, vector) in enumerate(zip(situations, vectors, strict=True), begin):
                    action = actions[number % len(actions)]
                    success = float(rng.random() < 0.6)
                    outcome = Outcome(success=success, source="checker", critical_seconds=1.0, tokens=99)
                    if number < TAUGHT:
                        policy.observe(situation, vector, action, outcome)
                    memory.observe(
                        situation,
                        vector,
                        action,
                        outcome=outcome,
                        reward=staged(outcome, number),
                        propensity=1.0,
                        at=float(number),
                        key=(f"run-{number}", "S1", 1),
                    )
    finally:
        memory.close()


async def _embed(texts: Sequence[str]) -> Vector:
    return lexical.embed(texts, WIDTH)


def _text(rng: np.random.Generator) -> str:
    """Return a text of random words, so that no two are the same."""
    drawn = rng.integers(0, len(SYLLABLES), (WORDS_A_TEXT, 3))
    words = ("".join(SYLLABLES[place] for place in row) for row in drawn.tolist())
    return " ".join(words).capitalize() + "."


def _situation(text: str) -> Situation:
    return situation_of(role="worker", objective=text, task=None, step=_step(text))


def _step(text: str) -> Step:
    return Step(id="S1", actor="worker", action=text, outputs=("answer",))


def _context(registry: Registry, text: str) -> DecisionContext:
    return DecisionContext(
        registry=registry,
        role="worker",
        roles=registry.step_roles,
        objective=text,
        step=_step(text),
        priority="batch",
        resident=frozenset(registry.models),
    )


def _row(part: str, seconds: list[float], episodes: int, actions: int) -> Row:
    p50, p99 = np.percentile(np.array(seconds) * 1000, (50, 99))
    counted = {"part": part, "episodes": episodes, "actions": actions}
    return {**counted, "p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}
