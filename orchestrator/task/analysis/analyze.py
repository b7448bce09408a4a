"""Analyse a plan: turn its steps into the graph of which step waits for which."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from types import MappingProxyType
from typing import Final

from orchestrator.errors import Problem
from orchestrator.task.analysis.graph import Edge, Reason, Source, StepGraph
from orchestrator.task.analysis.names import NameResolver
from orchestrator.task.analysis.order import cycles, neighbours, topological, waves
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Step, TaskIR
from orchestrator.task.taskir.names import compose_name
from orchestrator.task.taskir.problems import MAX_PROBLEMS, format_value, invalid_task, pointer

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
    """Return the graph of a task's plan. Raises InvalidTask as `analyze` does, and for inputs with the same name."""
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
    return analyze(task.plan.steps, labels=labels, files=files, paths=task.paths_by_label, mode=mode)


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
