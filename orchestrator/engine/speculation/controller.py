"""Decide how many draft tokens are worth verifying, and whether speculation pays at all.

Pure: the caller measures times and passes them in, in seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.engine.step_cost.model import MAX_PADDING, StepCostModel
from registry.options import INVARIANT_MICRO_BATCH

DraftSource = Literal["lookup", "draft"]
"""Where draft tokens come from: prompt lookup, or a draft model."""

PRIOR_ACCEPTANCE: dict[DraftSource, float] = {"lookup": 0.5, "draft": 0.7}
"""The acceptance rate that is assumed before anything was observed. It is high enough for drafts to be tried."""

SEQUENCE_MEMORY: dict[DraftSource, int] = {"lookup": 16, "draft": 128}
"""After how many tokens an observation of one sequence has faded to 1/e of its weight. A sequence may change at any
time from copying its prompt to writing new text, which concerns prompt lookup more than a draft model."""

MODEL_MEMORY = 512
"""The same for what is observed over all sequences of a model, which changes least."""

PRIOR_WEIGHT: dict[DraftSource, float] = {"lookup": 4.0, "draft": 16.0}
"""How many observed tokens of a sequence weigh as much as what is known of its model. With less weight, a few rejected
tokens at the start would end drafting for the whole sequence where drafts barely pay."""

MIN_GAIN_OF_SEVERAL = 0.1
"""How much more tokens per second drafts have to promise, as a fraction, when several sequences decode. With drafts
the sequences finish at different times, and the last of them decode in narrow steps, which make fewer tokens per
second. For four answers of 56 tokens each, that cost as much as drafts gained where they promised 0.07 to 0.1."""

MIN_GAIN_OF_ONE = 0.05
"""The same when one sequence decodes. The promise itself is uncertain by about as much: the acceptance rate comes from
a few dozen tokens, and the cost model may be wrong by a few per cent. With a threshold of 0.02, a draft model made the
decoding of free text slower (0.95 times the speed, in five noisy rounds)."""

_MIN_VALUE = 0.02
"""A draft token that is accepted with a lower probability than this is not worth its time, if it takes any."""

_VALUE_DECIMALS = 2
"""Values that agree to this many decimals count as equal, because acceptance rates are not known more precisely."""


class Acceptance:
    """An estimate of how likely a draft token is accepted, given that all draft tokens before it were.

    The estimate is the mean of a Beta distribution. Observations fade over `memory` tokens, so the estimate returns to
    its prior while nothing is drafted, and drafts that did not pay are tried again after some time. The prior of a
    sequence is the estimate for its model; the prior of a model is a number. The estimate for a model is one standard
    error above its mean: otherwise a few rejected tokens at the start would prevent all further drafts for a long time.
    """

    __slots__ = ("_accepted", "_keep", "_prior", "_tried", "_weight")

    def __init__(self, prior: "Acceptance | float", memory: int, weight: float = 4.0) -> None:
        """Start from `prior`, which weighs as much as `weight` observed tokens."""
        self._prior = prior
        self._keep = 1 - 1 / memory
        self._weight = weight
        self._tried = self._accepted = 0.0

    @property
    def rate(self) -> float:
        """The estimate, between 0 and 1."""
        if isinstance(self._prior, Acceptance):
            return self._mean(self._prior.rate)
        mean = self._mean(self._prior)
        return min(1.0, mean + math.sqrt(mean * (1 - mean) / (self._tried + self._weight)) * (self._tried > 0))

    def _mean(self, prior: float) -> float:
        return (self._accepted + self._weight * prior) / (self._tried + self._weight)

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a step that drafted `drafted` tokens, of which the first `accepted` were accepted.

        A step that could have drafted and did not is reported as (0, 0). Tokens behind the first rejected one say
        nothing about acceptance and are not counted.
        """
        tried = accepted + (accepted < drafted)
        keep = self._keep ** max(tried, 1)
        self._tried = self._tried * keep + tried
        self._accepted = self._accepted * keep + accepted
        if isinstance(self._prior, Acceptance):
            self._prior.observe(drafted, accepted)


def model_acceptance() -> dict[DraftSource, Acceptance]:
    """Return the estimates for a model of which nothing was observed yet."""
    return {source: Acceptance(start, MODEL_MEMORY) for source, start in PRIOR_ACCEPTANCE.items()}


def sequence_acceptance(model: dict[DraftSource, Acceptance]) -> dict[DraftSource, Acceptance]:
    """Return the estimates for a new sequence of a model. What they observe is passed on to those of the model."""
    return {source: Acceptance(prior, SEQUENCE_MEMORY[source], PRIOR_WEIGHT[source]) for source, prior in model.items()}


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A sequence that decodes in this step and could verify draft tokens in it."""

    acceptance: float
    """The estimated acceptance rate, between 0 and 1."""
    max_tokens: int
    """The most draft tokens it can take: the least of what can be proposed, the registry's k, and what is left of the
    answer."""
    priority: float
    """The priority of the request; among draft tokens of equal value, the smallest number comes first."""
    depth: int = 0
    """How many cells of the KV cache the sequence holds."""
    cost: float = 0.0
    """Seconds to draft one token; 0 for prompt lookup."""
    catch_up_cost: float = 0.0
    """Seconds that each remaining token of the answer has to earn because the draft model must first read text that
    it has not seen."""

    def seconds(self, order: int) -> float:
        """Return the seconds that the draft token number `order` (from 1) costs: to make it, and for catching up."""
        return self.cost + self.catch_up_cost * self.acceptance ** (order - 1)


def draft_lengths(
    costs: StepCostModel, sequences: Sequence[DraftCandidate], *, token_budget: int, batch_invariant: bool
) -> list[int]:
    """Return how many draft tokens each sequence verifies in this step besides its own token.

    The result maximises expected tokens per second. The j-th draft token of a sequence adds acceptance^j expected
    tokens (Leviathan et al. 2023, equation 1) and costs the time by which the step grows, its attention and its
    drafting. Draft tokens are taken in order of value, and among equals by the priority of their sequence. Every number
    of tokens is considered, because the time of a step may jump at some sizes, so that it only pays to use a larger
    size in full. The result is all zeros unless drafts promise at least `MIN_GAIN_OF_ONE` or `MIN_GAIN_OF_SEVERAL`.

    `token_budget` is how many tokens the batch can take besides one for each sequence. `batch_invariant` limits the
    step to `INVARIANT_MICRO_BATCH` tokens.
    """
    lengths = [0] * len(sequences)
    width = len(sequences)
    token_budget = min(token_budget, INVARIANT_MICRO_BATCH - width) if batch_invariant else token_budget
    if token_budget <= 0 or not any(sequence.max_tokens for sequence in sequences):
        return lengths
    cells = sum(sequence.depth for sequence in sequences)
    plain = width / costs.seconds(width, width, cells)
    best, taken = plain * _required_ratio(width), 0
    tokens, added = float(width), 0.0
    ranked = _ranked_draft_tokens(costs, sequences, plain)[:token_budget]
    for count, token in enumerate(ranked, 1):
        tokens += token.value
        added += token.seconds
        rate = tokens / (costs.seconds(width + count, width, cells) + added)
        if rate > best:
            best, taken = rate, count
    for token in ranked[:taken]:
        lengths[token.sequence] += 1
    return lengths


def common_draft_length(
    costs: StepCostModel, sequences: Sequence[DraftCandidate], *, token_budget: int, batch_invariant: bool
) -> int:
    """Return how many draft tokens every sequence verifies, where all must have equally many: in a split cache.

    The result maximises expected tokens per second; the parameters are those of `draft_lengths`. A sequence that has
    fewer proposals is padded with tokens that are not expected to be accepted. All sequences are padded where a longer
    step takes less time.
    """
    width = len(sequences)
    token_budget = min(token_budget, INVARIANT_MICRO_BATCH - width) if batch_invariant else token_budget
    cells = sum(sequence.depth for sequence in sequences)
    best, chosen = width / costs.seconds(width, width, cells) * _required_ratio(width), 0
    tokens, added = float(width), 0.0
    longest = max((sequence.max_tokens for sequence in sequences), default=0)
    for length in range(1, min(longest + MAX_PADDING if longest else 0, token_budget // max(width, 1)) + 1):
        drafting = [sequence for sequence in sequences if sequence.max_tokens >= length]
        tokens += sum(sequence.acceptance**length for sequence in drafting)
        added += sum(sequence.seconds(length) for sequence in drafting)
        seconds = costs.seconds(width * (length + 1), width, cells * (length + 1)) + added
        if tokens / seconds > best:
            best, chosen = tokens / seconds, length
    return chosen


def _required_ratio(width: int) -> float:
    """Return how many times the tokens per second without drafts must be promised when `width` sequences decode."""
    return 1 + (MIN_GAIN_OF_ONE if width == 1 else MIN_GAIN_OF_SEVERAL)


class _DraftToken(NamedTuple):
    """A draft token that could be verified. Tuples are compared in order, and the most valuable token is the least."""

    rank: float
    """The negative net value, rounded."""
    priority: float
    sequence: int
    """The index of its sequence."""
    order: int
    """Its number within the sequence, from 0."""
    value: float
    """The expected number of tokens that it adds."""
    seconds: float
    """What it costs besides the time by which the step grows."""


def _ranked_draft_tokens(costs: StepCostModel, sequences: Sequence[DraftCandidate], rate: float) -> list[_DraftToken]:
    """Return the draft tokens that may be worth it if a second is worth `rate` tokens, the most valuable first."""
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
    """Return how many seconds `tokens` tokens would take without drafts, for sequences (at least one) that hold
    `depths` cells."""
    width = len(depths)
    return tokens * costs.seconds(width, width, sum(depths)) / width


@dataclass(slots=True)
class _StepTotals:
    """Sums over steps that verified draft tokens."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    plain: float = 0.0
    """The seconds that their tokens would have taken without drafts."""
    seconds: float = 0.0
    """The seconds that the steps took."""
    squares: float = 0.0
    """The sum of the squares of the seconds that each step saved."""

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
        """The fraction of the plain time that was saved; negative when drafting took longer."""
        return 1 - self.seconds / self.plain

    @property
    def lost_steps(self) -> float:
        """The time that was lost, in steps without drafts; negative when time was saved."""
        return -self.gain * self.steps

    @property
    def noise(self) -> float:
        """The standard error of the gain, since steps that save much and steps that save nothing alternate at
        random."""
        saved = self.plain - self.seconds
        return math.sqrt(max(0.0, self.squares - saved * saved / self.steps)) / self.plain


class SpeculationController:
    """Switches speculation of one model off while it loses time, and on again when it may pay.

    Speculation is judged after every `WINDOW` steps that verified drafts. If it loses time, and more than the standard
    error, it is disabled for `PAUSE` steps, and then enabled on trial for one window, in which it must gain at least
    `GAIN`; every failed trial doubles the pause. The first pause is short, because a machine that was briefly busy
    with something else also looks like a loss. Between `LOSS` and `GAIN` nothing changes, so that noise does not switch
    speculation to and fro.

    A pause is never longer than `LONGEST_PAUSE`, so drafts that have begun to pay are enabled again after at most that
    many steps and one window. A trial ends early when it has lost the time of `TRIAL_LOSS` steps without drafts.
    Failing trials therefore cost less than 2 % of the time: (8 + 1) / 512, where the step that ends a trial takes twice
    as long as one without drafts.
    """

    WINDOW = 32
    PAUSE = 64
    LONGEST_PAUSE = 512
    TRIAL_LOSS = 8.0
    LOSS = -0.01
    GAIN = 0.02

    def __init__(self) -> None:
        self.total = _StepTotals()
        """All steps with drafts so far."""
        self.enabled = True
        self.reason = "on: too few steps have drafted to judge it yet"
        """Why speculation is on or off, in a sentence for statistics."""
        self._window = _StepTotals()
        self._trial = False
        self._pause = self.PAUSE
        self._left = 0

    @property
    def saved_seconds(self) -> float:
        """Seconds saved so far; negative when they were lost."""
        return self.total.plain - self.total.seconds

    def record(self, drafted: int, accepted: int, plain: float, seconds: float) -> None:
        """Account for a step that verified `drafted` draft tokens and accepted `accepted` of them.

        The step took `seconds`, drafting included, and its tokens would have taken `plain` without drafts
        (`plain_seconds`). Do not report steps that also computed prompts. A step whose times are not positive and
        finite is ignored, because it would spoil the sums.
        """
        if not (0 < plain < math.inf and 0 < seconds < math.inf):
            return
        self.total.add(drafted, accepted, plain, seconds)
        self._window.add(drafted, accepted, plain, seconds)
        if self._window.steps >= self.WINDOW or (self._trial and self._window.lost_steps >= self.TRIAL_LOSS):
            self._judge(self._window)
            self._window = _StepTotals()

    def skip_step(self) -> None:
        """Count a step that was done without drafts because speculation is disabled; the last one of a pause begins a
        trial."""
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
