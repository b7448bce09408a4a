"""Choose by what was learned from earlier outcomes where that is sure enough, and by the rules elsewhere.

The memory advises: role, persona, model and how much the model may think, and for the plan of a request also its mode.
Its advice is followed from a confidence of `CONFIDENT` on. What the user has named always wins: the candidates have
only that. Every so often another action is drawn on purpose, if nobody waits for the answer or the configuration allows
it even then; how probable the choice was is journaled exactly, so that another router can be judged by the same
outcomes.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from threading import Lock
from typing import Final, Literal

import numpy as np
import structlog
from numpy.typing import NDArray

from memrl.episodes import Action, Situation
from memrl.errors import MemrlError
from memrl.memory import Memory
from memrl.policy import Estimate, Policy, PolicyChoice
from memrl.reward import Cost
from orchestrator.run.routing.checked import fall_back_to_rules
from orchestrator.run.routing.contract import Decision, DecisionContext
from orchestrator.run.routing.rules import by_rules, unforced_context
from orchestrator.task.events import AdviceEstimate, AdviceVoice, Mode, RouteAdvice, RouteCandidate
from orchestrator.task.lexical import embed as embed_lexically
from orchestrator.task.taskir import Level, Step, TaskIR
from registry.models import ModelEntry, Persona, Registry
from registry.thinking import thought_markers

Use = Literal["off", "shadow", "on"]
"""What the memory's advice is used for: nothing, to be journaled beside the choice of the rules, or to be followed."""
Vector = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Awaitable[Vector]]
"""Returns a vector for each text: shape (texts, dimensions)."""

HYBRID: Final = "hybrid-1"
"""The name and version of this router, which every decision that it makes carries."""
CONFIDENT: Final = 0.6
"""From this confidence on, the memory's advice is followed."""
MAX_PERSONAS: Final = 4
"""How many personas are considered, those whose texts are most like the step's."""
MAX_MODELS: Final = 6
"""How many models other than the role's own are considered."""
VOICES_KEPT: Final = 3
"""How many of the episodes that spoke for an action are journaled."""
ESTIMATES_KEPT: Final = 6
"""For how many actions it is journaled what was expected of them."""
NEIGHBOURS: Final = 100
"""How many similar episodes are looked at, over all actions."""
LOAD_BYTES_PER_SECOND: Final = 5e8
"""How fast a model is assumed to be loaded that has to be loaded first."""
MODES: Final[Mapping[Mode, str]] = {
    "as-planned": "planned",
    "discover": "discover",
    "serial": "serial",
    "direct": "direct",
}
"""What the memory calls the modes."""
NOT_FOR_STEPS: Final = frozenset({"judge"})
"""Roles that do no step unless they are asked for, though their tier would allow it."""
_NORMAL: Final = NormalDist()
_LEVELS: Final[Sequence[Level]] = ("B1", "B2", "B3")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Learned:
    """What was learned, as a router uses it."""

    memory: Memory
    policy: Policy
    embed: Embed
    lock: Lock
    """Held while the policy is used or taught, which takes well under a millisecond."""


def situation_text(objective: str, action: str) -> str:
    """Return what a situation is compared by: what is wanted of the task and of the step, and no default of a field."""
    return objective if not action or action == objective else f"{objective}\n{action}"


def situation_of(
    *,
    role: str,
    objective: str,
    task: TaskIR | None,
    step: Step | None,
    plan: bool = False,
    input_bytes: int = 0,
    failures: tuple[str, ...] = (),
    interactive: bool = False,
) -> Situation:
    """Return the situation of a choice. A task type counts only if the task states one."""
    kind: Literal["generate", "repl", "tool", "plan", "chat"] = "plan" if plan else "chat"
    if step is not None:
        kind = step.kind or "generate"
    return Situation(
        task_type=task.task_type if task is not None and "task_type" in task.model_fields_set else None,
        kind=kind,
        role=role,
        text=situation_text(objective, step.action if step is not None else ""),
        input_bytes=input_bytes,
        failures=failures,
        interactive=interactive,
    )


class HybridRouter:
    """The router that learns. `learned` returns None, and `use` "off", as long as there is nothing to go by."""

    def __init__(
        self,
        learned: Callable[[], "Learned | None"],
        use: Callable[[], Use],
        rng: np.random.Generator | None = None,
        explores_interactive: Callable[[], bool] = lambda: False,
    ) -> None:
        """`explores_interactive` returns whether something may be tried on purpose also while somebody waits."""
        self._learned = learned
        self._use = use
        self._explores_interactive = explores_interactive
        self._rng = rng or np.random.default_rng()

    async def choose(self, context: DecisionContext) -> Decision:
        """Return the choice. A memory that cannot be asked leaves it to the rules, and the reason says so."""
        ruling, learned = by_rules(context), self._learned()
        if ruling.problem is not None or learned is None or (use := self._use()) == "off":
            return ruling
        if use == "shadow" and not learned.policy.observed:
            return ruling  # there is nothing yet that could be advised
        try:
            vector = (await learned.embed([_situation(context).text]))[0]
            decision = self._decide(context, ruling, learned, vector, use)
            if (free := unforced_context(context)) == context:
                return decision
            return replace(decision, unforced=self._chance(_action(decision), free, learned, vector, use))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the memory, the rules can choose
            log.warning("the memory cannot advise; the rules choose", error=repr(error))
            why = str(error) if isinstance(error, MemrlError) else repr(error)
            return fall_back_to_rules(context, f"the memory could not be asked: {why}")

    def _chance(self, action: Action, context: DecisionContext, learned: Learned, vector: Vector, use: Use) -> float:
        """Return how probable an action is in a context, in which nothing is forced."""
        _, settled, actions = self._settled(context, by_rules(context), learned, vector, use)
        return dict(zip(actions, settled.probabilities, strict=True)).get(action, 0.0)

    def _settled(
        self, context: DecisionContext, ruling: Decision, learned: Learned, vector: Vector, use: Use
    ) -> tuple[PolicyChoice, "Settled", list[Action]]:
        situation, actions = _situation(context), candidates(context, ruling)
        neighbours = learned.memory.retrieve(vector, NEIGHBOURS, learned.policy.settings.retrieval.threshold)
        explore = use == "on" and (not situation.interactive or self._explores_interactive())
        with learned.lock:
            choice = learned.policy.choose(
                situation,
                vector,
                neighbours,
                actions,
                _costs(actions, context),
                rng=self._rng,
                explore=explore,
            )
        return choice, settle(choice, actions[0], actions, use=use), actions

    def _decide(
        self, context: DecisionContext, ruling: Decision, learned: Learned, vector: Vector, use: Use
    ) -> Decision:
        choice, settled, actions = self._settled(context, ruling, learned, vector, use)
        advice = _advice(context, ruling, choice, settled, actions)
        if not settled.followed:
            return replace(
                ruling,
                reason=f"{ruling.reason} ({settled.why})",
                propensity=settled.propensity,
                router=ruling.router if use == "shadow" else HYBRID,
                advice=advice,
            )
        taken = settled.action
        return replace(
            ruling,
            role=taken.role,
            persona=taken.persona or None,
            model=taken.model,
            thinking=taken.thinking,
            mode=next((mode for mode, name in MODES.items() if name == taken.mode), None),
            reason=f"{named(taken)}: {settled.why}; the rules: {named(actions[0])}",
            propensity=settled.propensity,
            candidates=tuple(
                RouteCandidate(one.action.role, one.action.persona or None, one.action.model, one.value)
                for one in choice.estimates
            ),
            router=HYBRID,
            advice=advice,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """What is done after the memory was asked."""

    action: Action
    followed: bool
    """Whether the memory decided, and not the rules."""
    explored: bool
    confidence: float
    propensity: float
    probabilities: tuple[float, ...]
    """How probable each action was to be taken, in the order of the actions."""
    why: str


def settle(choice: PolicyChoice, ruled: Action, actions: Sequence[Action], *, use: Use) -> Settled:
    """Return what is done: the memory's choice if it is sure of its best action, else that of the rules. Pure.

    It is sure if no action is likely to be better by more than the tolerance, or if its best one is likely to be better
    than that of the rules: which of several good actions is best need not be known in order to leave a bad one.
    Something is tried on purpose in both cases: where the memory is not sure, the action of the rules and its own best
    one change places, so that the probability of each is still exactly known.
    """
    confidence = max(choice.confidence, _better(choice, ruled))
    sure = confidence >= CONFIDENT
    best, place = actions.index(choice.best), actions.index(ruled)
    chances = [*choice.probabilities]
    if use == "shadow":
        why = f"the memory is asked in the shadow; it would choose {named(choice.best)}, confidence {confidence:.2f}"
        return Settled(ruled, False, False, confidence, 1.0, tuple(np.eye(len(actions))[place]), why)
    taken = actions.index(choice.action)
    if not sure:
        chances[best], chances[place] = chances[place], chances[best]
        taken = {best: place, place: best}.get(taken, taken)
    action, base = actions[taken], best if sure else place
    if taken != base:
        why = f"tried on purpose, probability {chances[taken]:.3f}"
        return Settled(action, True, True, confidence, chances[taken], tuple(chances), why)
    if sure:
        why = f"chosen by memory, confidence {confidence:.2f}"
        return Settled(action, True, False, confidence, chances[taken], tuple(chances), why)
    why = f"the memory is not sure enough of {named(choice.best)}: confidence {confidence:.2f} is below {CONFIDENT}"
    return Settled(action, False, False, confidence, chances[taken], tuple(chances), why)


def _better(choice: PolicyChoice, ruled: Action) -> float:
    """Return how probable it is that the memory's best action has a higher value than that of the rules."""
    if choice.best == ruled:
        return 0.0
    estimates = {one.action: one for one in choice.estimates}
    best, other = estimates[choice.best], estimates[ruled]
    return _NORMAL.cdf((best.value - other.value) / math.hypot(best.error, other.error))


def candidates(context: DecisionContext, ruling: Decision) -> list[Action]:
    """Return the actions to choose from, what the rules choose first. Pure.

    They keep to what the user has named: persona, model, the task's hints, and the highest level of escalation. A role
    that a failure was escalated to stays.
    """
    registry, ruled = context.registry, _action(ruling)
    if context.modes:
        return [ruled, *(replace(ruled, mode=MODES[mode]) for mode in context.modes[1:])]
    agent = next((agent for agent in context.agents if agent.role == context.role), None)
    model_pinned = context.model is not None or (
        agent is not None and agent.model_hint is not None and registry.model_named(agent.model_hint) is not None
    )
    persona_pinned = context.persona is not None or (
        agent is not None and agent.persona_hint is not None and agent.persona_hint in registry.personas
    )
    found = [ruled]
    if not model_pinned and not _escalated(context):
        for role in context.roles:
            if role != context.role and role not in NOT_FOR_STEPS and _allowed(role, context):
                entry = registry.roles[role]
                persona = ruled.persona if persona_pinned else entry.persona or ""
                found.append(Action(role, persona, entry.model))
    if not model_pinned:
        found += [replace(ruled, model=model) for model in _models(registry, ruled.model)]
    if not persona_pinned:
        text = _situation(context).text
        names = ["", *_personas_like(text, tuple(registry.personas_in_use.values()))]
        found += [replace(ruled, persona=name) for name in names]
    if can_think(registry.models[ruled.model]):
        found += [replace(ruled, thinking=thinking) for thinking in ("off", "1024")]
    return list(dict.fromkeys(found))


def can_think(model: ModelEntry) -> bool:
    """Return whether a model is known to think before it answers, by its chat template."""
    return model.header is not None and thought_markers(model.header.chat_template, lambda text: False) is not None


def _action(decision: Decision) -> Action:
    mode = MODES[decision.mode] if decision.mode is not None else ""
    return Action(decision.role, decision.persona or "", decision.model, decision.thinking, mode)


def _escalated(context: DecisionContext) -> bool:
    """Return whether a failure has led to this role, so that a weaker one would undo that."""
    return context.step is not None and context.role != context.step.actor


def _allowed(role: str, context: DecisionContext) -> bool:
    """Return whether the task's `max_level` allows a role."""
    level = context.registry.roles[role].level
    task = context.task
    return task is None or level is None or _LEVELS.index(level) <= _LEVELS.index(task.escalation.max_level)


def _models(registry: Registry, ruled: str) -> list[str]:
    """Return the other models that can write text, those of roles that do steps first, and none that only drafts."""
    roles = [*registry.step_roles, *(name for name in registry.usable_roles if registry.roles[name].tier == "A")]
    only_draft = {entry.model for entry in registry.roles.values() if entry.tier == "D"}
    only_draft -= {registry.roles[name].model for name in roles}
    named = [registry.roles[name].model for name in roles]
    others = [name for name in registry.models if name in registry.usable_models and name not in only_draft]
    found = dict.fromkeys([*named, *others])
    return [name for name in found if name != ruled and not registry.models[name].embeds][:MAX_MODELS]


@lru_cache(maxsize=512)
def _personas_like(text: str, personas: tuple[Persona, ...]) -> tuple[str, ...]:
    """Return the personas whose texts and names are most like a text, the most similar first."""
    if len(personas) <= MAX_PERSONAS:
        return tuple(one.name for one in personas)
    vectors = _persona_vectors(personas)
    alike = vectors @ embed_lexically([text])[0]
    return tuple(personas[place].name for place in np.argsort(-alike, kind="stable")[:MAX_PERSONAS])


@lru_cache(maxsize=8)
def _persona_vectors(personas: tuple[Persona, ...]) -> Vector:
    return embed_lexically([f"{one.name} {one.description} {one.text}" for one in personas])


def _situation(context: DecisionContext) -> Situation:
    return situation_of(
        role=context.role,
        objective=context.objective,
        task=context.task,
        step=context.step,
        plan=bool(context.modes),
        input_bytes=sum(size.bytes or 0 for size in context.inputs),
        failures=tuple(failed.failure.kind.name for failed in context.failures),
        interactive=context.priority == "interactive",
    )


def _costs(actions: Sequence[Action], context: DecisionContext) -> dict[Action, Cost]:
    """Return what each action costs by the state of the machine: a model that is not loaded has to be.

    What the model that the rules would use has read already is lost where another model is chosen: the system prompt
    and the inputs, at about four bytes a token.
    """
    models, ruled = context.registry.models, actions[0].model
    read = sum(size.bytes or 0 for size in context.inputs) / 4
    costs = {}
    for action in actions:
        entry = models[action.model]
        cold = action.model not in context.resident and entry.remote is None
        size = entry.memory.weights if entry.memory is not None else 0
        costs[action] = Cost(
            load_seconds=size / LOAD_BYTES_PER_SECOND if cold else 0.0,
            lost_prefix_tokens=read if action.model != ruled else 0.0,
        )
    return costs


def _advice(
    context: DecisionContext, ruling: Decision, choice: PolicyChoice, settled: Settled, actions: Sequence[Action]
) -> RouteAdvice:
    best = choice.best
    chances = dict(zip(actions, settled.probabilities, strict=True))
    first = (best, actions[0], settled.action)
    ordered = sorted(choice.estimates, key=lambda one: (*(one.action != action for action in first), -one.value))
    return RouteAdvice(
        asked=context.role,
        role=best.role,
        persona=best.persona,
        model=best.model,
        thinking=best.thinking,
        mode=best.mode,
        confidence=settled.confidence,
        followed=settled.followed,
        explored=settled.explored,
        why=settled.why,
        rules=named(_action(ruling)),
        estimates=tuple(_estimate(one, chances[one.action]) for one in ordered[:ESTIMATES_KEPT]),
    )


def _estimate(one: Estimate, chance: float) -> AdviceEstimate:
    heard = sorted(one.retrieved.voices, key=lambda voice: -voice.weight)[:VOICES_KEPT]
    return AdviceEstimate(
        role=one.action.role,
        persona=one.action.persona,
        model=one.action.model,
        thinking=one.action.thinking,
        mode=one.action.mode,
        value=_short(one.value),
        worth=_short(one.worth),
        error=_short(one.error),
        price=_short(one.price),
        head=_short(one.head),
        head_part=_short(one.head_part),
        support=_short(one.retrieved.support),
        probability=chance,
        voices=tuple(
            AdviceVoice(voice.episode, _short(voice.similarity), _short(voice.q), _short(voice.weight))
            for voice in heard
        ),
    )


def _short(number: float) -> float:
    """Return a number as it is journaled: five digits after the point say enough."""
    return round(number, 5)


def named(action: Action) -> str:
    """Return an action in words."""
    words = [action.role, f"on {action.model}"]
    words += [f"with persona {action.persona}"] if action.persona else []
    words += [f"thinking {action.thinking}"] if action.thinking else []
    words += [f"{action.mode}"] if action.mode else []
    return " ".join(words)
