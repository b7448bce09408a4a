import asyncio

import pytest

from orchestrator.engine.contract import Message
from orchestrator.pool.dispatch import LeaseRequest, Waiter
from orchestrator.pool.errors import ModelBroken, ModelUnavailable
from orchestrator.pool.machine import Node, Topology
from orchestrator.pool.managed_model import FAILURE_WINDOW, MAX_FAILURES, ManagedModel
from orchestrator.pool.prompts import PREFIX_BLOCK, hash_prefixes
from tests.orchestrator.pool.conftest import LoadedRegistry

ONE = Topology.flat(2, 1 << 34)
TWO = Topology((Node(0, ((0,),), 1 << 34), Node(1, ((1,),), 1 << 34)))


def _failed(registry_of: LoadedRegistry, *times: float) -> ManagedModel:
    managed = ManagedModel.of(registry_of(a="warm").models["a"], ONE)
    for time in times:
        managed.failures.note(time, f"died at {time}")
    return managed


def test_fast_failures_make_a_model_broken_for_a_while(registry_of: LoadedRegistry) -> None:
    managed = _failed(registry_of, *range(MAX_FAILURES))
    with pytest.raises(ModelBroken, match=rf"failed {MAX_FAILURES} times .* the last time: died at {MAX_FAILURES - 1}"):
        managed.check(10.0, LeaseRequest())
    assert managed.status(10.0).state == "broken"
    managed.check(FAILURE_WINDOW, LeaseRequest())
    assert managed.status(FAILURE_WINDOW).state == "unloaded"
    managed.failures.note(FAILURE_WINDOW, "again")
    assert managed.failures.broken_for(FAILURE_WINDOW) == 1.0  # the oldest of the last three was one second in


def test_slow_failures_do_not(registry_of: LoadedRegistry) -> None:
    managed = _failed(registry_of, 0.0, FAILURE_WINDOW, 2 * FAILURE_WINDOW)
    managed.check(2 * FAILURE_WINDOW, LeaseRequest())
    assert managed.status(2 * FAILURE_WINDOW).reason == f"died at {2 * FAILURE_WINDOW}"


def _with_option(registry_of: LoadedRegistry, option: str, topology: Topology) -> ManagedModel:
    return ManagedModel.of(registry_of(options=option, a="warm").models["a"], topology)


def test_a_model_is_placed_as_the_machine_allows(registry_of: LoadedRegistry) -> None:
    assert [one.node for one in _with_option(registry_of, "instances: 3", TWO).places.replicas] == [0, 1]
    assert [one.node for one in _with_option(registry_of, "instances: 3", ONE).places.replicas] == [None]
    assert [one.node for one in _with_option(registry_of, "numa: 1", TWO).places.replicas] == [1]


def test_a_model_bound_to_a_node_that_is_not_there_is_refused(registry_of: LoadedRegistry) -> None:
    managed = _with_option(registry_of, "numa: 7", TWO)
    with pytest.raises(ModelUnavailable, match="model a is bound to NUMA node 7; accepted on this machine: 0, 1"):
        managed.check(0.0, LeaseRequest())
    assert managed.status(0.0).state == "unavailable"


async def test_what_the_policy_sees_of_those_who_wait(registry_of: LoadedRegistry) -> None:
    managed = ManagedModel.of(registry_of(a="warm").models["a"], ONE)
    assert managed.view(5, lambda machine: True).demand is None
    future = asyncio.get_running_loop().create_future
    managed.dispatcher.waiting[Waiter(LeaseRequest(interactive=False, due=3.0), 1.0, future())] = None
    managed.dispatcher.waiting[Waiter(LeaseRequest(interactive=True, due=9.0), 2.0, future())] = None
    view = managed.view(5, lambda machine: True)
    assert view.demand is not None
    assert (view.demand.since, view.demand.interactive_since, view.demand.due) == (1.0, 2.0, 3.0)
    assert (view.slots, view.instances[0].bytes, view.instances[0].state) == (4, 5, "absent")
    assert (managed.status(0.0).state, managed.status(0.0).waiting) == ("waiting", 2)


async def test_a_refusal_reaches_all_who_wait_and_still_want_to_know(registry_of: LoadedRegistry) -> None:
    managed = ManagedModel.of(registry_of(a="warm").models["a"], ONE)
    waiters = [Waiter(LeaseRequest(), 0.0, asyncio.get_running_loop().create_future()) for _ in range(3)]
    managed.dispatcher.waiting.update(dict.fromkeys(waiters))
    waiters[0].granted.cancel()
    managed.dispatcher.refuse(ZeroDivisionError("no"))
    assert not managed.dispatcher.waiting
    for waiter in waiters[1:]:
        with pytest.raises(ZeroDivisionError):
            await waiter.granted


def test_an_instance_forgets_its_prompts_with_its_process(registry_of: LoadedRegistry) -> None:
    replica = _with_option(registry_of, "instances: 2", TWO).places.replicas[0]
    hashes = hash_prefixes([Message("user", "a" * PREFIX_BLOCK * 2)])
    replica.grant(hashes)
    assert replica.prefixes.match(hashes) == 2
    replica.vacate()
    assert replica.prefixes.match(hashes) == 0


def test_a_pinned_engine_that_leaves_makes_room_for_what_comes_after_it(registry_of: LoadedRegistry) -> None:
    managed = ManagedModel.of(registry_of(a="hot").models["a"], ONE)
    managed.places.replicas[0].state = "ready"
    assert managed.view(5, lambda machine: True).instances[0].pinned
    managed.retire(managed.entry)
    view = managed.view(5, lambda machine: True).instances[0]
    assert (view.leaving, view.pinned) == (True, False)
