import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pool.decoding import PATIENCE_SECONDS, TURN_SECONDS, DecodingEngine, share_cores
from orchestrator.pool.machine import Node, Topology


def _flat(cores: int) -> Topology:
    return Topology.flat(cores, 1 << 30)


def _two_nodes(first: int, second: int) -> Topology:
    cpus = itertools.count()
    cores = [tuple((next(cpus),) for _ in range(size)) for size in (first, second)]
    return Topology((Node(0, cores[0], 1 << 30), Node(1, cores[1], 1 << 30)))


def _share(topology: Topology, *decoders: DecodingEngine, now: float = 0.0) -> dict[str, int]:
    return {replica_id[0]: threads for replica_id, threads in share_cores(topology, decoders, now).items()}


def _engines(**ceilings: int | None) -> tuple[DecodingEngine, ...]:
    return tuple(DecodingEngine(replica_id=(name, 0), ceiling=ceiling) for name, ceiling in ceilings.items())


def test_one_alone_has_all_cores_up_to_its_ceiling() -> None:
    assert _share(_flat(8), *_engines(a=None)) == {"a": 8}
    assert _share(_flat(8), *_engines(a=3)) == {"a": 3}
    assert _share(_flat(8)) == {}


def test_what_is_lent_is_left_to_jobs() -> None:
    assert share_cores(_flat(8), _engines(a=None), lent=1) == {("a", 0): 7}
    assert share_cores(_flat(8), _engines(a=None, b=None), lent=1) == {("a", 0): 4, ("b", 0): 3}
    assert share_cores(_flat(8), _engines(a=3), lent=1) == {("a", 0): 3}


def test_shares_are_equal_and_the_rest_goes_to_the_most_urgent() -> None:
    assert _share(_flat(8), *_engines(a=None, b=None)) == {"a": 4, "b": 4}
    hurried = DecodingEngine(replica_id=("c", 0), due=-1.0)
    assert _share(_flat(8), *_engines(a=None, b=None), hurried) == {"a": 3, "b": 2, "c": 3}


def test_what_a_ceiling_leaves_goes_to_the_others() -> None:
    assert _share(_flat(9), *_engines(a=1, b=None, c=3)) == {"a": 1, "b": 5, "c": 3}


def test_an_engine_on_a_node_has_that_nodes_cores_at_most() -> None:
    bound = DecodingEngine(replica_id=("a", 0), node=0)
    assert _share(_two_nodes(4, 4), bound) == {"a": 4}
    assert _share(_two_nodes(4, 4), bound, DecodingEngine(replica_id=("b", 0), node=1)) == {"a": 4, "b": 4}
    assert _share(_two_nodes(4, 4), bound, DecodingEngine(replica_id=("b", 0), node=0)) == {"a": 2, "b": 2}
    assert _share(_two_nodes(2, 6), bound, DecodingEngine(replica_id=("free", 0))) == {"a": 2, "free": 6}


def test_with_more_engines_than_cores_the_most_urgent_run_and_the_others_wait() -> None:
    dues = {"a": 3.0, "b": 1.0, "c": 2.0}
    decoders = [DecodingEngine(replica_id=(name, 0), due=due) for name, due in dues.items()]
    assert _share(_flat(2), *decoders) == {"a": 0, "b": 1, "c": 1}


def test_engines_on_a_full_node_wait_though_another_node_is_free() -> None:
    decoders = [DecodingEngine(replica_id=(name, 0), node=0, due=due) for due, name in enumerate("abc")]
    assert _share(_two_nodes(2, 8), *decoders) == {"a": 1, "b": 1, "c": 0}


def test_a_turn_that_has_begun_is_kept_and_who_has_waited_long_comes_before_what_is_due() -> None:
    running = DecodingEngine(replica_id=("running", 0), due=50.0, running=True, since=10.0)
    hurried = DecodingEngine(replica_id=("hurried", 0), due=1.0, since=10.1)
    patient = DecodingEngine(replica_id=("patient", 0), due=99.0, since=8.2)
    one = _flat(1)

    def turn(now: float, *decoders: DecodingEngine) -> str:
        return next(name for name, threads in _share(one, *decoders, now=now).items() if threads)

    assert turn(10 + TURN_SECONDS / 2, running, hurried) == "running"
    assert turn(10 + TURN_SECONDS, running, hurried) == "hurried"
    assert turn(8.2 + PATIENCE_SECONDS / 2, hurried, patient) == "hurried"
    assert turn(8.2 + PATIENCE_SECONDS, hurried, patient) == "patient"


TOPOLOGIES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(
    lambda sizes: Topology(
        tuple(Node(number, tuple((100 * number + cpu,) for cpu in range(size)), 1) for number, size in enumerate(sizes))
    )
)


@given(TOPOLOGIES, st.data())
def test_cores_are_used_up_and_never_overused(topology: Topology, data: st.DataObject) -> None:
    nodes = st.none() | st.sampled_from([node.id for node in topology.nodes])
    decoders = [
        DecodingEngine(
            replica_id=("m", number),
            ceiling=data.draw(st.none() | st.integers(1, 9)),
            node=data.draw(nodes),
            due=data.draw(st.floats(0, 100)),
            running=data.draw(st.booleans()),
            since=data.draw(st.floats(0, 100)),
        )
        for number in range(data.draw(st.integers(1, 12)))
    ]
    shares = share_cores(topology, decoders, 100.0)
    assert shares.keys() == {decoder.replica_id for decoder in decoders}
    assert sum(shares.values()) <= topology.cores
    assert all(0 <= shares[one.replica_id] <= (one.ceiling or topology.cores) for one in decoders)
    free = {node.id: len(node.cores) for node in topology.nodes}
    for one in decoders:
        if one.node is not None:
            free[one.node] -= shares[one.replica_id]
    assert min(free.values()) >= 0
    idle = topology.cores - sum(shares.values())
    for one in decoders:
        at_most = one.ceiling is not None and shares[one.replica_id] == one.ceiling
        assert at_most or not idle or (one.node is not None and not free[one.node])
    for one, other in itertools.permutations(decoders, 2):
        if shares[one.replica_id] > shares[other.replica_id] + 1:  # then the other could not have more
            at_most = other.ceiling is not None and shares[other.replica_id] == other.ceiling
            assert at_most or (other.node is not None and not free[other.node])


@settings(max_examples=20)
@given(cores=st.integers(1, 4), engines=st.integers(1, 9), data=st.data())
def test_everyone_has_a_turn_before_long_whatever_is_due(cores: int, engines: int, data: st.DataObject) -> None:
    topology = _flat(cores)
    dues = [data.draw(st.floats(0, 1000)) for _ in range(engines)]
    since, running, waited = [0.0] * engines, [False] * engines, [0.0] * engines
    now = 0.0
    for _ in range(200):
        decoders = [
            DecodingEngine(replica_id=("m", n), due=dues[n], running=running[n], since=since[n]) for n in range(engines)
        ]
        shares = share_cores(topology, decoders, now)
        assert sum(shares.values()) == cores
        for n in range(engines):
            runs = shares["m", n] > 0
            if runs != running[n]:
                running[n], since[n] = runs, now
            waited[n] = max(waited[n], 0.0 if runs else now - since[n])
        now += data.draw(st.sampled_from([TURN_SECONDS, TURN_SECONDS / 4]))
    assert max(waited) <= PATIENCE_SECONDS + (engines // cores + 2) * 2 * TURN_SECONDS
