"""Find out which outputs of a run the user gets, and which files of the user's folder they are new versions of."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.history.view import RunView
from orchestrator.steps.seen import NO_FILE
from orchestrator.taskir.names import compose_name


@dataclass(frozen=True, slots=True)
class Result:
    """An output of a run that the user gets."""

    name: str
    digest: str
    """The digest of its newest version."""
    versions: tuple[str, ...] = ()
    """The digests of what the run saw under this name in its folder, in the order of time; empty for no file.

    There is one if the file has not changed while the run read it, and none if the run saw nothing, as a run without a
    folder.
    """

    @property
    def original(self) -> str | None:
        """The digest of the file that it is a new version of; None if there is no such file, or if it has changed."""
        return self.versions[0] if len(self.versions) == 1 and self.versions != (NO_FILE,) else None


def results(view: RunView) -> tuple[Result, ...]:
    """Return what a run has made for the user: the wanted outputs.

    If the plan does not say which are wanted, these are the outputs that no other step reads, and all new versions of
    files.
    """
    chosen = wanted_outputs(view)
    if not view.wanted:
        chosen |= {name: digest for name, digest in _newest(view).items() if _replaces(view, name)}
    return tuple(Result(name, digest, view.versions.get(compose_name(name), ())) for name, digest in chosen.items())


def wanted_outputs(view: RunView) -> dict[str, str]:
    """Return the digests of the outputs that the answer consists of, by name: the wanted ones that there are.

    If the plan does not say which are wanted, these are the outputs of the steps that no other step depends on.
    """
    if view.wanted:
        newest = _newest(view)
        return {name: newest[name] for name in view.wanted if name in newest}
    continued = {row.after for row in view.replans if row.steps}
    graph = view.graph
    last = [step for step in graph.steps if not graph.after[step] and step not in continued]
    return {name: digest for step in last for name, digest in view.outputs.get(step, {}).items()}


def _newest(view: RunView) -> Mapping[str, str]:
    """Return the newest version of each output, by name, in document order; none of single items of a list."""
    return {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}


def _replaces(view: RunView, name: str) -> bool:
    versions = view.versions.get(compose_name(name), ())
    return any(version != NO_FILE for version in versions)
