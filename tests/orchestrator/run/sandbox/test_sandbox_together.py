import asyncio
import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.sandbox.errors import ChannelBroken
from orchestrator.run.sandbox.memory_budget import MemoryBudget
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.orchestrator.run.sandbox.sandbox_jobs import QUICK, own_groups, python, shell

_ECHO = """
import os, socket, struct, sys
channel = socket.socket(fileno=3).makefile("rwb")
def receive():
    head = channel.read(4)
    return channel.read(struct.unpack(">I", head)[0]) if head else None
def send(message):
    channel.write(struct.pack(">I", len(message)) + message)
    channel.flush()
print("printed", flush=True)
while (message := receive()) is not None:
    send(message.upper() + str(os.getuid()).encode() * (message == b"uid"))
"""


async def test_a_session_talks_beside_what_it_prints(sandbox: Sandbox) -> None:
    async with sandbox.open(python(_ECHO + "sys.exit(4)")) as session:
        for message in (b"hello", b"", b"x" * 500_000):
            assert await session.send(message)
            assert await session.receive() == message.upper()
        outcome = await session.end()
    assert (outcome.exit_code, outcome.stdout) == (4, b"printed\n")


async def test_a_session_ends_with_its_block(sandbox: Sandbox) -> None:
    async def fail() -> None:
        async with sandbox.open(shell("sleep 600 & sleep 600")) as session:
            assert await session.send(b"nobody reads this")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()


async def test_a_session_ends_with_its_time(sandbox: Sandbox) -> None:
    async with sandbox.open(shell("sleep 600", limits=replace(QUICK, wall=1.0))) as session:
        assert await session.receive() is None
        assert (await session.end()).limit == "wall"


async def test_a_session_that_was_killed_tells_of_it(sandbox: Sandbox) -> None:
    async with sandbox.open(shell("sleep 600")) as session:
        session.kill()
        assert await session.receive() is None
        assert (await session.end()).exit_code is None
        assert not await session.send(bytes(1 << 20))


async def test_a_program_may_close_its_channel(sandbox: Sandbox) -> None:
    async with sandbox.open(shell("exec 3>&-; exit 5")) as session:
        assert await session.receive() is None
        assert (await session.end()).exit_code == 5


async def test_a_message_of_any_length_is_not_believed(sandbox: Sandbox) -> None:
    async with sandbox.open(shell("printf '\\377\\377\\377\\377' >&3; sleep 600")) as session:
        with pytest.raises(ChannelBroken, match="4294967295"):
            await session.receive()


async def test_jobs_that_run_together_do_not_meet(sandbox: Sandbox) -> None:
    async with sandbox.open(python(_ECHO)) as first, sandbox.open(python(_ECHO)) as second:
        uids = set()
        for session in (first, second):
            await session.send(b"uid")
            uids.add(await session.receive())
        assert len(uids) == (2 if sandbox.uids else 1)
        seen = await sandbox.run(shell("ls -d /proc/[0-9]*"))
        assert len(seen.stdout.split()) <= 3


async def test_many_jobs_at_once(sandbox: Sandbox) -> None:
    outcomes = await asyncio.gather(*(sandbox.run(shell(f"exit {code}")) for code in range(6)))
    assert [outcome.exit_code for outcome in outcomes] == list(range(6))


@pytest.mark.parametrize("delay", [0, 0.02, 0.1, 0.3, 1])
async def test_cancelling_ends_the_job(delay: float, sandbox: Sandbox) -> None:
    job = asyncio.create_task(sandbox.run(shell("sleep 600 & sleep 600")))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(job), delay)
    job.cancel()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert own_groups(sandbox) == []


async def test_jobs_wait_for_their_share_of_memory(sandbox: Sandbox) -> None:
    narrow = replace(sandbox, groups=None, budget=MemoryBudget(QUICK.memory * 2))
    outcomes = await asyncio.gather(*(narrow.run(shell("exit 0")) for _ in range(3)))
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0]


async def test_without_a_control_group_each_process_is_limited(sandbox: Sandbox) -> None:
    alone = replace(sandbox, groups=None, budget=MemoryBudget(4 * QUICK.memory))
    code = "import os\ntry:\n    block = b'x' * (2 * {0})\nexcept MemoryError:\n    print('held')\n"
    assert (await alone.run(python(code.format(QUICK.memory)))).stdout == b"held\n"
    fork = "import os, time\ntry:\n    for n in range(9):\n        os.fork() or time.sleep(60)\n"
    outcome = await alone.run(python(fork + "except OSError:\n    print(n)"))
    assert 1 <= int(outcome.stdout) <= 2


@given(st.lists(st.integers(1, 10), min_size=2, max_size=6), st.sets(st.integers(0, 5)), st.booleans())
def test_jobs_that_are_cancelled_together_leave_nothing_taken(
    wanted: list[int], cancelled: set[int], freed_first: bool
) -> None:
    async def scene() -> None:
        budget, ran = MemoryBudget(10), list[int]()

        async def take(number: int) -> None:
            async with budget.reserve(wanted[number]):
                ran.append(number)

        async with asyncio.TaskGroup() as tasks:
            holder = budget.reserve(6)
            await holder.__aenter__()
            jobs = [tasks.create_task(take(number)) for number in range(len(wanted))]
            await asyncio.sleep(0)
            over = {number for number in cancelled if number < len(jobs) and not jobs[number].done()}
            if freed_first:
                await holder.__aexit__(None, None, None)
            for number in over:
                jobs[number].cancel()
            if not freed_first:
                await holder.__aexit__(None, None, None)
        assert set(range(len(jobs))) - over <= set(ran), "those that nobody cancelled have run"
        async with asyncio.timeout(60), budget.reserve(10):
            pass

    asyncio.run(scene())


async def test_a_waiting_job_that_is_cancelled_gives_its_turn_away() -> None:
    budget = MemoryBudget(10)
    order = []

    async def take(name: str, wanted: int) -> None:
        async with budget.reserve(wanted):
            order.append(name)
            await asyncio.sleep(0)

    async with budget.reserve(6), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(take("large", 10))
        tasks.create_task(take("small", 4))
        await asyncio.sleep(0)
        assert order == []
        waiting.cancel()
    assert order == ["small"]
    await take("all", 10)
    assert order == ["small", "all"]
