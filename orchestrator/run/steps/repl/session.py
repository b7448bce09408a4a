"""Run a step's code turn by turn in one interpreter in the sandbox, and answer its requests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.run.sandbox.contract import (
    MIB,
    JobOutcome,
    SandboxJob,
    SandboxLimits,
)
from orchestrator.run.sandbox.errors import (
    ChannelBroken,
    SandboxError,
    SandboxUnavailable,
    StartTimeout,
)
from orchestrator.run.sandbox.session import MESSAGE_LIMIT, Session
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.repl.host import Host
from orchestrator.run.steps.repl.outputs import Outputs, TooMuchOutput, peek
from orchestrator.run.steps.repl.protocol import (
    Answer,
    Ask,
    Done,
    FromInterpreter,
    InputText,
    Printed,
    ReplProtocolError,
    Run,
    decode,
    encode,
)
from orchestrator.run.steps.repl.subcalls import ReplBudget
from orchestrator.task.events import Failure, FailureKind

PROGRAM = "interpreter.py"
# Characters of an input in one message. However JSON escapes them, the message stays below its limit.
PIECE = 1_000_000

# From one interpreter, so that code which only sends requests ends some time.
MOST_MESSAGES = 50_000

EVIDENCE = 2_000
# An interpreter runs for long, so its limits are low. Without a control group, MEMORY is the limit of each process.
MEMORY = 256 * MIB
PROCESSES = 4
DISK = 16 * MIB

# Opens a session in the sandbox. Raises `SandboxError`.
Open = Callable[[SandboxJob], AbstractAsyncContextManager[Session]]

_TIMES = ("wall", "cpu")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    shown: str  # output as the model sees it
    rest: str  # the call by which the code can look at the rest
    final: bool  # whether the code has called `final`
    value: Any  # that `final` got
    error: str | None  # the traceback of a turn that failed


class Interpreter:
    """One interpreter. Calls raise `AttemptError` if its program has ended or breaks the protocol."""

    def __init__(self, session: Session, host: Host, outputs: Outputs, budget: ReplBudget) -> None:
        self._session = session
        self._host = host
        self._outputs = outputs
        self._budget = budget
        self._turns = 0
        self._messages = 0

    async def feed(self, inputs: Mapping[str, str]) -> None:
        for name, text in inputs.items():
            for start in range(0, max(1, len(text)), PIECE):
                await self._send(InputText(name, text[start : start + PIECE]))

    async def run(self, code: str) -> TurnEnd:
        self._turns += 1
        printed: list[str] = []
        await self._send(Run(self._turns, code, self._budget.turn_seconds, self._budget.turn_output))
        while True:
            match await self._receive(printed):
                case Printed(text):
                    self._admit(text)
                    printed.append(text)
                case Ask() as request:
                    await self._send(await self._host.answer(request))
                case Done() as end:
                    return await self._ended("".join(printed), end)

    async def _ended(self, printed: str, end: Done) -> TurnEnd:
        self._admit(end.error or "")
        whole = "\n".join(filter(None, (printed.rstrip("\n"), end.error)))
        shown = await asyncio.to_thread(self._outputs.keep, whole)
        return TurnEnd(shown, peek(self._outputs.last), end.final, end.value, end.error)

    def _admit(self, text: str) -> None:
        try:
            self._outputs.admit(text)
        except TooMuchOutput as error:
            raise AttemptError(Failure(FailureKind.RESOURCE, str(error))) from error

    async def _send(self, message: InputText | Run | Answer) -> None:
        body = encode(message)
        if len(body) > MESSAGE_LIMIT:
            body = encode(Answer(error=f"the answer is too long; accepted: {MESSAGE_LIMIT >> 20} MiB, ask for a part"))
        if not await self._session.send(body):
            raise await self._ended_early(())

    async def _receive(self, printed: Sequence[str]) -> FromInterpreter:
        try:
            body = await self._session.receive()
            if body is None:
                raise await self._ended_early(printed)
            self._messages += 1
            if self._messages > MOST_MESSAGES:
                raise AttemptError(Failure(FailureKind.RESOURCE, f"the step's code sent {self._messages} messages"))
            return decode(body)
        except (ChannelBroken, ReplProtocolError) as error:
            message = f"the step's code broke its interpreter: {error}"
            raise AttemptError(Failure(FailureKind.CODE, message, message)) from error

    async def _ended_early(self, printed: Sequence[str]) -> AttemptError:
        outcome = await self._session.end()
        return AttemptError(_failure_of(outcome, printed))


@asynccontextmanager
async def interpreter(sessions: Open, host: Host, outputs: Outputs, budget: ReplBudget) -> AsyncIterator[Interpreter]:
    """Run an interpreter while the block lasts. Raises `AttemptError` if the sandbox is not available."""
    limits = SandboxLimits(
        wall=budget.seconds, cpu=max(1, int(budget.seconds)), memory=MEMORY, processes=PROCESSES, disk=DISK
    )
    program = await asyncio.to_thread(Path(__file__).with_name(PROGRAM).read_bytes)
    job = SandboxJob(argv=("python", "-I", PROGRAM), files={PROGRAM: program}, limits=limits)
    try:
        async with sessions(job) as session:
            yield Interpreter(session, host, outputs, budget)
    except RecursionError as error:
        message = "the step's code sent a value that is nested too deep"
        raise AttemptError(Failure(FailureKind.CODE, message, message)) from error
    except SandboxError as error:
        final = isinstance(error, SandboxUnavailable) and not isinstance(error, StartTimeout)
        raise AttemptError(Failure(FailureKind.INFRASTRUCTURE, str(error), final=final)) from error


def _failure_of(outcome: JobOutcome, printed: Sequence[str]) -> Failure:
    output = "".join([*printed, outcome.stderr.decode(errors="replace")])[-EVIDENCE:]
    if outcome.limit:
        if outcome.starved:
            return Failure(FailureKind.INFRASTRUCTURE, "the step's code hardly got a core: this machine is too busy")
        kind = FailureKind.TIMEOUT if outcome.limit in _TIMES else FailureKind.RESOURCE
        return Failure(kind, f"the step's code ran into the limit of its sandbox: {outcome.limit}", output)
    how = f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"
    message = f"the step's code ended its interpreter ({how})"
    return Failure(FailureKind.CODE, message, f"{message}\n{output}".strip())
