"""Requests for a model whose engines keep failing wait until it is tried again."""

import asyncio
from dataclasses import replace

import pytest

from orchestrator.engine.errors import EngineError
from orchestrator.pool.dispatch import LeaseRequest
from orchestrator.pool.errors import ModelBroken, PoolClosed, UnknownModel
from orchestrator.pool.managed_model import FAILURE_WINDOW, MAX_FAILED_LOADS, MAX_FAILURES
from orchestrator.pool.policy import Rules
from orchestrator.task.stages import PATIENCE_SECONDS, ModelWait, pausing, wait_noted, waiting_for_models
from tests.orchestrator.pool.residency_fixture import Request, ResidencyFixture, entry

WAIT = ModelWait("a", "it failed", 60.0)


def broken(fixture: ResidencyFixture) -> list[Request]:
    """Return requests for a model after its engine could not be started MAX_FAILURES times."""
    requests = [fixture.ask("a", interactive=True) for _ in range(2)]
    for _ in range(MAX_FAILURES):
        (load,) = fixture.loading
        fixture.fail_load(load)
    assert not fixture.loading
    return requests


def test_they_get_the_engine_of_the_next_try() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        requests = [*broken(fixture), fixture.ask("a", interactive=False)]
        status = fixture.managed_models["a"].status(fixture.now)
        assert (status.state, status.waiting) == ("broken", 3)
        assert f"next try in {FAILURE_WINDOW:.0f} s" in (status.reason or "")
        fixture.run(FAILURE_WINDOW)
        (load,) = fixture.loading
        load.set_result(None)
        fixture.run(0)
        assert fixture.served == requests


def test_they_are_refused_after_too_many_failed_loads_and_the_next_request_tries_again() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        requests = broken(fixture)
        for _ in range(MAX_FAILED_LOADS - MAX_FAILURES):
            while not fixture.loading:
                fixture.run(FAILURE_WINDOW / 10)
            fixture.fail_load(fixture.loading[0])
        assert all(isinstance(one.error, ModelBroken) and one.error.lasting for one in requests)
        refused = fixture.ask("a", interactive=True)
        assert isinstance(refused.error, ModelBroken)
        fixture.run(FAILURE_WINDOW)
        last = fixture.ask("a", interactive=True)
        fixture.loading[0].set_result(None)
        fixture.run(0)
        assert last.replica is not None


def test_a_file_that_cannot_be_loaded_is_not_waited_for() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        requests = [fixture.ask("a", interactive=True) for _ in range(2)]
        fixture.fail_load(fixture.loading[0], "missing")
        assert all(isinstance(one.error, EngineError) for one in requests)


def test_a_corrected_entry_is_tried_at_once_and_a_removed_one_is_reported() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        requests = broken(fixture)
        entries = {"a": entry("a", 60)}
        entries["a"] = replace(entries["a"], options=replace(entries["a"].options, slots=4))
        fixture.do(lambda: fixture.residency.adopt(entries, ["a"]))
        fixture.loading[0].set_result(None)
        fixture.run(0)
        assert fixture.served == requests
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        requests = broken(fixture)
        fixture.do(lambda: fixture.residency.adopt({}, ["a"]))
        assert all(isinstance(one.error, UnknownModel) for one in requests)
        fixture.requests.clear()


def test_they_end_when_they_are_cancelled_and_when_the_pool_closes() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        cancelled, closed = broken(fixture)
        assert cancelled.task is not None
        cancelled.task.cancel()
        fixture.run(0)
        assert fixture.managed_models["a"].resting == 1
        fixture.requests.remove(cancelled)
        fixture.closing = True
        fixture.begin(fixture.residency.close())
        fixture.run(0)
        assert isinstance(closed.error, PoolClosed)


def test_a_caller_that_does_not_say_that_it_is_patient_waits_for_half_a_minute_at_most() -> None:
    with ResidencyFixture([entry("a", 60)], 100, Rules()) as fixture:
        broken(fixture)

        async def ask() -> None:
            with pytest.raises(ModelBroken) as caught:
                await fixture.residency.acquire(fixture.managed_models["a"], LeaseRequest())
            assert (caught.value.lasting, caught.value.retry_seconds > PATIENCE_SECONDS) == (False, True)
            await asyncio.sleep(FAILURE_WINDOW - PATIENCE_SECONDS + 1)
            await fixture.residency.acquire(fixture.managed_models["a"], LeaseRequest())

        task = fixture.begin(ask())
        fixture.run(FAILURE_WINDOW)
        fixture.loading[0].set_result(None)
        fixture.run(0)
        assert task.done()
        task.result()


async def test_a_limit_stands_still_while_any_of_several_waits_lasts() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60) as limit:
        with pausing(limit):
            before = limit.when()
            with wait_noted(WAIT), wait_noted(WAIT):
                await asyncio.sleep(0)
                assert limit.when() is None
            after = limit.when()
        assert before is not None
        assert after is not None
        assert before <= after <= loop.time() + 60
        with wait_noted(WAIT):
            assert limit.when() == after, "it stands still inside of the block only"


async def test_everybody_around_is_told_of_a_wait() -> None:
    outer: list[ModelWait | None] = []
    inner: list[ModelWait | None] = []
    with waiting_for_models(outer.append):
        with waiting_for_models(inner.append), wait_noted(WAIT):
            pass
        with pytest.raises(ZeroDivisionError), wait_noted(WAIT):
            raise ZeroDivisionError
    assert (outer, inner) == ([WAIT, None] * 2, [WAIT, None])
