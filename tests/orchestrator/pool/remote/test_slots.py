import asyncio

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.remote.client import RequestSlots

Course = list[tuple[float, bool]]


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(-9, 9) | st.just(float("inf")), st.booleans()), max_size=14))
def test_any_mix_of_holders_and_cancellations_leaves_all_places_free(count: int, course: Course) -> None:
    asyncio.run(_course(count, course))


async def _course(count: int, course: Course) -> None:
    slots, go = RequestSlots(count), asyncio.Event()
    holding: set[int] = set()
    order: list[int] = []

    async def hold(number: int) -> None:
        async with slots.hold(course[number][0]):
            holding.add(number)
            order.append(number)
            assert len(holding) <= count
            try:
                await go.wait()
            finally:
                holding.remove(number)

    tasks = []
    for number in range(len(course)):
        tasks.append(asyncio.create_task(hold(number)))
        await asyncio.sleep(0)
    assert len(holding) == min(count, len(course))
    for task, (_, cancelled) in zip(tasks, course, strict=True):
        if cancelled:
            task.cancel()
            await asyncio.wait([task])
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    waited = [number for number in order if number >= count and not course[number][1]]
    if not any(cancelled for _, cancelled in course):
        assert waited == sorted(waited, key=lambda number: (course[number][0], number))
    assert {number for number, (_, cancelled) in enumerate(course) if not cancelled} <= set(order)
    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            together = asyncio.Barrier(count)
            for _ in range(count):
                group.create_task(_meet(slots, together))


async def _meet(slots: RequestSlots, together: asyncio.Barrier) -> None:
    async with slots.hold(0.0):
        await together.wait()


async def test_a_place_that_comes_with_the_cancellation_is_passed_on() -> None:
    slots = RequestSlots(1)
    first, second = asyncio.Event(), asyncio.Event()

    async def hold(until: asyncio.Event) -> None:
        async with slots.hold(0.0):
            await until.wait()

    holder, unlucky, next_one = (asyncio.create_task(hold(event)) for event in (first, second, second))
    await asyncio.sleep(0)
    first.set()
    await asyncio.sleep(0)  # the holder has given its place away, and the one that got it does not know yet
    unlucky.cancel()
    second.set()
    await asyncio.gather(holder, next_one)
    assert unlucky.cancelled()
