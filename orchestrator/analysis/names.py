"""Resolve the names in a plan: check ids and artifact names, and find what each read name stands for."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from orchestrator.analysis.graph import Source
from orchestrator.errors import Problem
from orchestrator.taskir import Step, pointer
from orchestrator.taskir.names import find_name
from orchestrator.taskir.problems import format_known_names, format_value

MAX_PART_BYTES = 240
"""Artifacts become files. File systems allow 255 bytes for a part of a name, and a file being written has a suffix."""

_CHILD = re.compile(r"(.+)\[(?:0|[1-9][0-9]*)\]", re.DOTALL)


def reads(step: Step) -> tuple[str, ...]:
    """Return the names that a step reads, each once: its inputs, then its `foreach`."""
    return tuple(dict.fromkeys((*step.inputs, *((step.foreach,) if step.foreach is not None else ()))))


class NameResolver:
    """Checks and resolves the names of one plan."""

    def __init__(
        self, steps: Sequence[Step], labels: Collection[str], files: Collection[str], paths: Collection[str] = ()
    ) -> None:
        """`labels` are the names of the task's inputs, and `paths` the paths of those that have a label instead."""
        self._steps = steps
        self._labels = frozenset(labels)
        self._paths = frozenset(paths)
        self._files = frozenset(files)
        self._ids = frozenset(step.id for step in steps)
        self._writers: defaultdict[str, list[str]] = defaultdict(list)
        for step in steps:
            for name in dict.fromkeys(step.outputs):
                self._writers[name].append(step.id)

    def clashes(self) -> Iterator[Problem]:
        """Yield a problem for each duplicate id, unknown id in `depends_on`, and output whose name is taken."""
        spread = frozenset(name for step in self._steps if step.foreach is not None for name in step.outputs)
        seen: dict[str, int] = {}
        for index, step in enumerate(self._steps):
            if seen.setdefault(step.id, index) != index:
                where = pointer(("plan", "steps", index, "id"))
                yield Problem(where, f"{step.id} is the id of /plan/steps/{seen[step.id]} too", "each id once")
            for position, identity in enumerate(step.depends_on):
                if identity not in self._ids:
                    where = pointer(("plan", "steps", index, "depends_on", position))
                    yield Problem(where, f"no step is called {identity}", format_known_names(self._ids, identity))
            written: set[str] = set()
            for position, name in enumerate(step.outputs):
                twice = f"is there twice in {step.id}" if name in written else ""
                written.add(name)
                if flaw := twice or self._output_flaw(name, spread):
                    where = pointer(("plan", "steps", index, "outputs", position))
                    yield Problem(where, f"{format_value(name)} {flaw}", "a name of its own")

    def _output_flaw(self, name: str, spread: frozenset[str]) -> str:
        if name in self._labels:
            return "is the name of an input of the task too"
        parts = name.split("/")
        if not name.isascii() and any(len(part.encode()) > MAX_PART_BYTES for part in parts):
            return f"has a part of more than {MAX_PART_BYTES} bytes, too long for a file"
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if count < len(parts) and path in self._writers:
                return f"needs a folder where {self._writers[path][0]} writes {format_value(path)}"
            child = _CHILD.fullmatch(path) if path.endswith("]") else None
            if child and child[1] in spread:
                parent = format_value(child[1])
                return f"is the name of an item of {parent}, which is written once for each item of a list"
        return ""

    def resolve(
        self, known: Mapping[str, Mapping[str, Source]], sources: dict[str, Mapping[str, Source]]
    ) -> Iterator[Problem]:
        """Fill in `sources` for every step, and yield a problem for each name that stands for nothing or is ambiguous.

        The sources of steps in `known` are taken from there.
        """
        written: dict[str, str] = {}
        for index, step in enumerate(self._steps):
            found: dict[str, Source] = {}
            for name in () if step.id in known else reads(step):
                source = self._source(name, step.id, written.get(name))
                if source is None:
                    yield self._dangling(index, step, name)
                else:
                    found[name] = source
            sources[step.id] = known.get(step.id, found)
            written.update(dict.fromkeys(step.outputs, step.id))

    def _source(self, name: str, reader: str, latest: str | None) -> Source | None:
        if latest is not None:
            return Source("artifact", latest)
        later = self._later(name, reader)
        if len(later) == 1:
            return Source("artifact", later[0])
        if name in self._labels:
            return Source("input")
        if find_name(name, self._files) is not None:
            return Source("file")
        return Source("input") if name in self._paths else None

    def _later(self, name: str, reader: str) -> list[str]:
        """Return the first two writers of a name that no earlier step writes, without the reader itself."""
        writers = self._writers.get(name, [])
        own = 1 if writers and writers[0] == reader else 0
        return writers[own : own + 2]

    def _dangling(self, index: int, step: Step, name: str) -> Problem:
        if step.foreach == name and name not in step.inputs:
            where = pointer(("plan", "steps", index, "foreach"))
        else:
            where = pointer(("plan", "steps", index, "inputs", step.inputs.index(name)))
        later = self._later(name, step.id)
        if later:
            clash = f"{later[0]} and {later[1]} both write it later"
            what = f"{step.id} cannot tell which {format_value(name)} is meant: {clash}"
            return Problem(where, what, "a name that an earlier step or only one later step writes")
        if name in self._writers:
            return Problem(
                where, f"only {step.id} itself writes {format_value(name)}", "what another step writes, or a file"
            )
        known = frozenset((*self._writers, *self._labels, *self._paths, *self._files))
        return Problem(
            where, f"no artifact, input or file is called {format_value(name)}", format_known_names(known, name)
        )
