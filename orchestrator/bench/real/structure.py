"""Compare plans by their structure: what their steps read, and how the steps depend on each other.

Two plans have the same structure when their steps can be paired so that both steps of each pair read the same files,
read the outputs of paired steps, run over the list of paired steps, wait for paired steps, are both the coder's or both
not, have the same output where the request names it, and both end the plan for now or both do not. The order of steps
does not matter, nor how they are worded, nor whether a step also reads the text of the request. Pure.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step

CODER = "coder"

# One digest for each step, sorted. Equal for two plans exactly if they have the same structure.
Structure = tuple[str, ...]


def structure(steps: Sequence[Step], *, named: Collection[str] = (), goes_on_after: str | None = None) -> Structure:
    """Return the structure of a plan.

    Each step comes after those that it reads or waits for. `named` are the outputs that the request names; other names
    of outputs do not matter. `goes_on_after` is the step whose result decides how the plan continues, if there is one.
    """
    writers: dict[str, str] = {}
    digests: dict[str, str] = {}
    for step in steps:
        digests[step.id] = _digest(step, writers, digests, named, ends=step.id == goes_on_after)
        writers |= dict.fromkeys(step.outputs, digests[step.id])
    return tuple(sorted(digests.values()))


def without_originals(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without the files that an earlier step reads whose output they read.

    A step that joins what others have written may also read what these have read: it waits for the same steps.
    """
    written = {name for step in steps for name in step.outputs}
    made_from: dict[str, frozenset[str]] = {}  # files, by output
    trimmed: list[Step] = []
    for step in steps:
        read = (*step.inputs, *([step.foreach] if step.foreach else []))
        originals = frozenset[str]().union(*(made_from.get(name, frozenset()) for name in read))
        made_from |= dict.fromkeys(step.outputs, originals.union(name for name in read if name not in written))
        inputs = tuple(name for name in step.inputs if name not in originals)
        trimmed.append(step.model_copy(update={"inputs": inputs}))
    return trimmed


def width(steps: Sequence[Step]) -> int:
    """Return the largest number of steps at one depth: how many may run at once.

    Each step comes after those that it reads or waits for.
    """
    depths: dict[str, int] = {}
    writers: dict[str, str] = {}
    for step in steps:
        before = {*step.depends_on, *(writers[name] for name in (*step.inputs, step.foreach) if name in writers)}
        depths[step.id] = 1 + max((depths[id] for id in before), default=0)
        writers |= dict.fromkeys(step.outputs, step.id)  # a later version of a file has another writer
    return max(Counter(depths.values()).values(), default=0)


def _digest(
    step: Step, writers: Mapping[str, str], digests: Mapping[str, str], named: Collection[str], *, ends: bool
) -> str:
    """Return what describes a step and, through the digests of others, all that it depends on."""

    def sources(names: Collection[str]) -> list[str]:
        return sorted({writers.get(name, f"file {name}") for name in names})

    reads = sources([name for name in step.inputs if name != REQUEST_LABEL])
    over = sources([step.foreach] if step.foreach is not None else [])
    waits = sorted({digests[before] for before in step.depends_on} - {*reads, *over})
    output = next((name for name in step.outputs if name in named), "")
    content = (step.actor == CODER, reads, over, waits, output, ends)
    return hashlib.sha256(repr(content).encode()).hexdigest()
