"""Resolve the names in a plan: check ids and artifact names, and find what each read name stands for."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import Problem
from orchestrator.task.analysis.graph import Source
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.names import compose_name, find_name
from orchestrator.task.taskir.problems import format_known_names, format_value, pointer

MAX_PART_BYTES = 240  # File systems allow 255 bytes for a part of a name, and a file being written has a suffix.

_CHILD = re.compile(r"(.+)\[(?:0|[1-9][0-9]*)\]", re.DOTALL)


def reads(step: Step) -> tuple[str, ...]:
    """Return the names that a step reads, each once: its inputs, then its `foreach`."""
    return tuple(dict.fromkeys((*step.inputs, *((step.foreach,) if step.foreach is not None else ()))))


class NameResolver:
    def __init__(
        self, steps: Sequence[Step], labels: Collection[str], files: Collection[str], paths: Mapping[str, str]
    ) -> None:
        """Arguments are as in `analyze`."""
        self._steps = steps
        self._labels = frozenset(labels)
        self._paths = paths
        self._of_paths = frozenset(paths.values())
        self._files = frozenset(files)
        self._ids = frozenset(step.id for step in steps)
        self._writers: defaultdict[str, list[Source]] = defaultdict(list)
        for step in steps:
            for name in dict.fromkeys(step.outputs):
                self._writers[compose_name(name)].append(Source("artifact", step.id, name))

    def clashes(self) -> Iterator[Problem]:
        """Yield a problem for each duplicate id, unknown id in `depends_on`, and output whose name is taken."""
        spread = frozenset(name for step in self._steps if step.foreach is not None for name in step.outputs)
        first_index: dict[str, int] = {}
        for index, step in enumerate(self._steps):
            if first_index.setdefault(step.id, index) != index:
                where = pointer(("plan", "steps", index, "id"))
                yield Problem(where, f"{step.id} is the id of /plan/steps/{first_index[step.id]} too", "each id once")
            for position, identity in enumerate(step.depends_on):
                if identity not in self._ids:
                    where = pointer(("plan", "steps", index, "depends_on", position))
                    yield Problem(where, f"no step is called {identity}", format_known_names(self._ids, identity))
            written: set[str] = set()
            for position, name in enumerate(step.outputs):
                where = pointer(("plan", "steps", index, "outputs", position))
                twice = f"is there twice in {step.id}" if name in written else ""
                written.add(name)
                if flaw := twice or self._output_flaw(name, spread):
                    yield Problem(where, f"{format_value(name)} {flaw}", "a name of its own")
                elif (path := self._paths.get(name)) is not None:
                    message = f"{format_value(name)} is the label of the input {format_value(path)}, not its path"
                    yield Problem(where, message, f"{format_value(path)} for a new version of it, or a name of its own")

    def _output_flaw(self, name: str, spread: frozenset[str]) -> str:
        parts = name.split("/")
        if not name.isascii() and any(len(part.encode()) > MAX_PART_BYTES for part in parts):
            return f"has a part of more than {MAX_PART_BYTES} bytes, too long for a file"
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if count < len(parts) and (writers := self._writers.get(compose_name(path))):
                return f"needs a folder where {writers[0].step} writes {format_value(path)}"
            child = _CHILD.fullmatch(path) if path.endswith("]") else None
            if child and child[1] in spread:
                parent = format_value(child[1])
                return f"is the name of an item of {parent}, which is written once for each item of a list"
        return ""

    def resolve(
        self, known: Mapping[str, Mapping[str, Source]], sources: dict[str, Mapping[str, Source]]
    ) -> Iterator[Problem]:
        """Fill in `sources` for every step, and yield a problem for each name that is dangling or ambiguous.

        Steps in `known` keep their sources.
        """
        versions: dict[str, Source] = {}
        for index, step in enumerate(self._steps):
            resolved: dict[str, Source] = {}
            for name in () if step.id in known else reads(step):
                source = self._source(name, step.id, versions.get(self._artifact(name)))
                if source is None:
                    yield self._dangling(index, step, name)
                else:
                    resolved[name] = source
            sources[step.id] = known.get(step.id, resolved)
            for name in step.outputs:
                versions[compose_name(name)] = Source("artifact", step.id, name)

    def _artifact(self, name: str) -> str:
        # A path of a labelled input stands for its label's artifact.
        return compose_name(self._paths.get(name, name))

    def _source(self, name: str, reader: str, latest: Source | None) -> Source | None:
        if latest is None and (original := self._original(name)) is not None:
            return original
        later = self._later(name, reader)
        artifact = latest or (later[0] if len(later) == 1 else None)
        if artifact is None:
            return None
        return replace(artifact, name="") if artifact.name == name else artifact

    def _original(self, name: str) -> Source | None:
        if name in self._labels:
            return Source("input")
        if find_name(name, self._files) is not None:
            return Source("file")
        return Source("input") if name in self._of_paths else None

    def _later(self, name: str, reader: str) -> list[Source]:
        writers = self._writers.get(self._artifact(name), [])
        own = 1 if writers and writers[0].step == reader else 0
        return writers[own : own + 2]  # two are enough to be ambiguous

    def _dangling(self, index: int, step: Step, name: str) -> Problem:
        if step.foreach == name and name not in step.inputs:
            where = pointer(("plan", "steps", index, "foreach"))
        else:
            where = pointer(("plan", "steps", index, "inputs", step.inputs.index(name)))
        later = self._later(name, step.id)
        if later:
            clash = f"{later[0].step} and {later[1].step} both write it later"
            message = f"{step.id} cannot tell which {format_value(name)} is meant: {clash}"
            return Problem(where, message, "a name that an earlier step or only one later step writes")
        if compose_name(name) in self._writers:
            return Problem(
                where, f"only {step.id} itself writes {format_value(name)}", "what another step writes, or a file"
            )
        names = frozenset((*self._writers, *self._labels, *self._of_paths, *self._files))
        return Problem(
            where, f"no artifact, input or file is called {format_value(name)}", format_known_names(names, name)
        )
