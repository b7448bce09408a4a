import asyncio
import dataclasses
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import BadGrammar, EngineDied, EngineStopped, ModelLoadFailed, PromptTooLong
from orchestrator.pool import (
    ModelBroken,
    ModelPinned,
    ModelStatus,
    ModelTooLarge,
    ModelUnavailable,
    Node,
    Pool,
    PoolClosed,
    Rules,
    Topology,
    UnknownModel,
)

MESSAGES = (("user", "hello there"),)
SHORT = Generation(messages=MESSAGES, max_tokens=4)
CPUS = sorted(os.sched_getaffinity(0))
TWO_NODES = Topology((Node(0, ((CPUS[0],),), 1 << 40), Node(1, ((CPUS[-1],),), 1 << 40)))


def _cores(count: int) -> Topology:
    return Topology.flat(count, 1 << 40)


def _long(max_tokens: int = 200) -> Generation:
    """A request that always writes `max_tokens` tokens: the grammar keeps the model from stopping."""
    return Generation(messages=MESSAGES, max_tokens=max_tokens, grammar='root ::= "a" root')


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert not left


def _status(pool: Pool, model: str) -> ModelStatus:
    return next(status for status in pool.snapshot().models if status.model == model)


class _Running:
    """A generation whose first text has arrived."""

    def __init__(self, pool: Pool, model: str, request: Generation) -> None:
        self._begun = asyncio.Event()
        self.task = asyncio.create_task(pool.generate(model, request, lambda _: self._begun.set()))

    async def begun(self) -> None:
        started = asyncio.create_task(self._begun.wait())
        await asyncio.wait([started, self.task], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        assert self._begun.is_set(), self.task


async def _running(pool: Pool, model: str, request: Generation | None = None) -> asyncio.Task[Completion]:
    running = _Running(pool, model, request or _long())
    await running.begun()
    return running.task


async def test_a_model_is_loaded_once_for_all_who_ask_together(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path / "logs") as pool:
        assert _status(pool, "a").state == "unloaded"
        tokens, *completions = await asyncio.gather(
            pool.count("a", MESSAGES), *(pool.generate("a", SHORT) for _ in range(5))
        )
        assert tokens == completions[0].usage.prompt_tokens
        assert {completion.text for completion in completions} == {completions[0].text}
        assert all(completion.usage.queued_seconds > 0 for completion in completions)
        assert len(psutil.Process().children()) == 1
        status = _status(pool, "a")
        assert (status.state, status.requests, status.active) == ("ready", 0, 0)
        assert status.bytes == pool.snapshot().used > 0
    assert (tmp_path / "logs" / "a.log").exists()


async def test_hot_models_are_loaded_at_start_and_together(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot", b="hot", c="warm"), tmp_path) as pool:
        await asyncio.sleep(0)
        assert [_status(pool, model).state for model in "abc"] == ["loading", "loading", "unloaded"]
        await asyncio.gather(pool.count("a", MESSAGES), pool.count("b", MESSAGES))
        assert [_status(pool, model).state for model in "abc"] == ["ready", "ready", "unloaded"]


async def test_the_least_recently_used_idle_model_makes_room(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm", c="warm")
    async with Pool(registry, tmp_path, budget=_bytes(registry) * 5 // 2) as pool:
        clock = asyncio.get_running_loop().time
        began = clock()
        for model in "aba":
            await pool.generate(model, SHORT)
        await asyncio.sleep(clock() - began)  # an engine stays for as long as loading it took
        pids = {model: _status(pool, model).pid for model in "ab"}
        await pool.generate("c", SHORT)
        assert [_status(pool, model).state for model in "abc"] == ["ready", "unloaded", "ready"]
        assert _status(pool, "a").pid == pids["a"]
        assert not psutil.pid_exists(pids["b"])
        assert pool.snapshot().used <= pool.snapshot().budget


async def test_a_hot_model_is_never_evicted(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="hot", b="warm", c="warm")
    async with Pool(registry, tmp_path, budget=_bytes(registry) * 5 // 2) as pool:
        for model in "abc":
            await pool.generate(model, SHORT)
        assert _status(pool, "a").state == "ready"


async def test_a_model_in_use_is_waited_for(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=_bytes(registry) * 3 // 2) as pool:
        first = await _running(pool, "a", _long(40))
        second = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(0)
        assert _status(pool, "b").state == "waiting"
        assert (await first).usage.output_tokens == 40
        assert (await second).usage.output_tokens > 0
        assert _status(pool, "a").state == "unloaded"


async def test_a_load_that_nobody_wants_any_more_is_given_up(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=_bytes(registry) * 3 // 2) as pool:
        first = await _running(pool, "a", _long(40))
        second = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(0)
        second.cancel()
        await first
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert [_status(pool, model).state for model in "ab"] == ["ready", "unloaded"]


async def test_who_gives_up_a_load_leaves_it_to_the_others(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        first, second = (asyncio.create_task(pool.generate("a", SHORT)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).usage.output_tokens > 0
        assert first.cancelled()


async def test_what_can_never_fit_is_refused_with_the_arithmetic(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="hot", b="warm")
    wanted = _bytes(registry)
    async with Pool(registry, tmp_path, budget=wanted * 3 // 2) as pool:
        await pool.generate("a", SHORT)
        with pytest.raises(
            ModelTooLarge, match=r"model b needs .* weights \+ .* KV cache .*HOT and pinned models keep"
        ) as caught:
            await pool.generate("b", SHORT)
        assert (caught.value.wanted, caught.value.pinned, caught.value.budget) == (wanted, wanted, wanted * 3 // 2)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_what_the_registry_rules_out_is_refused(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="cold"), tmp_path) as pool:
        with pytest.raises(ModelUnavailable, match="model a is cold"):
            await pool.generate("a", SHORT)
        with pytest.raises(UnknownModel, match="there is no model 'z'; accepted: a"):
            await pool.count("z", MESSAGES)
    async with Pool(registry_of(file=tmp_path / "absent.gguf", a="hot"), tmp_path) as pool:
        with pytest.raises(ModelUnavailable, match=r"absent\.gguf: cannot be read: No such file"):
            await pool.generate("a", SHORT)
        assert _status(pool, "a").state == "unavailable"


async def test_a_killed_engine_is_reported_and_replaced(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        bystander = await _running(pool, "b", _long(60))
        pending = [await _running(pool, "a") for _ in range(2)]
        pid = _status(pool, "a").pid
        os.kill(pid, signal.SIGKILL)
        for task in pending:
            with pytest.raises(EngineDied, match="SIGKILL"):
                await task
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        assert _status(pool, "a").pid not in (None, pid)
        assert (await bystander).usage.output_tokens == 60


async def test_an_engine_that_dies_idle_is_replaced(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        os.kill(_status(pool, "a").pid, signal.SIGABRT)
        async with asyncio.timeout(10):
            while _status(pool, "a").state == "ready":  # noqa: ASYNC110 (nobody asks, so nobody is told)
                await asyncio.sleep(0.02)
        assert _status(pool, "a").bytes == 0
        assert "SIGABRT" in (_status(pool, "a").reason or "")
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_an_engine_that_keeps_dying_is_reported_broken(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm", b="warm"), tmp_path) as pool:
        for _ in range(3):
            pending = await _running(pool, "a")
            os.kill(_status(pool, "a").pid, signal.SIGKILL)
            with pytest.raises(EngineDied):
                await pending
        with pytest.raises(ModelBroken, match=r"failed 3 times within 60 s; next try in .*SIGKILL") as caught:
            await pool.generate("a", SHORT)
        assert 0 < caught.value.retry_seconds <= 60
        assert _status(pool, "a").state == "broken"
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_a_file_that_breaks_after_the_registry_was_read(registry_of, model_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    _copy(model_file, file)
    registry = registry_of(file=file, a="hot")
    _copy(model_file, file, 5000)
    async with Pool(registry, tmp_path) as pool:
        with pytest.raises(ModelLoadFailed, match=r"own\.gguf"):
            await pool.generate("a", SHORT)
        assert _status(pool, "a").bytes == 0
        _copy(model_file, file)
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0


async def test_a_refused_request_leaves_the_engine_as_it_was(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        await pool.generate("a", SHORT)
        pid = _status(pool, "a").pid
        with pytest.raises(PromptTooLong):
            await pool.generate("a", Generation(messages=(("user", "word " * 300),), max_tokens=4))
        with pytest.raises(BadGrammar):
            await pool.generate("a", Generation(messages=MESSAGES, max_tokens=4, grammar="root ::= ("))
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        status = _status(pool, "a")
        assert (status.pid, status.requests, status.active) == (pid, 0, 0)


async def test_decoding_engines_share_the_cores(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm"), tmp_path, topology=_cores(2)) as pool:
        first = await _running(pool, "a")
        assert _status(pool, "a").threads == 2
        second = await _running(pool, "b")
        assert [_status(pool, model).threads for model in "ab"] == [1, 1]
        await _cancel(first)
        assert _status(pool, "b").threads == 2
        await _cancel(second)


async def test_threads_in_the_registry_are_a_ceiling(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=1, a="warm"), tmp_path, topology=_cores(2)) as pool:
        task = await _running(pool, "a")
        assert _status(pool, "a").threads == 1
        await _cancel(task)


async def test_a_deadline_counts_from_the_call_loading_included(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        hurried = Generation(messages=MESSAGES, max_tokens=4, deadline_seconds=0.001)
        completion = await pool.generate("a", hurried)
        assert (completion.text, completion.finish) == ("", "deadline")
        assert completion.usage.queued_seconds >= 0.001
        patient = Generation(messages=MESSAGES, max_tokens=4, deadline_seconds=60)
        assert (await pool.generate("a", patient)).finish in ("stop", "length")


async def test_with_fewer_cores_than_engines_they_take_turns(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm", c="warm"), tmp_path, topology=_cores(2)) as pool:
        await asyncio.gather(*(pool.load(model) for model in "abc"))
        tasks = [asyncio.create_task(pool.generate(model, _long())) for model in "abc"]
        ran: set[tuple[str, ...]] = set()
        while not any(task.done() for task in tasks):
            running = [model for model in "abc" if _status(pool, model).threads and _status(pool, model).active]
            assert len(running) <= 2
            ran.add(tuple(running))
            await asyncio.sleep(0.01)
        completions = await asyncio.gather(*tasks)
        assert [completion.usage.output_tokens for completion in completions] == [200] * 3
        assert all(_status(pool, model).threads >= 1 for model in "abc")
        assert any(len(running) == 2 for running in ran)


async def test_an_engine_without_a_turn_can_be_cancelled_and_used_again(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(threads=None, a="warm", b="warm"), tmp_path, topology=_cores(1)) as pool:
        await pool.load("b")
        first = await _running(pool, "a", dataclasses.replace(_long(), slack=-100.0))
        second = asyncio.create_task(pool.generate("b", _long()))
        await _until(lambda: _status(pool, "b").active == 1)
        assert [_status(pool, model).threads for model in "ab"] == [1, 0]
        await _cancel(second)
        assert _status(pool, "b").threads == 1
        await _cancel(first)
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_instances_are_bound_to_their_nodes_and_share_the_work(registry_of, tmp_path: Path) -> None:
    registry = registry_of(threads=None, options="instances: 2", a="hot")
    async with Pool(registry, tmp_path / "logs", topology=TWO_NODES) as pool:
        await _until(lambda: all(one.state == "ready" for one in _status(pool, "a").instances))
        instances = _status(pool, "a").instances
        for instance, node in zip(instances, TWO_NODES.nodes, strict=True):
            process = psutil.Process(instance.pid)
            assert tuple(process.cpu_affinity()) == node.cpus
            assert process.nice() > psutil.Process().nice()
            assert not any(mapped.path.endswith(".gguf") for mapped in process.memory_maps())
        tasks = [asyncio.create_task(pool.generate("a", _long(40))) for _ in range(6)]
        await _until(lambda: _status(pool, "a").active == 6)
        assert [one.active for one in _status(pool, "a").instances] == [3, 3]
        assert [one.threads for one in _status(pool, "a").instances] == [1, 1]
        await asyncio.gather(*tasks)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a#1.log", "a.log"]


async def test_another_instance_is_loaded_when_the_queue_says_so(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(options="instances: 2", a="warm"), tmp_path, topology=TWO_NODES) as pool:
        await pool.generate("a", SHORT)
        assert [one.state for one in _status(pool, "a").instances] == ["ready", "absent"]
        tasks = [asyncio.create_task(pool.generate("a", _long(100))) for _ in range(8)]
        await _until(lambda: _status(pool, "a").instances[1].state == "ready")
        assert (await pool.generate("a", SHORT)).usage.output_tokens > 0
        await asyncio.gather(*tasks)


async def test_a_model_that_idles_is_unloaded_but_not_a_hot_one(registry_of, tmp_path: Path) -> None:
    registry = registry_of(defaults="idle_unload_seconds: 0.3", a="hot", b="warm")
    async with Pool(registry, tmp_path) as pool:
        await asyncio.gather(pool.generate("a", SHORT), pool.generate("b", SHORT))
        await _until(lambda: _status(pool, "b").state == "unloaded")
        assert _status(pool, "a").state == "ready"
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0


async def test_a_hot_model_that_dies_is_there_again(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot"), tmp_path) as pool:
        await pool.load("a")
        os.kill(_status(pool, "a").pid, signal.SIGKILL)
        await _until(lambda: _status(pool, "a").state != "ready")
        await _until(lambda: _status(pool, "a").state == "ready")


async def test_load_pin_and_unload(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    async with Pool(registry, tmp_path, budget=_bytes(registry) * 3 // 2) as pool:
        await pool.load("a")
        assert _status(pool, "a").state == "ready"
        pool.pin("a")
        with pytest.raises(ModelTooLarge, match="pinned models keep"):
            await pool.load("b")
        with pytest.raises(ModelPinned, match="model a is pinned; accepted: unpin it first"):
            await pool.unload("a")
        pool.pin("a", pinned=False)
        await pool.load("b")
        assert [_status(pool, model).state for model in "ab"] == ["unloaded", "ready"]
        await pool.unload("b")
        assert _status(pool, "b").state == "unloaded"
        assert not psutil.Process().children()
        with pytest.raises(UnknownModel):
            await pool.load("z")


async def test_unloading_waits_for_what_is_running_and_what_comes_meanwhile_loads_anew(
    registry_of, tmp_path: Path
) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        running = await _running(pool, "a", _long(60))
        pid = _status(pool, "a").pid
        unloading = asyncio.create_task(pool.unload("a"))
        await asyncio.sleep(0)
        late = asyncio.create_task(pool.generate("a", SHORT))
        assert (await running).usage.output_tokens == 60
        await unloading
        assert (await late).usage.output_tokens > 0
        assert _status(pool, "a").pid != pid


async def test_a_hot_model_is_not_unloaded(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="hot"), tmp_path) as pool:
        await pool.load("a")
        with pytest.raises(ModelPinned, match="model a is HOT"):
            await pool.unload("a")


async def test_an_endless_stream_gives_way_to_who_has_waited_too_long(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm", b="warm")
    rules = Rules(patience=0.3)

    async def stream() -> None:
        while True:
            await pool.generate("a", _long(10))

    async with Pool(registry, tmp_path, budget=_bytes(registry) * 3 // 2, rules=rules) as pool:
        await pool.load("a")
        streams = [asyncio.create_task(stream()) for _ in range(3)]
        await _until(lambda: _status(pool, "a").active == 3)
        assert (await pool.generate("b", SHORT)).usage.output_tokens > 0
        await _until(lambda: _status(pool, "a").active == 3)
        for task in streams:
            await _cancel(task)


async def test_what_was_measured_counts_at_the_next_load(registry_of, tmp_path: Path) -> None:
    registry, file = registry_of(a="warm"), tmp_path / "footprints.json"
    async with Pool(registry, tmp_path, footprints=file) as pool:
        await pool.load("a")
        assert _status(pool, "a").bytes == _bytes(registry)
    async with Pool(registry, tmp_path, footprints=file) as pool:
        await pool.load("a")
        measured = _status(pool, "a").bytes
        taken = psutil.Process(_status(pool, "a").pid).memory_info()
        assert taken.rss - taken.shared <= measured < _bytes(registry)


async def test_a_batch_is_one_call_and_one_failure_is_one_result(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        too_long = Generation(messages=(("user", "word " * 300),), max_tokens=4)
        requests = [_long(number) for number in range(1, 9)]
        results = await pool.generate_batch("a", [*requests[:3], too_long, *requests[3:]])
        assert isinstance(results.pop(3), PromptTooLong)
        assert [result.usage.output_tokens for result in results] == [*range(1, 9)]
        assert await pool.generate_batch("a", []) == []
        unknown = await pool.generate_batch("z", requests[:2])
        assert [type(result) for result in unknown] == [UnknownModel] * 2


async def test_leaving_the_pool_stops_what_is_running(registry_of, tmp_path: Path) -> None:
    async with Pool(registry_of(a="warm"), tmp_path) as pool:
        task = await _running(pool, "a")
    with pytest.raises(EngineStopped):
        await task
    with pytest.raises(PoolClosed):
        await pool.generate("a", SHORT)


@pytest.mark.parametrize("delay", [0, 0.05, 0.4])
async def test_leaving_while_models_are_loading_leaves_no_process(registry_of, tmp_path: Path, delay: float) -> None:
    async with Pool(registry_of(a="hot", b="warm"), tmp_path) as pool:
        task = asyncio.create_task(pool.generate("b", SHORT))
        await asyncio.sleep(delay)
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(outcome, Completion | PoolClosed | EngineStopped)


async def test_a_cancellation_inside_stops_all_processes(registry_of, tmp_path: Path) -> None:
    async def use() -> None:
        async with Pool(registry_of(a="hot"), tmp_path) as pool:
            await pool.generate("a", SHORT)
            ready.set()
            await asyncio.Event().wait()

    ready = asyncio.Event()
    task = asyncio.create_task(use())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_stops_all_processes(registry_of, tmp_path: Path) -> None:
    async def use() -> None:
        async with Pool(registry_of(a="hot"), tmp_path) as pool:
            await pool.generate("a", SHORT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()


async def test_estimates_are_not_below_what_a_process_takes(registry_of, tmp_path: Path) -> None:
    registry = registry_of(a="warm")
    async with Pool(registry, tmp_path) as pool:
        await pool.generate("a", SHORT)
        taken = psutil.Process(_status(pool, "a").pid).memory_info()
        assert taken.rss - taken.shared <= _bytes(registry)


async def test_any_mix_of_callers_is_served_or_cancelled(registry_of, tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 (a repeatable test)
    registry = registry_of(a="hot", b="warm", c="warm", d="warm")

    async def ask(pool: Pool) -> Completion | None:
        await asyncio.sleep(chance.random())
        task = asyncio.create_task(pool.generate(chance.choice("abcd"), _long(chance.randint(1, 30))))
        if chance.random() < 0.3:
            await asyncio.sleep(2 * chance.random())
            task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        snapshot = pool.snapshot()
        assert snapshot.used <= snapshot.budget
        assert isinstance(outcome, Completion | asyncio.CancelledError), outcome
        return None if isinstance(outcome, asyncio.CancelledError) else outcome

    async with Pool(registry, tmp_path, budget=_bytes(registry) * 7 // 2) as pool:
        outcomes = await asyncio.gather(*(ask(pool) for _ in range(20)))
        served = [outcome for outcome in outcomes if outcome is not None]
        assert len(served) >= 8
        assert all(outcome.finish == "length" for outcome in served)
        assert all((status.requests, status.active) == (0, 0) for status in pool.snapshot().models)


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody is told of."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _bytes(registry) -> int:
    return next(iter(registry.models.values())).memory.total


async def _cancel(task: asyncio.Task[Completion]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def _copy(source: Path, target: Path, length: int | None = None) -> None:
    target.write_bytes(source.read_bytes()[:length])
