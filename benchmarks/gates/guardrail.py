"""Measure how fast an engine decodes alone and while gates run beside it: it has to keep nine tenths of its speed."""

import asyncio
from dataclasses import dataclass
from statistics import median

from benchmarks.gates.tasks import BenchTask
from benchmarks.gates.world import WEIGHTS
from orchestrator.engine.client import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.gates import Artifact, GateContext, Run, Scope, run_gates
from orchestrator.taskir import TaskIR

TOKENS = 600
ENDLESS = {"type": "array", "items": {"type": "integer"}, "minItems": 250}
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Tokens per second, medians of alternating rounds; `checked` attempts were checked meanwhile."""

    threads: int
    alone: float
    beside_gates: float
    checked: int

    @property
    def share(self) -> float:
        """The share of its speed that decoding keeps."""
        return self.beside_gates / self.alone


async def measure(task: BenchTask, answer: str, run: Run, threads: int, rounds: int) -> Guardrail:
    """Let the largest embedded model decode in rounds, every other one while the task's gates look at `answer`."""
    spec = EngineSpec(file=str(WEIGHTS / "large.gguf"), context=2048, slots=4, threads=threads, exact=True)
    document = task.task(gates=True, timeout_seconds=600)
    alone, beside, checked = list[float](), list[float](), 0
    async with await Engine.start(spec) as engine:
        await _decode(engine)
        for _ in range(rounds):
            alone.append(await _decode(engine))
            gates = asyncio.create_task(_check_again_and_again(document, answer, run))
            beside.append(await _decode(engine))
            gates.cancel()
            checked += await gates
    return Guardrail(threads, median(alone), median(beside), checked)


async def _decode(engine: Engine) -> float:
    """Return the tokens per second of one long answer."""
    messages = (("system", "Do the task."), ("user", "Task: Count."))
    request = Generation(messages=messages, schema=ENDLESS, max_tokens=TOKENS)
    usage = (await engine.generate(request)).usage
    return usage.output_tokens / usage.decode_seconds


async def _check_again_and_again(document: TaskIR, answer: str, run: Run) -> int:
    """Check until cancelled; return how many times."""
    step, times = document.plan.steps[0], 0
    tests = {label: given.value.encode() for label, given in zip(document.labels, document.inputs, strict=True)}
    context = GateContext(Scope(step, tuple(tests)), tests=tests, run=run)
    try:
        while True:
            await run_gates(step.gates or (), [Artifact(step.outputs[0], answer.encode())], context)
            times += 1
    except asyncio.CancelledError:
        return times
