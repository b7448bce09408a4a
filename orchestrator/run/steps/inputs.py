"""Find and read what a step reads: artifacts, inputs of the task, files, items of a list."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.steps.attempt import AttemptError, unusable_input
from orchestrator.run.steps.files import SeenFiles, UnreadableFile, size_of
from orchestrator.run.steps.foreach import Items, items_of
from orchestrator.run.steps.role import StepInput
from orchestrator.task.analysis import Source
from orchestrator.task.events import Failure, FailureKind, InputSize
from orchestrator.task.taskir.models import Step, TaskInput, find_name


class RunInputs:
    """What the steps of one run can read. Calls may block on the disk, and raise `AttemptError`.

    `inputs` are the task's, by label; `directory` is the user's folder. `get` returns an object by its digest,
    `recent` does so if that needs no disk (else None), and `size` returns its bytes. `prior` are artifacts of earlier
    runs, name to digest; they take precedence over files of the same name.
    """

    def __init__(
        self,
        inputs: Mapping[str, TaskInput],
        directory: Path | None,
        get: Callable[[str], bytes],
        prior: Mapping[str, str] | None = None,
        recent: Callable[[str], bytes | None] = lambda digest: None,
        size: Callable[[str], int] | None = None,
    ) -> None:
        self._inputs = inputs
        self._directory = directory
        self._get = get
        self._prior = prior or {}
        self._recent = recent
        self._size = size
        self._outputs: dict[str, Mapping[str, str]] = {}
        self._read_once: set[str] = set()
        self._shared: set[str] = set()
        self._items: dict[tuple[str, str], tuple[Items, SeenFiles]] = {}

    def planned(self, steps: Iterable[Step]) -> None:
        """Add steps of the plan. What several steps read comes first in their prompts."""
        for step in steps:
            names = set(step.inputs)
            self._shared |= names if step.foreach is not None else names & self._read_once
            self._read_once |= names

    def produced(self, step: str, outputs: Mapping[str, str]) -> None:
        """Add the artifacts of a step, name to digest."""
        self._outputs[step] = outputs

    def may_block(self, step: Step, sources: Mapping[str, Source]) -> bool:
        """Whether `read` may wait for the disk."""
        return not all(self._is_at_hand(name, sources[name]) for name in {*step.inputs, step.foreach} if name)

    def _is_at_hand(self, name: str, source: Source) -> bool:
        if source.step is not None:
            return self._recent(self._digest(name, source)) is not None
        return source.kind == "input" and self._inputs[name].type == "text"

    def read(
        self, step: Step, sources: Mapping[str, Source], item: int | None = None, seen_files: SeenFiles | None = None
    ) -> tuple[StepInput, ...]:
        """Return the inputs of a step in the order of the prompt: shared ones, the rest, the item.

        `sources` says what each name stands for; a `foreach` child has its parent's. In place of the list, a child
        reads the item with index `item`, as `NAME[item]`. `seen_files` records the files read.
        """
        seen_files = seen_files or SeenFiles()
        names = [name for name in dict.fromkeys(step.inputs) if name != step.foreach or item is None]
        # Shared inputs come first: the engine computes a common prefix once.
        ordered = sorted(names, key=lambda name: name not in self._shared)
        texts = [StepInput(name, self.text(name, sources[name], seen_files)) for name in ordered]
        if item is not None and step.foreach is not None:
            texts.append(StepInput(f"{step.foreach}[{item}]", self.items(step, sources, seen_files).texts[item]))
        return tuple(texts)

    def sizes(self, step: Step, sources: Mapping[str, Source], item: int | None = None) -> tuple[InputSize, ...]:
        """Return the bytes of each input, mostly without reading it; None if unknown: then `read` says why."""
        names = dict.fromkeys((*step.inputs, *((step.foreach,) if step.foreach is not None else ())))
        return tuple(self._sized(name, step, sources, item) for name in names)

    def _sized(self, name: str, step: Step, sources: Mapping[str, Source], item: int | None) -> InputSize:
        try:
            if item is not None and name == step.foreach:
                return InputSize(f"{name}[{item}]", len(self.items(step, sources).texts[item].encode()))
            return InputSize(name, self._bytes(name, sources[name]))
        except (AttemptError, JournalError, UnreadableFile):
            return InputSize(name, None)

    def _bytes(self, name: str, source: Source) -> int | None:
        if source.step is not None:
            return self._object_bytes(self._digest(name, source))
        task_input = self._inputs[name] if source.kind == "input" else None
        if task_input is not None and task_input.type == "text":
            return len(task_input.value.encode(errors="replace"))
        file = name if task_input is None else task_input.value
        if (prior_name := find_name(file, self._prior)) is not None:
            return self._object_bytes(self._prior[prior_name])
        return None if self._directory is None else size_of(self._directory, file)

    def _object_bytes(self, digest: str) -> int | None:
        recent = self._recent(digest)
        if recent is not None:
            return len(recent)
        return None if self._size is None else self._size(digest)

    def given(self, labels: Iterable[str]) -> tuple[StepInput, ...]:
        """Return inputs of the task by label, whether or not a step reads them."""
        return tuple(StepInput(label, self.text(label, Source("input"))) for label in labels)

    def items(self, step: Step, sources: Mapping[str, Source], seen_files: SeenFiles | None = None) -> Items:
        name = step.foreach
        assert name is not None, f"{step.id} has no foreach"
        key = (name, self._version(name, sources[name]))
        if key not in self._items:
            read = SeenFiles()
            self._items[key] = items_of(name, self.text(name, sources[name], read)), read
        items, read = self._items[key]
        if seen_files is not None:
            for file, digest in read.digests.items():
                seen_files.add(file, digest)
        return items

    def listed(self, step: Step, sources: Mapping[str, Source], texts: tuple[str, ...]) -> None:
        """Set the items that stand for a text that is no list."""
        name = step.foreach
        assert name is not None, f"{step.id} has no foreach"
        self._items[name, self._version(name, sources[name])] = Items(texts, "asked"), SeenFiles()

    def _version(self, name: str, source: Source) -> str:
        return self._digest(name, source) if source.step is not None else source.kind

    def _digest(self, name: str, source: Source) -> str:
        assert source.step is not None, f"{name} is no artifact"
        return self._outputs[source.step][source.name or name]

    def text(self, name: str, source: Source, seen_files: SeenFiles | None = None) -> str:
        """Return what a name stands for. Raises `AttemptError` if it cannot be read."""
        seen_files = seen_files or SeenFiles()
        if source.step is not None:
            return self._artifact(self._digest(name, source))
        if source.kind == "file":
            return self._file(name, seen_files)
        task_input = self._inputs[name]
        if task_input.type == "text":
            return task_input.value
        if task_input.type == "path":
            return self._file(task_input.value, seen_files)
        raise unusable_input(f"input {name!r} is of type {task_input.type}, which no worker here can read")

    def _artifact(self, digest: str) -> str:
        try:
            return (self._recent(digest) or self._get(digest)).decode()
        except JournalError as error:
            raise AttemptError(Failure(FailureKind.INFRASTRUCTURE, str(error), final=True)) from error

    def _file(self, name: str, seen_files: SeenFiles) -> str:
        if (prior_name := find_name(name, self._prior)) is not None:
            return self._artifact(self._prior[prior_name])
        if self._directory is None:
            raise unusable_input(f"file {name!r} cannot be read: no --dir was given")
        try:
            return seen_files.read_text(self._directory, name)
        except UnreadableFile as error:
            raise unusable_input(str(error)) from error
