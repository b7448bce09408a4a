"""What watchers of a run see, whenever they come and however slow they are."""

import asyncio
from collections.abc import Callable, Sequence

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.run.attempt_stream import AttemptStream
from orchestrator.run.updates import Broadcast, EventUpdate, Progress, Update
from orchestrator.task.events import (
    AttemptCancelled,
    AttemptGenerated,
    CancelRequested,
    Event,
    RunFinished,
    Usage,
    encode_event,
)
from orchestrator.task.stages import GateEnd, GateRun, ModelLoad, Placed, PromptRead, QueuePlace, Stage


class NoModels:
    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        raise AssertionError("nothing is counted")

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        raise AssertionError("nothing is generated")


EVENTS: list[Event] = [CancelRequested(at=float(at)) for at in range(5)]
END = RunFinished(at=9.0, status="done")


async def seen(broadcast: Broadcast, after: int = 0) -> list[Update]:
    """Return everything that a watcher sees until the end."""
    return [update async for update in broadcast.watch(after)]


def numbered(after: int = 0) -> list[Update]:
    """Return the events behind one as watchers see them."""
    return [EventUpdate(event, number) for number, event in enumerate([*EVENTS, END], start=1) if number > after]


async def test_a_watcher_sees_every_event_whenever_it_comes() -> None:
    broadcast = Broadcast(EVENTS[:2])
    early = asyncio.create_task(seen(broadcast))
    await asyncio.sleep(0)
    for event in [*EVENTS[2:], END]:
        broadcast.publish(EventUpdate(event))
    assert await early == numbered()
    assert await seen(broadcast) == numbered()
    assert await seen(broadcast, 3) == numbered(3)
    assert await seen(broadcast, 6) == []
    assert await seen(broadcast, 99) == []


async def test_watchers_share_what_an_event_is_written_as() -> None:
    broadcast = Broadcast(EVENTS[:2])
    for event in [*EVENTS[2:], END]:
        broadcast.publish(EventUpdate(event))
    one, other = await seen(broadcast), await seen(broadcast, 1)
    assert [update.body for update in one if isinstance(update, EventUpdate)] == list(map(encode_event, [*EVENTS, END]))
    for mine, theirs in zip(one[1:], other, strict=True):
        assert isinstance(mine, EventUpdate)
        assert isinstance(theirs, EventUpdate)
        assert mine.body is theirs.body


async def test_a_slow_watcher_gets_the_latest_progress_of_each_attempt_only() -> None:
    broadcast = Broadcast()
    watching = broadcast.watch()
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    for tokens in range(1000):
        broadcast.publish(Progress("S1", 1, tokens, 1.0, ""))
        broadcast.publish(Progress("S2", 1, tokens, 1.0, ""))
    assert await first == Progress("S1", 1, 999, 1.0, "")
    broadcast.publish(EventUpdate(AttemptCancelled(at=1.0, step="S2", number=1)))
    broadcast.publish(EventUpdate(END))
    rest = [update async for update in watching]
    assert [type(update) for update in rest] == [EventUpdate, EventUpdate], "what S2 wrote is of no interest any more"


async def test_a_late_watcher_sees_the_progress_of_attempts_that_run() -> None:
    broadcast, waiting = Broadcast(), Progress("S1", 1, 0, 0.0, "", nodes=("far",))
    broadcast.publish(waiting)
    broadcast.publish(Progress("S2", 1, 5, 1.0, "five"))
    cancelled = AttemptCancelled(at=1.0, step="S2", number=1)
    broadcast.publish(EventUpdate(cancelled))
    for watching in (broadcast.watch(), broadcast.watch()):
        assert [await anext(watching), await anext(watching)] == [EventUpdate(cancelled, 1), waiting]
        await watching.aclose()
    broadcast.publish(EventUpdate(END))
    assert await seen(broadcast, 1) == [EventUpdate(END, 2)]


async def test_the_progress_of_a_step_can_be_asked_for_while_its_attempt_runs() -> None:
    broadcast, first, second = Broadcast(), Progress("S1", 1, 5, 1.0, "five"), Progress("S1", 2, 0, 0.0, "", ahead=1)
    assert broadcast.progress("S1") is None
    broadcast.publish(first)
    broadcast.publish(Progress("S2", 7, 9, 1.0, ""))
    assert broadcast.progress("S1") is first
    watching = broadcast.watch()
    assert await anext(watching) is first
    assert broadcast.progress("S1") is first, "watchers take it from nobody"
    await watching.aclose()
    broadcast.publish(second)
    assert broadcast.progress("S1") is second
    broadcast.publish(EventUpdate(AttemptCancelled(at=1.0, step="S1", number=1)))
    assert broadcast.progress("S1") is second
    broadcast.publish(EventUpdate(AttemptCancelled(at=2.0, step="S1", number=2)))
    assert broadcast.progress("S1") is None


async def test_a_stream_says_since_when_each_gate_checks() -> None:
    broadcast, now = Broadcast(), [10.0]
    stream = AttemptStream(NoModels(), broadcast, lambda: now[0], lambda event: None, step="S1", number=1)

    def seconds_after(stage: Stage) -> dict[str, float]:
        stream.stage(stage)
        now[0] += 1.0
        progress = broadcast.progress("S1")
        assert progress is not None
        seconds: dict[str, float] = progress.to_json(now[0])["gate_seconds"]
        return seconds

    assert seconds_after(PromptRead(300, 660)) == {}
    assert seconds_after(GateRun("lint")) == {"lint": 1.0}
    assert seconds_after(GateRun("lint", waits=True)) == {"lint": 2.0}, "the time in which it waits is a part of it"
    assert seconds_after(GateRun("judge")) == {"lint": 3.0, "judge": 1.0}
    assert seconds_after(GateEnd("lint")) == {"judge": 2.0}
    assert seconds_after(GateRun("lint")) == {"judge": 3.0, "lint": 1.0}, "it has started again"


def test_progress_is_put_into_words() -> None:
    assert Progress("S1", 1, 0, 0.0, "", read_tokens=300, prompt_tokens=660).words == "read 300 of 660 tokens"
    assert Progress("S1", 1, 1, 0.0, "a").words == "being written: 1 token so far"
    assert Progress("S1", 1, 12, 3.6, "abc").words == "being written: 12 tokens so far, 4 tok/s"


async def test_gates_that_check_are_seen_after_the_text_is_complete() -> None:
    broadcast, checking = Broadcast(), Progress("S1", 1, 9, 1.0, "", gates=("lint",))
    watching = broadcast.watch()
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    broadcast.publish(checking)
    generated = AttemptGenerated(at=1.0, step="S1", number=1, usage=Usage())
    broadcast.publish(EventUpdate(generated))
    assert await first == EventUpdate(generated, 1)
    assert await anext(watching) == checking
    broadcast.publish(checking)
    broadcast.publish(EventUpdate(AttemptCancelled(at=1.0, step="S1", number=1)))
    broadcast.publish(EventUpdate(END))
    assert [type(update) async for update in watching] == [EventUpdate, EventUpdate]


async def test_a_stream_says_what_an_attempt_waits_for() -> None:
    broadcast = Broadcast()
    watching = broadcast.watch()
    stream = AttemptStream(NoModels(), broadcast, lambda: 1.0, lambda event: None, step="S1", number=1)

    async def waits_after(step: Callable[[], None]) -> str:
        coming = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        step()
        progress = await coming
        assert isinstance(progress, Progress)
        return progress.wait

    assert await waits_after(lambda: stream.stage(ModelLoad("small"))) == "waiting until small is loaded"
    assert await waits_after(lambda: stream.stage(QueuePlace(2))) == "in the queue, 2 ahead"
    assert await waits_after(lambda: stream.stage(QueuePlace(0))) == "next in the queue"
    assert await waits_after(lambda: stream.stage(PromptRead(300, 660))) == "read 300 of 660 tokens"
    assert await waits_after(lambda: stream.text("text")) == ""
    assert await waits_after(lambda: stream.stage(GateRun("lint", waits=True))) == "checking: lint, waiting for a core"
    assert await waits_after(lambda: stream.stage(GateRun("judge"))) == "checking: lint, judge"
    assert await waits_after(lambda: stream.stage(GateEnd("lint"))) == "checking: judge"
    assert await waits_after(lambda: stream.stage(PromptRead(9, 70))) == "checking: judge, read 9 of 70 tokens"
    stream.stage(GateEnd("judge"))  # which does not mean that text is being written again
    assert await waits_after(lambda: stream.stage(GateRun("unit"))) == "checking: unit"
    await watching.aclose()


async def test_a_stream_says_at_once_where_an_attempt_runs() -> None:
    broadcast = Broadcast()
    watching = broadcast.watch()
    stream = AttemptStream(NoModels(), broadcast, lambda: 1.0, lambda event: None, step="S1", number=1)

    async def after(stage: Stage) -> tuple[tuple[str, ...], str]:
        coming = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        stream.stage(stage)
        progress = await coming
        assert isinstance(progress, Progress)
        return progress.nodes, progress.wait

    assert await after(ModelLoad("small")) == ((), "waiting until small is loaded")
    assert await after(Placed("east")) == (("east",), "waiting for the first token")
    assert await after(QueuePlace(0)) == (("east",), "next in the queue")
    stream.stage(Placed("east"))  # another request of the attempt
    assert await after(Placed("west")) == (("east", "west"), "waiting for the first token")
    assert await after(GateRun("judge")) == (("east", "west"), "checking: judge")
    stream.stage(Placed("north"))  # the judge's
    stream.stage(GateEnd("judge"))
    assert await after(QueuePlace(1)) == (("east", "west"), "in the queue, 1 ahead")
    await watching.aclose()


async def test_watchers_get_the_latest_text() -> None:
    broadcast = Broadcast()
    watching = broadcast.watch()
    stream = AttemptStream(NoModels(), broadcast, lambda: 1.0, lambda event: None, step="S1", number=1)
    text = "".join(f"{number} " for number in range(2000))
    coming = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    stream.text(text)
    progress = await coming
    assert isinstance(progress, Progress)
    assert progress.text_tail == text[-2000:]
    await watching.aclose()


async def test_watchers_end_when_nothing_more_will_come() -> None:
    broadcast = Broadcast(EVENTS)
    watching = asyncio.create_task(seen(broadcast))
    await asyncio.sleep(0)
    broadcast.close()
    assert await watching == numbered()[:-1]
    assert await seen(broadcast) == numbered()[:-1]
