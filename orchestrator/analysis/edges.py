"""Derive the edges of a plan, each with its reason."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.analysis.graph import Edge, Reason, Source
from orchestrator.events import Mode
from orchestrator.taskir import Step


def edges(steps: Sequence[Step], sources: Mapping[str, Mapping[str, Source]], mode: Mode) -> Iterator[Edge]:
    """Yield the edges in document order of the step that waits: explicit ones, data, then conflicts."""
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
            # What comes from a later step has no later writer that could overwrite it.
            if writer.get(name) == source.step:
                readers.setdefault(name, []).append(step.id)
        for name in step.outputs:
            if name in writer:
                yield Edge(writer[name], step.id, "write after write", name)
            for reader in readers.pop(name, ()):
                if reader != step.id:
                    yield Edge(reader, step.id, "write after read", name)
            writer[name] = step.id


def _explicit(step: Step, by_id: Mapping[str, Step], reads: Mapping[str, Source], mode: Mode) -> Iterator[Edge]:
    carried: dict[str | None, str] = {}
    for read, source in reads.items():
        carried.setdefault(source.step, read)
    for identity in dict.fromkeys(step.depends_on):
        name = carried.get(identity)
        reason: Reason = "explicit" if name is not None else "order only"
        idle = name is None and not _acts(step) and not _acts(by_id[identity])
        yield Edge(identity, step.id, reason, name, dropped=mode == "discover" and idle)


def _acts(step: Step) -> bool:
    """Whether a step may change more than its outputs, so that an order it is given may matter unseen."""
    return step.kind != "generate" or bool(step.tools)
