"""Choose which replica or server serves a request, by what each would take for it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BLOCK_TOKENS: Final = 64  # of a block of a prompt: 256 characters
ANSWER_TOKENS: Final = 128.0  # assumed for an answer until some were observed
CROWDED_BY: Final = 2
# A replica is crowded with more than CROWDED_TIMES the requests of the least busy one, plus CROWDED_BY.
CROWDED_TIMES: Final = 1.5


@dataclass(frozen=True, slots=True)
class Pace:
    """What the steps of an engine, or the answers of a server, take, in seconds."""

    prompt_token: float  # one more token of a prompt
    decode: tuple[tuple[int, float], ...]  # a step, by the number of sequences, ascending; not empty
    first: float = 0.0  # before the first token, whatever the prompt

    def step(self, sequences: int) -> float:
        """Return what a step of `sequences` takes, in seconds, between the numbers that are known."""
        before = self.decode[0]
        for point in self.decode:
            if point[0] >= sequences:
                share = (sequences - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1.0
                return before[1] + max(0.0, share) * (point[1] - before[1])
            before = point
        return before[1] * sequences / before[0]


@dataclass(frozen=True, slots=True)
class Offer:
    """KV cells of the start of a prompt that a replica on another machine probably has."""

    number: int  # of that replica
    held: int  # blocks of the prompt
    seconds: float  # to ship them


@dataclass(frozen=True, slots=True)
class ReplicaCandidate:
    number: int
    requests: int  # in use now
    slots: int  # requests that it serves at a time
    held: int  # blocks of the prompt that it probably holds
    pace: Pace | None = None  # None: not known
    offers: tuple[Offer, ...] = ()  # of more blocks than it holds

    def seconds(self, pace: Pace, blocks: int, answer_tokens: float) -> float:
        """Return how long a request with `blocks` of prompt takes here, with the wait for a slot."""
        beyond = max(0, self.requests + 1 - self.slots)
        queued = beyond / self.slots * answer_tokens * pace.step(self.slots)
        prefill = self.prefill(pace, blocks)[0]
        return pace.first + queued + prefill + answer_tokens * pace.step(min(self.requests + 1, self.slots))

    def prefill(self, pace: Pace, blocks: int) -> tuple[float, Offer | None]:
        """Return how long it takes to have the cells of `blocks` here, and which offer shortens it most, if any."""
        block = BLOCK_TOKENS * pace.prompt_token
        computed: tuple[float, Offer | None] = (blocks - self.held) * block, None
        shipped = [(offer.seconds + (blocks - offer.held) * block, offer) for offer in self.offers]
        return min([computed, *shipped], key=lambda way: way[0])


def choose_replica(
    candidates: Iterable[ReplicaCandidate], blocks: int = 0, answer_tokens: float = ANSWER_TOKENS
) -> int | None:
    """Return the number of the replica that serves a request, or None. Its prompt has `blocks`.

    If the pace of some is known, that is where it ends first. An idle replica of unknown pace comes before that, since
    its answer tells it; a busy one is assumed to be as fast as the fastest. If nothing is known, the longest held
    prefix wins, then the fewest requests, as in SGLang's cache-aware router; crowded replicas come later, those without
    a free slot last.
    """
    replicas = [*candidates]
    paces = [replica.pace for replica in replicas if replica.pace]
    untried = [replica.number for replica in replicas if not replica.pace and not replica.requests]
    if paces and untried:
        return min(untried)
    if paces:
        fastest = min(paces, key=lambda pace: pace.step(1))
        ends = ((replica.seconds(replica.pace or fastest, blocks, answer_tokens), replica) for replica in replicas)
        return min((seconds, replica.number) for seconds, replica in ends)[1]
    bound = CROWDED_BY + CROWDED_TIMES * min((replica.requests for replica in replicas), default=0)

    def rank(replica: ReplicaCandidate) -> tuple[bool, bool, int, int, int]:
        # Each replica computes a prefix once, all at the same time, but a crowd slows down every token. Computing a
        # prefix again is also faster than waiting for a slot.
        return (
            replica.requests >= replica.slots,
            replica.requests > bound,
            -replica.held,
            replica.requests,
            replica.number,
        )

    return min(replicas, key=rank).number if replicas else None
