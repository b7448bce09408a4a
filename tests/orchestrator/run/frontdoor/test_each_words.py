"""Parts for words of a request: what may be such a word, and which steps come of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw, plan_schema
from orchestrator.run.frontdoor.each_words import is_said, items_in, name_for
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.validation import OutputSchema

ROLES = ("worker", "coder")
REQUEST = "Translate letter.md into German, French and Brazilian Portuguese, please"
FILES = ("letter.md", "notes.txt")


@pytest.mark.parametrize(
    ("request_text", "items"),
    [
        (REQUEST, ("German", "French", "Brazilian Portuguese")),
        ("a paragraph each about Rome and Oslo", ("Rome", "Oslo")),
        ("Erkläre es für Kinder, Lehrkräfte und den Bürgermeister.", ("Kinder", "Lehrkräfte", "den Bürgermeister")),
        ("Écris une carte depuis Nice, Lyon et Lille", ("Nice", "Lyon", "Lille")),
        ("tradúcelo al inglés y al francés", ("inglés", "al francés")),
        ("Versions for:\n- the board\n- our suppliers\n", ("the board", "our suppliers")),
        ("check it for cost, risk, tone", ("cost", "risk", "tone")),
        ("Shorten letter.md, then translate that into Danish and Czech", ("Danish", "Czech")),
        (
            "Hi, could you get me the opinion of a tax adviser, a nurse and a cook?",
            ("a tax adviser", "a nurse", "a cook"),
        ),
        ("Fix notes.txt and judge letter.md by clarity, cost and risk.", ("clarity", "cost", "risk")),
    ],
)
def test_lists_of_a_request_have_items(request_text: str, items: tuple[str, ...]) -> None:
    assert {*items} <= {*items_in(request_text, FILES)}


@pytest.mark.parametrize("text", ["Summarize letter.md.", "letter.md, notes.txt", "What is new?", ""])
def test_files_and_single_things_are_no_items(text: str) -> None:
    assert items_in(text, FILES) == ()


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for item in items_in(text, FILES):
        assert is_said(text, item)


@pytest.mark.parametrize(
    ("item", "said"),
    [("German", True), ("german", True), ("Portuguese", True), ("Germans", True), ("Dutch", False), ("Germany", True)],
)
def test_words_have_to_be_said_in_some_form(item: str, said: bool) -> None:
    assert is_said(REQUEST, item) is said


def built(*parts: Part, request: str = REQUEST) -> list[Step]:
    builder = PlanBuilder(FILES, ROLES, reads_named=True, request=request)
    for part in parts:
        builder.add(part)
    return builder.steps


def test_each_word_is_a_step_that_reads_what_all_read() -> None:
    languages = ("German", "French", "Brazilian Portuguese")
    part = Part(role="worker", action="Translate letter.md into {each}.", each=languages)
    steps = built(part)
    assert [step.action for step in steps] == [f"Translate letter.md into {language}." for language in languages]
    assert {step.inputs for step in steps} == {("letter.md",)}
    assert [step.outputs[0] for step in steps] == [
        "letter.german.md",
        "letter.french.md",
        "letter.brazilian-portuguese.md",
    ]


def test_an_action_that_lists_the_words_or_none_gets_each_of_them() -> None:
    for action in ("Translate letter.md into German and French.", "Translate letter.md."):
        steps = built(Part(role="worker", action=action, each=("German", "French")))
        assert ["German" in step.action for step in steps] == [True, False]
        assert ["French" in step.action for step in steps] == [False, True]


def test_words_that_nobody_said_are_a_flaw() -> None:
    with pytest.raises(PlanFlaw, match="P1: 'Dutch' is no earlier part, no file and no word of the request"):
        built(Part(role="worker", action="Translate letter.md into {each}.", each=("German", "Dutch")))


def test_outputs_may_be_named_after_each_thing() -> None:
    words = ("German", "French")
    steps = built(Part(role="worker", action="Translate it.", each=words, inputs=("letter.md",), output="l.{each}.md"))
    assert [step.outputs for step in steps] == [("l.german.md",), ("l.french.md",)]


def test_a_new_version_has_the_name_of_what_it_is_made_from() -> None:
    (step,) = built(Part(role="worker", action="Fix the spelling.", inputs=("letter.md",), output="letter.md"))
    assert (step.inputs, step.outputs) == (("letter.md",), ("letter.md",))
    steps = built(Part(role="worker", action="Fix {each}.", each=FILES, output="{each}"))
    assert [step.outputs for step in steps] == [(file,) for file in FILES]


def test_a_step_may_have_several_outputs() -> None:
    (step,) = built(Part(role="worker", action="Write both.", inputs=("letter.md",), outputs=("a.md", "b.md")))
    assert step.outputs == ("a.md", "b.md")
    with pytest.raises(PlanFlaw, match="it has `output` and `outputs`"):
        built(Part(role="worker", action="Write both.", output="c.md", outputs=("a.md", "b.md")))


def test_the_request_comes_last_of_what_a_step_reads() -> None:
    (step,) = built(Part(role="worker", action="Do what is asked.", inputs=("request", "letter.md")))
    assert step.inputs == ("letter.md", "request")


def test_a_list_is_written_under_a_schema() -> None:
    builder = PlanBuilder(FILES, ROLES, reads_named=True, request=REQUEST)
    (step,) = builder.add(Part(role="worker", action="List names.", inputs=("letter.md",)), as_list=True).steps
    assert step.output_schema is not None
    assert step.output_schema["type"] == "array"
    assert step.outputs == ("s1.json",)


def allows(request: str, *parts: Part) -> bool:
    schema = plan_schema(ROLES, listed=Listed.of(request, FILES))
    return not OutputSchema(schema).mismatches({"plan": [part.as_json() for part in parts]})


def test_the_grammar_offers_words_new_versions_and_outputs_of_each() -> None:
    words = Part(role="worker", action="Translate it into {each}.", each=("German", "French"), inputs=("letter.md",))
    assert allows(REQUEST, words)
    assert not allows("Translate letter.md.", words), "nobody said these words"
    version = Part(role="worker", action="Fix the spelling.", inputs=("letter.md",), output="letter.md")
    assert allows("Fix the spelling in letter.md", version)
    assert not allows("Summarize letter.md", version)
    assert allows("Fix all files", Part(role="worker", action="Fix {each}.", each=("*",), output="{each}"))
    summaries = Part(role="worker", action="Summarize {each}.", each=("*",))
    check = Part(role="worker", action="Check {each}.", each=("P1",))
    assert allows("Summarize all files, and have each summary checked", summaries, check)


@pytest.mark.parametrize(
    ("item", "name"), [("Brazilian Portuguese", "brazilian-portuguese"), ("../x", "x"), ("Ärzte", "ärzte")]
)
def test_names_of_outputs_are_safe(item: str, name: str) -> None:
    assert name_for(item) == name
