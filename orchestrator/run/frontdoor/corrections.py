"""Correct an answer by code, as far as its request leaves nothing to choose.

A doubt says what is wrong, and some doubts have the text without it. A model that is asked again mostly makes the same
mistake, and code takes no time. The user is told what was changed.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts

MOST_CORRECTIONS: Final = 8


@dataclass(frozen=True, slots=True)
class CorrectedAnswer:
    """An answer after its corrections, none of which may have been possible."""

    answer: WrittenAnswer
    doubts: tuple[Doubt, ...]  # about the corrected answer
    solved: tuple[Doubt, ...] = ()  # by the corrections, in their order


def corrected(
    request: str, files: tuple[str, ...], answer: WrittenAnswer, changeable: Collection[str]
) -> CorrectedAnswer:
    """Return an answer with the corrections of its doubts, in the outputs that are `changeable`.

    A correction stands if it ends its doubt and there are not more than before. `files` are as in `doubts`.
    """
    latest = CorrectedAnswer(answer, doubts(request, files, answer))
    for _ in range(MOST_CORRECTIONS):
        options = (_with_correction(request, files, latest, doubt, changeable) for doubt in latest.doubts)
        better = next(filter(None, options), None)
        if better is None:
            break
        latest = better
    return latest


def _with_correction(
    request: str, files: tuple[str, ...], before: CorrectedAnswer, doubt: Doubt, changeable: Collection[str]
) -> CorrectedAnswer | None:
    if doubt.corrected is None or doubt.output is None or doubt.output not in changeable:
        return None
    changed = {doubt.output: doubt.corrected}
    outputs, written = before.answer.outputs, before.answer.written
    answer = replace(before.answer, outputs={**outputs, **changed}, written={**written, **changed})
    remaining = doubts(request, files, answer)
    ended = doubt.text not in [other.text for other in remaining] and len(remaining) <= len(before.doubts)
    return CorrectedAnswer(answer, remaining, (*before.solved, doubt)) if ended else None
