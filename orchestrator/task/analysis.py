"""Analyse a plan: turn its steps into the graph of which step waits for which, and why."""

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from types import MappingProxyType
from typing import Final, Literal

from orchestrator.errors import Problem
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Plan, Step, TaskIR, compose_name, find_name
from orchestrator.task.taskir.problems import MAX_PROBLEMS, format_known_names, format_value, invalid_task, pointer

Reason = Literal["explicit", "order only", "data", "write after read", "write after write"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Step `after` waits for step `before`; both are ids."""

    before: str
    after: str
    reason: Reason
    artifact: str | None = None  # None for an order without data
    dropped: bool = False  # by the mode, so that `after` does not wait


@dataclass(frozen=True, slots=True)
class Source:
    """What a name that a step reads stands for."""

    kind: Literal["artifact", "input", "file"]
    step: str | None = None  # the artifact's writer; None for inputs and files
    name: str = ""  # the writer's spelling, if the reader's differs; else empty


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The DAG of a plan. Steps are given by id."""

    steps: Mapping[str, Step]  # in document order
    edges: tuple[Edge, ...]
    before: Mapping[str, tuple[str, ...]]  # direct dependencies in document order, without dropped edges
    after: Mapping[str, tuple[str, ...]]  # the reverse
    order: tuple[str, ...]  # topological, with ties in document order
    waves: tuple[tuple[str, ...], ...]  # by depth; the first one waits for nothing
    width: int  # of the largest wave
    sources: Mapping[str, Mapping[str, Source]]  # of `inputs` and `foreach`, by step and name


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
                flaw = f"is there twice in {step.id}" if name in written else self._output_flaw(name, spread)
                accepted = "a name of its own"
                written.add(name)
                if not flaw and (path := self._paths.get(name)) is not None:
                    flaw = f"is the label of the input {format_value(path)}, not its path"
                    accepted = f"{format_value(path)} for a new version of it, or {accepted}"
                if flaw:
                    where = pointer(("plan", "steps", index, "outputs", position))
                    yield Problem(where, f"{format_value(name)} {flaw}", accepted)

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
        return Source(artifact.kind, artifact.step) if artifact.name == name else artifact

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


_MAX_IDS_SHOWN = 100
_MAX_REASONS_SHOWN = 5
EMPTY: Final = StepGraph(steps={}, edges=(), before={}, after={}, order=(), waves=(), width=0, sources={})
NO_PATHS: Final[Mapping[str, str]] = MappingProxyType({})


def analyze(
    steps: Sequence[Step],
    *,
    labels: Collection[str] = (),
    files: Collection[str] = (),
    paths: Mapping[str, str] = NO_PATHS,
    mode: Mode = "as-planned",
    earlier: StepGraph | None = None,
) -> StepGraph:
    """Return the graph of a plan. Raises InvalidTask for cycles, dangling or ambiguous names, duplicates and clashes.

    Edges come from `depends_on`, from data flow (a step waits for the writer of what it reads), and from conflicts (a
    step that overwrites an artifact waits for its writer and readers). A name that a step reads is the output of the
    latest earlier writer in document order, else an input's label (`labels`), else a file under `--dir` (`files`), else
    the path of a labelled input (`paths`: path by label), else the output of the only later writer.

    An output with the name of an input or a file is a new version, which later steps read. If the plan has grown,
    `earlier` is the graph of its first steps, whose names keep their meaning.

    Mode "discover" drops explicit edges that carry no artifact, unless one of the steps may have side effects (kind
    repl or tool, or has tools). Cycles are refused even through such an edge. Mode "serial" has the same graph as "as-
    planned".
    """
    names = NameResolver(steps, labels, files, paths)
    sources: dict[str, Mapping[str, Source]] = {}
    problems = chain(names.clashes(), names.resolve(earlier.sources if earlier else {}, sources))
    _refuse(problems)
    found_edges = tuple(edges(steps, sources, mode))
    ids = [step.id for step in steps]
    before, after = neighbours(ids, ((edge.before, edge.after) for edge in found_edges))
    order = topological(ids, before, after)
    if len(order) < len(ids):
        _refuse(_cycles(steps, cycles(ids, order, before), found_edges))
    if any(edge.dropped for edge in found_edges):
        before, after = neighbours(ids, ((edge.before, edge.after) for edge in found_edges if not edge.dropped))
        order = topological(ids, before, after)
    depths = waves(ids, order, before)
    return StepGraph(
        steps={step.id: step for step in steps},
        edges=found_edges,
        before=before,
        after=after,
        order=order,
        waves=depths,
        width=max(map(len, depths), default=0),
        sources=sources,
    )


class PlanAnalysis:
    """The graph of a plan that grows: every step names only earlier steps and those added with it."""

    def __init__(
        self,
        labels: Collection[str] = (),
        files: Collection[str] = (),
        mode: Mode = "as-planned",
        paths: Mapping[str, str] = NO_PATHS,
    ) -> None:
        """Arguments are as in `analyze`."""
        self._labels, self._files, self._mode, self._paths = labels, files, mode, paths
        self.graph = EMPTY

    def add(self, steps: Sequence[Step]) -> StepGraph:
        """Add steps at the end and return the new graph.

        Raises InvalidTask for steps that do not fit the plan; then the graph does not change.
        """
        every = (*self.graph.steps.values(), *steps)
        self.graph = analyze(
            every,
            labels=self._labels,
            files=self._files,
            paths=self._paths,
            mode=self._mode,
            earlier=self.graph,
        )
        return self.graph

    def add_apart(self, step: Step) -> StepGraph:
        """Add a step that waits for no other, in its own wave, and return the new graph.

        It reads only labels and files, and may write outputs of other steps. Raises InvalidTask.
        """
        alone = analyze((step,), labels=self._labels, files=self._files, paths=self._paths, mode=self._mode)
        graph = self.graph
        self.graph = StepGraph(
            steps={**graph.steps, **alone.steps},
            edges=graph.edges,
            before={**graph.before, **alone.before},
            after={**graph.after, **alone.after},
            order=(*graph.order, step.id),
            waves=(*graph.waves, (step.id,)),
            width=max(graph.width, 1),
            sources={**graph.sources, **alone.sources},
        )
        return self.graph


def analyze_task(task: TaskIR, *, files: Collection[str] = (), mode: Mode = "as-planned") -> StepGraph:
    """Return the graph of a task's plan, in which steps have the inputs that their `context` adds.

    Raises InvalidTask as `analyze` does, and for inputs with the same name.
    """
    labels: dict[str, int] = {}
    twice = [
        Problem(
            pointer(("inputs", index)),
            f"{format_value(label)} is the name of /inputs/{labels[label]} too",
            "a name each",
        )
        for index, label in enumerate(task.labels)
        if labels.setdefault(label, index) != index
    ]
    _refuse(twice)
    graph = analyze(task.plan.steps, labels=labels, files=files, paths=task.paths_by_label, mode=mode)
    steps = with_contexts(task.plan, graph)
    if steps == task.plan.steps:
        return graph
    return analyze(steps, labels=labels, files=files, paths=task.paths_by_label, mode=mode)


def with_contexts(plan: Plan, graph: StepGraph) -> tuple[Step, ...]:
    """Return the steps of a plan with the inputs that their `context` adds: texts that no step has written, first."""
    own = {
        step: tuple(name for name, source in sources.items() if source.step is None)
        for step, sources in graph.sources.items()
    }
    originals: dict[str, tuple[str, ...]] = {}  # of what a step reads, also by way of several others
    for step_id in graph.order:
        writers = dict.fromkeys(source.step for source in graph.sources[step_id].values() if source.step is not None)
        made_from = chain.from_iterable((*originals[writer], *own[writer]) for writer in writers)
        originals[step_id] = tuple(dict.fromkeys(made_from))
    shared = tuple(dict.fromkeys(chain.from_iterable(own.values())))
    more = {"own": {}, "sources": originals, "shared": dict.fromkeys(graph.steps, shared)}
    return tuple(_reading(step, more[step.context or plan.context].get(step.id, ())) for step in plan.steps)


def _reading(step: Step, more: Collection[str]) -> Step:
    # one call of a tool reads what its arguments say
    if step.is_call or set(more) <= set(reads(step)):
        return step
    return step.model_copy(update={"inputs": tuple(dict.fromkeys((*more, *step.inputs)))})


def edges(steps: Sequence[Step], sources: Mapping[str, Mapping[str, Source]], mode: Mode) -> Iterator[Edge]:
    """Yield the edges in document order of the waiting step; per step explicit ones, data flow, then conflicts."""
    by_id = {step.id: step for step in steps}
    writer: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for step in steps:
        if step.depends_on:
            yield from _explicit(step, by_id, sources[step.id], mode)
        for name, source in sources[step.id].items():
            if source.step is None:
                continue
            yield Edge(source.step, step.id, "data", name)
            # Only a writer that comes earlier can be followed by one that overwrites what this step reads.
            artifact = compose_name(source.name or name)
            if writer.get(artifact) == source.step:
                readers.setdefault(artifact, []).append(step.id)
        for name in step.outputs:
            artifact = compose_name(name)
            if artifact in writer:
                yield Edge(writer[artifact], step.id, "write after write", name)
            for reader in readers.pop(artifact, ()):
                if reader != step.id:
                    yield Edge(reader, step.id, "write after read", name)
            writer[artifact] = step.id


def _explicit(step: Step, by_id: Mapping[str, Step], reads: Mapping[str, Source], mode: Mode) -> Iterator[Edge]:
    carried: dict[str | None, str] = {}
    for read, source in reads.items():
        carried.setdefault(source.step, read)
    for identity in dict.fromkeys(step.depends_on):
        name = carried.get(identity)
        reason: Reason = "explicit" if name is not None else "order only"
        # The order of steps that act may matter without an artifact.
        needless = name is None and not step.acts and not by_id[identity].acts
        yield Edge(identity, step.id, reason, name, dropped=mode == "discover" and needless)


def _refuse(problems: Iterable[Problem]) -> None:
    first = list(islice(problems, MAX_PROBLEMS + 1))
    if first:
        raise invalid_task(first)


def _cycles(steps: Sequence[Step], rings: Iterable[tuple[str, ...]], every: Sequence[Edge]) -> Iterator[Problem]:
    index = {step.id: position for position, step in enumerate(steps)}
    reasons = {(edge.before, edge.after): edge for edge in reversed(every)}
    for cycle in rings:
        ring = (*cycle, cycle[0])
        path = " → ".join(ring if len(ring) <= _MAX_IDS_SHOWN else (*ring[: _MAX_IDS_SHOWN - 1], "…", ring[-1]))
        why = "; ".join(_why(reasons[pair]) for pair in islice(pairwise(ring), _MAX_REASONS_SHOWN))
        more = "; …" if len(cycle) > _MAX_REASONS_SHOWN else ""
        where = pointer(("plan", "steps", index[cycle[0]]))
        yield Problem(where, f"these steps wait for each other: {path} ({why}{more})", "steps without a cycle")


def _why(edge: Edge) -> str:
    name = format_value(edge.artifact)
    return {
        "data": f"{edge.after} reads {name} of {edge.before}",
        "write after read": f"{edge.after} overwrites {name}, which {edge.before} reads",
        "write after write": f"{edge.after} overwrites {name} of {edge.before}",
    }.get(edge.reason, f"{edge.after} depends on {edge.before}")


Neighbours = Mapping[str, tuple[str, ...]]


def neighbours(ids: Sequence[str], pairs: Iterable[tuple[str, str]]) -> tuple[Neighbours, Neighbours]:
    """Return the steps before and after each step, unique and in document order; `pairs` are (before, after)."""
    index = {identity: position for position, identity in enumerate(ids)}
    before: list[list[int]] = [[] for _ in ids]
    after: list[list[int]] = [[] for _ in ids]
    for first, second in pairs:
        before[index[second]].append(index[first])
        after[index[first]].append(index[second])
    return _named(ids, before), _named(ids, after)


def _named(ids: Sequence[str], positions: Sequence[list[int]]) -> dict[str, tuple[str, ...]]:
    return {
        identity: tuple(
            ids[position]
            for position in (sorted(set(positions_of_step)) if len(positions_of_step) > 1 else positions_of_step)
        )
        for identity, positions_of_step in zip(ids, positions, strict=True)
    }


def topological(ids: Sequence[str], before: Neighbours, after: Neighbours) -> tuple[str, ...]:
    """Return the steps in topological order (Kahn), ties in document order, without those that a cycle blocks."""
    index = {identity: position for position, identity in enumerate(ids)}
    missing = [len(before[identity]) for identity in ids]
    ready = [position for position, count in enumerate(missing) if count == 0]
    order: list[str] = []
    while ready:
        identity = ids[heapq.heappop(ready)]
        order.append(identity)
        for later in after[identity]:
            position = index[later]
            missing[position] -= 1
            if missing[position] == 0:
                heapq.heappush(ready, position)
    return tuple(order)


def waves(ids: Sequence[str], order: Sequence[str], before: Neighbours) -> tuple[tuple[str, ...], ...]:
    """Return the steps by depth: those without predecessors, then those that wait only for these, and so on.

    `order` is their topological order.
    """
    depth: dict[str, int] = {}
    for identity in order:
        depth[identity] = max((depth[earlier] + 1 for earlier in before[identity]), default=0)
    levels: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for identity in ids:
        levels[depth[identity]].append(identity)
    return tuple(map(tuple, levels))


def cycles(ids: Sequence[str], order: Sequence[str], before: Neighbours) -> Iterator[tuple[str, ...]]:
    """Yield cycles among the steps that are missing in `order`, each from its first step in document order.

    Every missing step is in one of them or waits for one; there may be more cycles. The time is linear.
    """
    ordered = frozenset(order)
    index = {identity: position for position, identity in enumerate(ids)}
    walk_of: dict[str, str] = {}
    # each walk goes backwards until it meets its own path or that of an earlier walk
    for start in ids:
        path: list[str] = []
        at = start
        while at not in ordered and at not in walk_of:
            walk_of[at] = start
            path.append(at)
            at = next(earlier for earlier in before[at] if earlier not in ordered)
        if path and walk_of.get(at) == start:
            cycle = path[path.index(at) :][::-1]
            first = min(range(len(cycle)), key=lambda position: index[cycle[position]])
            yield (*cycle[first:], *cycle[:first])
