"""Answers that code corrects, because their request leaves nothing to choose; others stay as they are."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.doubt import WrittenAnswer
from orchestrator.run.frontdoor.doubts import CorrectedAnswer, corrected
from orchestrator.run.frontdoor.forms import ListForm
from orchestrator.run.frontdoor.words import folded

NOTES = {
    "n1.txt": "The lift was out of order.",
    "n2.txt": "Lifts are checked in May.",
    "n3.txt": "The roof leaks.",
    "n4.txt": "Ask the caretaker.",
}
SORTED = "Put the names from guests.txt into order: alphabetical, one per line, no duplicates."


def correct(request: str, text: str, inputs: dict[str, str] | None = None, name: str = "s1.txt") -> CorrectedAnswer:
    answer = WrittenAnswer({name: text}, {name: text}, inputs or {})
    return corrected(request, tuple(inputs or ()), answer, [name])


@pytest.mark.parametrize(
    ("request_text", "text", "expected"),
    [
        ("Which of the notes mention the lift?", "n1.txt\nn2.txt\nn3.txt\nn4.txt", "n1.txt\nn2.txt"),
        ("Which of the notes mention the lift?", "n4.txt, n2.txt and n1.txt.", "n1.txt, n2.txt"),
        (
            "Copy the e-mail addresses, one per line, nothing else.",
            "- ann@x.example\n- Ann's phone\n- bo@y.example",
            "- ann@x.example\n- bo@y.example",
        ),
        ("Nur die E-Mail-Adressen, bitte eine pro Zeile.", "ann@x.example\n0177 1", "ann@x.example"),
        (SORTED, "Zoe\nbea\nAda\nBea", "Ada\nbea\nZoe"),
        (
            "Merge the two lists: one thing a line, in lower case, from a to z.",
            "* Tea\n* Milk\n* Éclairs",
            "* éclairs\n* milk\n* tea",
        ),
        ("Schreibe die Städte in Großbuchstaben, eine pro Zeile.", "Bonn\nKÖLN\nTrier", "BONN\nKÖLN\nTRIER"),
        ("Les villes, une par ligne, sans doublons !", "Lyon\nNice\nlyon", "Lyon\nNice"),
        ("Las ciudades, una por línea, en orden alfabético.", "Vigo\nÁvila\nMurcia", "Ávila\nMurcia\nVigo"),
        (
            "Give me two tips for better sleep.",
            "Some tips:\n\n1. Rest.\n2. Read.\n3. Walk.\n   Daily.\n\nSleep well!",
            "Some tips:\n\n1. Rest.\n2. Read.\n\nSleep well!",
        ),
        (
            "Suggest at most two titles for the talk.",
            "- Rivers\n  - Rhine\n- Lakes\n- Seas",
            "- Rivers\n  - Rhine\n- Lakes",
        ),
    ],
)
def test_code_corrects_it_if_nothing_else_can_be_meant(request_text: str, text: str, expected: str) -> None:
    result = correct(request_text, text, NOTES if "notes" in request_text else None)
    assert result.answer.outputs == result.answer.written == {"s1.txt": expected}
    assert (len(result.solved), result.doubts) == (1, ())


@pytest.mark.parametrize(
    ("request_text", "text"),
    [
        (SORTED, "Ada\nBea\nZoe"),
        (SORTED, "Here are the names:\nZoe\nAda\nBea"),
        (SORTED, "1. Zoe\n2. Ada\n3. Bea"),
        (SORTED, "| Zoe | 3 |\n| Ada | 4 |\n| Bea | 5 |"),
        ("List the guests in alphabetical order by surname, one per line.", "Zoe Ash\nAda Birch\nBea Cole"),
        ("List the guests in reverse alphabetical order, one per line.", "Zoe\nBea\nAda"),
        ("Explain the alphabetical order of these.", "Zoe\nAda\nBea"),
        ("Write a limerick in lower case, one verse per line.", "There once was a man from Peru, who dreamed\nA\nB"),
        ("Give me about three tips.", "1. Rest.\n2. Read.\n3. Walk.\n4. Eat."),
        ("Which of the notes mention the lift?", "n1.txt, n2.txt"),
    ],
)
def test_what_may_be_right_stays_as_it_is(request_text: str, text: str) -> None:
    result = correct(request_text, text, NOTES if "notes" in request_text else None)
    assert result.answer.outputs == {"s1.txt": text}
    assert result.solved == ()


@pytest.mark.parametrize(
    ("request_text", "text"),
    [
        ("Which of the notes mention the lift?", "It is in n1.txt, n2.txt, n3.txt."),
        ("Which of the notes mention the lift?", "n3.txt\nn4.txt"),  # no name would be left
    ],
)
def test_what_code_cannot_correct_stays_doubtful(request_text: str, text: str) -> None:
    result = correct(request_text, text, NOTES)
    assert result.answer.outputs == {"s1.txt": text}
    assert (result.solved, len(result.doubts)) == ((), 1)


def test_an_object_around_the_list_that_was_wanted_is_taken_off() -> None:
    request_text = "Make people.json from the letters: a list with an object per person."
    people = [{"name": "Zoë"}, {"name": "Ada"}]
    result = correct(request_text, json.dumps({"people": people}), name="people.json")
    assert json.loads(result.answer.outputs["people.json"]) == people
    two_members = json.dumps({"people": people, "count": 2})
    assert correct(request_text, two_members, name="people.json").answer.outputs["people.json"] == two_members


def test_an_output_that_another_step_has_read_stays_as_it_is() -> None:
    answer = WrittenAnswer({"s1.txt": "Zoe\nAda\nBea"}, {"s1.txt": "Zoe\nAda\nBea"}, {})
    result = corrected(SORTED, (), answer, [])
    assert result.answer == answer
    assert [doubt.text for doubt in result.doubts] == [
        "You asked for alphabetical order; the answer has 'Zoe' before 'Ada'."
    ]


NAMES = st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=8)


@given(
    st.lists(NAMES, min_size=3, max_size=12),
    st.sampled_from(["", "- ", "* "]),
    st.sampled_from([None, "lower", "upper"]),
)
def test_a_corrected_list_has_the_form_and_the_same_things(names: list[str], mark: str, case: str | None) -> None:
    form = ListForm.of(SORTED + (f" In {case} case." if case else ""))
    assert (form.is_sorted, form.once, form.case) == (True, True, case)
    text = "\n".join(mark + name for name in names)
    lines = form.corrected(text).splitlines()
    assert all(line.startswith(mark) for line in lines)
    listed = [line.removeprefix(mark) for line in lines]
    assert {name.lower().upper().casefold() for name in listed} == {name.lower().upper().casefold() for name in names}
    assert all(folded(first) <= folded(second) for first, second in pairwise(listed))
    assert not [*form.problems("\n".join(lines))]
    assert form.corrected("\n".join(lines)).splitlines() == lines or len(lines) < 3
