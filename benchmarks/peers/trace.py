"""Record what a task asks of a model on our orchestrator, so that the peers get the same prompts and token counts.

Our steps end where their schema says, so the numbers of tokens are known only when the model has written. Each peer
then has to write exactly as many for each prompt, without a grammar, which would cost it time.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from orchestrator.engine.client.engine import Completion, Engine, OnText
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.files import replace_file
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import Report, load_report
from orchestrator.task.events import AttemptGenerated, Usage
from orchestrator.task.taskir.models import TaskIR

_Key = tuple[int, int, float, float]


class NotRecorded(Exception):
    """A task cannot be measured, because it does not succeed on our own orchestrator; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to the model."""

    id: str
    after: tuple[str, ...]  # the calls whose answers it waits for
    system: str
    user: str
    prompt_tokens: int
    tokens: int  # how many tokens are to be written


@dataclass(frozen=True, slots=True)
class CallTrace:
    """The calls of a task. Each one comes after those that it waits for."""

    calls: tuple[ModelCall, ...]

    @property
    def tokens(self) -> int:
        """How many tokens are written in all."""
        return sum(call.tokens for call in self.calls)

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompts have in all."""
        return sum(call.prompt_tokens for call in self.calls)

    @property
    def longest(self) -> int:
        """The tokens of the longest prompt with its answer."""
        return max(call.prompt_tokens + call.tokens for call in self.calls)

    @property
    def width(self) -> int:
        """The most calls of which none waits for another one, directly or not.

        By Dilworth's theorem it is the number of calls less that of a largest matching of calls with later ones.
        """
        later: dict[str, set[str]] = {call.id: set() for call in self.calls}
        for call in reversed(self.calls):
            for name in call.after:
                later[name] |= {call.id} | later[call.id]
        matched: dict[str, str] = {}

        def match(name: str, seen: set[str]) -> bool:
            for other in later[name]:
                if other in seen:
                    continue
                seen.add(other)
                if other not in matched or match(matched[other], seen):
                    matched[other] = name
                    return True
            return False

        return len(self.calls) - sum(match(call.id, set()) for call in self.calls)


def read_trace(file: Path) -> CallTrace | None:
    """Return the trace in a file, or None if there is none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=CallTrace)
    except (OSError, msgspec.DecodeError):
        return None


def write_trace(file: Path, trace: CallTrace) -> None:
    """Write a trace. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(asdict(trace)))


class Recorder:
    """Our orchestrator on a state folder of its own, with engines that are listened to. An async context manager."""

    def __init__(self, home: Path, registry: Registry) -> None:
        self._home, self._registry = home, registry
        self._heard: dict[_Key, Generation] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Recorder":
        ports = Ports(follows_registry=False, start_engine=self._start)
        opened = Orchestrator.open(self._home, self._registry, ports)
        self._orchestrator = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def record(self, task: TaskIR) -> CallTrace:
        """Run a task and return its calls. Raises NotRecorded, InputError, JournalError."""
        self._heard.clear()
        run = await self._orchestrator.submit(Job(None, task, None, "as-planned"))
        async for _ in self._orchestrator.watch(run):
            pass
        report = await asyncio.to_thread(load_report, self._orchestrator.journal, run)
        if report.status != "done":
            raise NotRecorded(f"the run is {report.status}: {report.error or _causes(report)}")
        journaled = (event for _, event in self._orchestrator.journal.events(run))
        generated = [event for event in journaled if isinstance(event, AttemptGenerated)]
        return CallTrace(tuple(self._calls(report, generated)))

    async def _start(self, spec: EngineSpec) -> Engine:
        engine = await _Listening.start(spec)
        engine.heard = self._heard
        return engine

    def _calls(self, report: Report, generated: list[AttemptGenerated]) -> Iterator[ModelCall]:
        """Yield the calls by the end of their attempts. Attempts of one step wait for each other."""
        rows = {step.id: step for step in report.steps}
        calls: dict[str, list[str]] = {}
        for event in generated:
            request = self._heard.get(_key(event.usage))
            if request is None or [message.role for message in request.messages] != ["system", "user"]:
                raise NotRecorded(f"step {event.step} did not ask its model by a system and a user message")
            row = rows[event.step]
            waits = row.depends_on or (rows[row.parent].depends_on if row.parent else ())
            before = [child for name in waits for child in (rows[name].children or (name,))]
            mine = calls.setdefault(event.step, [])
            after = mine[-1:] or [call for name in before for call in calls.get(name, ())[-1:]]
            name = f"{event.step}#{event.number}"
            mine.append(name)
            system, user = (message.content for message in request.messages)
            usage = event.usage
            yield ModelCall(name, tuple(after), system, user, usage.prompt_tokens, usage.output_tokens)


class _Listening(Engine):
    """An engine that remembers what it was asked."""

    heard: dict[_Key, Generation]

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate as every engine does."""
        completion = await super().generate(request, on_text, on_thought)
        self.heard[_key(completion.usage)] = request
        return completion


def _key(usage: Usage) -> _Key:
    """Return what tells one generation from another; the pool changes nothing of it."""
    return usage.prompt_tokens, usage.output_tokens, usage.prefill_seconds, usage.decode_seconds


def _causes(report: Report) -> str:
    return "; ".join(f"{step.id}: {step.cause}" for step in report.steps if step.cause) or "no step says why"
