"""Engines that cannot load, die, hang or lose their parent."""

import asyncio
import dataclasses
import gc
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.models import ModelShape, write_llama
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import EngineDied, EngineHung, EngineStopped, ModelLoadFailed
from tests.orchestrator.forked_engines import children_of_tests

LONG = Generation(messages=(Message("user", "go on"),), max_tokens=1900)
SHORT = Generation(messages=(Message("user", "x"),), max_tokens=2, grammar='root ::= "ab" root')


def spec(models: Path, **options: Any) -> EngineSpec:
    return EngineSpec(**{"file": str(models / "quantised.gguf"), "context": 2048, "slots": 2, "threads": 1, **options})


def damaged(models: Path, folder: Path, how: str) -> Path:
    data = (models / "quantised.gguf").read_bytes()
    path = folder / "damaged.gguf"
    match how:
        case "missing":
            return path
        case "folder":
            path.mkdir()
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not a model\n")
        case "header only":
            path.write_bytes(data[:2000])
        case "truncated":
            path.write_bytes(data[: len(data) * 3 // 4])
        case "garbage":
            path.write_bytes(b"GGUF" + bytes(range(256)) * 40)
        case "other architecture":
            path.write_bytes(data.replace(b"llama", b"lamma"))
        case "nan":
            write_llama(path, ModelShape(weights="f32", scale=float("nan")))
    return path


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("missing", "missing"),
        ("folder", "unreadable"),
        ("empty", "not-gguf"),
        ("text", "not-gguf"),
        ("header only", "corrupt"),
        ("truncated", "corrupt"),
        ("garbage", "corrupt"),
        ("other architecture", "architecture"),
        ("nan", "corrupt"),
    ],
)
async def test_a_file_that_is_no_good_is_a_clear_error(models: Path, tmp_path: Path, how: str, kind: str) -> None:
    path = damaged(models, tmp_path, how)
    with pytest.raises(ModelLoadFailed) as caught:
        await Engine.start(spec(models, file=str(path), context=256))
    assert caught.value.kind == kind
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "llama_" not in str(caught.value)
    assert not children_of_tests()


@pytest.mark.parametrize(
    "options", [{"context": 4096}, {"slots": 0}, {"context": 1 << 40}, {"threads": 0}, {"experts": 2}, {"niceness": 50}]
)
async def test_impossible_settings_are_refused(models: Path, options: dict[str, object]) -> None:
    with pytest.raises(ModelLoadFailed) as caught:
        await Engine.start(spec(models, **options))
    assert caught.value.kind == "settings"


async def test_a_longer_context_than_trained_needs_a_word(models: Path) -> None:
    async with await Engine.start(spec(models, context=4096, slots=1, beyond_training=True)) as engine:
        assert engine.info.context == 4096


async def running(engine: Engine) -> "asyncio.Task[object]":
    """Start a long generation and return when it decodes."""
    started = asyncio.Event()
    task: asyncio.Task[object] = asyncio.ensure_future(engine.generate(LONG, lambda _: started.set()))
    await started.wait()
    return task


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
async def test_a_killed_engine_is_noticed_at_once(models: Path, number: signal.Signals) -> None:
    engine = await Engine.start(spec(models))
    task = await running(engine)
    os.kill(engine.info.pid, number)
    with pytest.raises(EngineDied) as caught:
        await asyncio.wait_for(task, 60)
    assert caught.value.signal == number.name
    assert str(caught.value).startswith(f"the engine process of quantised.gguf was killed by {number.name}")
    assert not isinstance(caught.value, EngineHung | EngineStopped)
    assert engine.died.is_set()
    with pytest.raises(EngineDied):
        await engine.generate(LONG)
    assert not psutil.pid_exists(engine.info.pid)
    await engine.stop()


async def test_the_error_of_a_dead_engine_says_where_its_log_is_and_has_its_end_beside_the_message(
    models: Path, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    engine = await Engine.start(spec(models, log_file=str(log), name="small"))
    os.kill(engine.info.pid, signal.SIGSEGV)
    death = await engine.wait_dead()
    assert str(death) == f"the engine process of small was killed by SIGSEGV; its log is in {log}"
    assert death.log
    assert death.log in log.read_text()


FAILED_ASSERTION = """
import orchestrator.engine.llama.binding as lib
def replaced(self, *args):
    lib.llama_memory_seq_cp(self._llama._memory, 1 << 20, 0, 0, 1)
"""
EXCEPTION = """
def replaced(*args):
    raise RuntimeError("this cannot be")
"""
CLOSED_SOCKET = """
import os, threading
def replaced(self, *args):
    self._link._socket.close()
    held = threading.Lock()
    held.acquire()
    held.acquire()
"""


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (FAILED_ASSERTION, r"was killed by SIGABRT: [\w.-]+\.cpp:\d+: GGML_ASSERT\(.+\) failed$"),
        (EXCEPTION, r"exited with code 1: RuntimeError: this cannot be$"),
        (CLOSED_SOCKET, r"closed its connection without exiting and was killed$"),
    ],
)
async def test_the_error_of_a_dead_engine_tells_the_cause_in_one_sentence(
    models: Path, sabotage: Callable[[str, str], None], code: str, description: str
) -> None:
    sabotage("orchestrator.engine.worker.loop:Loop._sample", code)
    engine = await Engine.start(spec(models))
    with pytest.raises(EngineDied) as caught:
        await asyncio.wait_for(engine.generate(SHORT), 60)
    assert re.fullmatch(rf"the engine process of quantised\.gguf {description}", str(caught.value))


async def test_a_process_that_dies_while_it_loads_is_a_load_failure_that_tells_the_cause(
    models: Path, sabotage: Callable[[str, str], None]
) -> None:
    sabotage("orchestrator.engine.llama.model:load_model", EXCEPTION)
    with pytest.raises(ModelLoadFailed) as caught:
        await Engine.start(spec(models))
    cause = "the engine process of quantised.gguf exited with code 1: RuntimeError: this cannot be"
    assert (caught.value.kind, str(caught.value)) == ("died", f"{models / 'quantised.gguf'}: {cause}")
    assert "Traceback" in caught.value.log


async def test_stopping_ends_what_is_pending(models: Path) -> None:
    engine = await Engine.start(spec(models))
    task = await running(engine)
    await engine.stop()
    with pytest.raises(EngineStopped):
        await task
    assert not psutil.pid_exists(engine.info.pid)
    await engine.stop()


async def test_nothing_is_left_behind(models: Path) -> None:
    async def once() -> None:
        async with await Engine.start(spec(models)) as engine:
            await engine.generate(Generation(messages=(Message("user", "x"),), max_tokens=2))

    await once()
    gc.collect()  # what earlier tests have left would be closed at any moment
    before = psutil.Process().num_fds()
    await once()
    gc.collect()
    assert psutil.Process().num_fds() == before
    assert not children_of_tests()


async def test_a_file_that_shrinks_while_it_is_mapped_is_the_end_of_its_engine(models: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes((models / "quantised.gguf").read_bytes())
    engine = await Engine.start(spec(models, file=str(own)))
    os.truncate(own, 4096)
    with pytest.raises(EngineDied) as caught:
        await engine.generate(LONG)
    assert caught.value.signal == "SIGBUS"
    assert not psutil.pid_exists(engine.info.pid)


async def test_an_engine_without_threads_answers_and_cancels(models: Path) -> None:
    async with await Engine.start(spec(models)) as engine:
        task = await running(engine)
        await engine.set_threads(0)
        before = await engine.stats()
        assert await engine.count(LONG.messages) > 0
        task.cancel()
        late = await engine.generate(dataclasses.replace(LONG, deadline_seconds=0.01))
        after = await engine.stats()
        assert (after.steps, after.running, after.cancelled) == (before.steps, 0, 1)
        assert (late.finish, late.usage.output_tokens) == ("deadline", 0)
        await engine.set_threads(1)
        assert (await engine.generate(SHORT)).usage.output_tokens == 2


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
async def test_many_requests_at_once_are_all_answered_and_nothing_leaks(models: Path, count: int) -> None:
    async with await Engine.start(spec(models, slots=16, context=96)) as engine:
        await engine.generate(SHORT)
        before = held(engine)
        done = await asyncio.gather(*(engine.generate(dataclasses.replace(SHORT, slack=n)) for n in range(count)))
        assert [one.usage.output_tokens for one in done] == [2] * count
        assert held(engine) == before
        await all_slots_take_their_fill(engine)


@pytest.mark.parametrize("batch_invariant", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_storm_of_cancellations_touches_nobody_else_and_leaks_nothing(
    models: Path, batch_invariant: bool
) -> None:
    chance = random.Random(7)  # noqa: S311 (no secrets)
    requests = [asked(n, batch_invariant) for n in range(80)]

    async def visit(engine: Engine, request: Generation, doomed: bool) -> str | None:
        await asyncio.sleep(chance.random() / 4)
        task = asyncio.create_task(engine.generate(request))
        if doomed:
            await asyncio.sleep(chance.random() / 100)
            task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        return outcome.text if isinstance(outcome, Completion) else None

    async with await Engine.start(spec(models, slots=4, context=256, batch_invariant=batch_invariant)) as engine:
        alone = [(await engine.generate(request)).text for request in requests[::4]]
        before = held(engine)
        texts = await asyncio.gather(*(visit(engine, one, bool(n % 4)) for n, one in enumerate(requests)))
        assert all(same(*pair, batch_invariant) for pair in zip(texts[::4], alone, strict=True))
        assert (await engine.stats()).cancelled > 10
        assert held(engine) == before
        await all_slots_take_their_fill(engine)


def same(text: str | None, alone: str, batch_invariant: bool) -> bool:
    """Whether both texts of a request are the same. A grammar fixes the text, but not how many tokens it takes."""
    return text is not None and (text == alone if batch_invariant else text.startswith(alone) or alone.startswith(text))


def asked(number: int, batch_invariant: bool) -> Generation:
    """Return a request whose text is known: by `batch_invariant`, or else by a grammar that leaves no choice."""
    grammar = None if batch_invariant else f'root ::= "{number} goes round, " root'
    shared = "among several others " * (number % 3)
    return Generation(messages=(Message("user", f"{shared}{number}"),), max_tokens=20 + number % 13, grammar=grammar)


def held(engine: Engine) -> tuple[int, int, int, int]:
    """Return the descriptors and threads of the engine, and our own descriptors and processes."""
    gc.collect()  # what earlier tests have left would be closed at any moment
    process, own = psutil.Process(engine.info.pid), psutil.Process()
    return process.num_fds(), process.num_threads(), own.num_fds(), len(own.children())


async def all_slots_take_their_fill(engine: Engine) -> None:
    """Use every slot to the end of its context at the same time, which shows that no slot and no cell is lost."""
    longest = engine.info.context - await engine.count(SHORT.messages)
    full = dataclasses.replace(SHORT, max_tokens=longest, grammar='root ::= "all of it, " root')
    done = await asyncio.gather(*(engine.generate(full) for _ in range(engine.info.slots)))
    assert {one.usage.output_tokens for one in done} == {longest}
    stats = await engine.stats()
    assert (stats.running, stats.prefilling, stats.queued, stats.preempted) == (0, 0, 0, 0)
    assert stats.used_cells <= stats.cells


async def test_a_cancelled_start_leaves_no_process(models: Path) -> None:
    for seconds in (0.05, 0.02, 0.01, 0.005, 0.0):  # a quick machine has started it before it is cancelled
        task = asyncio.ensure_future(Engine.start(spec(models)))
        await asyncio.sleep(seconds)
        task.cancel()
        try:
            engine = await task
        except asyncio.CancelledError:
            break
        async with engine:
            pass
    assert task.cancelled()
    assert not children_of_tests()


def test_an_engine_dies_with_its_parent(models: Path) -> None:
    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from orchestrator.engine.client.engine import Completion, Engine
        from orchestrator.engine.contract import EngineSpec

        async def main():
            engine = await Engine.start(EngineSpec(file=sys.argv[1], context=256, slots=1, threads=1))
            print(engine.info.pid, flush=True)
            os.kill(os.getpid(), 9)

        asyncio.run(main())
        """
    )
    command = [sys.executable, "-c", program, str(models / "quantised.gguf")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[3], check=False
    )
    pid = int(done.stdout)
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        pass
    assert not psutil.pid_exists(pid)
