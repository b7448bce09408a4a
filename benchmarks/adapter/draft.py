"""Put a request and its plan together: clauses, the parts that they ask for, and the files that they name."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.adapter import operations, words
from benchmarks.adapter.files import (
    Folder,
    Reference,
    mixed_folder,
    named_folder,
    new_name,
    refer_to_all,
    refer_to_one,
    refer_to_some,
    series_folder,
)
from benchmarks.adapter.operations import TextOperation
from benchmarks.adapter.structure import StepStructure
from benchmarks.adapter.words import WordSampler
from orchestrator.run.frontdoor.compact import Part

WORKER: Final = "worker"
REQUEST: Final = ("request",)


@dataclass(slots=True)
class ExampleDraft:
    """An example in the making."""

    vocabulary: WordSampler
    form: str = ""
    files: tuple[str, ...] = ()
    clauses: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    meant: list[tuple[StepStructure, ...]] = field(default_factory=list)
    question: bool = False  # whether the last clause is a question, which no polite form goes around
    done: tuple[Part, ...] = ()
    output: str = ""
    worded: str = ""  # the whole request, if its form has worded it already

    @property
    def random(self) -> random.Random:
        return self.vocabulary.random

    def fill(self, wording: str, **more: str) -> dict[str, str]:
        """Return values for all placeholders of a wording except `{x}`."""
        vocabulary, draw = self.vocabulary, self.random
        subject, subject2 = vocabulary.sample(words.SUBJECTS, 2)
        place, place2 = (place.capitalize() for place in vocabulary.sample(words.PLACES, 2))
        return {
            "language": vocabulary.pick(words.LANGUAGES),
            "number": draw.choice(("3", "5", "10", "three", "four", "five", "six", "ten")),
            "audience": vocabulary.pick(words.AUDIENCES),
            "person": vocabulary.pick(words.PEOPLE).capitalize(),
            "place": place,
            "place2": place2,
            "subject": subject,
            "subject2": subject2,
            "topic": vocabulary.pick(words.TOPICS),
            "month": vocabulary.pick(words.MONTHS).capitalize(),
            "weekday": vocabulary.pick(words.WEEKDAYS).capitalize(),
            "joint": draw.choice(operations.JOINT).replace("-", " "),
            "best": draw.choice(operations.BEST).replace("-", " "),
            **more,
        }

    def add(self, clause: str, part: Part, *steps: StepStructure) -> None:
        self.clauses.append(clause)
        self.parts.append(part)
        self.meant.append(steps)

    def save_as(self, name: str, way: str) -> None:
        """Let the last part write this file, which the last clause then names in this way."""
        self.clauses[-1] += way.format(file=name)
        self.parts[-1] = self.parts[-1].model_copy(update={"output": name})
        self.meant[-1] = (replace(self.meant[-1][0], output=name),)

    @property
    def last(self) -> str:
        """The name of the last part."""
        return f"P{len(self.parts)}"


def action_of(wording: str) -> str:
    return f"{wording[0].upper()}{wording[1:].rstrip('.')}."


def step_structure(
    reads: Sequence[str], *, code: bool = False, foreach: str | None = None, replan: bool = False
) -> StepStructure:
    return StepStructure(frozenset(reads), code, foreach, replan=replan)


def add_operation(draft: ExampleDraft, reference: Reference, operation: TextOperation, *, each: bool = False) -> None:
    """Add an operation on a file, or on each of several."""
    asked = operation.questions if not each else ()
    if asked and draft.random.random() < 0.3:
        clause, wording = draft.random.choice(asked), operation.wordings[0]
        draft.question = True
    else:
        clause = wording = draft.random.choice(operation.wordings)
    values = draft.fill(wording)
    around = "{x}" if clause in asked else draft.random.choice(operations.EACH_OF if each else operations.OF_ONE)
    if "{op}" in around:
        singular = reference.phrase.startswith(("each ", "every ")) and " of " not in reference.phrase
        said = "it" if len(reference.files) == 1 else "them"
        if each:
            said = "it" if singular and around.startswith("for") else draft.random.choice(operations.ONE_BY_ONE)
        clause = around.format(x=reference.phrase, op=clause.format(x=said, **values))
    else:
        clause = clause.format(x=reference.phrase, **values)
    if len(reference.files) > 1 and not reference.phrase.startswith(("each", "every")):
        for verb, plural in _VERBS.items():
            clause = clause.replace(f"{reference.phrase} {verb}", f"{reference.phrase} {plural}")
    if not each:
        action = action_of(wording.format(x=reference.names[0], **values))
        draft.add(clause, Part(role=WORKER, action=action, inputs=reference.names), step_structure(reference.files))
        return
    action = action_of(wording.format(x="{each}", **values))
    steps = [step_structure([file]) for file in reference.files]
    draft.add(clause, Part(role=WORKER, action=action, each=reference.names), *steps)


_VERBS: Final = {
    **{f"{verb}s": verb for verb in ("mention", "use", "state", "report", "leave", "argue", "sound", "mean", "say")},
    "is": "are",
    "was": "were",
}  # Verbs that follow `{x}` in wordings, and what they are where it stands for several files


def any_operation(draft: ExampleDraft) -> TextOperation:
    return draft.random.choice(operations.ON_A_TEXT)


def add_join(draft: ExampleDraft, parts: Sequence[str], plural: str) -> None:
    """Add what is made of the results of several steps."""
    if draft.random.random() < 0.5:
        clause = wording = draft.random.choice(operations.ON_RESULTS)
    else:
        clause, wording = draft.random.choice(operations.ON_RESULTS_UNSAID)
    values = draft.fill(wording)
    reference = f"the {plural}"
    pronoun = draft.random.choice((reference, reference, "them", "the results", f"these {plural}"))
    action = action_of(wording.format(x=reference, **values))
    clause = clause.format(x=pronoun, **values)
    clause = clause.replace("what them ", "what they ").replace("where them ", "where they ")
    draft.add(clause, Part(role=WORKER, action=action, inputs=tuple(parts)), step_structure(parts))


def add_follow_up(draft: ExampleDraft, noun: str, part: str | None = None) -> str:
    """Add an operation on the result of a part, the last one unless another is given; return what comes of it."""
    operation = draft.random.choice(operations.ON_A_RESULT)
    wording, reads = draft.random.choice(operation.wordings), part or draft.last
    values, reference = draft.fill(wording), f"the {noun}"
    pronoun = draft.random.choice((reference, reference, "it", "that", "the result") if part is None else (reference,))
    clause, action = wording.format(x=pronoun, **values), action_of(wording.format(x=reference, **values))
    draft.add(clause, Part(role=WORKER, action=action, inputs=(reads,)), step_structure([reads]))
    return operation.noun


def save_result(draft: ExampleDraft, name: str | None = None, *, often: float = 0.3) -> None:
    """Let the last part write a file that the request names, now and then."""
    if draft.random.random() >= often or len(draft.meant[-1]) > 1:
        return
    name = name or new_name(
        draft.vocabulary, [*draft.files, *REQUEST], draft.random.choice(("txt", "txt", "md", "md", "csv"))
    )
    ways = operations.SAVE_ANSWER if draft.clauses[-1].endswith("?") else operations.SAVE
    draft.save_as(name, draft.random.choice(ways))


def add_one_file(draft: ExampleDraft) -> Reference:
    """Put files into the folder, and return one of them."""
    if draft.random.random() < 0.35:
        folder = series_folder(draft.vocabulary, draft.random.randint(2, 5), draft.random.choice((0, 0, 1, 2)))
        draft.files = folder.listed
        return refer_to_one(draft.vocabulary, folder, draft.random.randrange(len(folder.names)))
    make = named_folder if draft.random.random() < 0.4 else mixed_folder
    folder = make(draft.vocabulary, 1, draft.random.choice((0, 1, 1, 2, 3, 4)))
    draft.files = folder.listed
    return refer_to_one(draft.vocabulary, folder)


def add_files(draft: ExampleDraft, least: int = 2) -> Folder:
    count = draft.random.choice((2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
    make = series_folder if draft.random.random() < 0.65 else mixed_folder
    folder = make(draft.vocabulary, max(least, count), draft.random.choice((0, 0, 0, 0, 1, 1, 2)))
    draft.files = folder.listed
    return folder


def add_several_files(draft: ExampleDraft) -> Reference:
    """Put files into the folder, and return several of them."""
    folder = add_files(draft)
    if draft.random.random() < 0.28 and len(folder.names) > 2:
        count = draft.random.randint(2, len(folder.names) - 1)
        if draft.random.random() < 0.5:
            first = draft.random.randint(0, len(folder.names) - count)
            indexes = list(range(first, first + count))
        else:
            indexes = sorted(draft.random.sample(range(len(folder.names)), count))
        return refer_to_some(draft.vocabulary, folder, indexes)
    if draft.random.random() < 0.3 and len(folder.names) <= 6:
        order = list(range(len(folder.names)))
        draft.random.shuffle(order)
        return refer_to_some(draft.vocabulary, replace(folder, kind=None), order)
    return refer_to_all(draft.vocabulary, folder)
