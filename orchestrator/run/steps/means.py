"""What the runner of a step may act with. Each kind of step takes what it needs."""

from pathlib import Path
from typing import Protocol

from orchestrator.run.steps.attempt import Attempt
from orchestrator.run.steps.repl.session import Open
from orchestrator.run.steps.repl.subcalls import SubcallModels
from orchestrator.run.steps.tools.toolbox import Call, Toolbox


class Means(Protocol):
    """The means of one attempt: those of `AttemptContext`, which knows what all runs share, as steps do not."""

    @property
    def attempt(self) -> Attempt: ...

    @property
    def context_tokens(self) -> int | None:
        """The tokens of one sequence of the attempt's model; None if unknown."""

    @property
    def sessions(self) -> Open:
        """Opens sessions of interpreters in the sandbox."""

    @property
    def folder(self) -> Path:
        """A folder of the attempt's own, for what its code prints. It may not exist yet."""

    def toolbox(self) -> Toolbox:
        """Return the tools that the step was granted."""

    def subcalls(self) -> SubcallModels:
        """Return the models that the attempt's code may ask."""

    def journal_call(self, call: Call) -> None:
        """Journal a finished call of a tool or of a model."""
