"""Train the frontdoor in all arms with three seeds each, and measure them and the controls on held-out requests.

`python -m benchmarks.parl` continues where it stopped: a training after its last update, a measurement with the next
arm. `python -m benchmarks.parl train` leaves out the measurements. Results are written when all are there, and then
`python -m benchmarks.parl publish` ships the adapter that wins. `python -m benchmarks.parl.clock` completes the results
with critical paths by the clock of this machine.
"""

import argparse
import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import results
from benchmarks.parl import BUILD, RESULTS
from benchmarks.parl.agents import RepeatedAgent, used_by
from benchmarks.parl.arms import AGENTS, ARMS, CONTROLS, MEMORY, SEEDS, SHIPPED, SUPERVISED, UPDATES, WINNER
from benchmarks.parl.figures import gain_over, goals, removal_goal, row, rows_of
from benchmarks.parl.memory_modes import CHOICES, LESSONS, by_memory
from benchmarks.parl.publish import best_seed, publish
from benchmarks.parl.scale import greatest_harmless, right_plans
from orchestrator.bench import environment
from orchestrator.bench.simulate.machine import Machine
from orchestrator.memrl.parl.compare import Contestant, HeldOutRun, Planned, measure
from orchestrator.memrl.parl.engines import ANSWERS, RealEngines
from orchestrator.memrl.parl.harness import GreedyPolicy, Harness, scratch_of
from orchestrator.memrl.parl.machines import machines_for, other_worker
from orchestrator.memrl.parl.requests import PlannedRequest, held_out_requests, training_request
from orchestrator.memrl.parl.reward import MeasuredPlan, RewardSettings
from orchestrator.memrl.parl.train import ADAPTER, CHECKPOINT, IMITATED, TrainSettings, train
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.registry.options import Adapters, Lora
from orchestrator.run.frontdoor.planner import FRONTDOOR

REQUESTS: Final = 108  # held-out ones
ROLLOUTS: Final = 8

say = partial(print, flush=True)


def main() -> None:
    """Train and measure what is not yet there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parl", description=__doc__)
    parser.add_argument("part", nargs="?", choices=("train", "measure", "publish"), help="default: the first two")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of a training")
    parser.add_argument(
        "--rollouts", type=int, default=ROLLOUTS, help="requests of an update, each planned eight times on two machines"
    )
    parser.add_argument("--requests", type=int, default=REQUESTS, help="held-out ones")
    parser.add_argument("--arms", nargs="*", choices=tuple(ARMS), default=tuple(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--folder", type=Path, default=BUILD)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    base = load_registry(results.ROOT / "model_registry.yaml")
    bench = _Bench(options.folder, base, options.requests)
    if options.part == "publish":
        say("shipped" if bench.publish(base.path) else "not shipped: it is not better for certain")
        return
    if options.part != "measure":
        for seed in options.seeds:  # so that all arms can be compared when the first seed is done
            bench.train(SUPERVISED, seed, 0, options.rollouts)
            for arm in options.arms:
                bench.train(arm, seed, options.updates, options.rollouts)
    if options.part == "train":
        return
    for seed in options.seeds:
        for arm in (SUPERVISED, *options.arms):
            bench.measure_arm(arm, seed)
    bench.measure_controls()
    if set(options.arms) == set(ARMS) and tuple(options.seeds) == SEEDS:
        results.write(RESULTS, bench.results())
        say(f"written to {RESULTS}")


class _Bench:
    """The folder of a benchmark, with a file of runs for each arm and seed, and for each control."""

    def __init__(self, folder: Path, base: Registry, requests: int) -> None:
        self._folder = folder
        self._base = base
        self._machines: list[Machine] = machines_for(base)
        self._requests = held_out_requests(requests, "benchmark")
        self._lessons = [training_request(f"lesson/{number}") for number in range(LESSONS)]
        folder.mkdir(parents=True, exist_ok=True)

    def train(self, arm: str, seed: int, updates: int, requests: int) -> None:
        """Train an arm with a seed, unless that was done. The arm without updates is the first of a seed."""
        place, imitated = self._place(arm, seed), self._place(SUPERVISED, seed) / IMITATED
        if (place / ADAPTER).exists():
            return
        place.mkdir(parents=True, exist_ok=True)
        if imitated.exists() and not (place / IMITATED).exists():
            _copy(imitated, place / IMITATED)  # all arms of a seed imitate the same, so it is done once
        settings = TrainSettings(updates=updates, requests=requests, seed=seed, reward=ARMS.get(arm, RewardSettings()))
        train(
            place,
            self._base,
            self._machines,
            settings,
            lambda done, total: say(f"{place.name}: {done} of {total}"),
            answers=self._folder / ANSWERS,
        )

    def measure_arm(self, arm: str, seed: int) -> None:
        """Measure an arm that was trained with a seed, unless that was done."""
        place = self._place(arm, seed)
        adapter = Lora(file=str(place / ADAPTER))
        self._measure(place.name, (adapter,), lambda policy: Planned(lambda _: policy, by_cores=True, removes=True))

    def measure_controls(self) -> None:
        """Measure the controls, unless that was done."""
        for name, control in CONTROLS.items():
            self._measure(name, (), control)
        for name in CHOICES.values():
            self._measure(f"lessons {name}", (), CONTROLS[name], self._lessons)
        used = used_by(self._runs(self._place(WINNER, SEEDS[0]).name))
        for name, budget in AGENTS.items():
            self._measure(name, (), partial(_agent, RepeatedAgent(used, budget)))

    def _place(self, arm: str, seed: int) -> Path:
        return self._folder / f"{arm.replace(' ', '-')}-{seed}"

    def _measure(
        self,
        name: str,
        adapters: Adapters,
        contestant: Callable[[GreedyPolicy], Contestant],
        requests: list[PlannedRequest] | None = None,
    ) -> None:
        file = self._file(name)
        requests = self._requests if requests is None else requests
        if file.exists():
            return
        model = self._base.roles[FRONTDOOR].model
        with RealEngines(self._base, self._folder / ANSWERS) as engines, scratch_of(self._folder) as runs_folder:
            engines.set_adapters(model, [adapter.file for adapter in adapters])
            policy = GreedyPolicy(engines, model, adapters)
            workers = dict.fromkeys([None, other_worker(self._base)])
            harnesses = [Harness(self._base, engines, runs_folder, worker) for worker in workers]
            runs = measure(
                harnesses,
                self._machines,
                requests,
                contestant(policy),
                lambda done, total: say(f"{name}: measured {done} of {total}"),
            )
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps([asdict(run) for run in runs]), encoding="utf-8")
        os.replace(unfinished, file)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.json"

    def _runs(self, name: str) -> list[HeldOutRun]:
        return [
            HeldOutRun(**{**run, "result": MeasuredPlan(**run["result"]), "best": MeasuredPlan(**run["best"])})
            for run in json.loads(self._file(name).read_text(encoding="utf-8"))
        ]

    def results(self) -> dict[str, Any]:
        """Return what was measured, with goals."""
        arms = {arm: [self._runs(self._place(arm, seed).name) for seed in SEEDS] for arm in (SUPERVISED, *ARMS)}
        controls = {name: self._runs(name) for name in (*CONTROLS, *AGENTS)}
        lessons = {control: self._runs(f"lessons {control}") for control in CHOICES.values()}
        texts = {request.name: request.text for request in (*self._requests, *self._lessons)}
        controls = {**controls, MEMORY: by_memory(lessons, controls, texts)}
        rows = rows_of(controls, arms)
        hours = max(self._hours(arm, seed) for arm in ARMS for seed in SEEDS)
        count = len(self._requests)
        return {
            "command": "make parl" + ("" if count == REQUESTS else f' ARGS="--requests {count}"'),
            "machine": environment.machine(),
            "versions": environment.versions("llama-cpp-python", "torch"),
            "requests": count,
            "settings": {arm: asdict(reward) for arm, reward in ARMS.items()},
            "rows": [*rows.values()],
            "gains": {name: gain_over(runs, arms[WINNER]) for name, runs in controls.items()},
            "goals": goals(rows, arms, controls, hours),
            "hours": hours,
        }

    def publish(self, registry: Path) -> bool:
        """Ship the adapter of the best seed if it is better for certain, and return whether it is.

        Its figures are added to the results of all arms. Raises OSError if these or a training are missing.
        """
        published = json.loads(RESULTS.read_text(encoding="utf-8"))
        points = {seed: self._state(WINNER, seed)["points"] for seed in SEEDS}
        seed = best_seed({seed: [point["reward"] for point in rows] for seed, rows in points.items()})
        place = self._place(WINNER, seed)
        plans = asyncio.run(right_plans(self._model_file(), place / ADAPTER))
        if (scale := greatest_harmless(plans)) is None:
            return False
        name, adapter = f"{place.name} at {scale}", Lora(file=str(place / ADAPTER), scale=scale)
        self._measure(name, (adapter,), lambda policy: Planned(lambda _: policy, by_cores=True, removes=True))
        self._measure(SHIPPED, (), CONTROLS[SHIPPED])
        runs = self._runs(name)
        published["shipped"] = {
            "seed": seed,
            "scale": scale,
            "plans": {str(each): dict(shares) for each, shares in plans.items()},
            "row": row(name, [runs]),
            "gain": gain_over(self._runs(SHIPPED), [runs]),
        }
        goal = removal_goal(published["shipped"]["row"])
        published["goals"] = [*(each for each in published["goals"] if each["name"] != goal["name"]), goal]
        results.write(RESULTS, published)
        return publish(place / ADAPTER, published, registry)

    def _model_file(self) -> Path:
        file = self._base.models[self._base.roles[FRONTDOOR].model].file
        assert file is not None, "the embedded frontdoor is a file"
        return Path(file)

    def _hours(self, arm: str, seed: int) -> float:
        return float(self._state(arm, seed)["seconds"]) / 3600

    def _state(self, arm: str, seed: int) -> dict[str, Any]:
        state: dict[str, Any] = torch.load(self._place(arm, seed) / CHECKPOINT, weights_only=True)
        return state


def _agent(agent: RepeatedAgent, shipped: GreedyPolicy) -> RepeatedAgent:
    return agent


def _copy(file: Path, copy: Path) -> None:
    unfinished = copy.with_name(f".{copy.name}.part")
    shutil.copyfile(file, unfinished)
    os.replace(unfinished, copy)


if __name__ == "__main__":
    main()
