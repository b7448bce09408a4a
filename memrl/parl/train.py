"""Train the frontdoor's LoRA weights: sample groups of plans, run them, and learn from the rewards.

The folder of a training has all of it: `checkpoint.pt` after each update, `adapter.gguf` when it is complete,
`answers.jsonl` with the frozen workers' answers, and `curves.html`. A training that was killed continues after its last
update, with the same requests and seeds as if it had not been killed.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final
from zlib import crc32

import torch

from orchestrator.bench.families.words import seeded
from orchestrator.bench.simulate.machine import Machine
from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.errors import InputError, Problem
from orchestrator.memrl.parl.allowed import AllowedTokens, allowed_tokens
from orchestrator.memrl.parl.curves import CURVES, CurvePoint, write_curves
from orchestrator.memrl.parl.engines import ANSWERS, RealEngines
from orchestrator.memrl.parl.grpo import GrpoSettings, SampledRow, update
from orchestrator.memrl.parl.harness import Harness, Rollout, SampledPlan, SampledPolicy, scratch_of
from orchestrator.memrl.parl.lora import lora_pairs, lora_parameters, with_lora
from orchestrator.memrl.parl.network import LlamaNetwork, add_adapter, load_network
from orchestrator.memrl.parl.requests import PlannedRequest, training_request
from orchestrator.memrl.parl.reward import (
    MeasuredPlan,
    RewardParts,
    RewardSettings,
    advantages,
    is_collapsed,
    longer,
    reward,
    spurious_share,
)
from orchestrator.memrl.parl.weights import write_adapter
from orchestrator.registry.models import Registry
from orchestrator.registry.options import Adapters, Lora
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.task.taskir.json_text import read_json

CHECKPOINT: Final = "checkpoint.pt"
ADAPTER: Final = "adapter.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """What a training is. A training continues only with the settings that it began with."""

    updates: int = 200
    requests: int = 12  # of an update, each on one machine
    group: int = 8  # plans of a request
    rank: int = 8
    alpha: float = 16.0
    seed: int = 0
    history: float = 0.0  # share of requests that are the user's own
    temperature: float = 1.5  # at which plans are sampled; at 1 the embedded frontdoor hardly tries another plan
    grpo: GrpoSettings = field(default_factory=GrpoSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)


def train(
    folder: Path,
    base: Registry,
    machines: Sequence[Machine],
    settings: TrainSettings,
    progress: Callable[[int, int], None] = lambda done, total: None,
    own: Sequence[PlannedRequest] = (),
    is_over: Callable[[], bool] = lambda: False,
) -> Path | None:
    """Train to the last update, from the checkpoint in the folder if there is one, and return the adapter's file.

    `own` are the user's requests; `settings.history` says how many are taken. If `is_over` says before an update that
    there is no more time, return None.

    Raises InputError for a model that cannot be trained here or a checkpoint of another training, and what
    `Harness.run` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = base.roles[FRONTDOOR].model
    file = base.models[model].file
    assert file is not None, "the command has checked that the model is loaded here"
    with (
        RealEngines(base, folder / ANSWERS) as engines,
        allowed_tokens(file) as allowed,
        scratch_of(folder) as runs,
    ):
        present = base.roles[FRONTDOOR].lora
        training = Training(folder, file, settings, present)
        harness = Harness(base, engines, runs)
        collector = _Collector(harness, engines, model, allowed, machines, own, settings)
        progress(training.done, settings.updates)
        while training.done < settings.updates:
            if is_over():
                return None
            begun = time.monotonic()
            policy = training.write_policy()
            lora = (*present, Lora(file=str(policy)))
            engines.set_adapters(model, [adapter.file for adapter in lora])
            collected = collector.collect(training.done, lora)
            training.learn(collected.rows, collected.groups, begun)
            progress(training.done, settings.updates)
        return training.write_adapter()


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The plans of one request on one machine."""

    request: PlannedRequest
    best: MeasuredPlan
    results: tuple[MeasuredPlan, ...]
    rewards: tuple[RewardParts, ...]


@dataclass(frozen=True, slots=True)
class _Collected:
    rows: list[SampledRow]
    groups: list[GroupResult]


class _Collector:
    """Collects the plans of one update, with their rewards."""

    def __init__(
        self,
        harness: Harness,
        engines: RealEngines,
        model: str,
        allowed: AllowedTokens,
        machines: Sequence[Machine],
        own: Sequence[PlannedRequest],
        settings: TrainSettings,
    ) -> None:
        self._own = own
        self._harness = harness
        self._engines = engines
        self._model = model
        self._allowed = allowed
        self._machines = machines
        self._settings = settings

    def collect(self, done: int, lora: Adapters) -> _Collected:
        rows: list[SampledRow] = []
        groups: list[GroupResult] = []
        for number in range(self._settings.requests):
            name = f"{self._settings.seed}/{done}/{number}"
            request, machine = self._request(name), seeded(f"machine/{name}").choice(self._machines)
            rollouts = self._group(request, machine, lora, name)
            best = self._harness.best(request, machine)
            rewards = [reward(rollout.result, best, done, self._settings.reward) for rollout in rollouts]
            gains = zip(rollouts, advantages([each.total for each in rewards]), strict=True)
            sampled = Counter((plan, gain) for rollout, gain in gains if gain for plan in rollout.plans)
            rows += [self._row(plan, gain, count) for (plan, gain), count in sampled.items()]
            groups.append(GroupResult(request, best, tuple(each.result for each in rollouts), tuple(rewards)))
        return _Collected(rows, groups)

    def _request(self, name: str) -> PlannedRequest:
        draw = seeded(f"own/{name}")
        if self._own and draw.random() < self._settings.history:
            return draw.choice(self._own)
        return training_request(name)

    def _group(self, request: PlannedRequest, machine: Machine, lora: Adapters, name: str) -> list[Rollout]:
        # plans with one text go the same way, unless they were repaired
        seeds = [crc32(f"{name}/{place}".encode()) for place in range(self._settings.group)]
        policy = SampledPolicy(self._engines, self._model, lora, seeds, self._settings.temperature)
        known: dict[str, Rollout] = {}
        rollouts = []
        for place in range(self._settings.group):
            policy.at = place
            text = policy.text
            rollout = known.get(text) if text is not None else None
            if rollout is None:
                rollout = self._harness.run(request, machine, policy)
                if len(rollout.plans) == 1:
                    known[rollout.plans[0].text] = rollout
            rollouts.append(rollout)
        return rollouts

    def _row(self, plan: SampledPlan, advantage: float, count: int) -> SampledRow:
        prompt = self._engines.prompt_tokens(self._model, plan.messages)
        choices = self._allowed.along(_grammar(plan.schema), plan.tokens)
        return SampledRow(prompt, plan.tokens, choices, advantage, count)


class Training:
    """The weights that learn, with their optimizer, and how far they are."""

    def __init__(self, folder: Path, model: Path, settings: TrainSettings, present: Adapters = ()) -> None:
        """Continue from the checkpoint in the folder if there is one. Raises InputError.

        `present` are the adapters that the frontdoor has already. The new one is learned in addition to them.
        """
        self._folder = folder
        self._model = model
        self._settings = settings
        self.done = 0  # updates
        self.seconds = 0.0  # that all updates took
        self.points: list[CurvePoint] = []
        network = load_network(model)
        for adapter in present:
            add_adapter(network, Path(adapter.file), model, adapter.scale)
        self.network: LlamaNetwork = with_lora(network, settings.rank, settings.alpha, settings.seed)
        self._began = {**asdict(settings), "present": [[adapter.file, adapter.scale] for adapter in present]}
        weights = lora_parameters(self.network).values()
        self._optimizer = torch.optim.AdamW(weights, lr=settings.grpo.learning_rate, weight_decay=0.0)
        self._restore()

    def learn(self, rows: Sequence[SampledRow], groups: Sequence[GroupResult], begun: float) -> None:
        """Make one update, and save it. `begun` is when its plans were first asked for, by `time.monotonic`."""
        figures = update(self.network, self._optimizer, rows, self._settings.grpo, self._settings.temperature)
        self.done += 1
        self.seconds += time.monotonic() - begun
        self.points.append(point_of(self.done, groups, figures.kl))
        self._save()
        write_curves(self._folder / CURVES, self.points)

    def write_policy(self) -> Path:
        """Write the adapter of the present weights, and return its file, whose name is new with each update."""
        for old in self._folder.glob("policy-*.gguf"):
            old.unlink()
        return self._write(self._folder / f"policy-{self.done}.gguf")

    def write_adapter(self) -> Path:
        """Write the adapter of a complete training, and return its file."""
        for old in self._folder.glob("policy-*.gguf"):
            old.unlink()
        return self._write(self._folder / ADAPTER)

    def _write(self, file: Path) -> Path:
        return write_adapter(lora_pairs(self.network), self._model, file, alpha=self._settings.alpha, half=False)

    def _save(self) -> None:
        state = {
            "settings": self._began,
            "weights": {name: weight.detach() for name, weight in lora_parameters(self.network).items()},
            "optimizer": self._optimizer.state_dict(),
            "done": self.done,
            "seconds": self.seconds,
            "points": [asdict(point) for point in self.points],
        }
        unfinished = self._folder / f".{CHECKPOINT}.part"
        torch.save(state, unfinished)
        os.replace(unfinished, self._folder / CHECKPOINT)

    def _restore(self) -> None:
        file = self._folder / CHECKPOINT
        if not file.exists():
            return
        state: dict[str, Any] = torch.load(file, weights_only=True)
        began = {**state["settings"], "updates": self._settings.updates}  # a longer training is the same one
        if began != self._began:
            problem = "holds a training with other settings, or one that began with other adapters"
            raise InputError(Problem(str(file), problem, "what it began with, or another folder or seed"))
        with torch.no_grad():
            for name, weight in lora_parameters(self.network).items():
                weight.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.done, self.seconds = state["done"], state["seconds"]
        self.points = [CurvePoint(**point) for point in state["points"]]


def point_of(done: int, groups: Sequence[GroupResult], kl: float) -> CurvePoint:
    """Return the means over all plans of an update."""
    rewards = [each for group in groups for each in group.rewards]
    plans = [(result, group.best, group.request.width) for group in groups for result in group.results]
    wide = [(result, width) for result, _, width in plans if width > 1]
    return CurvePoint(
        update=done,
        reward=fmean(each.total for each in rewards),
        performance=fmean(each.performance for each in rewards),
        parallel=fmean(each.parallel for each in rewards),
        finish=fmean(each.finish for each in rewards),
        stage=rewards[0].stage,
        success=fmean(result.right for result, _, _ in plans),
        width=fmean(result.width for result, _, _ in plans),
        collapse=fmean(is_collapsed(result, width) for result, width in wide) if wide else 0.0,
        spurious=fmean(spurious_share(result, best) for result, best, _ in plans),
        longer=fmean(longer(result, best) for result, best, _ in plans),
        seconds=fmean(result.seconds for result, _, _ in plans),
        kl=kl,
    )


def _grammar(schema: str) -> str:
    document: Any = read_json(schema)[0]  # the harness has written it
    return schema_grammar(document)
