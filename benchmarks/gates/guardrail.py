"""Measure how fast an engine decodes alone and while gates run: it has to keep nine tenths of its speed.

Two engines are measured, each on all cores: the largest embedded model, whose steps are so short that every
interruption matters, and one of 150 M parameters with random weights, whose steps are as long as a small real model's.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.engine.models import SMALL
from benchmarks.gates.setups import WEIGHTS
from benchmarks.gates.tasks import BenchTask, correct_answer
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.gates import Artifact, GateContext, RunJob, Scope, run_gates

ANSWERS_ALONE = 8
ENDLESS = {"type": "array", "items": {"type": "integer"}, "minItems": 250}
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class GuardrailModel:
    """A model, and how long the answers are that it decodes."""

    name: str
    file: Path
    tokens: int
    """The tokens of an answer."""
    schema: dict[str, object] | None = None
    """A schema that keeps the answer from ending early; None for a model that never ends an answer by itself."""


def decoders(folder: Path) -> list[GuardrailModel]:
    """Return the models to measure. Those that are not shipped are written to `folder`."""
    embedded = GuardrailModel("embedded large", WEIGHTS / "large.gguf", 600, ENDLESS)
    return [embedded, GuardrailModel(SMALL.name, SMALL.write(folder), 60)]


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Medians over rounds: tokens per second, and seconds of one check by all gates, each alone and both together."""

    model: str
    threads: int
    rounds: int
    alone: float
    beside_gates: float
    check_alone: float
    check_beside: float

    @property
    def share(self) -> float:
        """Return the share of its speed that decoding keeps."""
        return self.beside_gates / self.alone


class _Decoding:
    """Lets an engine decode one answer after the other, and measures its speed."""

    def __init__(self, engine: Engine, decoder: GuardrailModel) -> None:
        self._engine = engine
        self._decoder = decoder

    async def alone(self) -> float:
        """Return the tokens per second of a few answers."""
        return _speed([await self._answer() for _ in range(ANSWERS_ALONE)])

    async def beside(self, check: "asyncio.Task[float]") -> float:
        """Return the tokens per second of answers, until the check has ended."""
        answers = [await self._answer()]
        while not check.done():
            answers.append(await self._answer())
        return _speed(answers)

    async def _answer(self) -> tuple[int, float]:
        messages = (Message("system", "Do the task."), Message("user", "Task: Count."))
        request = Generation(messages=messages, schema=self._decoder.schema, max_tokens=self._decoder.tokens)
        usage = (await self._engine.generate(request)).usage
        return usage.output_tokens, usage.decode_seconds


async def measure(decoder: GuardrailModel, task: BenchTask, run: RunJob, threads: int, rounds: int) -> Guardrail:
    """Decode in rounds, alone and while the task's gates check a correct answer. `run` runs the gates' jobs."""
    spec = EngineSpec(file=str(decoder.file), context=2048, slots=4, threads=threads, batch_invariant=True)
    rows = list[tuple[float, float, float, float]]()
    await _check(task, run)  # mypy's first check fills its cache
    async with await Engine.start(spec) as engine:
        decoding = _Decoding(engine, decoder)
        await decoding.alone()
        for _ in range(rounds):
            check_alone, alone = await _check(task, run), await decoding.alone()
            async with asyncio.TaskGroup() as group:
                check = group.create_task(_check(task, run))
                beside = await decoding.beside(check)
            rows.append((alone, beside, check_alone, check.result()))
    return Guardrail(decoder.name, threads, rounds, *(median(column) for column in zip(*rows, strict=True)))


async def _check(task: BenchTask, run: RunJob) -> float:
    """Let all gates of the task check a correct answer, and return the seconds that they took."""
    document = task.task(gates=True)
    (step,) = document.plan.steps
    tests = {label: given.value.encode() for label, given in zip(document.labels, document.inputs, strict=True)}
    context = GateContext(Scope(step, tuple(tests)), tests=tests, run=run)
    begun = perf_counter()
    checked = await run_gates(step.gates or (), [Artifact(task.output, correct_answer(task).encode())], context)
    seconds = perf_counter() - begun
    if checked.failure is not None:
        raise RuntimeError(f"the gates fail a correct answer: {checked.failure.message}")
    return seconds


def _speed(answers: list[tuple[int, float]]) -> float:
    return sum(tokens for tokens, _ in answers) / sum(seconds for _, seconds in answers)
