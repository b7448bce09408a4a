"""Generate requests in natural English with the plans that are right for them, in the frontdoor's compact form.

A request is made of clauses, each of which asks for one part of the plan; the form says which parts there are and what
they read. The generator also keeps what it meant, step by step, so that a test can compare that with the steps which
the product makes of the plan.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.adapter import operations, words
from benchmarks.adapter.files import (
    Folder,
    Reference,
    mixed_folder,
    new_name,
    refer_to_all,
    refer_to_one,
    refer_to_some,
    series_folder,
)
from benchmarks.adapter.operations import Operation
from benchmarks.adapter.structure import CODER, StepStructure, Structure
from benchmarks.adapter.words import Vocabulary
from orchestrator.frontdoor.compact import Part

WORKER: Final = "worker"
REQUEST: Final = ("request",)


@dataclass(frozen=True, slots=True)
class Example:
    """A request with the plan that is right for it."""

    form: str
    """The name of the function in this module that has made it."""
    request: str
    files: tuple[str, ...]
    """The files that the request may refer to."""
    parts: tuple[Part, ...]
    meant: Structure
    """What the generator meant the plan to be; `structure_of` says what it is."""


@dataclass(slots=True)
class _Draft:
    """An example in the making."""

    vocabulary: Vocabulary
    form: str = ""
    files: tuple[str, ...] = ()
    clauses: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    meant: list[tuple[StepStructure, ...]] = field(default_factory=list)
    question: bool = False
    """Whether the last clause is a question, which no polite form goes around."""

    @property
    def random(self) -> random.Random:
        return self.vocabulary.random

    def fill(self, wording: str, **more: str) -> dict[str, str]:
        """Return values for all that a wording may name beside `{x}`."""
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

    @property
    def last(self) -> str:
        """The name of the last part."""
        return f"P{len(self.parts)}"


def generate(seed: int, *, unseen: bool = False) -> Iterator[Example]:
    """Yield examples without end, the same ones for the same seed; with `unseen`, of words that are held out."""
    draw = random.Random(seed)  # noqa: S311 (data to learn from, no secrets)
    forms, weights = zip(*FORMS.items(), strict=True)
    while True:
        form = draw.choices(forms, weights)[0]
        own = random.Random(draw.getrandbits(64))  # noqa: S311 (as above)
        draft = _Draft(Vocabulary(own, unseen), form.__name__)
        form(draft)
        yield _finished(draft)


def _finished(draft: _Draft) -> Example:
    return Example(draft.form, _said(draft), draft.files, tuple(draft.parts), tuple(map(frozenset, draft.meant)))


# The parts of a request


def _action(wording: str) -> str:
    return f"{wording[0].upper()}{wording[1:].rstrip('.')}."


def _step(
    reads: Sequence[str], *, code: bool = False, foreach: str | None = None, replan: bool = False
) -> StepStructure:
    return StepStructure(frozenset(reads), code, foreach, replan=replan)


def _operate(draft: _Draft, reference: Reference, operation: Operation, *, each: bool = False) -> None:
    """Add an operation on a file, or on each of several."""
    asked = operation.questions if not each else ()
    if asked and draft.random.random() < 0.3:
        clause, wording = draft.random.choice(asked), operation.wordings[0]
        draft.question = True
    else:
        clause = wording = draft.random.choice(operation.wordings)
    values = draft.fill(wording)
    clause = clause.format(x=reference.phrase, **values)
    if len(reference.files) > 1 and not reference.phrase.startswith(("each", "every")):
        for verb, plural in _VERBS.items():
            clause = clause.replace(f"{reference.phrase} {verb}", f"{reference.phrase} {plural}")
    if not each:
        action = _action(wording.format(x=reference.names[0], **values))
        draft.add(clause, Part(role=WORKER, action=action, inputs=reference.names), _step(reference.files))
        return
    action = _action(wording.format(x="{each}", **values))
    steps = [_step([file]) for file in reference.files]
    draft.add(clause, Part(role=WORKER, action=action, each=reference.names), *steps)


_VERBS: Final = {
    **{f"{verb}s": verb for verb in ("mention", "use", "state", "report", "leave", "argue", "sound", "mean", "say")},
    "is": "are",
    "was": "were",
}
"""Verbs that follow `{x}` in wordings, and what they are where it stands for several files."""


def _operation(draft: _Draft) -> Operation:
    return draft.random.choice(operations.ON_A_TEXT)


def _join(draft: _Draft, parts: Sequence[str], plural: str) -> None:
    """Add what is made of the results of several steps."""
    if draft.random.random() < 0.5:
        clause = wording = draft.random.choice(operations.ON_RESULTS)
    else:
        clause, wording = draft.random.choice(operations.ON_RESULTS_UNSAID)
    values = draft.fill(wording)
    named = f"the {plural}"
    said = draft.random.choice((named, named, "them", "the results", f"these {plural}"))
    action = _action(wording.format(x=named, **values))
    clause = clause.format(x=said, **values)
    draft.add(clause, Part(role=WORKER, action=action, inputs=tuple(parts)), _step(parts))


def _follow(draft: _Draft, noun: str, part: str | None = None) -> str:
    """Add an operation on the result of a part, the last one unless another is given; return what comes of it."""
    operation = draft.random.choice(operations.ON_A_RESULT)
    wording, reads = draft.random.choice(operation.wordings), part or draft.last
    values, named = draft.fill(wording), f"the {noun}"
    said = draft.random.choice((named, named, "it", "that", "the result") if part is None else (named,))
    clause, action = wording.format(x=said, **values), _action(wording.format(x=named, **values))
    draft.add(clause, Part(role=WORKER, action=action, inputs=(reads,)), _step([reads]))
    return operation.noun


def _save(draft: _Draft, name: str | None = None, *, often: float = 0.3) -> None:
    """Let the last part write a file that the request names, now and then."""
    if draft.random.random() >= often or len(draft.meant[-1]) > 1 or draft.question:
        return
    name = name or new_name(
        draft.vocabulary, [*draft.files, *REQUEST], draft.random.choice(("txt", "txt", "md", "md", "csv"))
    )
    draft.clauses[-1] += draft.random.choice(operations.SAVE).format(file=name)
    draft.parts[-1] = draft.parts[-1].model_copy(update={"output": name})
    draft.meant[-1] = (replace(draft.meant[-1][0], output=name),)


def _one_file(draft: _Draft) -> Reference:
    """Put files into the folder, and return one of them."""
    if draft.random.random() < 0.35:
        folder = series_folder(draft.vocabulary, draft.random.randint(2, 5), draft.random.choice((0, 0, 1, 2)))
        draft.files = folder.listed
        return refer_to_one(draft.vocabulary, folder, draft.random.randrange(len(folder.names)))
    folder = mixed_folder(draft.vocabulary, 1, draft.random.choice((0, 1, 1, 2, 3, 4)))
    draft.files = folder.listed
    return refer_to_one(draft.vocabulary, folder)


def _folder(draft: _Draft, least: int = 2) -> Folder:
    count = draft.random.choice((2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
    make = series_folder if draft.random.random() < 0.55 else mixed_folder
    folder = make(draft.vocabulary, max(least, count), draft.random.choice((0, 0, 0, 1, 1, 2, 3)))
    draft.files = folder.listed
    return folder


def _several_files(draft: _Draft) -> Reference:
    """Put files into the folder, and return several of them."""
    folder = _folder(draft)
    if draft.random.random() < 0.4 and len(folder.names) > 2:
        count = draft.random.randint(2, len(folder.names) - 1)
        if draft.random.random() < 0.5:
            first = draft.random.randint(0, len(folder.names) - count)
            indexes = list(range(first, first + count))
        else:
            indexes = sorted(draft.random.sample(range(len(folder.names)), count))
        return refer_to_some(draft.vocabulary, folder, indexes)
    if draft.random.random() < 0.35 and len(folder.names) <= 6:
        order = list(range(len(folder.names)))
        draft.random.shuffle(order)
        return refer_to_some(draft.vocabulary, replace(folder, kind=None), order)
    return refer_to_all(draft.vocabulary, folder)


# The forms


def one(draft: _Draft) -> None:
    """One file, one step."""
    _operate(draft, _one_file(draft), _operation(draft))
    _save(draft)


def each(draft: _Draft) -> None:
    """The same for each of several files."""
    _operate(draft, _several_files(draft), _operation(draft), each=True)


def each_and_join(draft: _Draft) -> None:
    """The same for each of several files, and something made of the results."""
    operation = _operation(draft)
    _operate(draft, _several_files(draft), operation, each=True)
    _join(draft, [draft.last], operation.plural)
    _save(draft)


def each_join_and_chain(draft: _Draft) -> None:
    """The results are joined, and something is made of that."""
    operation = _operation(draft)
    _operate(draft, _several_files(draft), operation, each=True)
    _join(draft, [draft.last], operation.plural)
    _save(draft, often=0.2)
    _follow(draft, "text")
    _save(draft)


def two_files(draft: _Draft) -> None:
    """Two files that belong to one question."""
    if draft.random.random() < 0.4:
        folder = series_folder(draft.vocabulary, draft.random.randint(2, 5), draft.random.choice((0, 1, 2)))
    else:
        folder = mixed_folder(draft.vocabulary, 2, draft.random.choice((0, 0, 1, 2, 3)))
    draft.files = folder.listed
    first, second = (
        refer_to_one(draft.vocabulary, folder, index) for index in draft.random.sample(range(len(folder.names)), 2)
    )
    clause, wording = draft.random.choice(operations.ON_TWO)
    names = (*first.names, *second.names)
    action = _action(wording.format(a=first.names[0], b=second.names[0]))
    draft.question = clause.endswith("?")
    clause = clause.format(a=first.phrase, b=second.phrase)
    draft.add(clause, Part(role=WORKER, action=action, inputs=names), _step(names))
    _save(draft)


def two_files_and_chain(draft: _Draft) -> None:
    """Something is made of the answer to a question about two files."""
    while not draft.clauses or draft.question:
        draft.question = False
        draft.clauses, draft.parts, draft.meant = [], [], []
        two_files(draft)
    _follow(draft, "result")


def chain_of_two(draft: _Draft) -> None:
    """Something is made of the result for one file."""
    operation = replace(_operation(draft), questions=())
    _operate(draft, _one_file(draft), operation)
    _save(draft, often=0.15)
    _follow(draft, operation.noun)
    _save(draft)


def chain_of_three(draft: _Draft) -> None:
    """A chain of three steps."""
    chain_of_two(draft)
    _follow(draft, "result")
    _save(draft, often=0.2)


def two_readings(draft: _Draft) -> None:
    """Two things are made of one file."""
    reference = _one_file(draft)
    first, second = (replace(one, questions=()) for one in draft.random.sample(operations.ON_A_TEXT, 2))
    _operate(draft, reference, first)
    _operate(draft, reference, second)


def diamond(draft: _Draft) -> None:
    """Two things are made of one text, and one of both."""
    reference = _one_file(draft)
    first = replace(_operation(draft), questions=())
    _operate(draft, reference, first)
    if draft.random.random() < 0.5:
        _follow(draft, first.noun, "P1")
        _follow(draft, first.noun, "P1")
        _join(draft, ["P2", "P3"], "results")
    else:
        _operate(draft, reference, replace(_operation(draft), questions=()))
        _join(draft, ["P1", "P2"], "results")
    _save(draft)


def fork(draft: _Draft) -> None:
    """Two things are made of one result."""
    operation = replace(_operation(draft), questions=())
    _operate(draft, _one_file(draft), operation)
    _follow(draft, operation.noun, "P1")
    _follow(draft, operation.noun, "P1")


def mixed_join(draft: _Draft) -> None:
    """One thing for each of several files, another for one more, and something made of all results."""
    folder = _folder(draft, least=3)
    *several, last = range(len(folder.names))
    operation, other = (replace(one, questions=()) for one in draft.random.sample(operations.ON_A_TEXT, 2))
    _operate(draft, refer_to_some(draft.vocabulary, folder, several), operation, each=True)
    _operate(draft, refer_to_one(draft.vocabulary, folder, last), other)
    _join(draft, ["P1", "P2"], "results")
    _save(draft)


def beside(draft: _Draft) -> None:
    """Two or three things that have nothing to do with each other."""
    folder = mixed_folder(draft.vocabulary, draft.random.choice((2, 2, 2, 3)), draft.random.choice((0, 0, 1, 2)))
    draft.files = folder.listed
    for index in range(len(folder.names)):
        _operate(draft, refer_to_one(draft.vocabulary, folder, index), replace(_operation(draft), questions=()))
        _save(draft, often=0.2)


def no_file(draft: _Draft) -> None:
    """A question that no file answers."""
    question = draft.vocabulary.pick(words.FACTS)
    question = question.format(**draft.fill(question))
    draft.question = True
    _distract(draft)
    draft.add(question, Part(role=WORKER, action=f"Answer: {question}"), _step([]))


def creative(draft: _Draft) -> None:
    """A text is written, of which more may be made."""
    values = draft.fill("")
    kind, topic = draft.vocabulary.pick(words.CREATIVE), values["topic"]
    subject = draft.random.choice(
        (topic, f"a {values['subject']}", f"a {values['subject']} and a {values['subject2']}")
    )
    occasion = draft.vocabulary.pick(words.OCCASIONS)
    number = draft.random.choice(("three", "four", "five", "six", "ten"))
    wording, noun = draft.random.choice(
        (
            (f"write a {kind} about {subject}", kind),
            (f"write a short {kind} about {subject}", kind),
            (f"compose a {kind} about {subject}", kind),
            (f"explain {topic} to {values['audience']}", "explanation"),
            (f"give me {number} ideas for {occasion}", "list"),
            (f"suggest {number} names for a {values['subject']}", "list"),
            (f"list {number} arguments for and against a {values['subject']}", "list"),
            (f"make a plan for {occasion}", "plan"),
            (f"write a checklist for {occasion}", "checklist"),
            (f"invent a {kind} in which a {values['subject']} meets a {values['subject2']}", kind),
        )
    )
    _distract(draft)
    draft.add(wording, Part(role=WORKER, action=_action(wording)), _step([]))
    _save(draft, often=0.15)
    for _ in range(draft.random.choice((0, 0, 1, 1, 2))):
        noun = _follow(draft, noun)
    _save(draft, often=0.15)


def given_text(draft: _Draft) -> None:
    """The text is in the request itself."""
    sentence = draft.vocabulary.pick(words.SENTENCES)
    sentence = sentence.format(**draft.fill(sentence))
    operation = replace(_operation(draft), questions=())
    wording = draft.random.choice(operation.wordings)
    values, quote = draft.fill(wording), draft.random.choice(('"', "'", ""))
    said = draft.random.choice(("this", "this text", "the following sentence", "the following", "this sentence"))
    action = _action(wording.format(x="the text", **values))
    _distract(draft)
    draft.add(
        f"{wording.format(x=said, **values)}: {quote}{sentence}{quote}",
        Part(role=WORKER, action=action, inputs=REQUEST),
        _step(REQUEST),
    )
    draft.question = True  # it ends with the text, so nothing is put behind it


def code(draft: _Draft) -> None:
    """A function, in a file that is named or not, with tests or without."""
    name, does = draft.vocabulary.pick(words.CODE).split(":")
    file = f"{name}.py"
    base = does.split(" ", 1)
    imperative = f"{base[0].removesuffix('s')} {base[1]}"
    wording = draft.random.choice(
        (
            f"write a Python function that {does}",
            f"write a function {name} in Python that {does}",
            f"implement {name} in Python, which {does}",
            f"program a function that {does}",
            f"code {name}, a Python function that {does}",
            f"write a small Python program that {does}",
            f"make a Python function {name} which {does}",
            f"write a Python script to {imperative}",
        )
    )
    _distract(draft)
    saved = draft.random.random() < 0.6
    draft.add(wording, Part(role=CODER, action=_action(wording)), _step([], code=True))
    _save(draft, file, often=float(saved))
    if draft.random.random() < 0.35 and saved:
        tests = draft.random.choice(("write tests for it", f"write unit tests for {name}", "test it", "add some tests"))
        part = Part(role=CODER, action=f"Write tests for {file}.", inputs=("P1",))
        draft.add(tests, part, _step(["P1"], code=True))
        _save(draft, f"test_{name}.py", often=0.8)
    elif draft.random.random() < 0.15:
        draft.add(
            draft.random.choice(
                ("explain how it works", "describe the code in one paragraph", "write a manual for it")
            ),
            Part(role=WORKER, action="Explain the code.", inputs=(draft.last,)),
            _step([draft.last]),
        )


def code_from_file(draft: _Draft) -> None:
    """A program that a file describes, a fix of one, or one for data."""
    name, _ = draft.vocabulary.pick(words.CODE).split(":")
    kind = draft.random.choice(("spec", "fix", "fix", "data", "tests"))
    wordings: tuple[str, ...]
    if kind == "spec":
        file = draft.random.choice(("spec", "task", "requirements", "description", draft.vocabulary.stem())) + ".md"
        wordings = ("read {x} and write the program it describes", "implement {x} in Python", "write the code for {x}")
    elif kind == "data":
        file = new_name(draft.vocabulary, (), draft.random.choice(("csv", "json", "log")))
        wordings = (
            "write a Python program that reads {x} and adds up the numbers",
            "write a Python script that counts the lines of {x}",
            "write a program that sorts {x}",
            "write Python code that finds the largest value in {x}",
        )
    elif kind == "tests":
        file, wordings = f"{name}.py", ("write tests for {x}", "write unit tests for {x}", "test {x} with pytest")
    else:
        file = f"{name}.py"
        wordings = (
            "fix the bug in {x}",
            "repair {x}",
            "fix {x}, which does not run",
            "add type hints to {x}",
            "make {x} faster",
            "refactor {x}",
            "correct the error in {x}",
            "add docstrings to {x}",
        )
    wording = draft.random.choice(wordings)
    others = [new_name(draft.vocabulary, [file]) for _ in range(draft.random.choice((0, 0, 1, 2)))]
    draft.files = tuple(sorted({file, *others}))
    part = Part(role=CODER, action=_action(wording.format(x=file)), inputs=(file,))
    draft.add(wording.format(x=file), part, _step([file], code=True))
    saved = {"fix": f"{name}_{draft.random.choice(('fixed', 'new', '2', 'clean'))}.py", "tests": f"test_{name}.py"}
    _save(draft, saved.get(kind, f"{draft.vocabulary.stem()}_{draft.vocabulary.random.randint(1, 99)}.py"), often=0.6)


def shell(draft: _Draft) -> None:
    """A command or a shell script."""
    _distract(draft)
    if draft.random.random() < 0.5:
        does = draft.vocabulary.pick(words.COMMANDS)
        clause = draft.random.choice(("which shell command {d}?", "what is the command that {d}?"))
        asked = draft.random.random() < 0.7
        clause = clause if asked else "tell me the shell command that {d}"
        draft.question = asked
        action = f"Say which shell command {does}."
        draft.add(clause.format(d=does), Part(role=WORKER, action=action), _step([]))
        return
    name, does = draft.vocabulary.pick(words.SHELL).split(":")
    wording = draft.random.choice(
        ("write a shell script that {d}", "write a bash script that {d}", "script: one that {d}")
    )
    wording = wording.format(d=does)
    draft.add(wording, Part(role=WORKER, action=_action(wording)), _step([]))
    _save(draft, f"{name}.sh", often=0.7)


def for_each_item(draft: _Draft) -> None:
    """Something for each item of a list that is found in a file or made up."""
    singular, plural, thing = draft.vocabulary.pick(words.ITEMS).split(":")
    if draft.random.random() < 0.85:
        reference = _one_file(draft)
        wording = draft.random.choice(
            (
                "list the {p} in {x}",
                "find every {s} in {x}",
                "find all {p} in {x}",
                "extract the {p} from {x}",
                "split {x} into {p}",
                "collect the {p} that {x} mentions",
                "get the {p} from {x}",
            )
        )
        clause = wording.format(p=plural, s=singular, x=reference.phrase)
        action = _action(wording.format(p=plural, s=singular, x=reference.names[0]))
        part, step = Part(role=WORKER, action=action, inputs=reference.names), _step(reference.files)
    else:
        number = draft.random.choice(("three", "five", "ten", "some"))
        wording = clause = draft.random.choice((f"list {number} {plural}", f"think of {number} {plural}"))
        part, step = Part(role=WORKER, action=_action(wording)), _step([])
    draft.add(clause, part, step)
    a = "an" if thing[0] in "aeiou" else "a"
    clause = draft.random.choice(
        (
            f"write {a} {thing} for each {singular}",
            f"write {a} {thing} for each one",
            f"write {a} {thing} for every {singular}",
            f"for each of them write {a} {thing}",
            f"give me {a} {thing} for each {singular}",
            f"make {a} {thing} for each of the {plural}",
        )
    )
    action = f"Write {a} {thing} for the {singular}."
    draft.add(clause, Part(role=WORKER, action=action, foreach="P1"), _step([], foreach="P1"))
    if draft.random.random() < 0.45:
        things = f"{thing[:-1]}ies" if thing.endswith(("cy", "ry", "ny", "hy", "ly")) else f"{thing}s"
        _join(draft, ["P2"], things)
        _save(draft, often=0.5)


def replan(draft: _Draft) -> None:
    """The rest of the plan depends on what a file says."""
    reference = _one_file(draft)
    clause, wording = draft.random.choice(operations.REPLANS)
    do = draft.random.choice(("summarize", "translate", "compare", "check", "describe", "shorten", "merge", "rate"))
    clause = clause.format(x=reference.phrase, do=do)
    action = _action(wording.format(x=reference.names[0]))
    part = Part(role=WORKER, action=action, inputs=reference.names, replan=True)
    draft.add(clause, part, _step(reference.files, replan=True))


def _distract(draft: _Draft) -> None:
    """Let there be files now and then that the request has nothing to do with."""
    if draft.random.random() < 0.15:
        draft.files = mixed_folder(draft.vocabulary, draft.random.randint(1, 3)).listed


FORMS: Final[dict[Callable[[_Draft], None], float]] = {
    one: 3,
    each: 3,
    each_and_join: 4,
    each_join_and_chain: 1.5,
    two_files: 3,
    two_files_and_chain: 1,
    chain_of_two: 2,
    chain_of_three: 1.5,
    two_readings: 1,
    diamond: 1,
    fork: 0.7,
    mixed_join: 1.2,
    beside: 1.2,
    no_file: 1.2,
    creative: 2,
    given_text: 1,
    code: 2,
    code_from_file: 1.5,
    shell: 1.2,
    for_each_item: 2,
    replan: 1.2,
}
"""The forms of requests, and how often each comes up."""


# The whole request


def _said(draft: _Draft) -> str:
    """Return the clauses as one request, in one of the ways in which people ask."""
    draw, clauses = draft.random, draft.clauses
    if draft.form == "two_files_and_chain":
        draft.question = False
    if draft.question and len(clauses) == 1:
        text = _capitalized(clauses[0])
        if not text.endswith(("?", '"', "'", ".")):
            text += draw.choice((".", ""))
    else:
        text = clauses[0]
        for clause in clauses[1:]:
            text = draw.choice(operations.BESIDE if _apart(draft) else operations.NEXT).format(
                first=text, second=clause
            )
        text = _polite(draft, text)
    if draw.random() < 0.1 and draft.form != "given_text":
        before = draw.choice(operations.BEFORE)
        text = f"{before.format(**draft.fill(before))} {_capitalized(text)}"
    if draw.random() < 0.1 and draft.form != "given_text" and text[-1] in ".?!":
        text = f"{text} {draw.choice(operations.AFTER)}"
    if draw.random() < 0.12:
        text = text.lower() if all(name.islower() for name in (*draft.files, *_outputs(draft))) else text
    return _mistyped(draft, text) if draw.random() < 0.06 else text


def _outputs(draft: _Draft) -> list[str]:
    return [part.output for part in draft.parts if part.output is not None]


def _apart(draft: _Draft) -> bool:
    """Return whether the last clauses ask for things that do not follow from each other."""
    return draft.form in ("beside", "two_readings")


def _polite(draft: _Draft, text: str) -> str:
    """Return the clauses with a polite form around them. Only the plain ones suit several sentences."""
    several = ". " in text or "; " in text
    forms = [form for form in operations.POLITE if not several or form.startswith(("{I}", "Please", "please"))]
    form = draft.random.choice(forms)
    text = form.format(i=text, I=_capitalized(text))
    return _sentences(text)


def _sentences(text: str) -> str:
    """Return a text whose sentences begin with capital letters, where a full stop ends the one before."""
    head, *rest = text.split(". ")
    return ". ".join([head, *map(_capitalized, rest)])


def _capitalized(text: str) -> str:
    """Return a text that begins with a capital letter, unless it begins with the name of a file."""
    first = text.split(" ", 1)[0]
    return text if "." in first.rstrip(".,") or "_" in first else text[:1].upper() + text[1:]


def _mistyped(draft: _Draft, text: str) -> str:
    """Return a text in which two letters of a word have changed places. Names of files stay as they are."""
    names = " ".join((*draft.files, *_outputs(draft))).lower()
    parts = text.split(" ")
    places = [
        index for index, word in enumerate(parts) if len(word) > 5 and word.isalpha() and word.lower() not in names
    ]
    if places:
        index = draft.random.choice(places)
        word, at = parts[index], draft.random.randint(1, len(parts[index]) - 3)
        parts[index] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(parts)
