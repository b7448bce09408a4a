"""Work that the user wants first is hurried while it is being done, in all of its tasks."""

import asyncio

from orchestrator.task.stages import Urgency, heeding, hurried_by


async def test_all_tasks_of_the_work_heed_it() -> None:
    urgency, hurried, waiting = Urgency(), list[int](), asyncio.Event()

    async def part(number: int) -> None:
        with heeding(lambda: hurried.append(number)):
            await waiting.wait()

    async with asyncio.TaskGroup() as tasks:
        with hurried_by(urgency):
            tasks.create_task(part(1))
            tasks.create_task(part(2))
        tasks.create_task(part(3))
        await asyncio.sleep(0)
        urgency.hurry()
        waiting.set()
    assert sorted(hurried) == [1, 2]
    urgency.hurry()
    assert len(hurried) == 2, "who has ended hears nothing"


def test_what_comes_later_is_hurried_at_once() -> None:
    urgency, hurried = Urgency(), list[str]()
    urgency.hurry()
    with hurried_by(urgency), heeding(lambda: hurried.append("later")):
        assert hurried == ["later"]
    with heeding(lambda: hurried.append("outside")):
        assert hurried == ["later"]
