"""Measure the CPU time of a decision: embedding, retrieval and choice, with many episodes in the memory."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.goals import at_most
from benchmarks.routing.rows import Part, Row
from memrl.episodes import Action, Outcome, Situation
from memrl.memory import Memory
from memrl.policy import Policy
from memrl.reward import Cost
from orchestrator import lexical

ACTIONS = tuple(
    Action(role, persona, model)
    for role, model in (("worker", "small"), ("coder", "medium"), ("architect", "large"))
    for persona in ("", "careful")
)
COSTS = {action: Cost(seconds=float(place), tokens=100.0) for place, action in enumerate(ACTIONS)}
DECISIONS = 1000
RETRIEVED = 100
SYLLABLES = ("ka", "zil", "mor", "the", "ran", "bo", "lin", "sa", "dur", "ve", "pok", "ith", "gra", "no", "quel", "tis")
WORDS_A_TEXT = 30


@dataclass(slots=True)
class Spent:
    """CPU seconds of each part of the decisions."""

    embedding: list[float]
    retrieval: list[float]
    choice: list[float]


def run(episodes: int) -> Part:
    """Return the CPU time of decisions beside so many episodes, by part, in milliseconds."""
    with TemporaryDirectory() as folder:
        spent = measure(Path(folder), episodes)
    parts = {"embedding": spent.embedding, "retrieval": spent.retrieval, "choice": spent.choice}
    total = [sum(times) for times in zip(*parts.values(), strict=True)]
    rows = [_row(name, times, episodes) for name, times in {**parts, "decision": total}.items()]
    goal = at_most(f"CPU time of a decision at {episodes:,} episodes, 99th percentile, ms", rows[-1]["p99_ms"], 2.0)
    return Part(rows, [{"name": goal.name, "value": goal.value, "goal": goal.goal, "met": goal.met}])


def measure(folder: Path, episodes: int) -> Spent:
    """Return the CPU time of each decision, one thread's."""
    rng = np.random.default_rng(0)
    memory = Memory.open(folder, lexical.NAME, lexical.DIMENSIONS)
    policy = Policy(lexical.DIMENSIONS)
    try:
        _fill(memory, policy, episodes, rng)
        spent = Spent([], [], [])
        for _ in range(DECISIONS):
            situation = _situation(rng)
            begin = time.thread_time()
            vector = lexical.embed([situation.text])[0]
            embedded = time.thread_time()
            near = memory.retrieve(vector, RETRIEVED)
            found = time.thread_time()
            policy.choose(situation, vector, near, ACTIONS, COSTS, rng=rng)
            spent.choice.append(time.thread_time() - found)
            spent.retrieval.append(found - embedded)
            spent.embedding.append(embedded - begin)
    finally:
        memory.close()
    return spent


def _fill(memory: Memory, policy: Policy, episodes: int, rng: np.random.Generator) -> None:
    """Let the memory observe so many outcomes of different situations, and the policy too."""
    for begin in range(0, episodes, 1000):
        situations = [_situation(rng) for _ in range(min(1000, episodes - begin))]
        vectors = lexical.embed([situation.text for situation in situations])
        with memory.batch():
            for number, (situation, vector) in enumerate(zip(situations, vectors, strict=True), begin):
                action = ACTIONS[number % len(ACTIONS)]
                outcome = Outcome(success=float(rng.random() < 0.6), source="checker", critical_seconds=1.0, tokens=99)
                reward = policy.observe(situation, vector, action, outcome)
                assert reward is not None
                memory.observe(
                    situation,
                    vector,
                    action,
                    outcome=outcome,
                    reward=reward,
                    propensity=1.0,
                    at=float(number),
                    key=(f"run-{number}", "S1", 1),
                )


def _situation(rng: np.random.Generator) -> Situation:
    """Return a situation with a text of random words, so that no two are the same one."""
    drawn = rng.integers(0, len(SYLLABLES), (WORDS_A_TEXT, 3))
    words = ("".join(SYLLABLES[place] for place in row) for row in drawn.tolist())
    return Situation(task_type="doc", kind="generate", role="worker", text=" ".join(words).capitalize() + ".")


def _row(part: str, seconds: list[float], episodes: int) -> Row:
    p50, p99 = np.percentile(np.array(seconds) * 1000, (50, 99))
    return {"part": part, "episodes": episodes, "p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}
