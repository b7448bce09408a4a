"""Decide how many draft tokens to verify, and whether speculation pays off. Pure; times are in seconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from orchestrator.engine.step_cost.model import MAX_PADDING, StepCostModel
from orchestrator.registry.options import DRAFTING, INVARIANT_MICRO_BATCH, DraftName

MODEL_MEMORY = 512  # Tokens after which an observation has faded to 1/e of its weight, for a whole model.

# The gain in tokens per second, as a fraction, that drafts must promise when several sequences decode. Drafts make the
# sequences finish at different times, and the last ones decode in narrow, less efficient steps. For four answers of 56
# tokens that cost as much as drafts with a promised gain of 0.07 to 0.1 saved.
MIN_GAIN_OF_SEVERAL = 0.1

# The same for one sequence. The promise is uncertain by about as much: the acceptance rate comes from a few dozen
# tokens, and the cost model may be off by a few per cent. With 0.02, a draft model slowed free text down to 0.95 of its
# speed.
MIN_GAIN_OF_ONE = 0.05

_MIN_VALUE = 0.02  # Below this probability of acceptance, a draft token is not worth any time.

_VALUE_DECIMALS = 2  # Values equal to this many decimals tie: acceptance rates are not known more precisely.


class Acceptance:
    """Estimates how likely a draft token is accepted if all draft tokens before it are.

    The mean of a Beta distribution; observations fade over `memory` tokens. The prior, a number or the model's
    estimate, weighs as much as `weight` tokens.
    """

    __slots__ = ("_accepted", "_keep", "_prior", "_tried", "_weight")

    def __init__(self, prior: "Acceptance | float", memory: int, weight: float = 4.0) -> None:
        self._prior = prior
        self._keep = 1 - 1 / memory
        self._weight = weight
        self._tried = self._accepted = 0.0

    @property
    def rate(self) -> float:
        if isinstance(self._prior, Acceptance):
            # Fading returns the estimate to its prior while nothing is drafted, so failed drafts are tried again later.
            return self._mean(self._prior.rate)
        mean = self._mean(self._prior)
        # One standard error above the mean: otherwise a few early rejections would prevent all drafts for a long time.
        return min(1.0, mean + math.sqrt(mean * (1 - mean) / (self._tried + self._weight)) * (self._tried > 0))

    def _mean(self, prior: float) -> float:
        return (self._accepted + self._weight * prior) / (self._tried + self._weight)

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a step that drafted `drafted` tokens and accepted the first `accepted`.

        Report (0, 0) for a step that could have drafted and did not.
        """
        # Tokens after the first rejected one say nothing about acceptance.
        tried = accepted + (accepted < drafted)
        keep = self._keep ** max(tried, 1)
        self._tried = self._tried * keep + tried
        self._accepted = self._accepted * keep + accepted
        if isinstance(self._prior, Acceptance):
            self._prior.observe(drafted, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePrior:
    """What is assumed of a drafter's acceptance before anything is observed, and how soon observations replace it."""

    rate: float  # high enough that drafts are tried
    # The memory for a sequence, in tokens. A sequence may switch at any time from copying its prompt to writing new
    # text, which affects copies more than a draft model.
    memory: int
    # Weight of the model's estimate in that of a sequence, in observed tokens. With less, a few rejected tokens at the
    # start would end drafting for a sequence where drafts pay off only slightly.
    weight: float

    def of_model(self) -> Acceptance:
        return Acceptance(self.rate, MODEL_MEMORY)

    def of_sequence(self, model: Acceptance) -> Acceptance:
        return Acceptance(model, self.memory, self.weight)


COPIED: Final = AcceptancePrior(rate=0.5, memory=16, weight=4.0)
COMPUTED: Final = AcceptancePrior(rate=0.7, memory=128, weight=16.0)


def _prior(name: DraftName) -> AcceptancePrior:
    return COPIED if DRAFTING[name].copies else COMPUTED


def model_acceptance() -> dict[DraftName, Acceptance]:
    """Return a model's estimates by drafting method."""
    return {name: _prior(name).of_model() for name in DRAFTING}


def sequence_acceptance(model: Mapping[DraftName, Acceptance]) -> dict[DraftName, Acceptance]:
    """Return the estimates for a new sequence. Its observations also update those of the model."""
    return {name: _prior(name).of_sequence(estimate) for name, estimate in model.items()}


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A decoding sequence that could verify draft tokens in this step."""

    acceptance: float  # estimated rate, from 0 to 1
    max_tokens: int  # limited by the proposal, the registry's k, and the rest of the answer
    priority: float  # the lowest number is served first
    depth: int = 0  # KV cells
    cost: float = 0.0  # seconds to draft one token; 0 for prompt lookup
    # seconds that the draft model needs to read unseen text, per remaining token of the answer
    catch_up_cost: float = 0.0

    def seconds(self, order: int) -> float:
        """Return the seconds that the draft token number `order` (from 1) costs, with its share of catching up."""
        return self.cost + self.catch_up_cost * self.acceptance ** (order - 1)


def draft_lengths(
    costs: StepCostModel, sequences: Sequence[DraftCandidate], *, token_budget: int, batch_invariant: bool
) -> list[int]:
    """Return how many draft tokens each sequence verifies in this step, for the most expected tokens per second.

    The j-th draft token of a sequence adds acceptance^j expected tokens (Leviathan et al. 2023, equation 1). All zeros
    if the gain is below `MIN_GAIN_OF_ONE` or `MIN_GAIN_OF_SEVERAL`. `token_budget` excludes the sequences' own tokens.
    """
    lengths = [0] * len(sequences)
    width = len(sequences)
    token_budget = min(token_budget, INVARIANT_MICRO_BATCH - width) if batch_invariant else token_budget
    if token_budget <= 0 or not any(sequence.max_tokens for sequence in sequences):
        return lengths
    cells = sum(sequence.depth for sequence in sequences)
    plain = width / costs.seconds(width, width, cells)
    best, best_count = plain * _required_ratio(width), 0
    tokens, added = float(width), 0.0
    ranked = _ranked_draft_tokens(costs, sequences, plain)[:token_budget]
    # Try every count: step time may jump at some sizes, so that a larger size pays off only if it is full.
    for count, token in enumerate(ranked, 1):
        tokens += token.value
        added += token.seconds
        rate = tokens / (costs.seconds(width + count, width, cells) + added)
        if rate > best:
            best, best_count = rate, count
    for token in ranked[:best_count]:
        lengths[token.sequence] += 1
    return lengths


def common_draft_length(
    costs: StepCostModel,
    sequences: Sequence[DraftCandidate],
    *,
    token_budget: int,
    batch_invariant: bool,
    free_rollback: int | None = None,
) -> int:
    """Return `draft_lengths` for sequences that must have the same length, as in a split cache.

    If more than `free_rollback` draft tokens (None: any number) are verified and one is rejected, those before it are
    computed again in another step.
    """
    width = len(sequences)
    token_budget = min(token_budget, INVARIANT_MICRO_BATCH - width) if batch_invariant else token_budget
    cells = sum(sequence.depth for sequence in sequences)
    best, best_length = width / costs.seconds(width, width, cells) * _required_ratio(width), 0
    tokens, added = float(width), 0.0
    longest = max((sequence.max_tokens for sequence in sequences), default=0)
    # Shorter proposals are padded. All are padded if a longer step takes less time.
    for length in range(1, min(longest + MAX_PADDING if longest else 0, token_budget // max(width, 1)) + 1):
        drafting = [sequence for sequence in sequences if sequence.max_tokens >= length]
        tokens += sum(sequence.acceptance**length for sequence in drafting)
        added += sum(sequence.seconds(length) for sequence in drafting)
        seconds = costs.seconds(width * (length + 1), width, cells * (length + 1)) + added
        if free_rollback is not None and length > free_rollback:
            seconds += _recompute_seconds(costs, sequences, length)
        if tokens / seconds > best:
            best, best_length = tokens / seconds, length
    return best_length


def _recompute_seconds(costs: StepCostModel, sequences: Sequence[DraftCandidate], length: int) -> float:
    # The expected seconds of the step that computes again what precedes rejected tokens. Padding is always rejected.
    rates = [(sequence.acceptance, min(length, sequence.max_tokens)) for sequence in sequences]
    whole = [rate**length if drafted == length else 0.0 for rate, drafted in rates]
    none = math.prod(whole)
    if none >= 1:
        return 0.0
    # The last token of the text, and those that are accepted if not all are.
    before = sum(1 - every for every in whole)
    for (rate, drafted), every in zip(rates, whole, strict=True):
        before += sum(rate**order for order in range(1, drafted + 1)) - length * every
    count = max(1, round(sum(1 - every for every in whole) / (1 - none)))
    return (1 - none) * costs.seconds(max(count, round(before / (1 - none))), count)


def _required_ratio(width: int) -> float:
    return 1 + (MIN_GAIN_OF_ONE if width == 1 else MIN_GAIN_OF_SEVERAL)


class _DraftToken(NamedTuple):
    # The field order is the sort order: the most valuable token sorts first.
    rank: float  # the negative net value, rounded
    priority: float
    sequence: int  # index
    order: int  # position in the sequence's draft, from 0
    value: float  # expected number of tokens
    seconds: float  # cost in addition to the growth of the step


def _ranked_draft_tokens(costs: StepCostModel, sequences: Sequence[DraftCandidate], rate: float) -> list[_DraftToken]:
    # `rate` is the value of a second, in tokens.
    ranked = []
    growth = costs.least_growth
    for index, sequence in enumerate(sequences):
        attention = costs.per_cell * sequence.depth
        value, net = 1.0, math.inf
        for order in range(sequence.max_tokens):
            value *= sequence.acceptance
            seconds = sequence.seconds(order + 1) + attention
            net = min(net, value - rate * (seconds + growth))  # never ranked before the token that it follows
            if net <= 0 or (value < _MIN_VALUE and growth > 0):
                break
            ranked.append(_DraftToken(-round(net, _VALUE_DECIMALS), sequence.priority, index, order, value, seconds))
    return sorted(ranked)


def plain_seconds(costs: StepCostModel, depths: Sequence[int], tokens: int) -> float:
    """Return the seconds for `tokens` tokens without drafts, for sequences (at least one) of `depths` cells."""
    width = len(depths)
    return tokens * costs.seconds(width, width, sum(depths)) / width


@dataclass(slots=True)
class _StepTotals:
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    plain: float = 0.0  # seconds without drafts
    seconds: float = 0.0  # seconds with drafts
    squares: float = 0.0  # of the seconds that each step saved

    def add(self, drafted: int, accepted: int, plain: float, seconds: float) -> None:
        saved = plain - seconds
        self.squares += saved * saved
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        self.plain += plain
        self.seconds += seconds

    @property
    def gain(self) -> float:
        # negative if drafting took longer
        return 1 - self.seconds / self.plain

    @property
    def lost_steps(self) -> float:
        # In steps without drafts.
        return -self.gain * self.steps

    @property
    def noise(self) -> float:
        # The standard error of the gain: steps that save much and steps that save nothing alternate at random.
        saved = self.plain - self.seconds
        return math.sqrt(max(0.0, self.squares - saved * saved / self.steps)) / self.plain


@dataclass(slots=True)
class _Refusals:
    count: int = 0  # in a row
    steps_off: int = 0  # steps of the pause that are still to come


class RefusalPauses:
    """Decides, for each width of a step, whether to consider drafts at all.

    After `ROW` steps in a row in which drafts were considered and refused, none are considered for `PAUSE` steps; each
    further refusal starts another pause. For a small model, considering drafts takes a good part of a step.
    """

    ROW = 16
    PAUSE = 64

    def __init__(self) -> None:
        self._by_width: dict[int, _Refusals] = {}

    def skips(self, width: int) -> bool:
        """Return whether to consider no drafts in the next step. Call it once for each step."""
        refusals = self._by_width.get(width)
        if refusals is None or not refusals.steps_off:
            return False
        refusals.steps_off -= 1
        return True

    def is_over(self, width: int) -> bool:
        """Return whether the next call of `skips` returns False."""
        refusals = self._by_width.get(width)
        return refusals is None or not refusals.steps_off

    def record(self, width: int, *, refused: bool) -> None:
        """Record the decision of a step in which drafts were considered."""
        if not refused:
            self._by_width.pop(width, None)
            return
        refusals = self._by_width.setdefault(width, _Refusals())
        refusals.count += 1
        if refusals.count >= self.ROW:
            refusals.steps_off = self.PAUSE


class SpeculationController:
    """Turns speculation of a model off while it loses time, and on again when it may pay off.

    Each window of `WINDOW` drafted steps is judged. If it lost more than `LOSS` and the standard error, speculation
    pauses, and must then gain `GAIN` in a trial window. A failed trial doubles the pause.
    """

    # Failed trials cost less than 2 % of the time: (8 + 1) / 512, because the last step of a trial takes twice as long
    # as a plain one.
    WINDOW = 32
    # In steps. The first pause is short: a machine that was briefly busy also looks like a loss.
    PAUSE = 64
    LONGEST_PAUSE = 512  # drafts that pay off again are enabled after at most this many steps and one window
    TRIAL_LOSS = 8.0  # in steps without drafts; a trial that has lost this much ends early
    # Nothing changes between the two, so that noise does not toggle speculation.
    LOSS = -0.01
    GAIN = 0.02

    def __init__(self) -> None:
        self.total = _StepTotals()
        self.enabled = True
        self.reason = "on: too few steps have drafted to judge it yet"
        self._window = _StepTotals()
        self._trial = False
        self._pause = self.PAUSE
        self._left = 0

    @property
    def saved_seconds(self) -> float:
        # Negative if time was lost.
        return self.total.plain - self.total.seconds

    def record(self, drafted: int, accepted: int, plain: float, seconds: float) -> None:
        """Account for a step that took `seconds` with drafting and would have taken `plain` without (`plain_seconds`).

        Do not report steps that also computed prompts.
        """
        # Other times would spoil the sums.
        if not (0 < plain < math.inf and 0 < seconds < math.inf):
            return
        self.total.add(drafted, accepted, plain, seconds)
        self._window.add(drafted, accepted, plain, seconds)
        if self._window.steps >= self.WINDOW or (self._trial and self._window.lost_steps >= self.TRIAL_LOSS):
            self._judge(self._window)
            self._window = _StepTotals()

    def skip_step(self) -> None:
        """Count a step without drafts while speculation is disabled. The last step of a pause starts a trial."""
        self._left -= 1
        if not self.enabled and self._left <= 0:
            self.enabled = self._trial = True
            self.reason = f"on trial for {self.WINDOW} steps"

    def _judge(self, window: _StepTotals) -> None:
        self.enabled = window.gain >= (self.GAIN if self._trial else self.LOSS - window.noise)
        evidence = (
            f"in the last {window.steps} steps that drafted, {window.accepted} of {window.drafted} draft tokens were "
            f"accepted, and decoding took {abs(window.gain):.1%} {'less' if window.gain >= 0 else 'more'} time than "
            "without"
        )
        if self.enabled:
            self._trial, self._pause = False, self.PAUSE
            self.reason = f"on: {evidence}"
        else:
            self._left = self._pause
            self.reason = f"off for {self._left} steps: {evidence}"
            self._pause = min(2 * self._pause, self.LONGEST_PAUSE)
