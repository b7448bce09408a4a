from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.machine import Node, Topology, nodes_for
from orchestrator.pool.replica_choice import ReplicaCandidate, choose_replica

ONE = Topology.flat(8, 1 << 34)
THREE = Topology(tuple(Node(number, ((number,),), 1 << 34) for number in (0, 1, 4)))


def test_instances_have_a_node_each_as_many_as_there_are() -> None:
    assert nodes_for(THREE, 2, None) == (0, 1)
    assert nodes_for(THREE, 9, None) == (0, 1, 4)
    assert nodes_for(ONE, 9, None) == (None,)


def test_one_instance_runs_anywhere_unless_it_is_bound() -> None:
    assert nodes_for(THREE, 1, None) == (None,)
    assert nodes_for(THREE, 1, 4) == (4,)
    assert nodes_for(ONE, 1, 0) == (None,)


def _candidate(number: int, requests: int = 0, held: int = 0) -> ReplicaCandidate:
    return ReplicaCandidate(number, requests, slots=4, held=held)


def test_a_request_goes_where_its_prefix_is_then_to_the_least_loaded() -> None:
    assert choose_replica([_candidate(0, 0), _candidate(1, 2, held=5)]) == 1
    assert choose_replica([_candidate(0, 2), _candidate(1, 1)]) == 1
    assert choose_replica([_candidate(0, 1), _candidate(1, 1)]) == 0
    assert choose_replica([]) is None


def test_a_free_slot_is_better_than_a_prefix_behind_a_queue() -> None:
    assert choose_replica([_candidate(0, 3), _candidate(1, 4, held=50)]) == 0
    assert choose_replica([_candidate(0, 4), _candidate(1, 8, held=50)]) == 1


def test_a_prefix_draws_no_crowd() -> None:
    assert choose_replica([_candidate(0, 0), _candidate(1, 3, held=50)]) == 0
    assert choose_replica([_candidate(0, 4), _candidate(1, 9, held=50)]) == 0
    requests = [0, 0, 0, 0]
    for number in range(100):  # steps of one fan-out, whose prefix the first replica held before
        loads = (ReplicaCandidate(at, one, 64, 9 if at == 0 or one else 0) for at, one in enumerate(requests))
        chosen = choose_replica(loads)
        assert chosen is not None, number
        requests[chosen] += 1
    assert max(requests) <= 2 + 1.5 * min(requests) + 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5))
def test_nobody_queues_while_another_has_a_free_slot(loads: list[tuple[int, int]]) -> None:
    chosen = choose_replica(_candidate(number, requests, held) for number, (requests, held) in enumerate(loads))
    assert chosen is not None
    assert loads[chosen][0] < 4 or min(requests for requests, _ in loads) >= 4


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=5))
def test_of_those_that_are_not_crowded_the_one_that_holds_most_is_chosen(
    loads: list[tuple[int, int]],
) -> None:
    chosen = choose_replica(_candidate(number, requests, held) for number, (requests, held) in enumerate(loads))
    assert chosen is not None
    bound = 2 + 1.5 * min(requests for requests, _ in loads)
    most = max(held for requests, held in loads if requests <= bound)
    assert loads[chosen] == min((requests, held) for requests, held in loads if held == most and requests <= bound)
