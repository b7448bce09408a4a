"""Measure gates on a busy machine: how long one takes next to busy loops, and how much speed they leave to decoding.

`python -m benchmarks.gates.busy [--rounds N]`. Each round pairs what it compares. Rounds that are in the log are not
run again, so the command continues where it stopped. Two models decode, each on all cores: the largest embedded one,
whose steps are so short that every interruption matters, and one of 150 M parameters with random weights, whose steps
are as long as those of a small real model.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import results
from benchmarks.engine.models import SMALL
from benchmarks.gates.setups import WEIGHTS
from benchmarks.gates.tasks import BenchTask, correct_answer, make_tasks
from benchmarks.options import positive
from benchmarks.routing.rows import Row, RowLog, goal_with_interval, interval
from orchestrator.bench import environment
from orchestrator.bench.goals import at_least, at_most
from orchestrator.engine.contract import Generation, Message
from orchestrator.pool import decoding
from orchestrator.pool.machine import read_topology
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import load_registry
from orchestrator.run.gates import shares as shares_module
from orchestrator.run.gates.contract import Artifact, GateContext, RunJob
from orchestrator.run.gates.pipeline import run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.run.gates.shares import JobRunner, JobShares, NoEngines
from orchestrator.run.sandbox import launch
from orchestrator.run.sandbox.contract import SandboxJob, SandboxLimits
from orchestrator.run.sandbox.sandbox import Sandbox

FOLDER = Path(__file__).parents[2] / "build" / "gates"
RESULTS = results.FOLDER / "priority.json"
ANSWERS_ALONE = 8
ENDLESS = {"type": "array", "items": {"type": "integer"}, "minItems": 250}
NEEDED = 0.6  # the CPU time of the gate next to busy loops, in seconds
WITHIN, KEPT, KEPT_WITH_SLACK = 5.0, 0.85, 0.9
MUCH_SLACK = 3600.0
AT_MOST = 20.0  # how long a job of low priority is measured, in seconds. It may take far longer.
BUSY_LOOP = (sys.executable, "-c", "while True: pass")
_SOURCES = tuple(Path(str(module.__file__)) for module in (decoding, shares_module, launch))


@dataclass(frozen=True, slots=True)
class DecodingModel:
    """A model, and how long the answers are that it decodes."""

    name: str
    file: Path
    tokens: int  # the tokens of an answer
    # A schema that keeps the answer from ending early; None for a model that never ends an answer by itself.
    schema: dict[str, object] | None = None


def decoding_models(folder: Path) -> list[DecodingModel]:
    """Return the models to measure. Those that are not shipped are written to `folder`."""
    embedded = DecodingModel("embedded large", WEIGHTS / "large.gguf", 600, ENDLESS)
    return [embedded, DecodingModel(SMALL.name, SMALL.write(folder), 60)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds that are not in the log yet, and write the results."""
    options = _parser().parse_args(arguments)
    log = RowLog(options.folder / "busy.jsonl", say=partial(print, flush=True))
    rows = {"busy loops": [_next_to_loops(log, number) for number in range(options.rounds)]}
    task = next(task for task in make_tasks(4) if task.family == "code")
    for model in decoding_models(options.folder):
        rows[model.name] = [_decoding(log, model, task, options.folder, number) for number in range(options.rounds)]
    results.write(options.out, _document(rows))
    print(f"written to {options.out}")
    return 0


def _document(rows: dict[str, list[Row]]) -> dict[str, Any]:
    return {
        "command": "python -m benchmarks.gates.busy",
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "mypy", "pytest", "ruff"),
        "rounds": rows,
        "goals": list(_goals(rows)),
    }


def _goals(rows: dict[str, list[Row]]) -> Iterator[Row]:
    loops = rows["busy loops"]
    seconds, low, high = interval([row["seconds"] for row in loops])
    name = f"seconds of a gate that needs {NEEDED:g} s, one busy loop per core"
    yield goal_with_interval(at_most(name, seconds, WITHIN), low, high)
    ratio, low, high = interval([row["lowest"] / row["seconds"] for row in loops])
    yield goal_with_interval(at_least("times as fast as at the lowest priority", ratio, 1.0), low, high)
    for model, rounds in rows.items():
        if model != "busy loops":
            for which, bound in (("urgent", KEPT), ("slack", KEPT_WITH_SLACK)):
                share, low, high = interval([row[which] / row["alone"] for row in rounds])
                gates = "urgent gates" if which == "urgent" else "gates with slack"
                goal = at_least(f"speed that decoding keeps next to {gates}, {model}", share, bound)
                yield goal_with_interval(goal, low, high)


def _next_to_loops(log: RowLog, number: int) -> Row:
    return log.get(("busy loops", str(number)), lambda: asyncio.run(_measure_next_to_loops()), *_SOURCES)


async def _measure_next_to_loops() -> Row:
    """Return the seconds of a job next to a busy loop on each core: as gates run it, and at the lowest priority."""
    sandbox = await Sandbox.probe()
    count = read_topology().cores
    code = f"import time\nwhile time.process_time() < {NEEDED}: pass"
    gate = SandboxJob(argv=("python", "-I", "-c", code), limits=SandboxLimits(wall=300, processes=4))
    run = JobRunner(partial(_same, sandbox), count, JobShares(NoEngines(count))).run
    lowest = SandboxJob(argv=gate.argv, limits=SandboxLimits(wall=300, processes=4, niceness=19))
    with _busy_loops(count):
        return {"seconds": await _seconds(run, gate), "lowest": await _seconds(run, lowest, AT_MOST)}


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    """Keep each core busy with a session of its own, since the kernel may share the time among sessions."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(BUSY_LOOP, start_new_session=True))  # noqa: S603
            stack.callback(process.kill)
        yield


async def _seconds(run: RunJob, job: SandboxJob, at_most: float | None = None) -> float:
    begun = perf_counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most):
            outcome = await run(job)
            if outcome.exit_code != 0:
                raise RuntimeError(f"the job failed: {outcome}")
    return perf_counter() - begun


def _decoding(log: RowLog, model: DecodingModel, task: BenchTask, folder: Path, number: int) -> Row:
    measured = partial(_measure_decoding, model, task, folder, number)
    return log.get((model.name, str(number)), lambda: asyncio.run(measured()), *_SOURCES)


async def _measure_decoding(model: DecodingModel, task: BenchTask, folder: Path, number: int) -> Row:
    """Return tokens per second alone, next to urgent gates and next to gates with slack, and the seconds of these."""
    sandbox = await Sandbox.probe()
    async with Pool(load_registry(_registry(model, folder)), folder / "logs", step_costs=folder / "curves") as pool:
        jobs = JobRunner(partial(_same, sandbox), pool.decoding.cores, JobShares(pool.decoding))
        decoding = _Decoding(pool, model)
        await _check(task, jobs.run)  # mypy's first check fills its cache
        await decoding.alone()
        row = {"alone": await decoding.alone()}
        slacks = {"urgent": 0.0, "slack": MUCH_SLACK}
        for which in sorted(slacks, reverse=bool(number % 2)):
            check = asyncio.ensure_future(_check(task, jobs.with_slack(slacks[which])))
            begun = perf_counter()
            row[which] = await decoding.beside(check)
            check.cancel()
            await asyncio.wait([check])
            row[f"{which} check seconds"] = perf_counter() - begun if check.cancelled() else check.result()
        row["alone"] = (row["alone"] + await decoding.alone()) / 2
    return row


def _registry(model: DecodingModel, folder: Path) -> Path:
    defaults = {"residency": "hot", "context": 2048, "slots": 4, "batch_invariant": True, "temperature": 0}
    models, roles = {"decoder": {"file": str(model.file)}}, {"worker": {"model": "decoder", "tier": "C"}}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"busy-{model.name.replace(' ', '-')}.yaml"
    file.write_text(json.dumps({"defaults": defaults, "models": models, "roles": roles}), encoding="utf-8")
    return file


async def _same(sandbox: Sandbox) -> Sandbox:
    return sandbox


class _Decoding:
    """Lets a model decode one answer after the other, and measures its speed."""

    def __init__(self, pool: Pool, model: DecodingModel) -> None:
        self._pool = pool
        self._model = model

    async def alone(self) -> float:
        """Return the tokens per second of a few answers."""
        return _speed([await self._answer() for _ in range(ANSWERS_ALONE)])

    async def beside(self, check: "asyncio.Future[float]") -> float:
        """Return the tokens per second of answers, until the check has ended, or for AT_MOST seconds."""
        begun, answers = perf_counter(), [await self._answer()]
        while not check.done() and perf_counter() - begun < AT_MOST:
            answers.append(await self._answer())
        return _speed(answers)

    async def _answer(self) -> tuple[int, float]:
        messages = (Message("system", "Do the task."), Message("user", "Task: Count."))
        request = Generation(messages=messages, schema=self._model.schema, max_tokens=self._model.tokens)
        usage = (await self._pool.generate("decoder", request)).usage
        return usage.output_tokens, usage.decode_seconds


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates.busy", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=7, help="5 at least for results (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps the log (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
