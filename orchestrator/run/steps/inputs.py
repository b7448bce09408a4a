"""Find and read what a step reads: artifacts, inputs of the task, files, items of a list."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.run.journal import JournalError
from orchestrator.run.steps.errors import AttemptError, unusable_input
from orchestrator.run.steps.files import UnreadableFile, size_of
from orchestrator.run.steps.foreach import Items, items_of
from orchestrator.run.steps.prompt import StepInput
from orchestrator.run.steps.seen import SeenFiles
from orchestrator.task.analysis import Source
from orchestrator.task.events import Failure, FailureKind, InputSize
from orchestrator.task.taskir import Step, TaskInput
from orchestrator.task.taskir.names import find_name


class RunInputs:
    """What the steps of one run can read. Calls may block on the disk, and raise `AttemptError`.

    `inputs` are those of the task by their labels, and `directory` is the user's folder. `get` returns an object by its
    digest, `recent` returns it if that needs no disk, else None, and `size` returns its size in bytes. `prior` are
    artifacts of earlier runs, name to digest; a name in `prior` stands for the artifact even where a file has it too.
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
        """Take note of steps that were added to the plan. What several steps read comes first in their prompts."""
        for step in steps:
            names = set(step.inputs)
            self._shared |= names if step.foreach is not None else names & self._read_once
            self._read_once |= names

    def produced(self, step: str, outputs: Mapping[str, str]) -> None:
        """Take note of what a step has written: artifact names and digests."""
        self._outputs[step] = outputs

    def may_block(self, step: Step, sources: Mapping[str, Source]) -> bool:
        """Return whether `read` may have to wait for the disk."""
        return not all(self._is_at_hand(name, sources[name]) for name in {*step.inputs, step.foreach} if name)

    def _is_at_hand(self, name: str, source: Source) -> bool:
        if source.step is not None:
            return self._recent(self._digest(name, source)) is not None
        return source.kind == "input" and self._inputs[name].type == "text"

    def read(
        self, step: Step, sources: Mapping[str, Source], item: int | None = None, seen: SeenFiles | None = None
    ) -> tuple[StepInput, ...]:
        """Return the inputs of a step in the order of the prompt: what other steps read too, the rest, then the item.

        Shared inputs come first, because the engine computes a common prefix once. `sources` says what each name
        stands for; for a `foreach` child they are its parent's. A child gets one item of the list (`item` is its index)
        in place of the list, under the name `NAME[item]`. `seen` takes note of the files that are read.
        """
        seen = seen or SeenFiles()
        names = [name for name in dict.fromkeys(step.inputs) if name != step.foreach or item is None]
        ordered = sorted(names, key=lambda name: name not in self._shared)
        texts = [StepInput(name, self.text(name, sources[name], seen)) for name in ordered]
        if item is not None and step.foreach is not None:
            texts.append(StepInput(f"{step.foreach}[{item}]", self.items(step, sources, seen).texts[item]))
        return tuple(texts)

    def sizes(self, step: Step, sources: Mapping[str, Source], item: int | None = None) -> tuple[InputSize, ...]:
        """Return the size of each input in bytes, without reading the input where that can be avoided.

        A size that cannot be found out is None; `read` then says why.
        """
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
        given = self._inputs[name] if source.kind == "input" else None
        if given is not None and given.type == "text":
            return len(given.value.encode(errors="replace"))
        file = name if given is None else given.value
        if (found := find_name(file, self._prior)) is not None:
            return self._object_bytes(self._prior[found])
        return None if self._directory is None else size_of(self._directory, file)

    def _object_bytes(self, digest: str) -> int | None:
        recent = self._recent(digest)
        if recent is not None:
            return len(recent)
        return None if self._size is None else self._size(digest)

    def given(self, labels: Iterable[str]) -> tuple[StepInput, ...]:
        """Return inputs of the task by their labels, whether or not a step reads them."""
        return tuple(StepInput(label, self.text(label, Source("input"))) for label in labels)

    def items(self, step: Step, sources: Mapping[str, Source], seen: SeenFiles | None = None) -> Items:
        """Return the items of the list that a `foreach` step runs over."""
        name = step.foreach
        assert name is not None, f"{step.id} has no foreach"
        key = (name, self._version(name, sources[name]))
        if key not in self._items:
            read = SeenFiles()
            self._items[key] = items_of(name, self.text(name, sources[name], read)), read
        items, read = self._items[key]
        if seen is not None:
            for file, digest in read.digests.items():
                seen.add(file, digest)
        return items

    def listed(self, step: Step, sources: Mapping[str, Source], texts: tuple[str, ...]) -> None:
        """Take note of the items that a `foreach` step runs over in place of a text that is no list."""
        name = step.foreach
        assert name is not None, f"{step.id} has no foreach"
        self._items[name, self._version(name, sources[name])] = Items(texts, "asked"), SeenFiles()

    def _version(self, name: str, source: Source) -> str:
        return self._digest(name, source) if source.step is not None else source.kind

    def _digest(self, name: str, source: Source) -> str:
        """Return the digest of the version of an artifact that a step reads under `name`."""
        assert source.step is not None, f"{name} is no artifact"
        return self._outputs[source.step][source.name or name]

    def text(self, name: str, source: Source, seen: SeenFiles | None = None) -> str:
        """Return what a name stands for; `seen` takes note of a file. Raises `AttemptError` if it cannot be read."""
        seen = seen or SeenFiles()
        if source.step is not None:
            return self._artifact(self._digest(name, source))
        if source.kind == "file":
            return self._file(name, seen)
        given = self._inputs[name]
        if given.type == "text":
            return given.value
        if given.type == "path":
            return self._file(given.value, seen)
        raise unusable_input(f"input {name!r} is of type {given.type}, which no worker here can read")

    def _artifact(self, digest: str) -> str:
        try:
            return (self._recent(digest) or self._get(digest)).decode()
        except JournalError as error:
            raise AttemptError(Failure(FailureKind.INFRASTRUCTURE, str(error), final=True)) from error

    def _file(self, name: str, seen: SeenFiles) -> str:
        if (found := find_name(name, self._prior)) is not None:
            return self._artifact(self._prior[found])
        if self._directory is None:
            raise unusable_input(f"file {name!r} cannot be read: no --dir was given")
        try:
            return seen.read_text(self._directory, name)
        except UnreadableFile as error:
            raise unusable_input(str(error)) from error
