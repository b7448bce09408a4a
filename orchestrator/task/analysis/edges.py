"""Derive the edges of a plan: which step waits for which, and for what reason."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.task.analysis.graph import Edge, Reason, Source
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.names import compose_name


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
