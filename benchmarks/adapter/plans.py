"""Generate requests in natural English with the plans that are right for them, in the frontdoor's compact form.

A request is made of clauses, each of which asks for one part of the plan; the form says which parts there are and what
they read. The generator also keeps what it meant, step by step, so that a test can compare that with the steps which
the product makes of the plan.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.adapter import variants
from benchmarks.adapter.draft import REQUEST, ExampleDraft
from benchmarks.adapter.forms import FORMS
from benchmarks.adapter.repairs import flaw_of_spoiled
from benchmarks.adapter.structure import Structure
from benchmarks.adapter.wording import word_request
from benchmarks.adapter.words import WordSampler
from orchestrator.run.frontdoor.compact import Part

# The share of plans that are spoiled. Most of these the product repairs by itself, and no example comes of them.
REPAIRS: Final = 0.4


@dataclass(frozen=True, slots=True)
class PlanExample:
    """A request with the plan that is right for it."""

    form: str  # the name of the function in this module that has made it
    request: str
    files: tuple[str, ...]  # the files that the request may refer to
    parts: tuple[Part, ...]
    meant: Structure  # what the generator meant the plan to be; `structure_of` says what it is
    done: tuple[Part, ...] = ()  # the parts that are done, if `parts` are the rest of a plan
    output: str = ""  # what the last of them has written
    flaw: str = ""  # what was wrong with an earlier plan, if this one is its repair


def generate(seed: int, *, unseen: bool = False) -> Iterator[PlanExample]:
    """Yield examples without end, the same ones for the same seed; with `unseen`, of words that are held out."""
    draw = random.Random(seed)  # noqa: S311 (data to learn from, no secrets)
    forms, weights = zip(*(FORMS | variants.FORMS).items(), strict=True)
    while True:
        form = draw.choices(forms, weights)[0]
        own = random.Random(draw.getrandbits(64))  # noqa: S311 (as above)
        draft = ExampleDraft(WordSampler(own, unseen), form.__name__)
        form(draft)
        example = _finished(draft)
        yield example
        if own.random() < REPAIRS and not example.done:
            flaw = flaw_of_spoiled(example.request, example.files, example.parts, own)
            if flaw:
                yield replace(example, flaw=flaw)


def _finished(draft: ExampleDraft) -> PlanExample:
    """Return the example. A part that reads nothing reads the request where there is anything else to read."""
    for index, part in enumerate(draft.parts):
        if (index or draft.files) and not (part.each or part.inputs or part.foreach):
            draft.parts[index] = part.model_copy(update={"inputs": REQUEST})
            draft.meant[index] = tuple(replace(step, reads=frozenset(REQUEST)) for step in draft.meant[index])
    return PlanExample(
        draft.form,
        draft.worded or word_request(draft),
        draft.files,
        tuple(draft.parts),
        tuple(map(frozenset, draft.meant)),
        draft.done,
        draft.output,
    )
