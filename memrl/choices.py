"""Show how the latest choices of the router turned out: their rewards over time, regret and calibration. Pure.

What the memory expected is in the journal, as of the moment of the choice. What became of it is what the memory has
learned. Rewards are those that Q learns from: from 0 to 1, before the price of time and tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Final

from orchestrator.memrl.episodes import MODES, Action, Value
from orchestrator.memrl.router import named
from orchestrator.memrl.store import Key, LearnedAttempt
from orchestrator.run.journal.store import PersonaUse
from orchestrator.task.events import AdviceEstimate, AttemptStarted, Event, RouteAdvice, RunAccepted

BINS: Final = 10  # of calibration, all equally wide
SPANS: Final = 40  # at most, of equally many choices
LEAST_IN_SPAN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedChoice:
    """A choice, what the memory expected of it, and how it turned out.

    `expected`, `error` (the standard error of that) and `regret` are None if the memory was not asked, or did not
    estimate what was taken; `success` (0 to 1) and `reward` are None until something is learned from the outcome.
    """

    run: str
    step: str | None  # None for the mode of a plan
    attempt: int
    at: float  # seconds since the epoch
    taken: str
    best: str  # by the memory; empty if it was not asked
    rules: str  # what the rules would have chosen; empty if the memory was not asked
    reason: str
    followed: bool  # the memory made the choice
    explored: bool  # another action than the best one was tried on purpose
    confidence: float | None
    expected: float | None  # reward
    error: float | None
    regret: float | None  # value of the best action less that of the one taken, both as the memory expected them
    success: float | None
    reward: float | None
    weight: float  # how much the outcome counts as evidence, from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSpan:
    """Means over choices that follow each other. They are None if no choice has the figure."""

    start: float  # of the first choice, in seconds since the epoch
    end: float
    choices: int
    judged: int  # choices with a reward
    reward: float | None  # by the weight of the outcomes
    expected: float | None  # of the choices with a reward, by the same weights
    regret: float | None
    followed: float  # share of the choices
    explored: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationBin:
    """Choices whose expected reward was from `low` to `high`, and the mean of what they earned."""

    low: float
    high: float
    choices: int
    expected: float  # mean, by the weight of the outcomes
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaEvidence:
    """How attempts by a role with a persona ended, and what the memory holds of both."""

    persona: str
    role: str
    attempts: int  # of the runs that are kept
    succeeded: int
    failed: int
    q: float | None  # mean over all outcomes; None if there is none
    outcomes: int
    q_without: float | None  # of the role without a persona
    outcomes_without: int


def journaled_choices(events: Iterable[tuple[str, Event]]) -> list[tuple[Key, Event]]:
    """Return the events that are choices of a router, each with the key of what is learned from it."""
    keyed: list[tuple[Key, Event]] = []
    for run, event in events:
        if isinstance(event, AttemptStarted):
            keyed.append(((run, event.step, event.number), event))
        elif isinstance(event, RunAccepted) and event.mode_choice is not None:
            keyed.append(((run, "", 0), event))
    return keyed


def judged_choice(key: Key, event: Event, learned: LearnedAttempt | None) -> JudgedChoice:
    """Return the choice of one of the `journaled_choices`, with what was learned from it."""
    if isinstance(event, RunAccepted):
        choice = event.mode_choice
        assert choice is not None, "`journaled_choices` leaves out others"
        advice, reason, taken = choice.advice, choice.reason, f"mode {event.mode}"
        estimate = None if advice is None else _estimate_of_mode(advice, MODES[event.mode])
    else:
        assert isinstance(event, AttemptStarted), "`journaled_choices` leaves out others"
        action = action_taken(event)
        advice, reason, taken = event.advice, event.reason, named(action)
        estimate = None if advice is None else estimate_of(advice, action)
    teaches = learned is not None and learned.weight > 0
    return JudgedChoice(
        run=key[0],
        step=key[1] or None,
        attempt=key[2],
        at=event.at,
        taken=taken,
        best="" if advice is None else named(_advised(advice)),
        rules="" if advice is None else advice.rules,
        reason=reason,
        followed=advice is not None and advice.followed,
        explored=advice is not None and advice.explored,
        confidence=None if advice is None else advice.confidence,
        expected=None if estimate is None else estimate.worth,
        error=None if estimate is None else estimate.error,
        regret=None if advice is None or estimate is None else regret_of(advice, estimate),
        success=learned.success if learned is not None and teaches else None,
        reward=learned.reward if learned is not None and teaches else None,
        weight=learned.weight if learned is not None else 0.0,
    )


def action_taken(event: AttemptStarted) -> Action:
    return Action(event.role, event.persona or "", event.model, event.thinking)


def estimate_of(advice: RouteAdvice, action: Action) -> AdviceEstimate | None:
    """Return the estimate of an action of a step; None if it is not among those that are journaled."""
    same = (action.role, action.persona, action.model, action.thinking)
    estimates = advice.estimates
    return next((row for row in estimates if (row.role, row.persona, row.model, row.thinking) == same), None)


def regret_of(advice: RouteAdvice, taken: AdviceEstimate) -> float:
    """Return by how much the best action is better than the one that was taken, by what the memory expected."""
    return max(estimate.value for estimate in advice.estimates) - taken.value


def spans(choices: Sequence[JudgedChoice]) -> list[ChoiceSpan]:
    """Return means over time. `choices` are in the order of time."""
    size = max(LEAST_IN_SPAN, ceil(len(choices) / SPANS))
    return [_span(choices[place : place + size]) for place in range(0, len(choices), size)]


def calibration(choices: Iterable[JudgedChoice]) -> tuple[list[CalibrationBin], float | None]:
    """Return the bins that have choices, and the expected calibration error; None without choices that can be judged.

    The error is the mean distance between expected and earned reward over the bins, by weight (Naeini, Cooper &
    Hauskrecht, AAAI 2015).
    """
    bins: dict[int, list[JudgedChoice]] = {}
    for choice in choices:
        if choice.expected is not None and choice.reward is not None:
            bins.setdefault(min(BINS - 1, max(0, int(choice.expected * BINS))), []).append(choice)
    rows = [_bin(place, bins[place]) for place in sorted(bins)]
    weights = [fsum(choice.weight for choice in bins[place]) for place in sorted(bins)]
    if not rows:
        return [], None
    error = fsum(weight * abs(row.expected - row.reward) for row, weight in zip(rows, weights, strict=True))
    return rows, error / fsum(weights)


def persona_evidence(uses: Iterable[PersonaUse], values: Sequence[Value]) -> list[PersonaEvidence]:
    """Return what is known of each persona with each role, by their names."""
    used = {(use.persona, use.role): use for use in uses}
    means = {(value.persona, value.role): _mean_q(values, value.persona, value.role) for value in values}
    nothing: tuple[float | None, int] = (None, 0)
    evidence = []
    for persona, role in sorted({*used, *(key for key in means if key[0])}):
        use = used.get((persona, role))
        q, outcomes = means.get((persona, role), nothing)
        q_without, outcomes_without = means.get(("", role), nothing)
        evidence.append(
            PersonaEvidence(
                persona=persona,
                role=role,
                attempts=0 if use is None else use.attempts,
                succeeded=0 if use is None else use.succeeded,
                failed=0 if use is None else use.failed,
                q=q,
                outcomes=outcomes,
                q_without=q_without,
                outcomes_without=outcomes_without,
            )
        )
    return evidence


def _mean_q(values: Sequence[Value], persona: str, role: str) -> tuple[float | None, int]:
    own = [value for value in values if (value.persona, value.role) == (persona, role)]
    count = sum(value.count for value in own)
    return fsum(value.q * value.count for value in own) / count, count


def _estimate_of_mode(advice: RouteAdvice, mode: str) -> AdviceEstimate | None:
    return next((estimate for estimate in advice.estimates if estimate.mode == mode), None)


def _advised(advice: RouteAdvice) -> Action:
    return Action(advice.role, advice.persona, advice.model, advice.thinking, advice.mode)


def _span(choices: Sequence[JudgedChoice]) -> ChoiceSpan:
    regrets = [choice.regret for choice in choices if choice.regret is not None]
    judged = [choice for choice in choices if choice.reward is not None]
    return ChoiceSpan(
        start=choices[0].at,
        end=choices[-1].at,
        choices=len(choices),
        judged=len(judged),
        reward=_weighted([(choice.weight, choice.reward) for choice in judged]),
        expected=_weighted([(choice.weight, choice.expected) for choice in judged]),
        regret=fsum(regrets) / len(regrets) if regrets else None,
        followed=sum(choice.followed for choice in choices) / len(choices),
        explored=sum(choice.explored for choice in choices) / len(choices),
    )


def _bin(place: int, choices: Sequence[JudgedChoice]) -> CalibrationBin:
    expected = _weighted([(choice.weight, choice.expected) for choice in choices])
    reward = _weighted([(choice.weight, choice.reward) for choice in choices])
    assert expected is not None, "a bin has choices with both"
    assert reward is not None, "a bin has choices with both"
    low, high = place / BINS, (place + 1) / BINS
    return CalibrationBin(low=low, high=high, choices=len(choices), expected=expected, reward=reward)


def _weighted(pairs: Sequence[tuple[float, float | None]]) -> float | None:
    numbers = [(weight, number) for weight, number in pairs if number is not None]
    whole = fsum(weight for weight, _ in numbers)
    return fsum(weight * number for weight, number in numbers) / whole if whole > 0 else None
