"""Let a router learn from tasks of the grid as it does in use, and judge it by tasks that it has not seen.

In each rollout the router chooses as in production: what the memory advises where it is sure, else what the rules say,
and sometimes something else on purpose. It learns from the outcome of its choice alone; the grid knows what the other
actions would have come to. Afterwards it chooses for held-out tasks, without trying anything on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.routing.credit import StepCredit, plain, td_lambda
from benchmarks.routing.grid import OPTIONS, Grid
from orchestrator.memrl.episodes import Action, Neighbourhood, Outcome
from orchestrator.memrl.lessons import CHECKER_WEIGHT
from orchestrator.memrl.memory import Memory, MemoryOptions
from orchestrator.memrl.policy import Policy, PolicyChoice, PolicySettings
from orchestrator.memrl.reward import Prices, staged
from orchestrator.memrl.router import NEIGHBOURS, Settled, settle
from orchestrator.task import lexical

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

LARGE: Final = OPTIONS.index(("large", ""))
# What the rules choose: the models of the roles as in `make bench-gates`.
RULED: Final = {"worker": OPTIONS.index(("small", "")), "coder": OPTIONS.index(("medium", ""))}
HELD_OUT: Final = 1 / 3
CHAIN: Final = 3  # Steps of a run of which only the end is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to learn."""

    policy: PolicySettings = field(default_factory=PolicySettings)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    personas: bool = True  # whether personas may be chosen
    # Runs are chains of three steps, of which only the end is known, shared by TD(trace); None for single steps.
    trace: float | None = None
    plain: bool = False  # whether the end of a chain is every step's reward instead

    @property
    def options(self) -> Places:
        """The options that may be chosen."""
        return np.array([place for place, (_, persona) in enumerate(OPTIONS) if self.personas or not persona])


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """Tasks that are learned from, in the order in which they come first, and those that are held out."""

    learned: Places
    held_out: Places

    @classmethod
    def of(cls, grid: Grid, rng: np.random.Generator) -> "TaskSplit":
        """Return a split of which each family has the same share."""
        parts: list[list[int]] = [[], []]
        families = np.array(grid.families)
        for family in dict.fromkeys(grid.families):
            order = rng.permutation(np.flatnonzero(families == family))
            cut = round(HELD_OUT * len(order))
            parts[0] += order[cut:].tolist()
            parts[1] += order[:cut].tolist()
        return cls(rng.permutation(np.array(parts[0])), np.array(parts[1]))

    def only(self, grid: Grid, families: Sequence[str]) -> "TaskSplit":
        """Return the tasks of some families."""
        wanted = np.isin(np.array(grid.families), list(families))
        return TaskSplit(self.learned[wanted[self.learned]], self.held_out[wanted[self.held_out]])


def prices_for(grid: Grid, price: float) -> Prices:
    """Return prices at which a mean attempt of the large model costs `price`, of which a success brings 1."""
    return Prices(second=price / float(grid.seconds[:, LARGE].mean()), thousand_tokens=0.0, lost_thousand_tokens=0.0)


def net_values(grid: Grid, price: float) -> Floats:
    """Return the success of each option at each task, less what it costs: shape (tasks, options)."""
    net: Floats = grid.right - prices_for(grid, price).second * grid.seconds
    return net


@dataclass(frozen=True, slots=True)
class Taken:
    """What was chosen for some tasks, as options."""

    tasks: Places
    options: Places
    followed: float = 1.0  # the share of choices that the memory made, and not the rules

    def scores(self, grid: Grid, price: float) -> dict[str, float]:
        """Return success, cost and regret; seconds are relative to those of the large model on the same tasks."""
        net = net_values(grid, price)[self.tasks]
        own = net[np.arange(len(self.tasks)), self.options]
        return {
            "success": float(grid.right[self.tasks, self.options].mean()),
            "cost": float(grid.seconds[self.tasks, self.options].mean() / grid.seconds[self.tasks, LARGE].mean()),
            "seconds": float(grid.seconds[self.tasks, self.options].mean()),
            "tokens": float(grid.tokens[self.tasks, self.options].mean()),
            "net": float(own.mean()),
            "regret": float((net.max(axis=1) - own).mean()),
            "regret_to_family": float((net[np.arange(len(net)), _best_of_family(grid, self.tasks, net)] - own).mean()),
            "followed": self.followed,
        }


def _best_of_family(grid: Grid, tasks: Places, net: Floats) -> Places:
    """Return for each task the option that is best for its family, in hindsight."""
    families = np.array(grid.families)[tasks]
    best = np.zeros(len(tasks), dtype=np.intp)
    for family in set(families.tolist()):
        best[families == family] = net[families == family].mean(axis=0).argmax()
    return best


def ruled(grid: Grid, task: int) -> int:
    """Return the option that the rules choose."""
    return RULED[grid.situations[task].role]


def fixed_choices(grid: Grid, tasks: Places, price: float, rng: np.random.Generator) -> dict[str, Taken]:
    """Return what routers choose that do not learn, and those that know the outcomes."""
    net = net_values(grid, price)[tasks]
    always = {f"always {model}": np.full(len(tasks), OPTIONS.index((model, ""))) for model in ("small", "large")}
    others = {
        "rules": np.array([ruled(grid, task) for task in tasks.tolist()]),
        "random": rng.integers(0, len(OPTIONS), len(tasks)),
        "best per family, in hindsight": _best_of_family(grid, tasks, net),
        "oracle per task": net.argmax(axis=1),
    }
    return {name: Taken(tasks, options) for name, options in {**always, **others}.items()}


class GridRouter:
    """Memory and policy together, as the daemon uses them, on the tasks of a grid."""

    def __init__(self, grid: Grid, variant: Variant, price: float, folder: Path) -> None:
        self.grid, self.variant = grid, variant
        settings = replace(variant.policy, prices=prices_for(grid, price))
        self.policy = Policy(lexical.LEARNING_DIMENSIONS, settings)
        self.memory = Memory.open(folder, lexical.NAME, lexical.LEARNING_DIMENSIONS, variant.memory)
        self.options = variant.options
        self.regrets: list[float] = []
        """By how much what was chosen in each rollout was worse than the best option."""
        self.updated_elsewhere = 0
        """How many outcomes updated an episode of another family's task."""
        self._net = net_values(grid, price)
        self._attempts = 0
        self._family_of: dict[int, str] = {}

    def near(self, task: int) -> Neighbourhood:
        """Return the similar episodes that the router would look at."""
        return self.memory.retrieve(self.grid.vectors[task], NEIGHBOURS, self.policy.settings.retrieval.threshold)

    def actions(self, task: int) -> list[Action]:
        """Return the actions that may be chosen for a task."""
        every = self.grid.actions(task)
        return [every[place] for place in self.options]

    def choose(self, task: int, rng: np.random.Generator, *, explore: bool) -> tuple[int, PolicyChoice, Settled]:
        """Return the option, the memory's choice, and what became of that."""
        actions = self.actions(task)
        choice = self.policy.choose(
            self.grid.situations[task], self.grid.vectors[task], self.near(task), actions, rng=rng, explore=explore
        )
        by_rules = self.grid.actions(task)[ruled(self.grid, task)]
        settled = settle(choice, by_rules, actions, use="on")
        return int(self.options[actions.index(settled.action)]), choice, settled

    def learn(self, task: int, option: int, success: float | None = None, propensity: float = 1.0) -> None:
        """Let memory and policy observe what came of an option; `success` in the place of what the grid says."""
        grid, action = self.grid, self.grid.actions(task)[option]
        outcome = Outcome(
            success=float(grid.right[task, option]) if success is None else success,
            source="checker",
            weight=CHECKER_WEIGHT,
            critical_seconds=float(grid.seconds[task, option]),
            tokens=int(grid.tokens[task, option]),
        )
        settings, near = self.policy.settings, self.near(task)
        self._attempts += 1
        done = self.memory.observe(
            grid.situations[task],
            grid.vectors[task],
            action,
            outcome=outcome,
            reward=staged(outcome, self.policy.observed, settings.stage, settings.prices),
            propensity=propensity,
            at=float(self._attempts),
            key=(f"run-{self._attempts}", "S1", 1),
        )
        family = grid.families[task]
        assert done.episode is not None
        self.updated_elsewhere += self._family_of.setdefault(done.episode, family) != family
        self.policy.observe(grid.situations[task], grid.vectors[task], action, outcome, neighbours=near)

    def roll_out(self, tasks: Sequence[int], rng: np.random.Generator) -> None:
        """Choose for tasks, and learn from each outcome."""
        with self.memory.batch():
            if self.variant.trace is not None or self.variant.plain:
                for start in range(0, len(tasks) - CHAIN + 1, CHAIN):
                    self._roll_out_chain(tasks[start : start + CHAIN], rng)
                return
            for task in tasks:
                option, _, settled = self.choose(task, rng, explore=True)
                self.regrets.append(float(self._net[task].max() - self._net[task, option]))
                self.learn(task, option, propensity=settled.propensity)

    def _roll_out_chain(self, tasks: Sequence[int], rng: np.random.Generator) -> None:
        """Do tasks as the steps of one run, each of which reads what the one before it made; it succeeds if all do."""
        options, steps = [], {}
        for number, task in enumerate(tasks):
            option, choice, _ = self.choose(task, rng, explore=True)
            taken = self.grid.actions(task)[option]
            worth = next(estimate.worth for estimate in choice.estimates if estimate.action == taken)
            later = (str(number + 1),) if number + 1 < len(tasks) else ()
            options.append(option)
            steps[str(number)] = StepCredit(reward=None, value=worth, used_by=later)
        end = float(all(self.grid.right[task, option] for task, option in zip(tasks, options, strict=True)))
        credit = plain(steps, end) if self.variant.trace is None else td_lambda(steps, end, trace=self.variant.trace)
        for task, option, part in zip(tasks, options, credit.values(), strict=True):
            self.learn(task, option, success=min(1.0, max(0.0, part)))

    def held_out(self, tasks: Places, rng: np.random.Generator) -> dict[str, Taken]:
        """Return what is chosen for tasks: with the rules where the memory is not sure, and by the memory alone."""
        with_rules, alone, followed = [], [], []
        for task in tasks.tolist():
            option, choice, settled = self.choose(task, rng, explore=False)
            with_rules.append(option)
            alone.append(int(self.options[self.actions(task).index(choice.best)]))
            followed.append(settled.followed)
        share = float(np.mean(followed))
        return {"": Taken(tasks, np.array(with_rules), share), " alone": Taken(tasks, np.array(alone))}


def learn_on(
    grid: Grid, variant: Variant, price: float, split: TaskSplit, after: Sequence[int], seed: int
) -> dict[str, dict[str, float]]:
    """Return the scores on held-out tasks after each number of rollouts in `after`, by "after N" and "after N alone".

    Tasks come again, in the same order, when all have been learned from.
    """
    rng = np.random.default_rng([seed, 1])
    stream = np.resize(split.learned, max(after)).tolist()
    scores: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        router, done = GridRouter(grid, variant, price, Path(folder)), 0
        try:
            for count in after:
                router.roll_out(stream[done:count], rng)
                regret = float(np.mean(router.regrets[done:count])) if router.regrets[done:count] else 0.0
                done = count
                stats = router.memory.stats()
                learned = {"regret_while_learning": regret, "share_updated": stats.share_updated}
                for name, taken in router.held_out(split.held_out, rng).items():
                    scores[f"after {count}{name}"] = {**taken.scores(grid, price), **learned}
        finally:
            router.memory.close()
    return scores


def cost_at(points: Sequence[tuple[float, float]], success: float) -> float:
    """Return the least cost at which success is reached, by one of the points (success, cost) or a mix of two.

    A router that draws between two others has the mean of their successes and costs. Infinite if no point reaches it.
    """
    costs = [cost for reached, cost in points if reached >= success]
    for low, cheap in points:
        for high, dear in points:
            if low < success <= high:
                costs.append(cheap + (dear - cheap) * (success - low) / (high - low))
    return min(costs, default=float("inf"))


def success_at(points: Sequence[tuple[float, float]], cost: float) -> float:
    """Return the highest success at which this cost is kept to, by one of the points or a mix of two; 0 if none is."""
    reached = [success for success, spent in points if spent <= cost]
    for low, cheap in points:
        for high, dear in points:
            if cheap <= cost < dear:
                reached.append(low + (high - low) * (cost - cheap) / (dear - cheap))
    return max(reached, default=0.0)


def cheapest_per_family(grid: Grid, tasks: Places, share: float) -> float:
    """Return the least cost of one fixed option for each family that has a share of the large model's success.

    It is relative to the large model's cost. Options that another one beats in both are left out before all are tried.
    """
    families = np.array(grid.families)[tasks]
    sums = np.zeros((1, 2))
    for family in dict.fromkeys(families.tolist()):
        own = tasks[families == family]
        pairs = np.stack((grid.right[own].sum(axis=0), grid.seconds[own].sum(axis=0)), axis=1)
        unbeaten = [pair for pair in pairs if not any(_beats(other, pair) for other in pairs)]
        sums = (sums[:, None, :] + np.array(unbeaten)[None]).reshape(-1, 2)
    enough = sums[:, 0] >= share * grid.right[tasks, LARGE].sum() - 1e-9
    return float(sums[enough, 1].min() / grid.seconds[tasks, LARGE].sum())


def _beats(other: Floats, pair: Floats) -> bool:
    return bool(other[0] >= pair[0] and other[1] <= pair[1] and (other != pair).any())
