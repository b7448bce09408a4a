"""The forms of requests: for each, a function that puts a request and its plan into a draft."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from benchmarks.adapter import operations, words
from benchmarks.adapter.draft import (
    REQUEST,
    WORKER,
    ExampleDraft,
    action_of,
    add_files,
    add_follow_up,
    add_join,
    add_one_file,
    add_operation,
    add_several_files,
    any_operation,
    save_result,
    step_structure,
)
from benchmarks.adapter.files import (
    mixed_folder,
    named_folder,
    new_name,
    refer_to_all,
    refer_to_one,
    refer_to_some,
    series_folder,
)
from benchmarks.adapter.structure import CODER
from orchestrator.run.frontdoor.compact import Part


def one(draft: ExampleDraft) -> None:
    """One file, one step."""
    add_operation(draft, add_one_file(draft), any_operation(draft))
    save_result(draft)


def each(draft: ExampleDraft) -> None:
    """The same for each of several files."""
    add_operation(draft, add_several_files(draft), any_operation(draft), each=True)


def each_and_join(draft: ExampleDraft) -> None:
    """The same for each of several files, and something made of the results."""
    operation = any_operation(draft)
    add_operation(draft, add_several_files(draft), operation, each=True)
    add_join(draft, [draft.last], operation.plural)
    save_result(draft)


def each_join_and_chain(draft: ExampleDraft) -> None:
    """The results are joined, and something is made of that."""
    operation = any_operation(draft)
    add_operation(draft, add_several_files(draft), operation, each=True)
    add_join(draft, [draft.last], operation.plural)
    save_result(draft, often=0.2)
    add_follow_up(draft, "text")
    save_result(draft)


def each_beside(draft: ExampleDraft) -> None:
    """The same for each of several files, and something else with another one."""
    folder = add_files(draft, least=3)
    *several, last = range(len(folder.names))
    operation, other = (replace(sampled, questions=()) for sampled in draft.random.sample(operations.ON_A_TEXT, 2))
    add_operation(draft, refer_to_some(draft.vocabulary, folder, several), operation, each=True)
    add_operation(draft, refer_to_one(draft.vocabulary, folder, last), other)
    save_result(draft)


def each_against(draft: ExampleDraft) -> None:
    """Each of several files together with the same other file, and now and then something made of the results."""
    folder = add_files(draft, least=3)
    *several, last = range(len(folder.names))
    reference = refer_to_some(draft.vocabulary, folder, several)
    other = refer_to_one(draft.vocabulary, folder, last)
    clause, wording = draft.random.choice(operations.ON_EACH_WITH_ANOTHER)
    action = action_of(wording.format(a="{each}", b=other.names[0]))
    steps = [step_structure([file, *other.files]) for file in reference.files]
    part = Part(role=WORKER, action=action, each=reference.names, inputs=other.names)
    draft.add(clause.format(a=reference.phrase, b=other.phrase), part, *steps)
    if draft.random.random() < 0.5:
        add_join(draft, [draft.last], "results")
        save_result(draft, often=0.5)


def each_twice(draft: ExampleDraft) -> None:
    """Two things are made of each of several files, and now and then something of all of them."""
    reference = add_several_files(draft)
    first, second = draft.random.sample(operations.ON_A_TEXT, 2)
    add_operation(draft, reference, replace(first, questions=()), each=True)
    add_operation(draft, reference, replace(second, questions=()), each=True)
    if draft.random.random() < 0.3:
        add_join(draft, ["P1", "P2"], "results")
        save_result(draft)


def which_of(draft: ExampleDraft) -> None:
    """Those of several files of which something is true: each is looked at, and the answers are put together."""
    reference = add_several_files(draft)
    clause, each_wording, wording = draft.random.choice(operations.WHICH_OF)
    values = draft.fill(clause)
    draft.question = clause.endswith("?")
    steps = [step_structure([file]) for file in reference.files]
    each_action = action_of(each_wording.format(x="{each}", **values))
    draft.add(
        clause.format(x=reference.phrase, **values), Part(role=WORKER, action=each_action, each=reference.names), *steps
    )
    draft.add("", Part(role=WORKER, action=action_of(wording.format(**values)), inputs=("P1",)), step_structure(["P1"]))
    del draft.clauses[-1]
    save_result(draft)


def over_all(draft: ExampleDraft) -> None:
    """One question about several files, all of which one step reads."""
    folder = add_files(draft)
    reference = refer_to_all(draft.vocabulary, folder)
    while reference.phrase.startswith(("each", "every")):
        reference = refer_to_all(draft.vocabulary, folder)
    clause, wording = draft.random.choice(operations.OVER_ALL)
    values = draft.fill(wording)
    draft.question = clause.endswith("?")
    around = "{x}" if draft.question else draft.random.choice(operations.OVER)
    if "{op}" in around:
        clause = around.format(x="{x}", op=clause.replace("{x}", "them"))
        clause = clause.replace("what them", "what they").replace("all of them", "them all")
    action = action_of(wording.format(x="the texts" if folder.kind is None else f"the {folder.kind[1]}", **values))
    part = Part(role=WORKER, action=action, inputs=reference.names)
    draft.add(clause.format(x=reference.phrase, **values), part, step_structure(reference.files))
    save_result(draft)


def result_and_file(draft: ExampleDraft) -> None:
    """What is made of one file is used together with another file."""
    make = named_folder if draft.random.random() < 0.5 else mixed_folder
    folder = make(draft.vocabulary, 2, draft.random.choice((0, 0, 1, 2)))
    draft.files = folder.listed
    operation = replace(any_operation(draft), questions=())
    add_operation(draft, refer_to_one(draft.vocabulary, folder, 0), operation)
    save_result(draft, often=0.15)
    other = refer_to_one(draft.vocabulary, folder, 1)
    clause, wording = draft.random.choice([pair for pair in operations.ON_TWO if not pair[0].endswith("?")])
    reference = f"the {operation.noun}"
    action = action_of(wording.format(a=reference, b=other.names[0]))
    pronoun = draft.random.choice((reference, reference, "it", "the result"))
    inputs = ("P1", *other.names)
    draft.add(
        clause.format(a=pronoun, b=other.phrase),
        Part(role=WORKER, action=action, inputs=inputs),
        step_structure(inputs),
    )
    save_result(draft)


def two_files(draft: ExampleDraft) -> None:
    """Two files that belong to one question."""
    if draft.random.random() < 0.4:
        folder = series_folder(draft.vocabulary, draft.random.randint(2, 5), draft.random.choice((0, 1, 2)))
    else:
        make = named_folder if draft.random.random() < 0.5 else mixed_folder
        folder = make(draft.vocabulary, 2, draft.random.choice((0, 0, 1, 2, 3)))
    draft.files = folder.listed
    first, second = (
        refer_to_one(draft.vocabulary, folder, index) for index in draft.random.sample(range(len(folder.names)), 2)
    )
    clause, wording = draft.random.choice(operations.ON_TWO)
    names = (*first.names, *second.names)
    action = action_of(wording.format(a=first.names[0], b=second.names[0]))
    draft.question = clause.endswith("?")
    clause = clause.format(a=first.phrase, b=second.phrase)
    draft.add(clause, Part(role=WORKER, action=action, inputs=names), step_structure(names))
    save_result(draft)


def two_files_and_chain(draft: ExampleDraft) -> None:
    """Something is made of the answer to a question about two files."""
    while not draft.clauses or draft.question:
        draft.question = False
        draft.clauses, draft.parts, draft.meant = [], [], []
        two_files(draft)
    add_follow_up(draft, "result")


def chain_of_two(draft: ExampleDraft) -> None:
    """Something is made of the result for one file."""
    operation = replace(any_operation(draft), questions=())
    add_operation(draft, add_one_file(draft), operation)
    save_result(draft, often=0.15)
    add_follow_up(draft, operation.noun)
    save_result(draft)


def chain_of_three(draft: ExampleDraft) -> None:
    """A chain of three steps."""
    chain_of_two(draft)
    add_follow_up(draft, "result")
    save_result(draft, often=0.2)


def two_readings(draft: ExampleDraft) -> None:
    """Two things are made of one file."""
    reference = add_one_file(draft)
    first, second = (replace(sampled, questions=()) for sampled in draft.random.sample(operations.ON_A_TEXT, 2))
    add_operation(draft, reference, first)
    add_operation(draft, reference, second)


def diamond(draft: ExampleDraft) -> None:
    """Two things are made of one text, and one of both."""
    reference = add_one_file(draft)
    first = replace(any_operation(draft), questions=())
    add_operation(draft, reference, first)
    if draft.random.random() < 0.5:
        add_follow_up(draft, first.noun, "P1")
        add_follow_up(draft, first.noun, "P1")
        add_join(draft, ["P2", "P3"], "results")
    else:
        add_operation(draft, reference, replace(any_operation(draft), questions=()))
        add_join(draft, ["P1", "P2"], "results")
    save_result(draft)


def fork(draft: ExampleDraft) -> None:
    """Add an operation and two steps that each read its result."""
    operation = replace(any_operation(draft), questions=())
    add_operation(draft, add_one_file(draft), operation)
    if draft.random.random() < 0.4:
        _make_two(draft, operation.noun)
    else:
        add_follow_up(draft, operation.noun, "P1")
        add_follow_up(draft, operation.noun, "P1")
    save_result(draft, often=0.15)


def _make_two(draft: ExampleDraft, noun: str) -> None:
    """Let two things be made of the first result, with one verb for both."""
    verb, (first, second) = draft.random.choice(("make", "write")), draft.random.sample(operations.MADE_OF_A_RESULT, 2)
    wording = draft.random.choice(
        ("{v} {a} from {x} and {b} from {x}", "{v} {a} and {b} from {x}", "{v} {a} for {x} and also {b}")
    )
    clause = wording.format(v=verb, a=first, b=second, x=f"the {noun}")
    for thing in (first, second):
        action = action_of(f"{verb} {thing} from the {noun}")
        draft.add(clause, Part(role=WORKER, action=action, inputs=("P1",)), step_structure(["P1"]))
    del draft.clauses[-1]


def lists(draft: ExampleDraft) -> None:
    """Two or three lists of what is in one file."""
    reference = add_one_file(draft)
    kinds = draft.random.sample(operations.LISTED, draft.random.choice((2, 2, 2, 3)))
    for number, plural in enumerate(kinds):
        wording = draft.random.choice(operations.FURTHER_LISTS if number else operations.FIRST_LIST)
        clause = wording.format(p=plural, x=reference.phrase)
        action = f"List the {plural} in {reference.names[0]}."
        draft.add(clause, Part(role=WORKER, action=action, inputs=reference.names), step_structure(reference.files))


def named_texts(draft: ExampleDraft) -> None:
    """Two to four texts made of the same files, each with its own name."""
    reference = add_one_file(draft) if draft.random.random() < 0.7 else refer_to_all(draft.vocabulary, add_files(draft))
    frame, item, between = draft.random.choice(operations.NAMED_TEXTS)
    wanted = draft.random.sample(operations.TEXTS, draft.random.choice((2, 3, 3, 4)))
    items = []
    for wording in wanted:
        text, taken = (
            wording.format(**draft.fill(wording)),
            [*draft.files, *REQUEST, *(part.output for part in draft.parts)],
        )
        name = new_name(
            draft.vocabulary, [file for file in taken if file], draft.random.choice(("txt", "md", "md", "csv"))
        )
        items.append(item.format(file=name, text=text))
        source = reference.names[0] if reference.names == reference.files else "the files"
        part = Part(role=WORKER, action=action_of(f"Write {text} from {source}"), inputs=reference.names, output=name)
        draft.add("", part, replace(step_structure(reference.files), output=name))
    draft.clauses = [frame.format(x=reference.phrase, items=between.join(items))]


def named_results(draft: ExampleDraft) -> None:
    """The same for each of two or three files, and a name for each result."""
    make = series_folder if draft.random.random() < 0.6 else mixed_folder
    folder = make(draft.vocabulary, draft.random.choice((2, 2, 3)), draft.random.choice((0, 0, 1, 2)))
    draft.files = folder.listed
    operation = draft.random.choice(operations.ON_A_TEXT)
    wording = draft.random.choice(operation.wordings)
    values, way = draft.fill(wording), draft.random.choice((" as {o}", " in {o}", " and call that {o}", " (file {o})"))
    ending = draft.random.choice(("txt", "md", "md"))
    items = []
    for index in range(len(folder.names)):
        reference = refer_to_one(draft.vocabulary, folder, index)
        taken = [*draft.files, *REQUEST, *(part.output for part in draft.parts if part.output)]
        name = new_name(draft.vocabulary, taken, ending)
        items.append(wording.format(x=reference.phrase, **values) + way.format(o=name))
        action = action_of(wording.format(x=reference.names[0], **values))
        part = Part(role=WORKER, action=action, inputs=reference.names, output=name)
        draft.add("", part, replace(step_structure(reference.files), output=name))
    draft.clauses = [", ".join(items[:-1]) + " and " + items[-1]]


def mixed_join(draft: ExampleDraft) -> None:
    """One thing for each of several files, another for one more, and something made of all results."""
    folder = add_files(draft, least=3)
    *several, last = range(len(folder.names))
    operation, other = (replace(sampled, questions=()) for sampled in draft.random.sample(operations.ON_A_TEXT, 2))
    add_operation(draft, refer_to_some(draft.vocabulary, folder, several), operation, each=True)
    add_operation(draft, refer_to_one(draft.vocabulary, folder, last), other)
    add_join(draft, ["P1", "P2"], "results")
    save_result(draft)


def beside(draft: ExampleDraft) -> None:
    """Two or three things that have nothing to do with each other."""
    make = named_folder if draft.random.random() < 0.3 else mixed_folder
    folder = make(draft.vocabulary, draft.random.choice((2, 2, 2, 3)), draft.random.choice((0, 0, 1, 2)))
    draft.files = folder.listed
    for index in range(len(folder.names)):
        add_operation(draft, refer_to_one(draft.vocabulary, folder, index), replace(any_operation(draft), questions=()))
        save_result(draft, often=0.2)


def no_file(draft: ExampleDraft) -> None:
    """A question that no file answers."""
    question = draft.vocabulary.pick(words.FACTS)
    question = question.format(**draft.fill(question))
    draft.question = True
    _distract(draft)
    draft.add(question, Part(role=WORKER, action=f"Answer: {question}"), step_structure([]))


def creative(draft: ExampleDraft) -> None:
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
    draft.add(wording, Part(role=WORKER, action=action_of(wording)), step_structure([]))
    save_result(draft, often=0.15)
    for _ in range(draft.random.choice((0, 0, 1, 1, 2))):
        noun = add_follow_up(draft, noun)
    save_result(draft, often=0.15)


def given_text(draft: ExampleDraft) -> None:
    """The text is in the request itself."""
    sentence = draft.vocabulary.pick(words.SENTENCES)
    sentence = sentence.format(**draft.fill(sentence))
    operation = replace(any_operation(draft), questions=())
    wording = draft.random.choice(operation.wordings)
    values, quote = draft.fill(wording), draft.random.choice(('"', "'", ""))
    said = draft.random.choice(("this", "this text", "the following sentence", "the following", "this sentence"))
    action = action_of(wording.format(x="the text", **values))
    _distract(draft)
    draft.add(
        f"{wording.format(x=said, **values)}: {quote}{sentence}{quote}",
        Part(role=WORKER, action=action, inputs=REQUEST),
        step_structure(REQUEST),
    )
    draft.question = True  # it ends with the text, so nothing is put behind it


def code(draft: ExampleDraft) -> None:
    """A function, in a file that is named or not, with tests or without."""
    if draft.random.random() < 0.3:
        name, what = draft.vocabulary.pick(words.STRUCTURES).split(":")
        wordings = (
            f"implement {what} in Python",
            f"write {what} in Python",
            f"program {what}",
            f"build {what} in Python",
            f"write Python code for {what}",
            f"write a Python class for {what}",
        )
        _program(draft, name, draft.random.choice(wordings))
        return
    name, does = draft.vocabulary.pick(words.CODE).split(":")
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
    _program(draft, name, wording)


def _program(draft: ExampleDraft, name: str, wording: str) -> None:
    """Add a program that the wording asks for, and now and then tests or an explanation of it."""
    _distract(draft)
    file, saved = f"{name}.py", draft.random.random() < 0.6
    draft.add(wording, Part(role=CODER, action=action_of(wording)), step_structure([], code=True))
    save_result(draft, file, often=float(saved))
    if draft.random.random() < (0.4 if saved else 0.15):
        tests = draft.random.choice(
            ("write tests for it", f"write unit tests for {name}", "test it", "add some tests", "write its tests")
        )
        action = f"Write tests for {file}." if saved else "Write tests for the code."
        part = Part(role=CODER, action=action, inputs=("P1",))
        draft.add(tests, part, step_structure(["P1"], code=True))
        save_result(draft, f"test_{name}.py", often=0.8)
    elif draft.random.random() < 0.15:
        draft.add(
            draft.random.choice(
                ("explain how it works", "describe the code in one paragraph", "write a manual for it")
            ),
            Part(role=WORKER, action="Explain the code.", inputs=(draft.last,)),
            step_structure([draft.last]),
        )


def code_from_file(draft: ExampleDraft) -> None:
    """A program that a file describes, a fix of one, or one for data."""
    name, _ = draft.vocabulary.pick(words.CODE).split(":")
    kind = draft.random.choice(("spec", "fix", "fix", "data", "tests"))
    wordings: tuple[str, ...]
    if kind == "spec":
        file = draft.random.choice(("spec", "task", "requirements", "description", draft.vocabulary.stem())) + ".md"
        wordings = (
            "read {x} and write the program it describes",
            "read {x} and program what it asks for",
            "implement {x} in Python",
            "write the code for {x}",
            "write the Python program that {x} describes",
            "turn {x} into a Python program",
            "{x} describes a program; write it",
            "look at {x} and write the code that it wants",
        )
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
    part = Part(role=CODER, action=action_of(wording.format(x=file)), inputs=(file,))
    draft.add(wording.format(x=file), part, step_structure([file], code=True))
    saved = {"fix": f"{name}_{draft.random.choice(('fixed', 'new', '2', 'clean'))}.py", "tests": f"test_{name}.py"}
    save_result(
        draft, saved.get(kind, f"{draft.vocabulary.stem()}_{draft.vocabulary.random.randint(1, 99)}.py"), often=0.6
    )


def shell(draft: ExampleDraft) -> None:
    """A command or a shell script."""
    _distract(draft)
    if draft.random.random() < 0.5:
        does = draft.vocabulary.pick(words.COMMANDS)
        clause = draft.random.choice(("which shell command {d}?", "what is the command that {d}?"))
        asked = draft.random.random() < 0.7
        clause = clause if asked else "tell me the shell command that {d}"
        draft.question = asked
        action = f"Say which shell command {does}."
        draft.add(clause.format(d=does), Part(role=WORKER, action=action), step_structure([]))
        return
    name, does = draft.vocabulary.pick(words.SHELL).split(":")
    wording = draft.random.choice(
        ("write a shell script that {d}", "write a bash script that {d}", "script: one that {d}")
    )
    wording = wording.format(d=does)
    draft.add(wording, Part(role=WORKER, action=action_of(wording)), step_structure([]))
    save_result(draft, f"{name}.sh", often=0.7)


def for_each_item(draft: ExampleDraft) -> None:
    """Something for each item of a list that is found in a file or made up."""
    singular, plural, thing = draft.vocabulary.pick(words.ITEMS).split(":")
    if draft.random.random() < 0.85:
        reference = add_one_file(draft)
        wording = draft.random.choice(
            (
                "list the {p} in {x}",
                "find every {s} in {x}",
                "find all {p} in {x}",
                "extract the {p} from {x}",
                "split {x} into {p}",
                "collect the {p} that {x} mentions",
                "get the {p} from {x}",
                "list the {p} that {x} mentions",
                "read {x} and list its {p}",
                "make a list of the {p} in {x}",
                "find out which {p} there are in {x}",
                "take every {s} from {x}",
                "divide {x} into {p}",
            )
        )
        clause = wording.format(p=plural, s=singular, x=reference.phrase)
        action = action_of(wording.format(p=plural, s=singular, x=reference.names[0]))
        part, step = Part(role=WORKER, action=action, inputs=reference.names), step_structure(reference.files)
    else:
        number = draft.random.choice(("three", "five", "ten", "some"))
        wording = clause = draft.random.choice((f"list {number} {plural}", f"think of {number} {plural}"))
        part, step = Part(role=WORKER, action=action_of(wording)), step_structure([])
    draft.add(clause, part, step)
    if draft.random.random() < 0.4:
        clause, wording, things = draft.random.choice(operations.EACH_ITEM)
        values = draft.fill(wording, s=singular, p=plural)
        part = Part(role=WORKER, action=action_of(wording.format(**values)), foreach="P1")
        draft.add(clause.format(**values), part, step_structure([], foreach="P1"))
        _join_items(draft, things)
        return
    a = "an" if thing[0] in "aeiou" else "a"
    clause = draft.random.choice(
        (
            f"write {a} {thing} for each {singular}",
            f"write {a} {thing} for each one",
            f"write {a} {thing} for every {singular}",
            f"for each of them write {a} {thing}",
            f"give me {a} {thing} for each {singular}",
            f"make {a} {thing} for each of the {plural}",
            f"for every {singular}, write {a} {thing}",
            f"come up with {a} {thing} for each {singular}",
            f"do {a} {thing} for each of them",
            f"add {a} {thing} to each {singular}",
        )
    )
    action = f"Write {a} {thing} for the {singular}."
    draft.add(clause, Part(role=WORKER, action=action, foreach="P1"), step_structure([], foreach="P1"))
    _join_items(draft, f"{thing[:-1]}ies" if thing.endswith(("cy", "ry", "ny", "hy", "ly")) else f"{thing}s")


def _join_items(draft: ExampleDraft, things: str) -> None:
    """Let something be made of what has come of all items, now and then."""
    if draft.random.random() < 0.45:
        add_join(draft, ["P2"], things)
        save_result(draft, often=0.5)


def replan(draft: ExampleDraft) -> None:
    """The rest of the plan depends on what a file says."""
    reference = add_one_file(draft)
    clause, wording = draft.random.choice(operations.REPLANS)
    do = draft.random.choice(("summarize", "translate", "compare", "check", "describe", "shorten", "merge", "rate"))
    clause = clause.format(x=reference.phrase, do=do)
    action = action_of(wording.format(x=reference.names[0]))
    part = Part(role=WORKER, action=action, inputs=reference.names, replan=True)
    draft.add(clause, part, step_structure(reference.files, replan=True))


def rest(draft: ExampleDraft) -> None:
    """The rest of a plan, when the step that it depends on has found which files are wanted."""
    folder = add_files(draft, least=3)
    files = sorted(draft.random.sample(folder.names, draft.random.choice((1, 2, 2, 3))))
    others = [file for file in folder.names if file not in files]
    source = draft.random.choice(others) if others else None
    if source is None:
        source = new_name(draft.vocabulary, draft.files, "txt")
        draft.files = tuple(sorted((*draft.files, source)))
    operation = any_operation(draft)
    wording = draft.random.choice(operation.wordings)
    values = draft.fill(wording)
    op = wording.format(x="the files that it names", **values)
    clause = draft.random.choice(operations.REST).format(x=source, op=op)
    done = Part(role=WORKER, action=f"List the files that {source} names.", inputs=(source,), replan=True)
    draft.done, draft.output = (done,), draft.random.choice(("\n", ", ")).join(files)
    if len(files) == 1:
        action = action_of(wording.format(x=files[0], **values))
        draft.add(clause, Part(role=WORKER, action=action, inputs=(files[0],)), step_structure(files))
    else:
        action = action_of(wording.format(x="{each}", **values))
        draft.add(
            clause, Part(role=WORKER, action=action, each=tuple(files)), *(step_structure([file]) for file in files)
        )


def _distract(draft: ExampleDraft) -> None:
    """Let there be files now and then that the request has nothing to do with."""
    if draft.random.random() < 0.15:
        draft.files = mixed_folder(draft.vocabulary, draft.random.randint(1, 3)).listed


FORMS: Final[dict[Callable[[ExampleDraft], None], float]] = {
    one: 2.5,
    each: 3,
    each_and_join: 4,
    each_join_and_chain: 1.5,
    each_beside: 0.8,
    each_against: 1.6,
    each_twice: 1.0,
    which_of: 1.2,
    over_all: 1,
    two_files: 3,
    two_files_and_chain: 1.2,
    result_and_file: 1.2,
    chain_of_two: 2,
    chain_of_three: 2.2,
    two_readings: 0.8,
    lists: 0.7,
    named_texts: 1.6,
    named_results: 1.0,
    diamond: 1,
    fork: 1,
    mixed_join: 1.3,
    beside: 1.3,
    no_file: 1.2,
    creative: 2,
    given_text: 1,
    code: 2.4,
    code_from_file: 1.6,
    shell: 1.2,
    for_each_item: 3,
    replan: 1.8,
    rest: 0.8,
}  # the forms of requests, and how often each comes up
