"""Answer questions to the memory's graph, in a program that runs in the sandbox."""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil

from orchestrator.errors import InputError, Problem
from orchestrator.memrl.errors import CypherFailed, CypherRefused, CypherTimeout, GraphError
from orchestrator.memrl.graph import GraphAnswer, ProcessEnd, ReaderJob
from orchestrator.memrl.learning import Learning
from orchestrator.memrl.memory import Memory
from orchestrator.run.sandbox import MIB, Sandbox, SandboxError, SandboxJob, SandboxLimits

ProbeSandbox = Callable[[], Awaitable[Sandbox]]  # raises SandboxUnavailable

_PROGRAM = "graph_reader.py"
_PROCESSES = 2  # the program, and the thread of the graph's library that evaluates


async def ask_memory(learning: Learning, sandbox: ProbeSandbox, cypher: str, seconds: float) -> GraphAnswer:
    """Return the graph's answer to a Cypher question. Raises InputError, MemoryUnavailable, MemrlError."""
    try:
        return await ask_graph(learning.memory, sandbox, cypher, seconds)
    except (CypherRefused, CypherFailed, CypherTimeout) as error:
        raise InputError(Problem("CYPHER", str(error), "a question that only reads the graph")) from error


async def ask_graph(
    memory: Memory, sandbox: ProbeSandbox, cypher: str, seconds: float = 10.0, rows: int = 1000
) -> GraphAnswer:
    """Return at most `rows` rows of the graph's answer. Raises MemrlError, as `Memory.ask` does."""
    loop = asyncio.get_running_loop()

    def confined(job: ReaderJob) -> ProcessEnd:
        return asyncio.run_coroutine_threadsafe(_run_in_sandbox(sandbox, job), loop).result()

    return await asyncio.to_thread(memory.ask, cypher, confined, seconds, rows)


async def _run_in_sandbox(sandbox: ProbeSandbox, job: ReaderJob) -> ProcessEnd:
    limits = SandboxLimits(
        wall=job.seconds,
        cpu=ceil(job.seconds),
        memory=job.memory,
        processes=_PROCESSES,
        disk=MIB,
        output=job.output,
    )
    try:
        shown = (await sandbox()).showing([str(job.graph)])
        outcome = await shown.run(
            SandboxJob(
                argv=("python", "-I", _PROGRAM, *job.arguments),
                files={_PROGRAM: job.source},
                stdin=job.question,
                limits=limits,
            )
        )
    except SandboxError as error:
        raise GraphError(f"questions to the graph are only answered in the sandbox: {error}") from error
    return ProcessEnd(
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        limit=outcome.limit,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
    )
