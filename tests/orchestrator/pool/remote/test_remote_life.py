import asyncio
import socket
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, StopGenerating
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineStopped
from orchestrator.pool.remote.breaker import GIVE_UP, THRESHOLD, Breaker
from orchestrator.pool.remote.errors import RemoteFailed, RemoteRefused, RemoteResting
from orchestrator.task.stages import ModelWait, waiting_for_models
from tests.orchestrator.pool.remote.conftest import Opened
from tests.orchestrator.pool.remote.remote_asking import HELLO, failing
from tests.orchestrator.pool.remote.server_answers import USAGE, does, error, ok, piece, stream
from tests.orchestrator.pool.remote.server_play import Remote


async def test_a_silent_server_is_given_up(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["stall"]), does(["send", piece("some")], ["stall"]))
    async with opened(timeout_seconds=0.2) as model:
        for _ in range(2):
            assert "was silent for 0.2 s" in str(await failing(model, kind=RemoteFailed))
    assert [request["ended"] for request in remote.wait_seen(_two_ended)] == ["closed by the client"] * 2


async def test_a_deadline_ends_the_answer_and_the_connection(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["send", piece("so") + piece(" far")], ["stall"]))
    async with opened() as model:
        done = await model.generate(Generation(messages=HELLO.messages, deadline_seconds=2))
    assert (done.text, done.finish) == ("so far", "deadline")
    assert (done.usage.output_tokens, done.usage.estimated_tokens > 2) == (2, True)
    assert remote.wait_seen(_all_ended)[0]["ended"] == "closed by the client"


async def test_a_deadline_counts_while_waiting_for_a_slot_or_a_new_try(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["stall"]))
    async with opened(slots=1) as model:
        first = asyncio.create_task(model.generate(HELLO))
        await asyncio.sleep(0)
        done = await model.generate(Generation(messages=HELLO.messages, deadline_seconds=0.05))
        assert (done.text, done.finish, done.usage.output_tokens) == ("", "deadline", 0)
        assert done.usage.queued_seconds >= 0.05
        assert (model.requests, model.active) == (1, 1)
        first.cancel()
    remote.plays(error(503, headers={"Retry-After": "29"}))
    async with opened() as model:
        assert isinstance(await failing(model, Generation(messages=HELLO.messages, deadline_seconds=25)), RemoteFailed)


async def test_cancelling_closes_the_connection_and_leaves_the_others_alone(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["send", piece("a")], ["stall"]), does(["send", piece("b")], ["gate"], ["send", stream("c")]))
    async with opened() as model:
        begun = asyncio.Event()
        first = asyncio.create_task(model.generate(HELLO, lambda _: begun.set()))
        await begun.wait()
        second = asyncio.create_task(model.generate(HELLO))
        await asyncio.to_thread(remote.wait_seen, lambda seen: len(seen) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.to_thread(remote.wait_seen, lambda seen: seen[0]["ended"] == "closed by the client")
        remote.open()
        assert (await second).text == "bc"
        assert (model.requests, model.active) == (0, 0)


async def test_what_the_callback_raises_is_the_callers(remote: Remote, opened: Opened) -> None:
    remote.plays(*[does(["send", piece("a")], ["stall"])] * 2)

    def fail(_: str) -> None:
        raise TimeoutError("the caller's own")

    async with opened() as model:
        with pytest.raises(TimeoutError, match="the caller's own"):
            await model.generate(Generation(messages=HELLO.messages, deadline_seconds=60), fail)

        def stop(_: str) -> None:
            raise StopGenerating

        done = await model.generate(HELLO, stop)
        assert (done.text, done.finish) == ("a", "cancelled")
    assert [request["ended"] for request in remote.wait_seen(_two_ended)] == ["closed by the client"] * 2


async def test_no_more_than_the_slots_are_under_way_and_the_most_urgent_goes_first(
    remote: Remote, opened: Opened
) -> None:
    held = does(["send", piece("a")], ["stall"])  # to the end: two that got free at once would race to the server
    remote.plays(held, does(["gate"], ["send", stream("x")]), *[ok("x")] * 3)
    async with opened(slots=2) as model:
        slacks = {"first": 0.0, "second": 0.0, "patient": 90.0, "urgent": -5.0, "early": 10.0}
        asked = [Generation(messages=(Message("user", name),), slack=slack) for name, slack in slacks.items()]
        tasks = []
        for request in asked:
            tasks.append(asyncio.create_task(model.generate(request)))
            await asyncio.sleep(0)
        await asyncio.to_thread(remote.wait_seen, lambda seen: len(seen) == 2)
        assert (model.requests, model.active) == (5, 2)
        remote.open()
        await asyncio.gather(*tasks[2:])
        assert (model.requests, model.active) == (1, 1)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks)
    order = [request["body"]["messages"][0]["content"] for request in remote.seen()]
    assert set(order[:2]) == {"first", "second"}
    assert order[2:] == ["urgent", "early", "patient"]


async def test_a_connection_is_used_again(remote: Remote, opened: Opened) -> None:
    remote.plays(ok("a"), ok("b"), error(400), ok("c"))
    async with opened() as model:
        await model.generate(HELLO)
        await model.generate(HELLO)
        await failing(model)
        await model.generate(HELLO)
    assert len({request["connection"] for request in remote.seen()}) == 1


async def test_a_server_that_keeps_failing_is_left_alone(remote: Remote, opened: Opened) -> None:
    remote.plays(*[error(500, "down")] * (THRESHOLD + 1))
    async with opened(breaker=Breaker(pause=3600.0)) as model:
        for _ in range(2):
            await failing(model, kind=RemoteFailed)
        assert len(remote.seen()) == THRESHOLD
        resting = await failing(model, kind=RemoteResting)
        assert "is left out after failures; next try in 3600 s" in str(resting)
        assert "HTTP 500: down" in str(resting)
        assert 0 < model.open_seconds(asyncio.get_running_loop().time()) <= 3600.0
        assert len(remote.seen()) == THRESHOLD


async def test_a_server_that_was_left_alone_is_probed_by_one_request(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["gate"], ["send", stream("up")]), ok("again"))
    async with opened(breaker=Breaker(state="open")) as model:
        probe = asyncio.create_task(model.generate(HELLO))
        await asyncio.to_thread(remote.wait_seen, lambda seen: len(seen) == 1)
        queued = asyncio.create_task(model.generate(HELLO))
        await asyncio.sleep(0)
        assert "one request is trying it now" in (model.why_resting(asyncio.get_running_loop().time()) or "")
        remote.open()
        assert (await probe).text == "up"
        assert (await queued).text == "again"


async def test_requests_wait_until_the_server_is_asked_again(remote: Remote, opened: Opened) -> None:
    remote.plays(*[error(500, "down")] * THRESHOLD, *[ok("up")] * 10)
    waits: list[ModelWait | None] = []
    hurried = Generation(messages=HELLO.messages, deadline_seconds=1.5)
    async with opened(breaker=Breaker(pause=6.0)) as model:  # long enough for a machine that stalls
        for _ in range(2):
            await failing(model, kind=RemoteFailed)
        with waiting_for_models(waits.append):
            answers = await asyncio.gather(*(model.generate(hurried) for _ in range(10)))
    assert [answer.text for answer in answers] == ["up"] * 10, "the wait is longer than the deadline"
    assert all(answer.usage.queued_seconds > 1.5 for answer in answers)
    assert "HTTP 500: down" in next(wait.reason for wait in waits if wait is not None)
    assert waits.count(None) == len(waits) / 2 >= 10


async def test_requests_that_wait_for_the_server_can_be_cancelled_and_end_with_the_model(opened: Opened) -> None:
    async with opened(breaker=Breaker(state="open", until=1e12)) as model:
        with waiting_for_models(lambda wait: None):
            cancelled, closed = (asyncio.create_task(model.generate(HELLO)) for _ in range(2))
        await asyncio.sleep(0)
        assert (model.requests, model.active) == (2, 0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
    with pytest.raises(EngineStopped):
        await closed


async def test_nobody_waits_for_a_server_that_has_failed_for_minutes(opened: Opened) -> None:
    async with opened(breaker=Breaker(state="open", until=1e12, reopened=GIVE_UP)) as model:
        with waiting_for_models(lambda wait: None):
            given_up = await failing(model, kind=RemoteResting)
    assert isinstance(given_up, RemoteResting)
    assert given_up.lasting


async def test_a_probe_that_is_given_up_leaves_room_for_the_next(remote: Remote, opened: Opened) -> None:
    remote.plays(*[does(["stall"])] * 2, ok("up"))
    async with opened(breaker=Breaker(state="open")) as model:
        # On a busy machine it takes long until the server has seen the request, and it must see it before the deadline.
        done = await model.generate(Generation(messages=HELLO.messages, deadline_seconds=1.0))
        assert done.finish == "deadline"
        probe = asyncio.create_task(model.generate(HELLO))
        await asyncio.to_thread(remote.wait_seen, lambda seen: len(seen) == 2)
        probe.cancel()
        await asyncio.wait([probe])
        assert (await model.generate(HELLO)).text == "up"


async def test_refusals_do_not_count_as_failures_of_the_server(remote: Remote, opened: Opened) -> None:
    remote.plays(*[error(400)] * (THRESHOLD + 1), ok("fine"))
    async with opened() as model:
        for _ in range(THRESHOLD + 1):
            await failing(model, kind=RemoteRefused)
        assert (await model.generate(HELLO)).text == "fine"


async def test_nobody_there_is_reported_as_it_is(opened: Opened) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with opened(url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as model:
            assert "cannot be reached" in str(await failing(model, kind=RemoteFailed))


async def test_closing_ends_what_is_under_way_and_what_comes_later(remote: Remote, opened: Opened) -> None:
    remote.plays(does(["send", piece("a")], ["stall"]))
    async with opened(slots=1) as model:
        begun = asyncio.Event()
        running = asyncio.create_task(model.generate(HELLO, lambda _: begun.set()))
        waiting = asyncio.create_task(model.generate(HELLO))
        await begun.wait()
        await model.close()
        for task in (running, waiting):
            with pytest.raises(EngineStopped, match="model far"):
                await task
        with pytest.raises(EngineStopped):
            await model.generate(HELLO)
    assert remote.wait_seen(_all_ended)[0]["ended"] == "closed by the client"


async def test_many_at_once_are_all_answered_or_cancelled(remote: Remote, opened: Opened) -> None:
    remote.plays(*[ok(*("x" * 20), usage=USAGE)] * 200)
    async with opened(slots=8) as model:
        tasks = [asyncio.create_task(model.generate(HELLO)) for _ in range(200)]
        await asyncio.to_thread(remote.wait_seen, lambda seen: len(seen) >= 20)
        for task in tasks[::5]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, Completion | asyncio.CancelledError) for outcome in outcomes)
        assert all(outcome.text == "x" * 20 for outcome in outcomes if isinstance(outcome, Completion))
        assert sum(isinstance(outcome, Completion) for outcome in outcomes) >= 160
        assert (model.requests, model.active) == (0, 0)


def _all_ended(seen: list[dict[str, Any]]) -> bool:
    return bool(seen) and all(request["ended"] for request in seen)


def _two_ended(seen: list[dict[str, Any]]) -> bool:
    return len(seen) == 2 and _all_ended(seen)
