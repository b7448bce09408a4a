"""Decide how many draft tokens are worth verifying, and whether drafting pays at all. Pure: time comes from outside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.engine.step_cost.model import FILLERS, StepCostModel

BATCH_INVARIANT_QUERIES = 63
"""The most query tokens of a step whose results do not depend on what else is in it."""

Source = Literal["lookup", "draft"]
"""Where draft tokens come from: prompt lookup, or a draft model."""

START: dict[Source, float] = {"lookup": 0.5, "draft": 0.7}
"""The acceptance that is assumed until something is known: high enough to be tried."""

SEQUENCE_MEMORY: dict[Source, int] = {"lookup": 16, "draft": 128}
MODEL_MEMORY = 512
"""Tokens over which observations fade. A sequence may turn from copying to new text at any time; how well one model
knows what another says changes less, and least over all sequences."""

PRIOR_WEIGHT: dict[Source, float] = {"lookup": 4.0, "draft": 16.0}
"""How many tokens of a sequence it takes to outweigh what is known of the model. Where drafts barely pay, a few that
were unlucky would end them for the whole text."""

UNEVEN = 0.1
"""Several sequences with drafts end one after the other, and the last of them in narrow steps, which make fewer tokens
a second. Unless drafts promise so much more than none, that takes what they bring: of four answers of 56 tokens each,
all that a promise of 0.07 to 0.1 was worth."""

UNSURE = 0.05
"""What drafts promise a single sequence is known no better: acceptance from some dozens of tokens, and steps by a cost
model that is a few per cent off. Where a promise of 0.02 was enough, a draft model made free text no faster (0.95, in
five noisy rounds)."""

_LEAST_VALUE = 0.02
"""A draft token less likely to be accepted than this is never worth its time, if it takes any."""

_TIE = 2
"""Values that are equal to this many decimals are ties; acceptance is not known any better."""


class Acceptance:
    """How likely a draft token is accepted, given that those before it were.

    The estimate is the mean of a Beta distribution. What was observed fades over `memory` tokens, so the estimate
    returns to the prior when nothing is drafted any more, and drafts that did not pay are tried again after a while.
    The prior of a sequence is what is known of the model as a whole, that of a model a number. Of a model a standard
    error more is believed than what was seen: where the first drafts were unlucky, no others would be made for long.
    """

    __slots__ = ("_accepted", "_keep", "_prior", "_tried", "_weight")

    def __init__(self, prior: "Acceptance | float", memory: int, weight: float = 4.0) -> None:
        """`weight` is how many observed tokens the prior is worth."""
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
        """Take account of a step that drafted so many tokens, or of one that did not although it could have (0, 0).

        What comes after the first refused token was never tried.
        """
        tried = accepted + (accepted < drafted)
        keep = self._keep ** max(tried, 1)
        self._tried = self._tried * keep + tried
        self._accepted = self._accepted * keep + accepted
        if isinstance(self._prior, Acceptance):
            self._prior.observe(drafted, accepted)


def model_acceptance() -> dict[Source, Acceptance]:
    """Return what is known of a model at the start."""
    return {source: Acceptance(start, MODEL_MEMORY) for source, start in START.items()}


def sequence_acceptance(model: dict[Source, Acceptance]) -> dict[Source, Acceptance]:
    """Return what is known of a new sequence of this model; what it observes, the model learns too."""
    return {source: Acceptance(prior, SEQUENCE_MEMORY[source], PRIOR_WEIGHT[source]) for source, prior in model.items()}


@dataclass(frozen=True, slots=True)
class Drafting:
    """A sequence that decodes in this step. `most` is the least of the proposals there are (or that a draft model
    could make), the registry's k, and what the answer may still take. `cost` is the time to draft a token in seconds
    (0 for prompt lookup), `depth` the cells the sequence holds. `toll` is what each token of the rest of the answer
    has to bring in besides, in seconds, where the draft model has to read a text before it can go on with it."""

    acceptance: float
    most: int
    slack: float
    depth: int = 0
    cost: float = 0.0
    toll: float = 0.0

    def seconds(self, order: int) -> float:
        """Return what the draft token number `order`, from 1, takes to make, and pays: the toll of the token before
        it."""
        return self.cost + self.toll * self.acceptance ** (order - 1)


def draft_lengths(
    costs: StepCostModel, sequences: Sequence[Drafting], *, room: int, batch_invariant: bool
) -> list[int]:
    """Return how many draft tokens each sequence verifies in this step besides its own token.

    Maximises expected tokens per second. The j-th draft token of a sequence adds acceptance^j tokens (Leviathan et
    al. 2023, equation 1), and costs the step's growth, its attention and its drafting. The most valuable come first,
    of equals those of the sequence with the least slack; of all the numbers of tokens to take, the best is taken, for
    the cost model may have a step that only pays when it is used to the full. Nothing is drafted unless it promises
    more than is unsure, or than uneven ends take. `room` is how many tokens the batch takes besides one for each
    sequence; `batch_invariant` bounds the step.
    """
    lengths = [0] * len(sequences)
    width = len(sequences)
    room = min(room, BATCH_INVARIANT_QUERIES - width) if batch_invariant else room
    if room <= 0 or not any(sequence.most for sequence in sequences):
        return lengths
    cells = sum(sequence.depth for sequence in sequences)
    plain = width / costs.seconds(width, width, cells)
    best, taken = plain * _enough(width), 0
    tokens, added = float(width), 0.0
    offers = _offers(costs, sequences, plain)[:room]
    for count, offer in enumerate(offers, 1):
        tokens += offer.value
        added += offer.seconds
        rate = tokens / (costs.seconds(width + count, width, cells) + added)
        if rate > best:
            best, taken = rate, count
    for offer in offers[:taken]:
        lengths[offer.sequence] += 1
    return lengths


def common_draft_length(
    costs: StepCostModel, sequences: Sequence[Drafting], *, room: int, batch_invariant: bool
) -> int:
    """Return how many draft tokens every sequence verifies, where all must have equally many tokens (a split cache).

    Maximises expected tokens per second. A sequence with fewer proposals gets tokens that nobody expects to be right,
    and all of them do where a wider step takes less time.
    """
    width = len(sequences)
    room = min(room, BATCH_INVARIANT_QUERIES - width) if batch_invariant else room
    cells = sum(sequence.depth for sequence in sequences)
    best, chosen = width / costs.seconds(width, width, cells) * _enough(width), 0
    tokens, added = float(width), 0.0
    most = max((sequence.most for sequence in sequences), default=0)
    for length in range(1, min(most + FILLERS if most else 0, room // max(width, 1)) + 1):
        offering = [sequence for sequence in sequences if sequence.most >= length]
        tokens += sum(sequence.acceptance**length for sequence in offering)
        added += sum(sequence.seconds(length) for sequence in offering)
        seconds = costs.seconds(width * (length + 1), width, cells * (length + 1)) + added
        if tokens / seconds > best:
            best, chosen = tokens / seconds, length
    return chosen


def _enough(width: int) -> float:
    """Return how many times the plain rate drafts have to promise where so many sequences decode."""
    return 1 + (UNSURE if width == 1 else UNEVEN)


class _Offer(NamedTuple):
    """The draft token number `order` of a sequence; the best compare as the least. `value` is in expected tokens,
    `seconds` are besides the growth of the step."""

    rank: float
    slack: float
    sequence: int
    order: int
    value: float
    seconds: float


def _offers(costs: StepCostModel, sequences: Sequence[Drafting], rate: float) -> list[_Offer]:
    """Return the draft tokens that might be worth it when time is worth `rate` tokens a second, the best first."""
    offers = []
    growth = costs.least_growth
    for index, sequence in enumerate(sequences):
        attention = costs.per_cell * sequence.depth
        value, net = 1.0, math.inf
        for order in range(sequence.most):
            value *= sequence.acceptance
            seconds = sequence.seconds(order + 1) + attention
            net = min(net, value - rate * (seconds + growth))  # none before the one that it follows
            if net <= 0 or (value < _LEAST_VALUE and growth > 0):
                break
            offers.append(_Offer(-round(net, _TIE), sequence.slack, index, order, value, seconds))
    return sorted(offers)


def plain_seconds(costs: StepCostModel, depths: Sequence[int], tokens: int) -> float:
    """Return how long sequences of these depths, at least one, would take for `tokens` tokens without drafts."""
    width = len(depths)
    return tokens * costs.seconds(width, width, sum(depths)) / width


@dataclass(slots=True)
class _Period:
    """What steps that drafted came to: `plain` is the time their tokens would have taken without drafts, and `squares`
    the sum of the squares of what each step saved."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    plain: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

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
        """The part of the plain time that was saved; below 0 when drafting made it longer."""
        return 1 - self.seconds / self.plain

    @property
    def lost_steps(self) -> float:
        """The time that was lost, in steps without drafts; below 0 when time was saved."""
        return -self.gain * self.steps

    @property
    def noise(self) -> float:
        """The standard error of the gain: steps that save much and steps that save nothing follow at random."""
        saved = self.plain - self.seconds
        return math.sqrt(max(0.0, self.squares - saved * saved / self.steps)) / self.plain


class Ledger:
    """What speculation has brought one model, and whether it goes on.

    It is judged every `WINDOW` steps that drafted. When it loses time, and more than its standard error, it is off for
    `PAUSE` steps, and then on trial for a window in which it must gain; every trial that fails doubles the pause. The
    first is short, for a machine that was busy with something else for a moment looks like a loss too. Between `LOSS`
    and `GAIN` it stays as it is, so that noise does not switch it to and fro.

    The pause is never longer than `LONGEST_PAUSE`, so whatever was seen before, drafts that pay are on again that many
    steps and a window later. A trial ends early when it has lost what `TRIAL_LOSS` steps without drafts take, so trials
    that fail cost no more than 2 % of the time: (8 + 1) / 512, where the step that ends a trial takes twice as long.
    """

    WINDOW = 32
    PAUSE = 64
    LONGEST_PAUSE = 512
    TRIAL_LOSS = 8.0
    LOSS = -0.01
    GAIN = 0.02

    def __init__(self) -> None:
        self.total = _Period()
        self.on = True
        self.reason = "on: too few steps have drafted to judge it yet"
        self._window = _Period()
        self._trial = False
        self._pause = self.PAUSE
        self._left = 0

    @property
    def saved(self) -> float:
        """Seconds saved so far; below 0 when they were lost."""
        return self.total.plain - self.total.seconds

    def record(self, drafted: int, accepted: int, plain: float, seconds: float) -> None:
        """Take account of a step that drafted. It took `seconds`, drafting included, and without drafts its tokens
        would have taken `plain` (`plain_seconds`). Steps that also compute prompts do not count, nor do those whose
        times are not positive and finite: they would spoil the sums."""
        if not (0 < plain < math.inf and 0 < seconds < math.inf):
            return
        self.total.add(drafted, accepted, plain, seconds)
        self._window.add(drafted, accepted, plain, seconds)
        if self._window.steps >= self.WINDOW or (self._trial and self._window.lost_steps >= self.TRIAL_LOSS):
            self._judge(self._window)
            self._window = _Period()

    def rest(self) -> None:
        """Take account of a step while it is off."""
        self._left -= 1
        if not self.on and self._left <= 0:
            self.on = self._trial = True
            self.reason = f"on trial for {self.WINDOW} steps"

    def _judge(self, window: _Period) -> None:
        self.on = window.gain >= (self.GAIN if self._trial else self.LOSS - window.noise)
        evidence = (
            f"in the last {window.steps} steps that drafted, {window.accepted} of {window.drafted} draft tokens were "
            f"accepted, and decoding took {abs(window.gain):.1%} {'less' if window.gain >= 0 else 'more'} time than "
            "without"
        )
        if self.on:
            self._trial, self._pause = False, self.PAUSE
            self.reason = f"on: {evidence}"
        else:
            self._left = self._pause
            self.reason = f"off for {self._left} steps: {evidence}"
            self._pause = min(2 * self._pause, self.LONGEST_PAUSE)
