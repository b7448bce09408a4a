"""What a run has made for its user: the answer, the results, and which files of the user's folder they replace."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.run.record.view import RunView
from orchestrator.run.steps.seen import NO_FILE
from orchestrator.task.taskir.names import compose_name


def answer_outputs(view: RunView) -> dict[str, str]:
    """Return the outputs that are the answer, in order: artifact name to digest."""
    outputs = {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}
    if answer := {name: outputs[name] for name in view.wanted if name in outputs}:
        return answer
    # If the plan names no wanted outputs, the answer is what no other step depends on.
    continued = {row.after for row in view.replans if row.steps}
    last = [step for step in view.graph.steps if not view.graph.after[step] and step not in continued]
    return {name: outputs[name] for step in last for name in view.outputs.get(step, {})}


def answer_text(texts: Mapping[str, str], request: str) -> str:
    """Return the answer as one text: each output under its name, a single one without unless the request names it."""
    if len(texts) == 1:
        ((name, text),) = texts.items()
        if name not in request:
            return text
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())


@dataclass(frozen=True, slots=True)
class RunResult:
    """An output of a run that the user gets."""

    name: str
    digest: str  # of its newest version
    # The digest of the file in the run's folder that it replaces; `NO_FILE` if there was no such file, and None if the
    # run has not recorded that.
    original: str | None = None
    has_changed: bool = False  # the run saw several versions of that file: somebody changed it meanwhile


def results(view: RunView) -> tuple[RunResult, ...]:
    """Return what a run has made for the user: the wanted outputs."""
    outputs = answer_outputs(view)
    if not view.wanted:
        # The plan does not say which: the outputs that no other step reads, and all new versions of files.
        outputs |= {name: digest for name, digest in _newest(view).items() if _replaces(view, name)}
    return tuple(_result(view, name, digest) for name, digest in outputs.items())


def _result(view: RunView, name: str, digest: str) -> RunResult:
    file = compose_name(name)
    return RunResult(name, digest, view.originals.get(file), len(view.versions.get(file, ())) > 1)


def _newest(view: RunView) -> Mapping[str, str]:
    # In document order; no single items of a list.
    return {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}


def _replaces(view: RunView, name: str) -> bool:
    return view.originals.get(compose_name(name), NO_FILE) != NO_FILE
