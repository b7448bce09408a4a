"""Compare the answer of a run with its request, and decide whether a repair stands."""

from collections.abc import Callable, Mapping, Sequence

from orchestrator.run.frontdoor.doubts import WrittenAnswer, doubts
from orchestrator.run.record.report import answer_outputs
from orchestrator.run.record.view import RunView
from orchestrator.task.events import AnswerChecked, AnswerDoubt

Outputs = Mapping[str, Mapping[str, str]]  # by step: artifact name to digest


def check_answer(view: RunView, read: Callable[[str], bytes], inputs: Mapping[str, str]) -> AnswerChecked:
    """Return the doubts about the answer of a run whose steps are all done. `inputs` are the texts that they read."""
    answer_doubts = _doubts(view, view.outputs, read, inputs)
    # The time of the run's latest event, so that the same events always give the same result.
    at = view.accepted.at + view.wall_seconds
    if view.checked is None:
        return AnswerChecked(at=at, doubts=answer_doubts)
    # A repaired output stands only if there are fewer doubts about it than before.
    restored = {
        step: before
        for step, before in view.before_repair.items()
        if before != view.outputs[step] and _count(answer_doubts, step) >= _count(view.checked.doubts, step)
    }
    if restored:
        answer_doubts = _doubts(view, view.outputs | restored, read, inputs)
    return AnswerChecked(at=at, doubts=answer_doubts, restored=restored)


def _count(answer_doubts: Sequence[AnswerDoubt], step: str) -> int:
    return sum(doubt.step == step for doubt in answer_doubts)


def _doubts(
    view: RunView, outputs: Outputs, read: Callable[[str], bytes], inputs: Mapping[str, str]
) -> tuple[AnswerDoubt, ...]:
    writers = {name: step for step in view.graph.steps for name in outputs.get(step, {})}
    texts = {name: read(outputs[step][name]).decode(errors="replace") for name, step in writers.items()}
    answer = {name: texts[name] for name in answer_outputs(view)}
    found_doubts = doubts(view.title, view.accepted.files, WrittenAnswer(answer, texts, inputs))
    return tuple(AnswerDoubt(doubt.text, writers.get(doubt.output or "", "")) for doubt in found_doubts)
