"""Find out which outputs of a run the user gets, and which files of the user's folder they are new versions of."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.run.record.answer import answer_outputs
from orchestrator.run.record.view import RunView
from orchestrator.run.steps.seen import NO_FILE
from orchestrator.task.taskir.names import compose_name


@dataclass(frozen=True, slots=True)
class RunResult:
    """An output of a run that the user gets."""

    name: str
    digest: str
    """The digest of its newest version."""
    original: str | None = None
    """The digest of the file in the run's folder that it is a new version of; `NO_FILE` if there was no such file, and
    None if the run has not recorded that."""
    has_changed: bool = False
    """Whether the run saw several versions of that file, because somebody changed it meanwhile."""


def results(view: RunView) -> tuple[RunResult, ...]:
    """Return what a run has made for the user: the wanted outputs.

    If the plan does not say which are wanted, these are the outputs that no other step reads, and all new versions of
    files.
    """
    chosen = answer_outputs(view)
    if not view.wanted:
        chosen |= {name: digest for name, digest in _newest(view).items() if _replaces(view, name)}
    return tuple(_result(view, name, digest) for name, digest in chosen.items())


def _result(view: RunView, name: str, digest: str) -> RunResult:
    file = compose_name(name)
    return RunResult(name, digest, view.originals.get(file), len(view.versions.get(file, ())) > 1)


def _newest(view: RunView) -> Mapping[str, str]:
    """Return the newest version of each output, by name, in document order; none of single items of a list."""
    return {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}


def _replaces(view: RunView, name: str) -> bool:
    return view.originals.get(compose_name(name), NO_FILE) != NO_FILE
