"""Choose by the memory of earlier outcomes where it is sure enough, else by the rules.

The memory advises on role, persona, model and thinking, and on the mode of a request's plan. Its advice is followed
from the confidence `CONFIDENT` on. What the user has named always wins. Now and then another action is drawn on
purpose, if nobody waits for the answer or the configuration allows it. The exact probability of each choice is
journaled, so that other routers can be judged by the same outcomes.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from threading import Lock
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import MODES, Action, Situation, situation_of
from orchestrator.memrl.errors import MemrlError
from orchestrator.memrl.memory import Memory
from orchestrator.memrl.policy import Estimate, Policy, PolicyChoice
from orchestrator.memrl.reward import Cost
from orchestrator.registry.models import ModelEntry, Registry
from orchestrator.registry.persona import Persona
from orchestrator.registry.thinking import thought_markers
from orchestrator.run.routing import Decision, DecisionContext, RouterUnavailable, by_rules, unforced_context
from orchestrator.task.events import AdviceEstimate, AdviceVoice, RouteAdvice, RouteCandidate
from orchestrator.task.lexical import embed as embed_lexically
from orchestrator.task.taskir.models import Level

# What happens to the memory's advice: it is not asked for, journaled next to the rules' choice, or followed.
Use = Literal["off", "shadow", "on"]
Vector = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Awaitable[Vector]]  # returns a vector for each text: shape (texts, dimensions)

# Name and version of this router, for the journal.
HYBRID: Final = "hybrid-1"
CONFIDENT: Final = 0.6  # from this confidence on, the memory's advice is followed
MAX_PERSONAS: Final = 4  # those whose texts are most like the step's
MAX_MODELS: Final = 6  # in addition to the role's own
VOICES_KEPT: Final = 3  # journaled episodes that spoke for an action
ESTIMATES_KEPT: Final = 6  # journaled estimates of actions
NEIGHBOURS: Final = 100  # similar episodes that are looked at, over all actions
LOAD_BYTES_PER_SECOND: Final = 5e8  # assumed speed of loading a model
# Roles that do no step unless they are named, though their tier would allow it.
NOT_FOR_STEPS: Final = frozenset({"judge"})
_NORMAL: Final = NormalDist()
_LEVELS: Final[Sequence[Level]] = ("B1", "B2", "B3")


@dataclass(slots=True)
class Learned:
    memory: Memory
    policy: Policy
    embed: Embed
    lock: Lock  # held while the policy is used or taught, well under a millisecond


class HybridRouter:
    """The router that learns. `learned` returns None, and `use` "off", while there is nothing to go by."""

    def __init__(
        self,
        learned: Callable[[], "Learned | None"],
        use: Callable[[], Use],
        rng: np.random.Generator | None = None,
        explores_interactive: Callable[[], bool] = lambda: False,
    ) -> None:
        """`explores_interactive` returns whether to explore even while somebody waits."""
        self._learned = learned
        self._use = use
        self._explores_interactive = explores_interactive
        self._rng = rng or np.random.default_rng()

    async def choose(self, context: DecisionContext) -> Decision:
        """Return the choice. Raises RouterUnavailable if the memory fails."""
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
        except Exception as error:  # whatever is wrong with the memory, the rules can choose
            why = str(error) if isinstance(error, MemrlError) else repr(error)
            raise RouterUnavailable(f"the memory could not be asked: {why}") from error

    def _chance(self, action: Action, context: DecisionContext, learned: Learned, vector: Vector, use: Use) -> float:
        # The probability of an action if nothing is forced.
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
        selected = settled.action
        return replace(
            ruling,
            role=selected.role,
            persona=selected.persona or None,
            model=selected.model,
            thinking=selected.thinking,
            mode=next((mode for mode, name in MODES.items() if name == selected.mode), None),
            reason=f"{named(selected)}: {settled.why}; the rules: {named(actions[0])}",
            propensity=settled.propensity,
            candidates=tuple(
                RouteCandidate(
                    estimate.action.role, estimate.action.persona or None, estimate.action.model, estimate.value
                )
                for estimate in choice.estimates
            ),
            router=HYBRID,
            advice=advice,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """The choice after the memory was asked."""

    action: Action
    followed: bool  # the memory decided, not the rules
    explored: bool
    confidence: float
    propensity: float
    probabilities: tuple[float, ...]  # of each action, in their order
    why: str


def settle(choice: PolicyChoice, ruled: Action, actions: Sequence[Action], *, use: Use) -> Settled:
    """Return the memory's choice if it is sure of its best action, else that of the rules. Pure.

    It is sure if no action is likely to be better by more than the tolerance, or if its best one is likely to be better
    than that of the rules.
    """
    # To leave a bad action, one need not know which of several good ones is best.
    confidence = max(choice.confidence, _better(choice, ruled))
    sure = confidence >= CONFIDENT
    best, place = actions.index(choice.best), actions.index(ruled)
    chances = [*choice.probabilities]
    if use == "shadow":
        why = f"the memory is asked in the shadow; it would choose {named(choice.best)}, confidence {confidence:.2f}"
        return Settled(ruled, False, False, confidence, 1.0, tuple(np.eye(len(actions))[place]), why)
    drawn = actions.index(choice.action)
    if not sure:
        # Explore here too, with both actions in each other's place: the probability of each is still exactly known.
        chances[best], chances[place] = chances[place], chances[best]
        drawn = {best: place, place: best}.get(drawn, drawn)
    action, base = actions[drawn], best if sure else place
    if drawn != base:
        why = f"tried on purpose, probability {chances[drawn]:.3f}"
        return Settled(action, True, True, confidence, chances[drawn], tuple(chances), why)
    if sure:
        why = f"chosen by memory, confidence {confidence:.2f}"
        return Settled(action, True, False, confidence, chances[drawn], tuple(chances), why)
    why = f"the memory is not sure enough of {named(choice.best)}: confidence {confidence:.2f} is below {CONFIDENT}"
    return Settled(action, False, False, confidence, chances[drawn], tuple(chances), why)


def _better(choice: PolicyChoice, ruled: Action) -> float:
    # The probability that the memory's best action has a higher value than that of the rules.
    if choice.best == ruled:
        return 0.0
    estimates = {estimate.action: estimate for estimate in choice.estimates}
    best, by_rule = estimates[choice.best], estimates[ruled]
    return _NORMAL.cdf((best.value - by_rule.value) / math.hypot(best.error, by_rule.error))


def candidates(context: DecisionContext, ruling: Decision) -> list[Action]:
    """Return the actions to choose from, the rules' choice first. Pure.

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
    actions = [ruled]
    if not model_pinned and not _escalated(context):
        for role in context.roles:
            if role != context.role and role not in NOT_FOR_STEPS and _allowed(role, context):
                entry = registry.roles[role]
                persona = ruled.persona if persona_pinned else entry.persona or ""
                actions.append(Action(role, persona, entry.model))
    if not model_pinned:
        actions += [replace(ruled, model=model) for model in _models(registry, ruled.model)]
    if not persona_pinned:
        text = _situation(context).text
        names = ["", *_personas_like(text, tuple(registry.personas_in_use.values()))]
        actions += [replace(ruled, persona=name) for name in names]
    if can_think(registry.models[ruled.model]):
        actions += [replace(ruled, thinking=thinking) for thinking in ("off", "1024")]
    return list(dict.fromkeys(actions))


def can_think(model: ModelEntry) -> bool:
    """Return whether a model can think before it answers, by its chat template."""
    return model.header is not None and thought_markers(model.header.chat_template, lambda text: False) is not None


def _action(decision: Decision) -> Action:
    mode = MODES[decision.mode] if decision.mode is not None else ""
    return Action(decision.role, decision.persona or "", decision.model, decision.thinking, mode)


def _escalated(context: DecisionContext) -> bool:
    # A weaker role would undo the escalation.
    return context.step is not None and context.role != context.step.actor


def _allowed(role: str, context: DecisionContext) -> bool:
    # By the task's `max_level`.
    level = context.registry.roles[role].level
    task = context.task
    return task is None or level is None or _LEVELS.index(level) <= _LEVELS.index(task.escalation.max_level)


def _models(registry: Registry, ruled: str) -> list[str]:
    # The other models that can write text, those of roles that do steps first, without those that only draft.
    roles = [*registry.step_roles, *(name for name in registry.usable_roles if registry.roles[name].tier == "A")]
    only_draft = {entry.model for entry in registry.roles.values() if entry.tier == "D"}
    only_draft -= {registry.roles[name].model for name in roles}
    named = [registry.roles[name].model for name in roles]
    usable = [name for name in registry.models if name in registry.usable_models and name not in only_draft]
    names = dict.fromkeys([*named, *usable])
    return [name for name in names if name != ruled and not registry.models[name].embeds][:MAX_MODELS]


@lru_cache(maxsize=512)
def _personas_like(text: str, personas: tuple[Persona, ...]) -> tuple[str, ...]:
    # The most similar first.
    if len(personas) <= MAX_PERSONAS:
        return tuple(persona.name for persona in personas)
    vectors = _persona_vectors(personas)
    alike = vectors @ embed_lexically([text])[0]
    return tuple(personas[place].name for place in np.argsort(-alike, kind="stable")[:MAX_PERSONAS])


@lru_cache(maxsize=8)
def _persona_vectors(personas: tuple[Persona, ...]) -> Vector:
    return embed_lexically([f"{persona.name} {persona.description} {persona.text}" for persona in personas])


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
    # By the state of the machine: a model that is not loaded has to be. Another model than the rules' loses what that
    # one has read: the system prompt and the inputs, at about four bytes a token.
    models, ruled = context.registry.models, actions[0].model
    read = sum(size.bytes or 0 for size in context.inputs) / 4
    costs = {}
    for action in actions:
        entry = models[action.model]
        cold = action.model not in context.resident and not entry.is_remote
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
    ordered = sorted(
        choice.estimates, key=lambda estimate: (*(estimate.action != action for action in first), -estimate.value)
    )
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
        estimates=tuple(_estimate(estimate, chances[estimate.action]) for estimate in ordered[:ESTIMATES_KEPT]),
    )


def _estimate(estimate: Estimate, chance: float) -> AdviceEstimate:
    heard = sorted(estimate.retrieved.voices, key=lambda voice: -voice.weight)[:VOICES_KEPT]
    return AdviceEstimate(
        role=estimate.action.role,
        persona=estimate.action.persona,
        model=estimate.action.model,
        thinking=estimate.action.thinking,
        mode=estimate.action.mode,
        value=_short(estimate.value),
        worth=_short(estimate.worth),
        error=_short(estimate.error),
        price=_short(estimate.price),
        head=_short(estimate.head),
        head_part=_short(estimate.head_part),
        support=_short(estimate.retrieved.support),
        probability=chance,
        voices=tuple(
            AdviceVoice(voice.episode, _short(voice.similarity), _short(voice.q), _short(voice.weight))
            for voice in heard
        ),
    )


def _short(number: float) -> float:
    # Five digits after the point are enough for the journal.
    return round(number, 5)


def named(action: Action) -> str:
    words = [action.role, f"on {action.model}"]
    words += [f"with persona {action.persona}"] if action.persona else []
    words += [f"thinking {action.thinking}"] if action.thinking else []
    words += [f"{action.mode}"] if action.mode else []
    return " ".join(words)
