"""Time the shipped frontdoor's plans and one agent by the clock of this machine: `python -m benchmarks.parl.clock`.

The product carries out each request twice in a row: as the frontdoor plans it, and directly (one agent). The order
changes from pair to pair (plan, agent, agent, plan). Each run has new engines, whose caches hold no prompt, and a new
state folder on the disk; only the durations of steps that engines have measured are kept, so that none measures again.

With the embedded models as workers, a step takes milliseconds. With `--worker FILE`, the model in this file computes
the worker's prompts, and as many tokens as it has for the embedded worker's answers, whose texts the steps then get: so
answers are as right as on simulated machines, and seconds are those of a model as large as they assume.

Wide requests that both answer correctly on the simulated machine with 2 cores are timed, and some of each family. The
command continues where it stopped, and completes the results of `python -m benchmarks.parl`.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, Self

import msgspec
import structlog

from benchmarks import results
from benchmarks.options import positive
from benchmarks.parl import BUILD, RESULTS
from benchmarks.parl.arms import CONTROLS
from benchmarks.parl.figures import WIDE
from benchmarks.parl.pairs import ClockedRun, Pair, clocked, completed, goal, rows_of
from benchmarks.routing.rows import Row, RowLog
from orchestrator.bench import environment
from orchestrator.bench.simulate.measure import until_calibrated
from orchestrator.bench.simulate.run import carry_out
from orchestrator.engine.client.engine import Completion, Engine, OnText
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.memrl.parl.compare import Planned
from orchestrator.memrl.parl.engines import ANSWERS, RealEngines
from orchestrator.memrl.parl.harness import GreedyPolicy, Harness, job_in, scratch_of
from orchestrator.memrl.parl.machines import machines_for
from orchestrator.memrl.parl.requests import HELD_OUT_WIDTH, WORKER, PlannedRequest, held_out_requests
from orchestrator.memrl.parl.reward import result_of
from orchestrator.registry.edit import add_model, change_role
from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.registry.strict_yaml import read_file
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.run.journal.home import Home
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.task.modes import Mode

ROUNDS: Final = 5
REQUESTS: Final = 54  # held-out ones among which those that are timed are chosen
SAMPLE: Final = 1  # timed requests of each family, in addition to wide ones that both answer correctly
MINUTES: Final = 12.0
TIMED: Final = "timed"  # the model of `--worker` in the registry
PLANNED: Final[Mode] = "as-planned"
DIRECT: Final[Mode] = "direct"


def main(arguments: Sequence[str] | None = None) -> int:
    """Time what is not yet timed, and write the results when all is. Returns 1 if pairs are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parl.clock", description=__doc__)
    parser.add_argument("--worker", type=Path, metavar="FILE", help="a GGUF file; default: the embedded worker")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="pairs of each request")
    parser.add_argument("--requests", type=positive, default=REQUESTS, help="held-out ones to choose from")
    parser.add_argument("--sample", type=positive, default=SAMPLE, help="requests of each family")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no pair starts later; 0 only simulates")
    parser.add_argument("--folder", type=Path, default=BUILD)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the results to complete")
    options = parser.parse_args(arguments)
    try:
        worker = None if options.worker is None else read_header(options.worker).name
    except GgufError as error:
        parser.error(f"--worker: {error}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    options.folder.mkdir(parents=True, exist_ok=True)
    base = load_registry(results.ROOT / "model_registry.yaml")
    requests = held_out_requests(options.requests, "benchmark")
    with registry_with(base, options.worker) as registry:
        bench = ClockBench(options.folder, base, registry)
        timed = bench.choose(requests, options.sample)
        if options.minutes > 0:
            bench.measure_steps()
        pairs, missing = bench.pairs(timed, options.rounds, 60 * options.minutes)
    if missing:
        print(f"{missing} pairs are missing; the same command continues")
        return 1
    embedded, rows = base.roles[WORKER].model, rows_of(pairs)
    figures = {
        "command": f"python -m benchmarks.parl.clock --sample {options.sample}"
        + ("" if options.worker is None else f" --worker {options.worker.name}"),
        "machine": environment.machine(),
        "rounds": options.rounds,
        "texts": None if worker is None else embedded,
        "rows": rows,
    }
    published = results.read(options.out if options.out.exists() else RESULTS)
    results.write(options.out, completed(published, worker or embedded, figures, goal(rows, worker)))
    print(f"written to {options.out}")
    return 0


@contextmanager
def registry_with(base: Registry, worker: Path | None) -> Iterator[Registry]:
    """Yield the registry as it ships, or with the model of a file as the worker, whose prompts stay the same."""
    if worker is None:
        yield base
        return
    with tempfile.TemporaryDirectory(prefix="bench-parl-") as folder:
        file = Path(folder) / base.path.name
        (Path(folder) / "registry").symlink_to(base.path.parent / "registry")  # where its files are
        entry = {"file": str(worker.absolute()), "prompts": "tiny", "batch_invariant": False}
        content = add_model(read_file(base.path), file, TIMED, entry)
        file.write_bytes(change_role(content, file, WORKER, {"model": TIMED}))
        yield load_registry(file)


class DictatedEngine(Engine):
    """Computes the worker's answers, whose texts others have written: it takes as long as if it wrote them itself."""

    answers: RealEngines
    writer: str  # the model that has written them

    @classmethod
    async def start_with(cls, answers: RealEngines, writer: str, spec: EngineSpec) -> Self:
        """Start an engine with the answers of a model. Raises ModelLoadFailed."""
        engine = await cls.start(spec)
        engine.answers, engine.writer = answers, writer
        return engine

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Return the known answer, after as many tokens of any text as this model has for it."""
        if request.role != WORKER:
            return await super().generate(request, on_text, on_thought)
        text = self.answers.answer(self.writer, request).text
        count = max(1, len((await self.tokenize(text, special=False)).tokens))
        free = replace(request, schema=None, grammar=None, stop=(), min_tokens=count, max_tokens=count, ignore_end=True)
        computed = await super().generate(free)
        if on_text is not None:
            on_text(text)
        return replace(computed, text=text, finish="stop")


class ClockBench:
    """A folder with what was simulated and timed so far."""

    def __init__(self, folder: Path, base: Registry, registry: Registry) -> None:
        self._folder, self._base, self._registry = folder, base, registry
        self._rows = RowLog(folder / "clock.jsonl", partial(print, flush=True))
        # what rows depend on: with another adapter or worker, nothing counts that was measured before
        self._policy = _digest(*(adapter.file for adapter in base.roles[FRONTDOOR].lora))
        self._worker = _digest(registry.models[registry.roles[WORKER].model].file)
        self._costs = folder / "curves"

    def choose(self, requests: Sequence[PlannedRequest], sample: int) -> list[tuple[PlannedRequest, Row]]:
        """Return the requests to time with how they went on simulated machines.

        These are the wide ones that both answer correctly, and the first ones of each family that are no wider than
        those of a training.
        """
        role = self._base.roles[FRONTDOOR]
        counts: dict[str, int] = {}
        timed = []
        with RealEngines(self._base, self._folder / ANSWERS) as engines, scratch_of(self._folder) as runs:
            engines.set_adapters(role.model, [adapter.file for adapter in role.lora])
            harness = Harness(self._base, engines, runs)
            for request in requests:
                key = ("simulated", self._policy, request.name)
                row = self._rows.get(key, partial(self._simulated, harness, engines, request))
                first = len(request.files) < HELD_OUT_WIDTH and counts.get(request.family, 0) < sample
                counts[request.family] = counts.get(request.family, 0) + first
                if first or (row["wide"] and row["both_right"]):
                    timed.append((request, row))
        return timed

    def _simulated(self, harness: Harness, engines: RealEngines, request: PlannedRequest) -> Row:
        role = self._base.roles[FRONTDOOR]
        small, *larger = machines_for(self._base)
        planned = Planned(lambda _: GreedyPolicy(engines, role.model, role.lora), role.plans_by_cores)
        agent = CONTROLS["one agent"](GreedyPolicy(engines, role.model, ()))
        plan, direct = (contestant.run(harness, request, small) for contestant in (planned, agent))
        return {
            "wide": any(harness.best(request, machine).width >= WIDE for machine in (small, *larger)),
            "both_right": plan.right and direct.right,
            "path": plan.seconds / direct.seconds,
        }

    def measure_steps(self) -> None:
        """Let idle engines measure their steps, as they do in an installation; some seconds on an idle machine."""
        with RealEngines(self._base, self._folder / ANSWERS) as answers:
            asyncio.run(self._measure_steps(answers))

    def pairs(self, timed: Sequence[tuple[PlannedRequest, Row]], rounds: int, seconds: float) -> tuple[list[Pair], int]:
        """Return the pairs of all rounds, and how many of them are missing, since none starts after these seconds."""
        begun, pairs, missing = time.monotonic(), [], 0
        # its engines start only if an answer is wanted that no simulation has asked for
        with RealEngines(self._base, self._folder / ANSWERS) as answers:
            for number, (at, (request, simulated)) in product(range(rounds), enumerate(timed)):
                key = ("timed", self._policy, self._worker, request.name, str(number))
                row = self._rows.find(key)
                if row is None and time.monotonic() - begun >= seconds:
                    missing += 1
                    continue
                modes = (PLANNED, DIRECT) if (number + at) % 2 == 0 else (DIRECT, PLANNED)
                row = row or self._rows.add(key, self._pair(answers, request, modes))
                pairs.append(_pair_of(request, simulated, row))
        return pairs, missing

    def _pair(self, answers: RealEngines, request: PlannedRequest, modes: Sequence[Mode]) -> Row:
        load = os.getloadavg()[0]
        return {"load": load, **{mode: asdict(asyncio.run(self._run(answers, request, mode))) for mode in modes}}

    async def _run(self, answers: RealEngines, request: PlannedRequest, mode: Mode) -> ClockedRun:
        with job_in(self._folder, request, mode) as (job, home):
            async with self._loaded(answers, home) as (orchestrator, _):
                report, answer = await carry_out(orchestrator, job)
        return clocked(report, result_of(report, request.check(answer)))

    async def _measure_steps(self, answers: RealEngines) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="run-") as place:
            home = Path(place)
            async with self._loaded(answers, home) as (_, engines):
                for engine in engines:
                    await until_calibrated(engine)
                if not all([(await engine.stats()).calibrated for engine in engines]):
                    print("not all steps were measured, so engines measure in between: is this machine idle?")
            if (costs := Home(home).step_costs).exists():
                shutil.copytree(costs, self._costs, dirs_exist_ok=True)

    @asynccontextmanager
    async def _loaded(self, answers: RealEngines, home: Path) -> AsyncIterator[tuple[Orchestrator, list[Engine]]]:
        writer, engines = self._base.roles[WORKER].model, list[Engine]()

        async def start(spec: EngineSpec) -> Engine:
            if spec.name == TIMED:
                engine: Engine = await DictatedEngine.start_with(answers, writer, spec)
            else:
                engine = await Engine.start(spec)
            engines.append(engine)
            return engine

        if self._costs.exists():
            shutil.copytree(self._costs, Home(home).step_costs)
        ports = Ports(start_engine=start, follows_registry=False)
        async with Orchestrator.open(home, self._registry, ports) as orchestrator:
            for role in (FRONTDOOR, WORKER):
                await orchestrator.pool.load(self._registry.roles[role].model)
            yield orchestrator, engines


def _digest(*files: str | Path | None) -> str:
    digest = hashlib.sha256()
    for file in files:
        assert file is not None, "the registry's models are files"
        with Path(file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]


def _pair_of(request: PlannedRequest, simulated: Row, row: Row) -> Pair:
    return Pair(
        request=request.name,
        family=request.family,
        wide=simulated["wide"],
        simulated=simulated["path"],
        plan=msgspec.convert(row[PLANNED], ClockedRun),
        agent=msgspec.convert(row[DIRECT], ClockedRun),
    )


if __name__ == "__main__":
    sys.exit(main())
