"""Run a step's code in the real sandbox, with models that a test decides about."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.repl.host import Host
from orchestrator.run.steps.repl.outputs import Outputs
from orchestrator.run.steps.repl.session import Interpreter, interpreter
from orchestrator.run.steps.repl.subcalls import NoSuchRole, ReplBudget, Spending, SubcallModels
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.run.steps.tools.contract import ToolContext
from orchestrator.run.steps.tools.notes import Notes, RunNotes
from orchestrator.run.steps.tools.toolbox import Call, Toolbox
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import NoteChange, NoteChanged, Usage

INPUTS = {"ship.txt": "name: Koldin\nweight: 12 t\n", "long.txt": "line\n" * 300_000}
Reply = Callable[[Generation], Completion | EngineError | PoolError]


def echo(request: Generation) -> Completion:
    """Answer with what was asked."""
    return Completion(f"<{request.messages[-1][1]}>", "stop", Usage(prompt_tokens=10, output_tokens=5))


class ReplFixture:
    """Everything that an interpreter needs but the sandbox. `batches` are the calls of the pool, (model, requests)."""

    def __init__(self, folder: Path, budget: ReplBudget, reply: Reply, granted: tuple[str, ...]) -> None:
        self.calls: list[Call] = []
        self.batches: list[tuple[str, Sequence[Generation]]] = []
        self.spending, self.outputs, self.budget, self._reply = Spending(budget), Outputs(folder), budget, reply
        self.workspace = Workspace(None, (), INPUTS, ("o.txt", "p.txt"))
        context = ToolContext(self.workspace, Notes(RunNotes(), "S1", _no_notes))
        self.toolbox = Toolbox(granted, context, self.calls.append)
        self.subcalls = SubcallModels(self.resolve, self.batch)

    def resolve(self, role: str | None, persona: str | None) -> ResolvedRole:
        """Everybody has a model of the same name, but for the plumber, who does not exist."""
        if role == "plumber":
            raise NoSuchRole("there is no role 'plumber'; accepted: worker, coder")
        model = role or "own"
        return ResolvedRole(
            model=model, system=f"I am {model}.", persona=persona or "", max_tokens=64, temperature=0, top_p=1
        )

    async def batch(self, model: str, requests: Sequence[Generation]) -> list[Completion | EngineError | PoolError]:
        """Answer as the pool's call does."""
        self.batches.append((model, requests))
        return [self._reply(request) for request in requests]


@asynccontextmanager
async def running(
    sandbox: Sandbox,
    folder: Path,
    *,
    budget: ReplBudget | None = None,
    reply: Reply = echo,
    granted: tuple[str, ...] = ("read_file", "list_files"),
) -> AsyncIterator[tuple[Interpreter, ReplFixture]]:
    """Have an interpreter with its inputs."""
    fixture = ReplFixture(folder, budget or ReplBudget(), reply, granted)
    host = Host(fixture.toolbox, fixture.outputs, fixture.subcalls, fixture.spending, fixture.calls.append)
    async with interpreter(sandbox.open, host, fixture.outputs, fixture.budget) as program:
        await program.feed(INPUTS)
        yield program, fixture


def _no_notes(note: str, change: NoteChange, text: str) -> NoteChanged:
    raise AssertionError("no step here takes notes")


def shown(*values: Any) -> str:
    """Return what printing these gives."""
    return "\n".join(map(str, values))
