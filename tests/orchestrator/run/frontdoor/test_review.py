"""What becomes of the parts that a model writes when they are compared with the request."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.options import StepContext
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw
from orchestrator.run.frontdoor.review import PlanReview
from orchestrator.run.planning import PlannedPart
from orchestrator.task.taskir.models import Step

ROLES = ("worker", "coder")
FILES = ("guide.md", "notes.md", "inventory.txt", "a.md", "b.md")


def part(action: str, *inputs: str, **more: Any) -> Part:
    return Part(role=more.pop("role", "worker"), action=action, inputs=inputs, **more)


class Answer:
    """One answer of a model to a request, reviewed."""

    def __init__(
        self,
        request: str,
        files: Sequence[str] = FILES,
        known: Sequence[PlannedPart] = (),
        step_context: StepContext = "own",
    ) -> None:
        self.accepted: list[PlannedPart] = []
        self.builder = PlanBuilder(files, ROLES, known, reads_named=True)
        context = dict.fromkeys(ROLES, step_context)
        self.review = PlanReview(request, files, ROLES, self.builder, self.accepted.append, context)

    def of(self, *parts: Part) -> "Answer":
        for one in parts:
            self.review.take(one)
        self.review.close()
        return self

    @property
    def steps(self) -> list[Step]:
        return [step for made in self.accepted for step in made.steps]

    @property
    def reads(self) -> list[tuple[str, ...]]:
        return [step.inputs for step in self.steps]


@pytest.mark.parametrize(
    "fetching",
    [
        part("Read inventory.txt", "inventory.txt"),
        part("Read the contents of the inventory file.", "inventory.txt"),
        part("Open and read inventory.txt.", "inventory.txt"),
        part("Collect the lines in inventory.txt", "inventory.txt"),
        part("Lies inventory.txt.", "inventory.txt"),
        part("Lis le contenu de inventory.txt.", "inventory.txt"),
        part("Lee el contenido de inventory.txt.", "inventory.txt"),
        part("Read {each}.", each=("inventory.txt",)),
    ],
)
def test_part_that_only_reads_is_no_step_and_its_readers_read_the_original(fetching: Part) -> None:
    plan = Answer("Sort the inventory by price.").of(fetching, part("Sort the items by price.", "P1"))
    assert plan.reads == [("inventory.txt",)]
    assert [made.written for made in plan.accepted] == [part("Sort the items by price.", "inventory.txt").written]


CODE = ("cart.py", "test_cart.py")


def test_a_program_that_is_to_be_changed_is_written_under_its_name() -> None:
    fix = part("Fix cart.py so that all tests pass.", "cart.py", "test_cart.py", role="coder")
    again = part("Give me the whole corrected cart.py.", "P1", role="coder")
    plan = Answer("Fix cart.py so that test_cart.py passes. Give me the whole corrected cart.py.", CODE)
    (step,) = plan.of(fix, again).steps
    assert (step.inputs, step.outputs) == (("cart.py", "test_cart.py"), ("cart.py",))


def test_a_plan_that_does_not_change_the_program_is_flawed() -> None:
    with pytest.raises(PlanFlaw, match=r"no part has the output cart\.py"):
        Answer("Fix cart.py.", CODE).of(part("Explain cart.py.", "cart.py"))


def test_tests_for_a_program_that_is_to_be_changed_are_not_its_new_version() -> None:
    plan = Answer("Fix cart.py and write tests for it in test_more.py.", CODE)
    plan.of(part("Fix cart.py.", "cart.py", role="coder"), part("Write tests for cart.py.", "cart.py", role="coder"))
    assert [step.outputs for step in plan.steps] == [("cart.py",), ("test_more.py",)]


def test_a_program_does_not_decide_how_the_plan_goes_on() -> None:
    plan = Answer("Write a class Account in account.py.", ()).of(
        part("Write a class Account.", role="coder", replan=True)
    )
    assert [step.outputs for step in plan.steps] == [("account.py",)]
    assert plan.builder.goes_on_after is None


def test_the_rest_of_a_plan_writes_the_files_that_are_wanted() -> None:
    first = Answer("Do what notes.md says and write report.md.").of(part("Say what to do.", "notes.md", replan=True))
    builder = PlanBuilder(FILES, ROLES, first.accepted, 1, reads_named=True)
    review = PlanReview("Do what notes.md says and write report.md.", FILES, ROLES, builder, lambda made: None)
    with pytest.raises(PlanFlaw, match=r"no part has the output report\.md"):
        review.close()


def test_part_that_only_collects_outputs_is_no_step() -> None:
    plan = Answer("Summarize a.md and b.md.").of(
        part("Summarize {each}.", each=("a.md", "b.md")), part("Collect the summaries.", "P1")
    )
    assert [step.action for step in plan.steps] == ["Summarize a.md.", "Summarize b.md."]


@pytest.mark.parametrize(
    ("request_text", "making", "repeating"),
    [
        ("Compare a.md and b.md.", "Compare the contents of a.md and b.md.", "Write a comparison of the contents."),
        ("Translate guide.md into German.", "Translate guide.md into German.", "Write the German translation."),
        ("Summarize a.md and save it as short.md.", "Summarize a.md.", "Save the summary as short.md."),
        ("Answer a.md and write the answer to reply.txt.", "Answer a.md politely.", "Write the answer to reply.txt."),
        ("Summarize a.md.", "Summarize a.md.", "Summarize the summary."),
    ],
)
def test_part_that_repeats_what_it_reads_is_no_step(request_text: str, making: str, repeating: str) -> None:
    plan = Answer(request_text).of(part(making), part(repeating, "P1"))
    assert [step.action for step in plan.steps] == [making]


@pytest.mark.parametrize(
    ("making", "reading"),
    [
        ("Give {each} a score from 1 to 5.", "Work out the average of the scores."),
        ("Find the opening times in {each}.", "Say when the opening times overlap."),
        ("Turn {each} into a to-do list.", "Merge the to-do lists."),
        ("Convert {each} to a table.", "Compare the tables."),
    ],
)
def test_part_that_speaks_of_what_others_made_reads_that_alone(making: str, reading: str) -> None:
    plan = Answer("Do both.").of(part(making, each=("a.md", "b.md")), part(reading, "P1"))
    assert plan.reads == [("a.md",), ("b.md",), ("s1.txt", "s2.txt")]


@pytest.mark.parametrize(
    "action", ["Put the limerick into Dutch.", "Make it shorter.", "Write a review of the limerick.", "Check it."]
)
def test_part_that_makes_something_else_of_what_it_reads_is_a_step(action: str) -> None:
    assert len(Answer("Write a limerick.").of(part("Write a limerick about a cat."), part(action, "P1")).steps) == 2


@pytest.mark.parametrize(
    "action", ["Read notes.md and list what is open.", "Collect the prices of notes.md.", "Get the date in notes.md."]
)
def test_part_that_finds_something_is_a_step(action: str) -> None:
    assert len(Answer("Tell me about notes.md.").of(part(action, "notes.md")).steps) == 1


def test_part_that_only_reads_is_kept_if_a_list_of_it_is_needed() -> None:
    plan = Answer("Translate each sentence of guide.md.").of(
        part("Collect the sentences in guide.md.", "guide.md"),
        part("Translate this sentence.", foreach="P1"),
    )
    assert [step.foreach for step in plan.steps] == [None, plan.steps[0].outputs[0]]


def test_list_of_the_outputs_of_several_steps_becomes_one_step_an_output() -> None:
    plan = Answer("Summarize a.md and b.md and translate each summary.").of(
        part("Summarize {each}.", each=("a.md", "b.md")), part("Translate this summary.", foreach="P1")
    )
    assert plan.reads == [("a.md",), ("b.md",), plan.steps[0].outputs, plan.steps[1].outputs]


def test_others_read_the_original_of_a_list_that_is_needed() -> None:
    plan = Answer("Translate each sentence of guide.md, then summarize the guide.").of(
        part("Collect the sentences in guide.md.", "guide.md"),
        part("Translate this sentence.", foreach="P1"),
        part("Summarize the guide.", "P1"),
    )
    assert plan.reads == [("guide.md",), (), ("guide.md",)]


def test_list_of_files_that_were_only_read_becomes_one_step_a_file() -> None:
    plan = Answer("Summarize a.md and b.md.").of(
        part("Read {each}.", each=("a.md", "b.md")), part("Summarize this file.", foreach="P1")
    )
    assert plan.reads == [("a.md",), ("b.md",)]


def test_request_to_read_a_file_out_is_one_step() -> None:
    assert len(Answer("Read notes.md.").of(part("Read notes.md.", "notes.md")).steps) == 1


def test_plan_that_only_reads_is_flawed() -> None:
    with pytest.raises(PlanFlaw, match="no part does what the request asks for"):
        Answer("Sort the inventory by price.").of(part("Read inventory.txt", "inventory.txt"))


def test_join_reads_the_originals_if_its_action_is_not_about_the_outputs() -> None:
    plan = Answer("Summarize a.md and b.md. List what is still open.").of(
        part("Summarize {each}.", each=("a.md", "b.md")), part("List what is still open.", "P1")
    )
    assert plan.reads == [("a.md",), ("b.md",), ("a.md", "b.md")]


@pytest.mark.parametrize(
    "action",
    [
        "Compare the summaries.",
        "Compare them.",
        "Write a report from the results.",
        "Vergleiche die Zusammenfassungen.",
        "Compare les résumés.",
        "Compara los resúmenes.",
    ],
)
def test_join_reads_the_outputs_that_its_action_speaks_of(action: str) -> None:
    plan = Answer("Summarize a.md and b.md and compare the summaries.").of(
        part("Summarize {each}.", each=("a.md", "b.md")), part(action, "P1")
    )
    assert plan.reads[-1] == tuple(name for step in plan.steps[:2] for name in step.outputs)


def test_step_after_a_single_output_that_it_does_not_name_reads_the_original_too() -> None:
    plan = Answer("Extract the prices of a.md and compute the total.").of(
        part("Extract the prices of a.md.", "a.md"), part("Compute the total.", "P1")
    )
    assert plan.reads == [("a.md",), ("a.md", plan.steps[0].outputs[0])]
    named = Answer("Shorten a.md, then say how a.md and b.md differ.").of(
        part("Shorten a.md.", "a.md"), part("Say how a.md and b.md differ.", "P1")
    )
    assert named.reads == [("a.md",), ("a.md", "b.md")]
    french = Answer("Résume a.md et b.md, puis écris une lettre sur b.md.").of(
        part("Résume a.md et b.md.", "a.md", "b.md"), part("Écris une lettre sur b.md.", "P1")
    )
    assert french.reads[-1] == ("a.md", "b.md")
    reply = Answer("Respond to a.md. After that, proofread the reply.").of(
        part("Respond to a.md.", "a.md"), part("Proofread the reply.", "P1")
    )
    assert reply.reads[-1] == reply.steps[0].outputs, "the reply is none of the files"
    chain = Answer("Shorten a.md, put it into Dutch and find a title.").of(
        part("Shorten a.md.", "a.md"), part("Put the result into Dutch.", "P1"), part("Find a title.", "P2")
    )
    assert chain.reads[-1] == chain.steps[1].outputs, "what was read last is no file"
    made = Answer("Write a limerick about a.md and put it into Dutch.").of(
        part("Write a limerick about a.md.", "a.md"), part("Put the limerick into Dutch.", "P1")
    )
    assert made.reads[-1] == made.steps[0].outputs


@pytest.mark.parametrize(
    ("action", "reads"),
    [
        ("Shorten guide.md to one sentence.", ("guide.md",)),
        ("Classify each sentence in guide.md as good or bad.", ("guide.md",)),
        ("Compare guide.md with each file.", ("guide.md", "notes.md")),
        ("Compare guide.md with the notes.", ("guide.md", "notes.md")),
        ("Compare guide.md with the other file.", ("guide.md", "notes.md")),
        ("Compare the texts.", ("guide.md", "notes.md")),
    ],
)
def test_step_reads_only_the_files_that_its_action_is_about(action: str, reads: tuple[str, ...]) -> None:
    assert Answer("Tell me about the texts.").of(part(action, "guide.md", "notes.md")).reads == [reads]


def test_check_reads_what_was_made_and_what_it_was_made_from() -> None:
    plan = Answer("Write a report about a.md and b.md and check it against the notes.").of(
        part("Write a report.", "a.md", "b.md"), part("Check the report against the notes.", "P1")
    )
    assert plan.reads[-1] == ("a.md", "b.md", *plan.steps[0].outputs)


@pytest.mark.parametrize(
    ("step_context", "reads"),
    [
        ("own", [("a.md",), ("b.md",), ("s1.txt", "s2.txt")]),
        ("sources", [("a.md",), ("b.md",), ("a.md", "b.md", "s1.txt", "s2.txt")]),
        ("shared", [("a.md", "b.md"), ("a.md", "b.md"), ("a.md", "b.md", "s1.txt", "s2.txt")]),
    ],
)
def test_model_may_read_more_than_its_own_sources(step_context: StepContext, reads: list[tuple[str, ...]]) -> None:
    plan = Answer("Summarize a.md and b.md and write a poem from the summaries.", step_context=step_context).of(
        part("Summarize {each}.", each=("a.md", "b.md")), part("Write a poem from the summaries.", "P1")
    )
    assert plan.reads == reads


def test_independent_parts_do_not_wait_for_each_other() -> None:
    plan = Answer("Summarize a.md and translate b.md.").of(
        part("Summarize a.md.", "a.md"), part("Translate b.md.", "b.md", after=("P1",))
    )
    assert [step.depends_on for step in plan.steps] == [(), ()]


def test_requested_file_is_written_under_its_name_by_a_coder_and_checked() -> None:
    plan = Answer("Write slugify.py and tests for it in test_slugify.py.").of(
        part("Write slugify.py with a function slugify(text)."), part("Write tests for slugify.", "P1")
    )
    assert [(step.actor, step.outputs) for step in plan.steps] == [
        ("coder", ("slugify.py",)),
        ("coder", ("test_slugify.py",)),
    ]
    assert all(step.gates for step in plan.steps)


def test_tests_read_the_module_that_they_are_for() -> None:
    plan = Answer("Write slugify.py with a function slugify(text), and tests for it in test_slugify.py.").of(
        part("Write a function slugify(text).", role="coder"), part("Write tests for the slugify function.")
    )
    assert [step.outputs for step in plan.steps] == [("slugify.py",), ("test_slugify.py",)]
    assert plan.reads == [(), ("slugify.py",)]


def test_file_that_an_action_writes_is_its_output_if_the_request_names_it() -> None:
    plan = Answer(
        "Write a function title(text) in title.py that uses the words of a.md, with tests in test_title.py."
    ).of(
        part("Write a function title(text).", "a.md", role="coder"),
        part("Write tests for the title function in test_title.py.", "P1"),
    )
    assert [step.outputs for step in plan.steps] == [("title.py",), ("test_title.py",)]


def test_output_goes_to_the_part_that_the_request_wants_it_of() -> None:
    plan = Answer("Summarize notes.md and save it as short.md. Then list the open points.").of(
        part("Summarize notes.md.", "notes.md"), part("List the open points of notes.md.", "notes.md")
    )
    assert [step.outputs[0] for step in plan.steps] == ["short.md", "s2.txt"]


def test_each_file_gets_the_output_that_is_named_after_it() -> None:
    plan = Answer("Translate a.md and b.md into German as a.de.md and b.de.md, then compare the translations.").of(
        part("Translate {each} into German.", each=("a.md", "b.md")), part("Compare the translations.", "P1")
    )
    assert [step.outputs[0] for step in plan.steps][:2] == ["a.de.md", "b.de.md"]
    assert plan.reads == [("a.md",), ("b.md",), ("a.de.md", "b.de.md")]


def test_part_that_is_to_write_several_files_becomes_one_step_a_file() -> None:
    plan = Answer("Write slugify.py and test_slugify.py.").of(part("Write slugify.py and tests in test_slugify.py."))
    assert [(step.actor, step.outputs) for step in plan.steps] == [
        ("coder", ("slugify.py",)),
        ("coder", ("test_slugify.py",)),
    ]
    assert plan.steps[0].action.endswith("Write only slugify.py.")
    assert plan.reads == [(), ("slugify.py",)]
    languages = Answer("Translate guide.md into German (guide.de.md) and French (guide.fr.md).").of(
        part("Translate guide.md into German (guide.de.md) and French (guide.fr.md).", "guide.md"),
        part("Write the translated versions.", "P1"),
    )
    assert [step.outputs for step in languages.steps] == [("guide.de.md",), ("guide.fr.md",)]


def test_new_version_of_an_output_keeps_its_name() -> None:
    plan = Answer("Write slug.py, then add type hints to it.").of(
        part("Write slug.py.", output="slug.py"), part("Add type hints to the code.", "P1", output="slug.py")
    )
    assert [step.outputs for step in plan.steps] == [("slug.py",), ("slug.py",)]


def test_part_with_several_outputs_is_written_by_a_coder() -> None:
    plan = Answer("Write a.py and b.py.").of(part("Write both modules.", outputs=("a.py", "b.py")))
    assert [(step.actor, step.outputs) for step in plan.steps] == [("coder", ("a.py", "b.py"))]


def test_named_file_that_no_part_reads_is_read_by_the_last_part() -> None:
    plan = Answer("Compare a.md with b.md.").of(part("Compare both files.", "a.md"))
    assert plan.reads == [("a.md", "b.md")]
    each = Answer("Summarize a.md, b.md and notes.md.").of(part("Summarize {each}.", each=("a.md", "b.md")))
    assert each.reads == [("a.md",), ("b.md",), ("notes.md",)]


def test_named_file_that_code_finds_no_reader_for_is_a_flaw() -> None:
    answer = Answer("Summarize a.md, b.md and notes.md, then compare the summaries.")
    with pytest.raises(PlanFlaw, match=r"no part reads notes\.md"):
        answer.of(part("Summarize {each}.", each=("a.md", "b.md")), part("Compare the summaries.", "P1"))
    assert len(answer.steps) == 2, "what was certain has begun, and the repair goes on from it"


def test_file_that_nothing_writes_is_a_flaw() -> None:
    with pytest.raises(PlanFlaw, match=r"no part has the output"):
        Answer("Write short.md and long.md about whales.").of(part("Write about whales."))


def test_last_part_is_held_back_until_another_begins() -> None:
    answer = Answer("Summarize a.md and b.md.")
    answer.review.take(part("Summarize a.md.", "a.md"))
    assert answer.steps == []
    answer.review.next_begins()
    assert len(answer.steps) == 1


def test_accepted_parts_are_the_same_after_a_restart() -> None:
    request = "Summarize a.md and b.md. List what is still open."
    whole = Answer(request).of(
        part("Read a.md.", "a.md"),
        part("Summarize {each}.", each=("a.md", "b.md")),
        part("List what is still open.", "P2"),
    )
    again = Answer(request, known=whole.accepted[:1])
    again.of(part("List what is still open.", "P1"))
    assert [*whole.accepted[:1], *again.accepted] == whole.accepted
    assert again.builder.accepted == [Part.model_validate_json(made.written) for made in whole.accepted]


REFERENCES = st.sampled_from([*FILES, "P1", "P2", "P3", "P99", "request", "*", "none.txt"])
WORDS = st.sampled_from(
    "read collect save it the results summaries P1 a.md {each} short.md and list . write fix".split()
)
PARTS = st.builds(
    Part,
    role=st.sampled_from(ROLES),
    action=st.one_of(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), st.text(min_size=1, max_size=20)),
    each=st.lists(REFERENCES, max_size=2),
    inputs=st.lists(REFERENCES, max_size=3),
    foreach=st.one_of(st.none(), REFERENCES),
    output=st.one_of(st.none(), st.sampled_from(["short.md", "part1.py"])),
    replan=st.booleans(),
)


@given(st.lists(PARTS, max_size=5))
def test_every_answer_is_a_plan_or_a_flaw(parts: list[Part]) -> None:
    answer = Answer("Summarize a.md and b.md, save it as short.md, and list what is open in notes.md.")
    try:
        answer.of(*parts)
    except PlanFlaw:
        pass
    written = [Part.model_validate_json(made.written) for made in answer.accepted]
    assert written == answer.builder.accepted, "a restart knows the same plan"


ACTIONS = st.sampled_from(
    ["Read {f}.", "Summarize {f}.", "List what is open.", "Collect the results.", "Write short.md.", "Compare them."]
)


@given(st.data())
def test_reviewed_plan_is_sound_whatever_the_model_writes(data: st.DataObject) -> None:
    answer = Answer("Summarize a.md and b.md as short.md and list what is open in notes.md.")
    try:
        for number in range(data.draw(st.integers(1, 5))):
            names = [*FILES, *(f"P{at + 1}" for at in range(number))]
            inputs = data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
            action = data.draw(ACTIONS).replace("{f}", data.draw(st.sampled_from(FILES)))
            answer.review.take(part(action, *inputs))
        answer.review.close()
    except PlanFlaw:
        return
    assert {"a.md", "b.md", "notes.md"} <= {name for step in answer.steps for name in step.inputs}
    assert "short.md" in {name for step in answer.steps for name in step.outputs}
    assert not any(
        step.action.startswith(("Read", "Collect")) for step in answer.steps if step.outputs != ("short.md",)
    )


@pytest.mark.parametrize(
    ("action", "reads", "output", "role"),
    [
        ("Suggest a title.", "a.md", None, "worker"),
        ("Explain what this function does.", "a.md", None, "coder"),
        ("Say what it prints.", "tool.py", None, "coder"),
        ("Write what a.md describes.", "a.md", "tool2.py", "coder"),
    ],
)
def test_a_coder_does_what_is_about_code(action: str, reads: str, output: str | None, role: str) -> None:
    by_coder = Part(role="coder", action=action, inputs=(reads,), output=output)
    plan = Answer(f"{action} ({reads}, tool2.py)" if output else f"{action} ({reads})", files=("a.md", "tool.py")).of(
        by_coder
    )
    assert plan.steps[0].actor == role


def test_a_plan_whose_actions_say_nothing_of_the_request_is_flawed() -> None:
    request = "For every lease in a.md and b.md: how long is the notice period, and does it renew on its own?"
    with pytest.raises(PlanFlaw, match="the actions say nothing of lease, long, notice, period"):
        Answer(request).of(part("List the places in {each}.", each=("a.md", "b.md")))
    Answer(request).of(part("Do what is asked of {each}.", "request", each=("a.md", "b.md")))
