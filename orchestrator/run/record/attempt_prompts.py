"""Take the prompt of an attempt apart: what it said, and which part of it other steps of the run said, too.

The journal has no prompts, but what they are made of. The parts are in the order of the prompt; the words around them,
and what tools and code steps add, are left out.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.objects import digest_of
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.steps import RunStep
from orchestrator.run.record.view import AttemptRow, RunView
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.files import UnreadableFile, read_bytes, text_of
from orchestrator.run.steps.foreach import items_of
from orchestrator.task.analysis import Source
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.failures import demands, failures_shown_to, feedback
from orchestrator.task.taskir.models import compose_name, find_name

TEXT_UNAVAILABLE = "its text is not kept: only its digest was recorded, and the file has changed or is gone"
NOT_RECORDED = "its text is not kept, and no digest of it was recorded"
LISTED_AGAIN = "the list was asked for again, and its items are not kept"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt. `text` is empty if `why_not` says why it is not known."""

    kind: Literal["system", "persona", "input", "item", "task", "evidence"]
    name: str = ""  # of an input
    text: str = ""
    why_not: str = ""
    shared_with: str = ""  # the first step of which a prompt starts with the same parts, up to this one; empty for none


@dataclass(frozen=True, slots=True)
class _Key:
    # What a part stands for; equal keys have equal texts.
    kind: Literal["system", "persona", "input", "item", "task", "evidence"]
    name: str
    version: str  # a digest, the text itself, or empty for what has one version in a run


class SharedPrompts:
    """Which steps of a run have prompts that start with the same parts.

    For each start of a prompt, as a model has computed it, the two steps that used it first are kept: the second one
    answers for the first.
    """

    def __init__(self, view: RunView) -> None:
        self.names = _names_that_several_steps_read(view)
        self._nodes: dict[tuple[str | int, _Key], int] = {}  # numbers of starts, by the one without the last part
        self._first: defaultdict[int, dict[str, float]] = defaultdict(dict)  # by step, when it used this start
        for step, attempts in view.attempts.items():
            for row in attempts:
                self._add(step, row, _keys(view, step, row, self.names))

    def partners(self, step: str, attempt: AttemptRow, keys: Sequence[_Key]) -> list[str]:
        """Return for each part the step that used this start first, other than `step`; empty for none."""
        return [
            min(((at, other) for other, at in self._first[node].items() if other != step), default=(0.0, ""))[1]
            for node in self._path(attempt, keys)
        ]

    def _add(self, step: str, attempt: AttemptRow, keys: Sequence[_Key]) -> None:
        for node in self._path(attempt, keys):
            first = self._first[node]
            first[step] = min(attempt.started, first.get(step, attempt.started))
            if len(first) > 2:
                del first[max(first, key=lambda name: (first[name], name))]

    def _path(self, attempt: AttemptRow, keys: Sequence[_Key]) -> Iterator[int]:
        start: str | int = attempt.model  # what a model has computed is of no use to another
        for key in keys:
            start = self._nodes.setdefault((start, key), len(self._nodes))
            yield start


def attempt_prompt(
    journal: JournalReader, view: RunView, step: str, number: int, shared: SharedPrompts | None = None
) -> tuple[PromptPart, ...]:
    """Return the parts of the prompt of an attempt. Blocks on the disk.

    The step and the attempt must exist. Inputs have the versions that are in force now. Give `shared`, of the same
    view, to ask for several attempts.
    """
    row = next(row for row in view.attempts[step] if row.number == number)
    prompts = shared or SharedPrompts(view)
    keys = _keys(view, step, row, prompts.names)
    parts = (_part(journal, view, step, key) for key in keys)
    partners = prompts.partners(step, row, keys)
    return tuple(replace(part, shared_with=partner) for part, partner in zip(parts, partners, strict=True))


def _keys(view: RunView, step: str, attempt: AttemptRow, shared: frozenset[str]) -> list[_Key]:
    row = view.state.steps[step]
    keys = [_Key("system", "", attempt.prompts.system), _Key("persona", "", attempt.prompts.persona)]
    keys += _input_keys(view, row, shared)
    keys.append(_Key("task", "", row.step.action))
    earlier = [other for other in view.attempts[step] if other.number < attempt.number]
    # one that was done was repaired after it
    failed = row.failures[: sum(other.outcome in {"done", *FailureKind} for other in earlier)]
    keys += [_Key("evidence", "", text) for text in _evidence(attempt, failures_shown_to(attempt.role, failed))]
    return [key for key in keys if key.version or key.kind in ("input", "item")]


def _evidence(attempt: AttemptRow, failures: Sequence[Failure]) -> tuple[str, ...]:
    if attempt.prompts.shipped.startswith("tiny-"):
        return feedback(failures)
    return (*feedback([failure for failure in failures if not failure.demand]), *demands(failures))


def _input_keys(view: RunView, row: RunStep, shared: frozenset[str]) -> Iterator[_Key]:
    sources = _sources(view, row)
    item = row.parent is not None
    names = [name for name in dict.fromkeys(row.step.inputs) if not (item and name == row.step.foreach)]
    for name in sorted(names, key=lambda name: name not in shared):
        yield _Key("input", name, _digest(view, name, sources[name]))
    if item and row.step.foreach is not None:
        yield _Key("item", f"{row.step.foreach}{row.id.removeprefix(row.parent or '')}", row.id)


def _part(journal: JournalReader, view: RunView, step: str, key: _Key) -> PromptPart:
    row = view.state.steps[step]
    match key.kind:
        case "system" | "persona":
            return PromptPart(key.kind, text=journal.get(key.version).decode(errors="replace"))
        case "task" | "evidence":
            return PromptPart(key.kind, text=key.version)
        case "input":
            text, why_not = _text(journal, view, key.name, _sources(view, row)[key.name])
        case "item":
            text, why_not = _item(journal, view, row)
    return PromptPart(key.kind, key.name, text, why_not)


def _item(journal: JournalReader, view: RunView, row: RunStep) -> tuple[str, str]:
    name, parent = row.step.foreach or "", view.state.steps[row.parent or ""]
    text, why_not = _text(journal, view, name, _sources(view, row)[name])
    if why_not:
        return "", why_not
    try:
        items = items_of(name, text).texts
    except AttemptError as error:
        return "", str(error)
    children = parent.children or ()
    return (items[children.index(row.id)], "") if len(items) == len(children) else ("", LISTED_AGAIN)


def _text(journal: JournalReader, view: RunView, name: str, source: Source) -> tuple[str, str]:
    # The text, or why it is not known.
    if digest := _stored(view, name, source):
        try:
            return journal.get(digest).decode(errors="replace"), ""
        except JournalError as error:
            return "", str(error)
    task_input = _task_input(view, name) if source.kind == "input" else None
    if task_input is not None and task_input[0] == "text":
        return task_input[1], ""
    return _file(view, name if task_input is None else task_input[1])


def _file(view: RunView, name: str) -> tuple[str, str]:
    versions, folder = view.versions.get(compose_name(name), ()), view.accepted.directory
    if not versions or folder is None:
        return "", NOT_RECORDED
    try:
        data = read_bytes(Path(folder), name)
        # Only what the run has read: the folder may hold something else by now.
        return (text_of(name, data), "") if digest_of(data) in versions else ("", TEXT_UNAVAILABLE)
    except UnreadableFile:
        return "", TEXT_UNAVAILABLE


def _digest(view: RunView, name: str, source: Source) -> str:
    return _stored(view, name, source) or (f"input {name}" if source.kind == "input" else f"file {name}")


def _stored(view: RunView, name: str, source: Source) -> str:
    # The digest of an artifact of this run or of an earlier one; empty for any other value.
    if source.step is not None:
        return view.outputs.get(source.step, {}).get(source.name or name, "")
    task_input = _task_input(view, name) if source.kind == "input" else None
    if task_input is not None and task_input[0] != "path":
        return ""
    prior = find_name(name if task_input is None else task_input[1], view.accepted.prior)
    return "" if prior is None else view.accepted.prior[prior]


def _task_input(view: RunView, name: str) -> tuple[str, str] | None:
    # Its type and value; None if there is none.
    task = view.accepted.task
    if task is None:  # steps of a plan may read the request itself
        return "text", view.accepted.request or ""
    source = (task.paths | dict(zip(task.labels, task.inputs, strict=True))).get(name)
    return None if source is None else (source.type, source.value)


def _sources(view: RunView, row: RunStep) -> Mapping[str, Source]:
    return view.graph.sources[row.parent or row.id]


def _names_that_several_steps_read(view: RunView) -> frozenset[str]:
    once, shared = set[str](), set[str]()
    for step in view.graph.steps.values():
        names = set(step.inputs)
        shared |= names if step.foreach is not None else names & once
        once |= names
    return frozenset(shared)
