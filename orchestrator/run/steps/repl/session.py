"""Run a step's code in one interpreter in the sandbox, turn by turn, and answer its requests meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.run.sandbox import (
    MESSAGE_LIMIT,
    MIB,
    ChannelBroken,
    JobOutcome,
    SandboxError,
    SandboxJob,
    SandboxLimits,
    SandboxUnavailable,
    Session,
    StartTimeout,
)
from orchestrator.run.steps.errors import AttemptError
from orchestrator.run.steps.repl.budget import ReplBudget
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
from orchestrator.task.events import Failure, FailureKind

PROGRAM = "interpreter.py"
PIECE = 1_000_000
"""How many characters of an input one message has. However JSON escapes them, the message stays below its limit."""

MOST_MESSAGES = 50_000
"""The most messages that an interpreter may send, so that code which only sends requests ends some time."""

EVIDENCE = 2_000
MEMORY = 256 * MIB
PROCESSES = 4
DISK = 16 * MIB
"""An interpreter runs for long, so its limits are low. Without a control group, MEMORY is the limit of each process."""

Open = Callable[[SandboxJob], AbstractAsyncContextManager[Session]]
"""Opens a session in the sandbox. Raises `SandboxError`."""

_TIMES = ("wall", "cpu")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended."""

    shown: str
    """What the model is shown of the output."""
    rest: str
    """The call by which the code can look at the rest of it."""
    final: bool
    """Whether the code has called `final`."""
    value: Any
    """The value that `final` was given."""
    error: str | None
    """The traceback of a turn that failed."""


class Interpreter:
    """One interpreter. Calls raise `AttemptError` where its program has ended, or breaks the protocol."""

    def __init__(self, session: Session, host: Host, outputs: Outputs, budget: ReplBudget) -> None:
        self._session = session
        self._host = host
        self._outputs = outputs
        self._budget = budget
        self._turns = 0
        self._messages = 0

    async def feed(self, inputs: Mapping[str, str]) -> None:
        """Send the interpreter the inputs of the step, by name."""
        for name, text in inputs.items():
            for start in range(0, max(1, len(text)), PIECE):
                await self._send(InputText(name, text[start : start + PIECE]))

    async def run(self, code: str) -> TurnEnd:
        """Run the code of one turn to its end."""
        self._turns += 1
        printed: list[str] = []
        await self._send(Run(self._turns, code, self._budget.turn_seconds, self._budget.turn_output))
        while True:
            match await self._receive(printed):
                case Printed(text):
                    self._admit(text)
                    printed.append(text)
                case Ask() as asked:
                    await self._send(await self._host.answer(asked))
                case Done() as done:
                    return await self._ended("".join(printed), done)

    async def _ended(self, printed: str, done: Done) -> TurnEnd:
        self._admit(done.error or "")
        whole = "\n".join(filter(None, (printed.rstrip("\n"), done.error)))
        shown = await asyncio.to_thread(self._outputs.keep, whole)
        return TurnEnd(shown, peek(self._outputs.last), done.final, done.value, done.error)

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
    """Run an interpreter for as long as the block lasts. Raises `AttemptError` where the sandbox is not available."""
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
    said = "".join([*printed, outcome.stderr.decode(errors="replace")])[-EVIDENCE:]
    if outcome.limit:
        if outcome.starved:
            return Failure(FailureKind.INFRASTRUCTURE, "the step's code hardly got a core: this machine is too busy")
        kind = FailureKind.TIMEOUT if outcome.limit in _TIMES else FailureKind.RESOURCE
        return Failure(kind, f"the step's code ran into the limit of its sandbox: {outcome.limit}", said)
    how = f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"
    message = f"the step's code ended its interpreter ({how})"
    return Failure(FailureKind.CODE, message, f"{message}\n{said}".strip())
