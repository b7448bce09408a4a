"""Clients that wait for runs: who comes back joins the run, and what nobody comes back to is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from orchestrator.service.awaited_runs import AwaitedRuns, Resending, StartTask, Submit
from orchestrator.service.errors import Busy

BODY = Resending("body")
AGAIN = Resending("body", again=True)
KEYED = Resending("body", key="k")


class Runs:
    """What is submitted and cancelled. Each submission gets the next number as its run."""

    def __init__(self, start: StartTask, seconds: float) -> None:
        self.awaited = AwaitedRuns(self.cancel, start, lambda: seconds)
        self.submitted: list[str] = []
        self.cancelled: list[str] = []

    async def submit(self) -> str:
        await asyncio.sleep(0)
        self.submitted.append(f"run{len(self.submitted) + 1}")
        return self.submitted[-1]

    async def cancel(self, run: str) -> None:
        self.cancelled.append(run)

    async def answered(self, asked: Resending) -> str:
        """Wait as a client that gets its answer."""
        async with self.awaited.waiting(asked, self.submit) as run:
            return run

    @asynccontextmanager
    async def client(self, asked: Resending, submit: Submit | None = None) -> AsyncIterator["Client"]:
        """Wait as a client that goes away without an answer at the end of the block, at the latest."""
        waits = Client(asyncio.create_task(self._wait(asked, submit or self.submit)))
        await _turns()
        try:
            yield waits
        finally:
            await waits.go()

    async def _wait(self, asked: Resending, submit: Submit) -> None:
        async with self.awaited.waiting(asked, submit):
            await asyncio.Event().wait()


@dataclass
class Client:
    """A client that waits in a task."""

    task: "asyncio.Task[None]"

    async def go(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, Busy):
            await self.task
        await _turns()


async def _turns() -> None:
    """Let everything happen that needs no time."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def runs(seconds: float) -> AsyncIterator[Runs]:
    async with asyncio.TaskGroup() as tasks:
        made = Runs(tasks.create_task, seconds)
        yield made
        made.awaited.close()


async def test_after_a_restart_a_client_comes_back_to_its_run_while_it_goes_on_and_a_while_after() -> None:
    async with runs(0.05) as made:
        made.awaited.resume("old1", BODY.digest)
        made.awaited.resume("old2", "second")
        made.awaited.resume("old3", BODY.digest)  # a run that was asked for in the same words before
        await asyncio.sleep(0.2)
        assert await made.answered(BODY) == "old1", "it waits as long as the run goes on"
        assert await made.answered(BODY) == "run1", "the answer was delivered"
        assert await made.answered(AGAIN) == "run1"
        made.awaited.ended("old2")
        assert await made.answered(Resending("second")) == "old2"
        made.awaited.resume("old4", "third")
        made.awaited.ended("old4")
        await asyncio.sleep(0.3)
        assert await made.answered(Resending("third")) == "run2"
        assert made.cancelled == [], "nobody had left these runs"


async def test_a_client_that_goes_again_after_a_restart_gives_the_run_up() -> None:
    async with runs(0.05) as made:
        made.awaited.resume("old1", BODY.digest)
        async with made.client(BODY):
            pass
        await asyncio.sleep(0.3)
        assert made.cancelled == ["old1"]


async def test_a_request_that_is_sent_again_joins_the_run_of_a_client_that_has_gone() -> None:
    async with runs(60) as made:
        async with made.client(BODY):
            pass
        assert await made.answered(Resending("another")) == "run2"
        assert await made.answered(BODY) == "run1"
        assert await made.answered(BODY) == "run3", "the answer was delivered: the same question is a new one"
        assert await made.answered(AGAIN) == "run3", "the client says that the answer was lost"
        assert made.cancelled == []


async def test_a_run_is_joined_while_it_is_still_being_accepted() -> None:
    may = asyncio.Event()

    async def slowly() -> str:
        await may.wait()
        return "slow"

    async with runs(60) as made:
        async with made.client(BODY, slowly):
            pass
        joined = asyncio.create_task(made.answered(BODY))
        await _turns()
        may.set()
        assert await joined == "slow"
        assert made.submitted == []


async def test_two_clients_at_once_have_runs_of_their_own_unless_one_says_that_it_sends_again() -> None:
    async with runs(60) as made, made.client(BODY):
        assert await made.answered(AGAIN) == "run1"
        assert await made.answered(Resending("body")) == "run2"


async def test_a_run_that_nobody_comes_back_to_is_cancelled() -> None:
    async with runs(0) as made:
        async with made.client(BODY):
            assert made.cancelled == []
        await _turns()
        assert made.cancelled == ["run1"]
        assert await made.answered(BODY) == "run2"


async def test_a_run_goes_on_while_one_of_its_clients_waits() -> None:
    async with runs(0) as made:
        async with made.client(BODY):
            async with made.client(AGAIN):
                pass
            await _turns()
            assert made.cancelled == []
        await _turns()
        assert (made.submitted, made.cancelled) == (["run1"], ["run1"])


async def test_a_run_with_a_key_goes_on_without_clients() -> None:
    async with runs(0) as made:
        async with made.client(KEYED):
            pass
        await _turns()
        assert made.cancelled == []
        assert await made.answered(KEYED) == "run2", "by its key, it is the journal that finds the run"


async def test_what_was_not_accepted_is_raised_and_not_joined() -> None:
    async def refuse() -> str:
        raise Busy("full", 1)

    async with runs(60) as made:
        with pytest.raises(Busy):
            async with made.awaited.waiting(BODY, refuse):
                pass
        assert await made.answered(BODY) == "run1"


async def test_nothing_is_cancelled_after_the_end() -> None:
    async with runs(0.001) as made:
        async with made.client(BODY):
            pass
        made.awaited.close()
        await asyncio.sleep(0.01)
        assert made.cancelled == []
