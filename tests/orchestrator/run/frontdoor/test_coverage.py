"""Whether the actions of a plan still say what the request says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.clauses import lost_words

BOILER = "I want all that we have about the boiler. Which of these notes mention it? Name only the files."
TERMS = "For every lease here I need two things: how long is the notice period, and does it renew on its own?"


@pytest.mark.parametrize(
    ("request_text", "actions", "lost"),
    [
        (TERMS, ["List the places in {each}."], ("lease", "things", "long", "notice", "period", "renew")),
        (TERMS, ["Say how long the notice period of {each} is and whether the lease renews."], ()),
        (BOILER, ["Say whether {each} mentions the boiler.", "Name the files that mention the boiler."], ()),
        ("Summarize a.txt and b.txt.", ["Summarize {each}."], ()),
        ("Summarize the second report, I need it tomorrow.", ["Summarize report2.txt."], ()),
        ("Fasse die Verträge zusammen und vergleiche die Kündigungsfristen und die Preise.", ["Summarize {each}."], ()),
        (
            "Vergleiche die Kündigungsfristen, die Preise und die Laufzeiten der Verträge in dem Ordner.",
            ["Schreibe eine Liste der Namen, die in dem Text und in der Datei sind."],
            ("vergleiche", "kundigungsfristen", "preise", "laufzeiten", "vertrage", "ordner"),
        ),
    ],
)
def test_most_of_what_a_request_says_is_in_the_actions(
    request_text: str, actions: list[str], lost: tuple[str, ...]
) -> None:
    assert lost_words(request_text, ("a.txt", "b.txt", "report2.txt"), actions) == lost


@given(st.text(max_size=300), st.lists(st.text(max_size=80), max_size=3))
def test_a_plan_that_repeats_its_request_has_lost_nothing(request_text: str, actions: list[str]) -> None:
    assert lost_words(request_text, (), [request_text, *actions]) == ()
