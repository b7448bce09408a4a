"""Compare the answer of a run with its request, and decide between what was written first and its repair."""

from collections.abc import Callable, Mapping, Sequence

from orchestrator.run.frontdoor.doubts import WrittenAnswer, doubts
from orchestrator.run.record.answer import answer_outputs
from orchestrator.run.record.view import RunView
from orchestrator.task.events import AnswerChecked, AnswerDoubt

Outputs = Mapping[str, Mapping[str, str]]
"""The outputs by step: artifact name to digest."""


def check_answer(view: RunView, read: Callable[[str], bytes], inputs: Mapping[str, str]) -> AnswerChecked:
    """Return the doubts about the answer of a run whose steps are all done. `inputs` are the texts that they have read.

    The time of the event is that of the latest event of the run. After a repair, an output of it stands only if there
    are fewer doubts about it than before.
    """
    found = _doubts(view, view.outputs, read, inputs)
    at = view.accepted.at + view.wall_seconds
    if view.checked is None:
        return AnswerChecked(at=at, doubts=found)
    restored = {
        step: before
        for step, before in view.before_repair.items()
        if before != view.outputs[step] and _count(found, step) >= _count(view.checked.doubts, step)
    }
    if restored:
        found = _doubts(view, view.outputs | restored, read, inputs)
    return AnswerChecked(at=at, doubts=found, restored=restored)


def _count(found: Sequence[AnswerDoubt], step: str) -> int:
    return sum(doubt.step == step for doubt in found)


def _doubts(
    view: RunView, outputs: Outputs, read: Callable[[str], bytes], inputs: Mapping[str, str]
) -> tuple[AnswerDoubt, ...]:
    writers = {name: step for step in view.graph.steps for name in outputs.get(step, {})}
    texts = {name: read(outputs[step][name]).decode(errors="replace") for name, step in writers.items()}
    answer = {name: texts[name] for name in answer_outputs(view)}
    found = doubts(view.title, view.accepted.files, WrittenAnswer(answer, texts, inputs))
    return tuple(AnswerDoubt(doubt.text, writers.get(doubt.output or "", "")) for doubt in found)
