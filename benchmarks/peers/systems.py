"""The systems that carry out a task: our orchestrator in three ways, one agent, a greedy executor, and LangGraph."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast

import httpx2
import llama_cpp
import psutil
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from benchmarks.engine.system import SystemSetup
from benchmarks.engine.systems import server
from benchmarks.engine.systems.parameters import avoid_broken_amx
from benchmarks.engine.systems.served import Served, ServerFailed, failure
from benchmarks.peers.suite import with_barriers
from benchmarks.peers.trace import CallTrace, ModelCall
from orchestrator.bench.critical_path.measure import TaskMeasurement, row_of
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import load_report
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import TaskIR

OURS: Final = "ours"
DISCOVER: Final = "ours, discover"
WAVES: Final = "waves"
AGENT: Final = "one agent"
GREEDY: Final = "greedy executor"
LANGGRAPH: Final = "LangGraph"
PROGRAM: Final = Path(__file__).with_name("langgraph_program.py")
# The parameters with which llama-server takes the most likely token in the least time.
_GREEDY_SAMPLING: Final = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1}
_REPLY_BYTES: Final = 1 << 24


class PeerFailed(Exception):
    """A system did not carry out a task as it was asked to; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class TaskTime:
    """How a task went. Tokens are those of all answers, and of all prompts."""

    seconds: float
    tokens: int
    prompt_tokens: int
    measurement: TaskMeasurement | None = None  # what our own report says of the run


class TaskSystem(Protocol):
    """Carries out tasks, one after the other."""

    @property
    def name(self) -> str:
        """Names it in rows and tables."""

    async def run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        """Carry out a task, whose calls are those of the trace. Raises PeerFailed."""

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that its processes have used, or 0 if it computes only in this one."""

    async def close(self) -> None:
        """End its processes."""


class OurTasks:
    """Our orchestrator with one model. `reshape` changes each task, and `mode` says how its plan is read."""

    def __init__(self, name: str, mode: Mode = "as-planned", reshape: Callable[[TaskIR], TaskIR] = lambda t: t) -> None:
        self.name = name
        self._mode, self._reshape = mode, reshape
        self._stack = AsyncExitStack()

    @classmethod
    def waves(cls) -> Self:
        """Return our orchestrator with plans whose waves wait for each other."""
        return cls(WAVES, reshape=with_barriers)

    async def open(self, home: Path, registry: Registry) -> Self:
        """Open the state folder and load the models. Raises JournalError, PoolError, EngineError."""
        before = set(psutil.Process().children(recursive=True))
        ports = Ports(follows_registry=False)
        self._orchestrator = await self._stack.enter_async_context(Orchestrator.open(home, registry, ports))
        try:
            for model in registry.models:
                await self._orchestrator.pool.load(model)
        except BaseException:
            await self._stack.aclose()
            raise
        self._processes = [process for process in psutil.Process().children(recursive=True) if process not in before]
        return self

    async def run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        """Submit the task and wait for its end. Raises PeerFailed for one that is not done."""
        job = Job(None, self._reshape(task), None, self._mode)
        started = time.perf_counter()
        run = await self._orchestrator.submit(job)
        async for _ in self._orchestrator.watch(run):
            pass
        seconds = time.perf_counter() - started
        report = await asyncio.to_thread(load_report, self._orchestrator.journal, run)
        if report.status != "done":
            raise PeerFailed(f"{self.name}: the run is {report.status}: {report.error}")
        tokens = sum(step.output_tokens for step in report.steps)
        prompt_tokens = sum(step.prompt_tokens for step in report.steps)
        return TaskTime(seconds, tokens, prompt_tokens, row_of(report, "", "", "as-planned", 0, 0))

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the engines."""
        return cpu_seconds(self._processes)

    async def close(self) -> None:
        """End the engines."""
        await self._stack.aclose()


class OneAgent:
    """llama-cpp-python with one conversation, which does step after step and whose context grows with each.

    What it has written or read is in its context, so it is not told again.
    """

    name = AGENT

    def __init__(self, setup: SystemSetup, thread: ThreadPoolExecutor) -> None:
        """Load the model. All of llama.cpp's work is done in one thread, which keeps its helpers."""
        avoid_broken_amx()
        self._thread = thread
        self._llama: Any = llama_cpp.Llama(
            str(setup.model),
            n_ctx=setup.context,
            n_batch=512,
            n_threads=setup.threads,
            n_threads_batch=setup.threads,
            flash_attn=True,
            verbose=False,
        )
        self._format = Jinja2ChatFormatter(
            template=self._llama.metadata["tokenizer.chat_template"],
            eos_token=self._piece(self._llama.token_eos()),
            bos_token=self._piece(self._llama.token_bos()),
        )

    @classmethod
    async def start(cls, setup: SystemSetup) -> Self:
        """Load the model. `setup.context` has to have room for a whole task."""
        thread = ThreadPoolExecutor(1)
        return await asyncio.get_running_loop().run_in_executor(thread, cls, setup, thread)

    async def run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        """Do the steps one after the other. Raises PeerFailed if they do not fit into its context."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, task, trace)

    def _run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        started = time.perf_counter()
        messages: list[dict[str, str]] = [{"role": "system", "content": trace.calls[0].system}]
        marks = {f"[{name}]" for step in task.plan.steps for name in step.outputs}
        written = prompt_tokens = 0
        for call in trace.calls:
            messages.append({"role": "user", "content": _unknown(call, marks)})
            text, read = self._answer(messages, call.tokens)
            messages.append({"role": "assistant", "content": text})
            written, prompt_tokens = written + call.tokens, prompt_tokens + read
        return TaskTime(time.perf_counter() - started, written, prompt_tokens)

    def _answer(self, messages: Sequence[dict[str, str]], count: int) -> tuple[str, int]:
        """Return an answer of `count` tokens, whatever the model would like, and how many tokens the prompt has."""
        text = self._format(messages=messages).prompt
        tokens = self._llama.tokenize(text.encode(), add_bos=False, special=True)
        if len(tokens) + count > self._llama.n_ctx():
            raise PeerFailed(f"{AGENT}: {len(tokens) + count} tokens do not fit into its context")
        answer: list[int] = []
        for token in self._llama.generate(tokens, temp=0.0, top_k=1):
            answer.append(token)
            if len(answer) == count:
                break
        return self._llama.detokenize(answer).decode(errors="replace"), len(tokens)

    def _piece(self, token: int) -> str:
        return cast(bytes, self._llama.detokenize([token], special=True)).decode(errors="replace") if token >= 0 else ""

    def cpu_seconds(self) -> float:
        """Return 0: it computes in this process, and only while it is asked."""
        return 0.0

    async def close(self) -> None:
        """Free the model."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._llama.close)
        self._thread.shutdown()


def _unknown(call: ModelCall, context: set[str]) -> str:
    """Return a call's message without the texts that are in the context already, and add the others to `context`."""
    *inputs, task = call.user.split("\n\n")
    new = [text for text in inputs if text not in context and text.partition("\n")[0] not in context]
    context.update(new)
    return "\n\n".join([*new, task])


class GreedyExecutor:
    """Starts each call when those that it waits for are done, in the manner of LLMCompiler, on llama-server."""

    name = GREEDY

    def __init__(self, served: Served) -> None:
        self._served = served

    async def run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        """Carry out the calls. Raises PeerFailed."""
        done = {call.id: asyncio.Event() for call in trace.calls}
        usages: list[dict[str, int]] = []

        async def carry_out(call: ModelCall) -> None:
            for name in call.after:
                await done[name].wait()
            messages = [{"role": "system", "content": call.system}, {"role": "user", "content": call.user}]
            body = {"model": "chat", "messages": messages, "max_tokens": call.tokens, "ignore_eos": True}
            usages.append((await self._served.ask({**body, **_GREEDY_SAMPLING}))["usage"])
            done[call.id].set()

        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for call in trace.calls:
                    group.create_task(carry_out(call))
        except* httpx2.HTTPError as errors:
            raise PeerFailed(str(failure(self.name, errors.exceptions[0]))) from errors
        seconds = time.perf_counter() - started
        written = sum(usage["completion_tokens"] for usage in usages)
        return _checked(self.name, trace, TaskTime(seconds, written, sum(usage["prompt_tokens"] for usage in usages)))

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the server."""
        return self._served.cpu_seconds()

    async def close(self) -> None:
        """End the server."""
        await self._served.close()


class LangGraph:
    """LangGraph with a node for each call and langchain-openai's client, in a process with packages of its own."""

    name = LANGGRAPH

    def __init__(self, served: Served, process: asyncio.subprocess.Process) -> None:
        self._served, self._process = served, process

    @classmethod
    async def start(cls, served: Served, python: Path) -> Self:
        """Start the program with the interpreter that has the packages. Raises PeerFailed."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LANG", "OPENAI"))
        }
        try:
            process = await asyncio.create_subprocess_exec(
                str(python),
                str(PROGRAM),
                served.url.removesuffix("/chat/completions"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_REPLY_BYTES,
                env=environment,
            )
        except OSError as error:
            raise PeerFailed(f"{LANGGRAPH} cannot be started: {error}") from error
        system = cls(served, process)
        await system._reply()  # it says that it is ready
        return system

    async def run(self, task: TaskIR, trace: CallTrace) -> TaskTime:
        """Carry out the calls. The time that the program takes is its own measurement. Raises PeerFailed."""
        assert self._process.stdin is not None, "it was started with a pipe"
        calls = [
            {"id": call.id, "after": call.after, "system": call.system, "user": call.user, "tokens": call.tokens}
            for call in trace.calls
        ]
        self._process.stdin.write(json.dumps({"calls": calls, "sampling": _GREEDY_SAMPLING}).encode() + b"\n")
        await self._process.stdin.drain()
        reply = await self._reply()
        return _checked(self.name, trace, TaskTime(reply["seconds"], reply["tokens"], reply["prompt_tokens"]))

    async def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it was started with a pipe"
        line = await self._process.stdout.readline()
        if not line:
            raise PeerFailed(f"{LANGGRAPH}: its program ended with code {await self._process.wait()}; see its stderr")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the server."""
        return self._served.cpu_seconds()

    async def close(self) -> None:
        """End the program and the server."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._served.close()


async def start_server(setup: SystemSetup, binary: Path, name: str) -> Served:
    """Start a llama-server of the peer `name`. Raises PeerFailed."""
    try:
        return await server.start(setup, binary, f"server of {name}", chats=True)
    except ServerFailed as error:
        raise PeerFailed(str(error)) from error


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Return the CPU seconds that the processes which still run have used."""
    times = [process.cpu_times() for process in processes if process.is_running()]
    return sum(each.user + each.system for each in times)


def _checked(name: str, trace: CallTrace, outcome: TaskTime) -> TaskTime:
    if outcome.tokens != trace.tokens:
        raise PeerFailed(f"{name} has written {outcome.tokens} tokens instead of {trace.tokens}")
    return outcome


def room_for_one_agent(setup: SystemSetup, trace: CallTrace) -> SystemSetup:
    """Return the setup with a context that holds a whole task, with some room for what the chat template adds."""
    room = sum(call.prompt_tokens + call.tokens for call in trace.calls)
    return replace(setup, width=1, context=min(room, trace.longest + 64 * len(trace.calls) + trace.tokens) + 256)


def default_python(folder: Path) -> Path:
    """Return the interpreter of the virtual environment with the peers' packages."""
    return folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
