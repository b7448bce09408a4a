"""Forms of requests in four languages, and those whose parts are words: languages, audiences, aspects, places.

The action of a part is in the language of the request, since a step sees only its action and what it reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.adapter import words
from benchmarks.adapter.draft import WORKER, ExampleDraft, action_of, step_structure
from benchmarks.adapter.files import mixed_folder, new_name, series_folder
from orchestrator.run.frontdoor.compact import Part

PATH: Final = Path(__file__).with_name("languages.yaml")
FOREIGN: Final = ("German", "French", "Spanish")


@dataclass(frozen=True, slots=True)
class Wordings:
    """What requests of a language are made of; a field is as the comment of languages.yaml says."""

    joiner: str  # the word before the last item of a list
    result: str  # how people name what an earlier step has made
    files: tuple[str, ...]
    polite: tuple[str, ...]
    then: tuple[str, ...]
    beside: tuple[str, ...]
    save: tuple[str, ...]
    operations: tuple[tuple[str, str, str], ...]
    joins: tuple[tuple[str, str], ...]
    follow_ups: tuple[tuple[str, str], ...]
    together: tuple[tuple[str, str], ...]
    variants: tuple[tuple[str, str, str, str], ...]  # the kind of words, what comes of them, the wording and the action
    subjects: tuple[tuple[str, str, str, str], ...]
    questions: tuple[str, ...]
    kinds: dict[str, tuple[str, ...]]  # Words by their kind

    def listing(self, items: Sequence[str]) -> str:
        """Return the items as people list them."""
        return f"{', '.join(items[:-1])} {self.joiner} {items[-1]}" if len(items) > 1 else items[0]


@cache
def wordings(language: str) -> Wordings:
    """Return the wordings of a language."""
    fields: dict[str, Any] = dict(yaml.safe_load(PATH.read_text(encoding="utf-8"))[language])
    joiner, result = fields.pop("and"), fields.pop("result")
    kinds = {kind: tuple(fields.pop(kind)) for kind in [*fields] if kind not in Wordings.__dataclass_fields__}
    rows: dict[str, Any] = {
        name: tuple(tuple(row) if isinstance(row, list) else row for row in rows) for name, rows in fields.items()
    }
    return Wordings(joiner=joiner, result=result, kinds=kinds, **rows)


def variants(draft: ExampleDraft, language: str = "English") -> None:
    """The same text for each of several words, and now and then something made of all of them."""
    said = wordings(language)
    kind, results, wording, action = draft.random.choice(said.variants)
    chosen = _words(draft, said, kind)
    names = _some_files(draft, (1, 1, 1, 1, 2, 3))
    clause = wording.format(x=said.listing(names), w=said.listing(chosen))
    each_action = action_of(action.replace("{x}", said.listing(names)))
    reads = step_structure(names)
    draft.add(clause, Part(role=WORKER, action=each_action, each=chosen, inputs=names), *(reads for _ in chosen))
    _maybe_join(draft, said, results)
    _finish(draft, said)


def variants_beside(draft: ExampleDraft, language: str = "English") -> None:
    """A text for each of several words, and something else with another file, in either order."""
    said = wordings(language)
    kind, _, wording, action = draft.random.choice(said.variants)
    chosen = _words(draft, said, kind)
    name, other = _some_files(draft, (2,))
    _, other_wording, _ = draft.random.choice(said.operations)
    alone = Part(role=WORKER, action=action_of(other_wording.format(x=other)), inputs=(other,))
    several = Part(role=WORKER, action=action_of(action.replace("{x}", name)), each=chosen, inputs=(name,))
    clauses = [
        (wording.format(x=name, w=said.listing(chosen)), several, [step_structure([name])] * len(chosen)),
        (other_wording.format(x=other), alone, [step_structure([other])]),
    ]
    draft.random.shuffle(clauses)
    for clause, part, steps in clauses:
        draft.add(clause, part, *steps)
    _finish(draft, said, said.beside)


def result_for_words(draft: ExampleDraft, language: str = "English") -> None:
    """Add a step that makes a result of a file, and one that rewords it for each of several words."""
    said = wordings(language)
    _, first, _ = draft.random.choice(said.operations)
    kind, _, wording, action = draft.random.choice(
        [row for row in said.variants if row[0] in ("languages", "audiences")]
    )
    names, chosen = _some_files(draft, (1,)), _words(draft, said, kind)
    draft.add(
        first.format(x=names[0]),
        Part(role=WORKER, action=action_of(first.format(x=names[0])), inputs=names),
        step_structure(names),
    )
    result, reads = said.result, step_structure(["P1"])
    part = Part(role=WORKER, action=action_of(action.replace("{x}", result)), each=chosen, inputs=("P1",))
    draft.add(wording.format(x=result, w=said.listing(chosen)), part, *(reads for _ in chosen))
    _finish(draft, said)


def subjects(draft: ExampleDraft, language: str = "English") -> None:
    """A text about each of several places or topics, without files that it needs."""
    said = wordings(language)
    kind, results, wording, action = draft.random.choice(said.subjects)
    chosen = _words(draft, said, kind)
    if draft.random.random() < 0.2:  # irrelevant files
        draft.files = mixed_folder(draft.vocabulary, draft.random.randint(1, 3)).listed
    part = Part(role=WORKER, action=action_of(action), each=chosen, inputs=("request",) if draft.files else ())
    reads = step_structure(part.inputs)
    draft.add(wording.format(w=said.listing(chosen)), part, *(reads for _ in chosen))
    _maybe_join(draft, said, results)
    _finish(draft, said)


def one_word(draft: ExampleDraft, language: str = "English") -> None:
    """A variant for a single word is a single step."""
    said = wordings(language)
    kind, _, wording, action = draft.random.choice(
        [row for row in said.variants if row[0] in ("languages", "audiences")]
    )
    (chosen,), names = _words(draft, said, kind, 1), _some_files(draft, (1,))
    draft.add(
        wording.format(x=names[0], w=chosen),
        Part(role=WORKER, action=action_of(action.format(x=names[0], each=chosen)), inputs=names),
        step_structure(names),
    )
    _save(draft, said)
    _finish(draft, said)


def foreign_one(draft: ExampleDraft) -> None:
    """One file and one step, and now and then something made of that, in another language than English."""
    said = wordings(draft.random.choice(FOREIGN))
    _, wording, _ = draft.random.choice(said.operations)
    names = _some_files(draft, (1,))
    draft.add(
        wording.format(x=names[0]),
        Part(role=WORKER, action=action_of(wording.format(x=names[0])), inputs=names),
        step_structure(names),
    )
    _save(draft, said)
    if draft.random.random() < 0.4:
        clause, action = draft.random.choice(said.follow_ups)
        draft.add(clause, Part(role=WORKER, action=action, inputs=("P1",)), step_structure(["P1"]))
        _save(draft, said)
    _finish(draft, said)


def foreign_each(draft: ExampleDraft) -> None:
    """The same for each of several files, and now and then something made of the results."""
    said = wordings(draft.random.choice(FOREIGN))
    results, wording, every = draft.random.choice(said.operations)
    names = _some_files(draft, (2, 2, 3, 3, 4, 6))
    action = action_of(wording.format(x="{each}"))
    steps = [step_structure([name]) for name in names]
    if draft.random.random() < 0.4 and set(draft.files) == set(names):
        draft.add(every, Part(role=WORKER, action=action, each=("*",)), *steps)
    else:
        draft.add(wording.format(x=said.listing(names)), Part(role=WORKER, action=action, each=names), *steps)
    _maybe_join(draft, said, results, often=0.6)
    _finish(draft, said)


def foreign_beside(draft: ExampleDraft) -> None:
    """Different things with different files."""
    said = wordings(draft.random.choice(FOREIGN))
    names = _some_files(draft, (2, 2, 3))
    for name, (_, wording, _) in zip(names, draft.random.sample(said.operations, len(names)), strict=True):
        part = Part(role=WORKER, action=action_of(wording.format(x=name)), inputs=(name,))
        draft.add(wording.format(x=name), part, step_structure([name]))
        _save(draft, said, often=0.2)
    _finish(draft, said, said.beside)


def together(draft: ExampleDraft) -> None:
    """One question about several files is a single step, in any language."""
    said = wordings(draft.random.choice(("English", *FOREIGN)))
    clause, action = draft.random.choice(said.together)
    names = _some_files(draft, (2, 2, 3, 4))
    draft.add(
        clause.format(x=said.listing(names)), Part(role=WORKER, action=action, inputs=names), step_structure(names)
    )
    draft.question = clause.endswith("?")
    _finish(draft, said)


def foreign_question(draft: ExampleDraft) -> None:
    """A question that no file answers, in another language than English."""
    said = wordings(draft.random.choice(FOREIGN))
    place = draft.vocabulary.pick(words.PLACES).capitalize()
    question = draft.random.choice(said.questions).format(p=place, t=draft.random.choice(said.kinds["topics"]))
    if draft.random.random() < 0.2:
        draft.files = mixed_folder(draft.vocabulary, draft.random.randint(1, 3)).listed
    draft.question = True
    inputs = ("request",) if draft.files else ()
    draft.add(question, Part(role=WORKER, action=question, inputs=inputs), step_structure(inputs))
    _finish(draft, said)


def foreign_variants(draft: ExampleDraft) -> None:
    """As the forms with words, in another language than English."""
    form = draft.random.choice((variants, variants, subjects, one_word, variants_beside, result_for_words))
    form(draft, draft.random.choice(FOREIGN))


def _words(draft: ExampleDraft, said: Wordings, kind: str, count: int | None = None) -> tuple[str, ...]:
    """Return different words of a kind, two to five unless their number is given."""
    count = count or draft.random.choice((2, 3, 3, 3, 4, 5))
    if kind == "places":
        return tuple(place.capitalize() for place in draft.vocabulary.sample(words.PLACES, count))
    return tuple(draft.vocabulary.sample([*said.kinds[kind]], count))


def _some_files(draft: ExampleDraft, counts: Sequence[int]) -> tuple[str, ...]:
    """Put files into the folder, now and then irrelevant ones too, and return those that the request is about."""
    count = draft.random.choice(counts)
    make = series_folder if count > 1 and draft.random.random() < 0.5 else mixed_folder
    folder = make(draft.vocabulary, count, draft.random.choice((0, 0, 0, 1, 2, 3)))
    draft.files = folder.listed
    return folder.names


def _maybe_join(draft: ExampleDraft, said: Wordings, results: str, often: float = 0.45) -> None:
    """Let something be made of all results, now and then."""
    if draft.random.random() < often:
        clause, action = draft.random.choice(said.joins)
        part = Part(role=WORKER, action=action.format(r=results), inputs=("P1",))
        draft.add(clause.format(r=results), part, step_structure(["P1"]))
        _save(draft, said)


def _save(draft: ExampleDraft, said: Wordings, often: float = 0.3) -> None:
    """Let the last part write a file that the request names, now and then."""
    if draft.random.random() < often:
        name = new_name(draft.vocabulary, [*draft.files, "request"], draft.random.choice(("txt", "md", "md", "csv")))
        draft.save_as(name, draft.random.choice(said.save))


def _finish(draft: ExampleDraft, said: Wordings, between: Sequence[str] | None = None) -> None:
    """Word the whole request, which is not worded as others are."""
    text, *rest = draft.clauses
    for clause in rest:
        text = draft.random.choice(between or said.then).format(a=text, b=clause)
    if not draft.question:
        plain = [form for form in said.polite if "{I}" in form]  # suits sentences that are no imperatives
        polite = draft.random.choice(plain if text.startswith("I ") else said.polite)
        text = polite.format(i=text, I=f"{text[0].upper()}{text[1:]}")
    elif text[0] not in "¿":
        text = f"{text[0].upper()}{text[1:]}"
    draft.worded = _sentences(text)


def _sentences(text: str) -> str:
    """Return a text whose sentences begin with capital letters."""
    head, *rest = text.split(". ")
    return ". ".join([head, *(f"{sentence[:1].upper()}{sentence[1:]}" for sentence in rest)])


FORMS: Final = {
    variants: 4.0,
    subjects: 2.0,
    one_word: 1.0,
    variants_beside: 1.2,
    result_for_words: 0.8,
    together: 1.2,
    foreign_one: 1.5,
    foreign_each: 2.5,
    foreign_beside: 0.8,
    foreign_question: 0.7,
    foreign_variants: 3.0,
}  # the forms of requests, and how often each comes up
