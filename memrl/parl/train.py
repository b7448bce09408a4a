"""Train the frontdoor's LoRA weights: sample groups of plans, run them, and learn from the rewards.

First it imitates plans that are right, the wide ones as often as the narrow ones, whatever the machine: a policy that
never samples a plan cannot learn what it brings.

The folder of a training has all of it: `imitated.pt` with the weights after that, `checkpoint.pt` after each update,
`adapter.gguf` when it is complete, `answers.jsonl` with the frozen workers' answers, and `curves.html`. A training that
was killed continues after its last update, with the same requests and seeds as if it had not been killed.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from orchestrator.memrl.parl.curves import CurvePoint, write_curves
from orchestrator.memrl.parl.engines import ANSWERS, RealEngines
from orchestrator.memrl.parl.grpo import GrpoSettings, SampledRow, imitate, update
from orchestrator.memrl.parl.harness import FixedPlan, Harness, Rollout, SampledPlan, SampledPolicy, scratch_of
from orchestrator.memrl.parl.lora import Weights, copied, lora_pairs, lora_parameters, restore, with_lora
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
from orchestrator.task.taskir.json_text import compact_json, read_json

CHECKPOINT: Final = "checkpoint.pt"
IMITATED: Final = "imitated.pt"
READING_FIRST: Final = ("role", "each", "foreach", "inputs", "action")
ADAPTER: Final = "adapter.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """How plans that are right are imitated before the first update."""

    examples: int = 240  # plans, each for a request on a machine
    rows: int = 16  # of a step
    rounds: int = 4  # how often each example is learned from
    learning_rate: float = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """What a training is. A training continues only with the settings that it began with."""

    updates: int = 200
    requests: int = 8  # of an update, each on two machines
    group: int = 8  # plans of a request
    rank: int = 8
    alpha: float = 16.0
    seed: int = 0
    history: float = 0.0  # share of requests that are the user's own
    temperature: float = 1.0  # at which plans are sampled
    imitation: Imitation = field(default_factory=Imitation)
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
    answers: Path | None = None,
) -> Path | None:
    """Train to the last update, from the checkpoint in the folder if there is one, and return the adapter's file.

    `own` are the user's requests; `settings.history` says how many are taken. If `is_over` says before an update that
    there is no more time, return None. `answers` is a file of workers' answers that several trainings may use in turn.

    Raises InputError for a model that cannot be trained here or a checkpoint of another training, and what
    `Harness.run` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = base.roles[FRONTDOOR].model
    file = base.models[model].file
    assert file is not None, "the command has checked that the model is loaded here"
    with (
        RealEngines(base, answers or folder / ANSWERS) as engines,
        allowed_tokens(file) as allowed,
        scratch_of(folder) as runs,
    ):
        present = base.roles[FRONTDOOR].lora
        training = Training(folder, file, settings, present)
        harness = Harness(base, engines, runs)
        collector = _Collector(harness, engines, model, allowed, machines, own, settings)
        if not training.has_imitated:
            begun = time.monotonic()
            training.imitate(collector.examples(), begun)
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

    def examples(self) -> list[SampledRow]:
        """Return plans that are right on a machine, drawn from all that a request may have."""
        rows: list[SampledRow] = []
        for number in range(self._settings.imitation.examples):
            name = f"{self._settings.seed}/imitation/{number}"
            request, draw = self._request(name), seeded(f"machine/{name}")
            machine, policy = draw.choice(self._machines), FixedPlan(draw.choice(request.plans))
            rollout = self._harness.run(request, machine, policy)
            if rollout.result.right and (row := self._imitated(rollout.plans[0])) is not None:
                rows.append(row)
        return rows

    def _imitated(self, plan: SampledPlan) -> SampledRow | None:
        # None if the grammar lets the model write it in neither form
        for text in (plan.text, reading_first(plan.text)):
            written = replace(plan, tokens=self._engines.text_tokens(self._model, text))
            try:
                return self._row(written, 1.0)
            except ValueError:
                continue
        return None

    def collect(self, done: int, lora: Adapters) -> _Collected:
        rows: list[SampledRow] = []
        groups: list[GroupResult] = []
        for number in range(self._settings.requests):
            name = f"{self._settings.seed}/{done}/{number}"
            request = self._request(name)
            for machine in self._two_machines(name):
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

    def _run(self, request: PlannedRequest, machine: Machine, policy: SampledPolicy) -> Rollout:
        rollout = self._harness.run(request, machine, policy)
        if rollout.result.width < 2 or not self._settings.reward.stage.first:
            return rollout
        serial = self._harness.serial_seconds(request, machine, rollout.plans[-1].text)
        return replace(rollout, result=replace(rollout.result, serial_seconds=serial))

    def _two_machines(self, name: str) -> list[Machine]:
        # With the same seeds on both, a policy that does not regard the cores samples the same plans twice. What it
        # learns from them then cancels out, but for what depends on the cores. Else it soon plans all alike.
        fewest, *others = sorted(self._machines, key=lambda machine: machine.cores)
        return [fewest, *([seeded(f"machine/{name}").choice(others)] if others else [])]

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
                rollout = self._run(request, machine, policy)
                if len(rollout.plans) == 1:
                    known[rollout.plans[0].text] = rollout
            rollouts.append(rollout)
        return rollouts

    def _row(self, plan: SampledPlan, advantage: float, count: int = 1) -> SampledRow:
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
        self.seconds = 0.0  # that the imitation and all updates took
        self.points: list[CurvePoint] = []
        network = load_network(model)
        for adapter in present:
            add_adapter(network, Path(adapter.file), model, adapter.scale)
        self.network: LlamaNetwork = with_lora(network, settings.rank, settings.alpha, settings.seed)
        self._began = {**asdict(settings), "present": [[adapter.file, adapter.scale] for adapter in present]}
        weights = lora_parameters(self.network).values()
        self._optimizer = torch.optim.AdamW(weights, lr=settings.grpo.learning_rate, weight_decay=0.0)
        self._reference: Weights | None = None
        self._restore()

    @property
    def has_imitated(self) -> bool:
        """Whether the plans that are right were imitated, which is the reference of all updates."""
        return self._reference is not None

    def imitate(self, rows: Sequence[SampledRow], begun: float) -> None:
        """Imitate answers, and save the weights. `begun` is when the first was made, by `time.monotonic`."""
        settings = self._settings.imitation
        weights = lora_parameters(self.network).values()
        optimizer = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
        for number in range(settings.rounds):
            mixed = seeded(f"{self._settings.seed}/round/{number}").sample(rows, len(rows))
            for at in range(0, len(mixed), settings.rows):
                imitate(self.network, optimizer, mixed[at : at + settings.rows], self._settings.temperature)
        self._reference = copied(self.network)
        self.seconds = time.monotonic() - begun
        _write_state(self._folder / IMITATED, {"weights": self._reference, "seconds": self.seconds})

    def learn(self, rows: Sequence[SampledRow], groups: Sequence[GroupResult], begun: float) -> None:
        """Make one update, and save it. `begun` is when its plans were first asked for, by `time.monotonic`."""
        assert self._reference is not None, "imitation comes before the first update"
        settings = self._settings
        figures = update(self.network, self._optimizer, rows, settings.grpo, self._reference, settings.temperature)
        self.done += 1
        self.seconds += time.monotonic() - begun
        self.points.append(point_of(self.done, groups, figures.kl))
        self._save()
        write_curves(self._folder, self.points)

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
            "weights": copied(self.network),
            "optimizer": self._optimizer.state_dict(),
            "done": self.done,
            "seconds": self.seconds,
            "points": [asdict(point) for point in self.points],
        }
        _write_state(self._folder / CHECKPOINT, state)

    def _restore(self) -> None:
        file = self._folder / CHECKPOINT
        if (imitated := self._folder / IMITATED).exists():
            before: dict[str, Any] = torch.load(imitated, weights_only=True)
            if "weights" not in before:  # earlier versions kept nothing else
                before = {"weights": before, "seconds": 0.0}
            self._reference, self.seconds = before["weights"], before["seconds"]
            restore(self.network, before["weights"])
        if not file.exists():
            return
        state: dict[str, Any] = torch.load(file, weights_only=True)
        if _without_length(state["settings"]) != _without_length(self._began):
            problem = "holds a training with other settings, or one that began with other adapters"
            raise InputError(Problem(str(file), problem, "what it began with, or another folder or seed"))
        restore(self.network, state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.done, self.seconds = state["done"], state["seconds"]
        self.points = [CurvePoint(**point) for point in state["points"]]


def _without_length(settings: dict[str, Any]) -> dict[str, Any]:
    # a longer training is the same one, and its stage ends later
    reward = settings["reward"]
    return {**settings, "updates": None, "reward": {**reward, "stage": {**reward["stage"], "outcomes": None}}}


def _write_state(file: Path, state: object) -> None:
    unfinished = file.with_name(f".{file.name}.part")
    torch.save(state, unfinished)
    os.replace(unfinished, file)


def point_of(done: int, groups: Sequence[GroupResult], kl: float) -> CurvePoint:
    """Return the means over all plans of an update."""
    rewards = [each for group in groups for each in group.rewards]
    plans = [(result, group.best) for group in groups for result in group.results]
    wide = [(result, best.width) for result, best in plans if best.width > 1]
    return CurvePoint(
        update=done,
        reward=fmean(each.total for each in rewards),
        performance=fmean(each.performance for each in rewards),
        parallel=fmean(each.parallel for each in rewards),
        finish=fmean(each.finish for each in rewards),
        stage=rewards[0].stage,
        success=fmean(result.right for result, _ in plans),
        width=fmean(result.width for result, _ in plans),
        collapse=fmean(is_collapsed(result, width) for result, width in wide) if wide else 0.0,
        spurious=fmean(spurious_share(result, best) for result, best in plans),
        longer=fmean(longer(result, best) for result, best in plans),
        seconds=fmean(result.seconds for result, _ in plans),
        kl=kl,
    )


def reading_first(plan: str) -> str:
    """Return a plan as grammars with listed names want it: each part says what it reads before its action.

    A single file of `each` is an input. Several are a constant of the grammar, whose names have spaces between them.
    """
    parts = [_reading_first(part) for part in json.loads(plan)["plan"]]
    text = compact_json({"plan": parts})
    for names in (part.get("each", []) for part in parts):
        text = text.replace(compact_json(names), json.dumps(names))
    return text


def _reading_first(part: dict[str, Any]) -> dict[str, Any]:
    match part.get("each", []):
        case [name] if "." in name:
            part = {**part, "each": [], "inputs": [name], "action": part["action"].replace("{each}", name)}
    return {key: part[key] for key in READING_FIRST if part.get(key)}


def _grammar(schema: str) -> str:
    document: Any = read_json(schema)[0]  # the harness has written it
    return schema_grammar(document)
