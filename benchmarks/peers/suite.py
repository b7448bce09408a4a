"""The tasks that are measured on us and on peers, new ones in every round so that no cache holds them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.bench.critical_path.workloads import (
    Document,
    deep,
    diamond,
    irregular,
    mapped,
    ordered,
    sample_text,
    shared,
    task_of,
    wide,
)
from orchestrator.task.analysis import analyze_task
from orchestrator.task.taskir.models import TaskIR

TAG_WORDS: Final = 3  # words in every prompt that tell the tasks of one round from those of another
CHARACTERS_A_TOKEN: Final = 3
ROLE: Final = "worker"


@dataclass(frozen=True, slots=True)
class PeerWorkload:
    """A task of which every round has a variant."""

    name: str
    about: str  # what it is like, in one sentence
    document: Callable[[float], Document]  # makes the document for a model by its tokens per word
    prefix: int = 0  # about how many tokens of a document its steps share
    decodes: bool = False  # whether its time is mostly that of writing answers
    warm: bool = True  # whether systems do each task a second time, when their caches hold its prompts
    # Whether it is measured with the generated models too, of which only the speed is real, so that few tasks tell what
    # there is to know.
    generated: bool = False

    def task(self, number: int, tokens_per_word: float) -> TaskIR:
        """Return the variant of a round. Its prompts differ from those of other rounds from their first words on."""
        tag = sample_text(TAG_WORDS + 100 * (number + 2)).split()[:TAG_WORDS]
        return _tagged(task_of(_in_digits(self.document(tokens_per_word))), " ".join(tag))


SUITE: Final = (
    PeerWorkload("shared", "16 steps read one document of 1,000 tokens", lambda ratio: shared(16, ratio), 1000),
    PeerWorkload(
        "shared-300",
        "8 steps read one document of 300 tokens",
        lambda ratio: shared(8, ratio, 300),
        300,
        generated=True,
    ),
    PeerWorkload(
        "irregular", "12 steps of very different lengths in 3 stages", lambda ratio: irregular(12), generated=True
    ),
    PeerWorkload("written-16", "16 longer notes and their summary", lambda ratio: wide(16, 240), decodes=True),
    PeerWorkload("wide-16", "16 short notes and their summary", lambda ratio: wide(16)),
    PeerWorkload("ordered", "8 notes that the plan puts in a needless order", lambda ratio: ordered(8)),
    PeerWorkload("diamond", "one step, four that read it, one that reads the four", lambda ratio: diamond(4)),
    PeerWorkload("wide-4", "4 short notes and their summary", lambda ratio: wide(4)),
    PeerWorkload("map-reduce", "a list, a step for each of its 12 items, a summary", lambda ratio: mapped(12)),
    PeerWorkload("irregular-24", "24 steps of very different lengths in 6 stages", lambda ratio: irregular(24)),
    PeerWorkload("deep", "a chain of 20 steps", lambda ratio: deep(20)),
    PeerWorkload("wide-100", "100 short notes and their summary", lambda ratio: wide(100, joined=100), warm=False),
)  # the tasks, the most telling and quickest ones first, since a limited time is spent in this order

NOT_COMPARED: Final[Mapping[str, str]] = {
    "wide-64": "it lies between wide-16 and wide-100, and takes 20 minutes for five rounds",
    "code": "no peer has gates, retries with what a gate said, and escalation",
    "tools": "its time is that of 1,500 calls of a tool, which is each framework's own; `growth` has what ours takes",
    "mixed": "no peer has two tasks of different priorities at once",
}  # Workloads of `orchestrator bench critical-path` that are measured there alone, and why


def find(names: Sequence[str]) -> tuple[PeerWorkload, ...]:
    """Return the workloads with these names in the order of the suite, all without names. Raises KeyError."""
    workloads = {workload.name: workload for workload in SUITE}
    for name in names:
        if name not in workloads:
            raise KeyError(name)
    return tuple(workload for workload in SUITE if not names or workload.name in names)


def with_barriers(task: TaskIR) -> TaskIR:
    """Return the task with a barrier between waves: each step also waits for all steps of the wave before its own."""
    waves = analyze_task(task).waves
    before = {name: waves[at - 1] for at in range(1, len(waves)) for name in waves[at]}
    steps = [
        step.model_copy(update={"depends_on": tuple(dict.fromkeys((*step.depends_on, *before.get(step.id, ()))))})
        for step in task.plan.steps
    ]
    return task.model_copy(update={"plan": task.plan.model_copy(update={"steps": tuple(steps)})})


def has_use_for_barriers(task: TaskIR) -> bool:
    """Return whether barriers make any step wait for a step that it would not wait for otherwise."""
    return _reach(task) != _reach(with_barriers(task))


def has_needless_order(task: TaskIR) -> bool:
    """Return whether the mode `discover` drops an edge of the plan."""
    return analyze_task(task).before != analyze_task(task, mode="discover").before


def discovered_width(task: TaskIR) -> int:
    """Return how many steps the mode `discover` runs side by side at most, which has a slot for each of them."""
    return analyze_task(task, mode="discover").width


def _reach(task: TaskIR) -> dict[str, frozenset[str]]:
    """Return all steps that each step waits for, directly or not."""
    graph = analyze_task(task)
    ancestors: dict[str, frozenset[str]] = {}
    for name in graph.order:
        ancestors[name] = frozenset(graph.before[name]).union(*(ancestors[parent] for parent in graph.before[name]))
    return ancestors


def _in_digits(schema: Any) -> Any:
    """Return a document whose texts of a certain length are as many digits as such a text has tokens, about.

    A digit is a token for the models that are measured, and for most others. So an answer has the same number of tokens
    whatever a model writes, and so have the prompts of the steps that read it.
    """
    if isinstance(schema, list):
        return [_in_digits(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and "maxLength" in schema:
        return {"type": "string", "pattern": f"^[0-9]{{{max(1, schema['maxLength'] // CHARACTERS_A_TOKEN)}}}$"}
    return {name: _in_digits(part) for name, part in schema.items()}


def _tagged(task: TaskIR, tag: str) -> TaskIR:
    steps = [step.model_copy(update={"action": f"About {tag}: {step.action}"}) for step in task.plan.steps]
    inputs = [source.model_copy(update={"value": f"{tag}. {source.value}"}) for source in task.inputs]
    plan = task.plan.model_copy(update={"steps": tuple(steps)})
    return task.model_copy(update={"plan": plan, "inputs": tuple(inputs)})


def trial(workload: PeerWorkload) -> PeerWorkload:
    """Return the workload with a document that is so short that it can be tried out."""
    return replace(workload, document=lambda ratio: workload.document(20 * ratio))
