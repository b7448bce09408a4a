"""Give tools something to work on: a folder, inputs, and a run's notes that are journaled at once."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from orchestrator.run.gates.contract import RunJob, no_sandbox
from orchestrator.run.steps.tools.contract import ToolContext
from orchestrator.run.steps.tools.notes import Notes, RunNotes
from orchestrator.run.steps.tools.toolbox import TOOLS, Call, Toolbox
from orchestrator.run.steps.tools.workspace import Workspace
from orchestrator.task.events import NoteChange, NoteChanged


class ToolFixture:
    """A toolbox, and the calls that were told."""

    def __init__(
        self,
        folder: Path,
        inputs: Mapping[str, str] | None = None,
        outputs: tuple[str, ...] = (),
        granted: tuple[str, ...] = tuple(TOOLS),
        run: RunJob = no_sandbox,
    ) -> None:
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        self.notes = RunNotes()
        self.calls: list[Call] = []
        self.workspace = Workspace(folder, files, inputs or {}, outputs)
        context = ToolContext(self.workspace, Notes(self.notes, "S1", self._journal), run)
        self.toolbox = Toolbox(granted, context, self.calls.append)

    def _journal(self, note: str, change: NoteChange, text: str) -> NoteChanged:
        event = NoteChanged(at=1.0, step="S1", number=1, note=note, change=change, text=text)
        asyncio.get_running_loop().call_soon(self.notes.apply, event)
        return event

    async def call(self, tool: str, /, **arguments: object) -> object:
        """Call a tool and return its value."""
        return (await self.toolbox.call(tool, arguments)).value
