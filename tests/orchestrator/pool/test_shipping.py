"""When cells of a prompt are shipped between machines: the choice, what is expected of a link, and what it costs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import Message, PrefixFile
from orchestrator.pool.dispatch import LeaseRequest
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.prompts import hash_prefixes
from orchestrator.pool.replica_choice import BLOCK_TOKENS, Offer, Pace, ReplicaCandidate, choose_replica
from orchestrator.pool.shipping import CALL_SECONDS, READ_RATE, Links, NotCarried
from tests.orchestrator.pool.residency_fixture import entry
from tests.orchestrator.pool.test_machines import ALIVE, PACE, PACES, TOPOLOGY

BLOCKS = 20
TOKEN_BYTES = 4096
OFFERS = st.lists(st.builds(Offer, st.integers(0, 3), st.integers(1, BLOCKS), st.floats(0.001, 10)), max_size=3)
CANDIDATES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, BLOCKS), PACES, OFFERS), min_size=1, max_size=4)
SIZES = st.integers(1, 1 << 32)


class NoCarrier:
    async def carry(self, file: PrefixFile, source: str, target: str) -> None:
        raise NotCarried("nothing is carried here")


def links(rate: float = 100e6) -> Links:
    return Links(NoCarrier(), lambda machine: rate if machine else math.inf)


@given(CANDIDATES)
def test_what_takes_less_counts_and_no_other_replica_would_end_earlier(
    drawn: list[tuple[int, int, Pace, list[Offer]]],
) -> None:
    replicas = [
        ReplicaCandidate(number, requests, 4, held, pace, tuple(offer for offer in offers if offer.held > held))
        for number, (requests, held, pace, offers) in enumerate(drawn)
    ]
    ends = []
    for replica in replicas:
        pace = drawn[replica.number][2]
        seconds, offer = replica.prefill(pace, BLOCKS)
        block = BLOCK_TOKENS * pace.prompt_token
        computed = (BLOCKS - replica.held) * block
        ways = [other.seconds + (BLOCKS - other.held) * block for other in replica.offers]
        assert seconds == min([computed, *ways])
        assert (offer is None) == (computed <= min(ways, default=math.inf))
        without = replace(replica, offers=()).seconds(pace, BLOCKS, 50.0)
        assert replica.seconds(pace, BLOCKS, 50.0) <= without
        ends.append(replica.seconds(pace, BLOCKS, 50.0))
    number = choose_replica(replicas, BLOCKS, 50.0)
    assert number is not None
    assert ends[number] == min(ends)


def test_a_free_machine_that_can_get_the_prefix_is_chosen_instead_of_a_wait() -> None:
    busy = ReplicaCandidate(0, 4, 4, BLOCKS, PACE)
    free = ReplicaCandidate(1, 0, 4, 0, PACE)
    assert choose_replica([busy, free], BLOCKS, 20) == 0
    assert choose_replica([busy, replace(free, offers=(Offer(0, BLOCKS, 0.1),))], BLOCKS, 20) == 1


@given(SIZES, st.floats(1e6, 1e10), st.floats(1.0, 1e3))
def test_the_first_estimate_follows_what_was_measured(size: int, rate: float, factor: float) -> None:
    slow, fast = links(rate).seconds("b", "c", size), links(rate * factor).seconds("b", "c", size)
    assert CALL_SECONDS + size / rate <= slow * (1 + 1e-9)
    assert fast <= slow
    assert links(rate).seconds("", "b", size) == slow


@given(SIZES, st.floats(0.03, 100.0))
def test_an_estimate_comes_closer_to_what_transfers_take(size: int, seconds: float) -> None:
    link = links()
    expected = seconds + size / READ_RATE  # with the time in which the target reads it
    distances = []
    for _ in range(60):
        distances.append(abs(link.seconds("b", "c", size) - expected))
        link.learn("b", "c", size, seconds)
    assert sorted(distances, reverse=True) == pytest.approx(distances)
    assert link.seconds("b", "c", size) == pytest.approx(expected)
    assert link.seconds("c", "b", size) == links().seconds("c", "b", size)
    link.forget("c")
    assert link.seconds("b", "c", size) == links().seconds("b", "c", size)


def placed(pace: Pace, rate: float, document: str) -> tuple[ManagedModel, tuple[bytes, ...]]:
    """Return a model on two machines, of which the first has seen a document and has no slot free."""
    own = entry("m", 10)
    assert own.memory is not None
    memory = replace(own.memory, kv_cache=TOKEN_BYTES * own.context * own.slots)
    model = ManagedModel.of(replace(own, nodes=("b", "c"), memory=memory), TOPOLOGY, {"b": TOPOLOGY, "c": TOPOLOGY})
    model.dispatcher.links = links(rate)
    for replica in model.places.replicas:
        replica.state, replica.pace = "ready", pace
        replica.engine = ALIVE  # type: ignore[assignment]
    hashes = hash_prefixes([Message("user", document)])
    for _ in range(2 * model.entry.slots):
        model.places.replicas[0].grant(hashes)
    return model, hashes


async def test_cells_are_promised_to_the_replica_that_gets_the_request() -> None:
    model, hashes = placed(PACE, 1e9, "a long document " * 500)
    place = model.dispatcher.choose(LeaseRequest(prefix_hashes=hashes))
    assert place is model.places.replicas[1]
    model.dispatcher.grant(place, LeaseRequest(prefix_hashes=hashes))
    (shipment,) = place.shipments.values()
    assert shipment.machine == "b"
    assert shipment.seconds == pytest.approx(len(hashes) * BLOCK_TOKENS * PACE.prompt_token)
    model.dispatcher.grant(place, LeaseRequest(prefix_hashes=hashes))  # those that follow wait for the same
    assert [*place.shipments.values()] == [shipment]


@pytest.mark.parametrize(
    ("pace", "rate", "document"),
    [
        (Pace(1e-6, PACE.decode), 1e9, "a long document " * 500),  # computing takes less
        (PACE, 1e6, "a long document " * 500),  # the network is too slow
        (PACE, 1e9, "a short document " * 40),
    ],
)
async def test_nothing_is_promised_that_does_not_pay(pace: Pace, rate: float, document: str) -> None:
    model, hashes = placed(pace, rate, document)
    assert hashes
    model.dispatcher.grant(model.places.replicas[1], LeaseRequest(prefix_hashes=hashes))
    assert not model.places.replicas[1].shipments


async def test_after_a_failure_nothing_is_promised_for_a_while() -> None:
    model, hashes = placed(PACE, 1e9, "a long document " * 500)
    model.dispatcher.pause("b", "c")
    model.dispatcher.grant(model.places.replicas[1], LeaseRequest(prefix_hashes=hashes))
    assert not model.places.replicas[1].shipments
