"""What speaks against an answer next to the texts that it was made from, in four languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.doubt import WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts

NOTE = (
    "The choir meets in the old school from May on, because the church is being painted. Bring your own cup, as the "
    "kitchen there has none. Rehearsals start at seven."
)
MENU = (
    "On Monday there is pea soup with bread, and on Tuesday the cook makes dumplings with plums. Whoever wants to eat "
    "without meat tells her on the day before."
)
REVIEW = (
    "La location était propre, mais le chauffage ne marchait pas et nous avons eu froid toute la semaine. Le "
    "propriétaire n'a jamais répondu à nos messages."
)
GERMAN_NOTE = (
    "Der Chor trifft sich ab Mai in der alten Schule, weil die Kirche gestrichen wird. Bringt eure eigene Tasse mit, "
    "denn in der Küche dort gibt es keine. Die Proben beginnen um sieben."
)


def against(request: str, outputs: dict[str, str], inputs: dict[str, str]) -> list[str]:
    answer = WrittenAnswer(outputs, outputs, inputs)
    return [doubt.text for doubt in doubts(request, (*inputs,), answer)]


def against_text(request: str, text: str, **inputs: str) -> list[str]:
    return against(request, {"s1.txt": text}, inputs)


@pytest.mark.parametrize(
    "request_text",
    [
        "Summarize both notes and tell me which one is about food.",
        "Fasse beide Notizen zusammen und sag mir, welche vom Essen handelt.",
        "Résume chacune des notes et dis-moi laquelle parle de cuisine.",
    ],
)
def test_a_summary_that_contains_all_of_its_sources_is_doubted(request_text: str) -> None:
    # the comment is so long that the text as a whole is no copy
    text = f"1. {NOTE}\n2. {MENU}\n\n" + "It is the second one that tells about what you can eat there. " * 3
    doubts_found = against_text(request_text, text, a=NOTE, b=MENU)
    assert "You asked for a summary; the answer contains all of what it was made from." in doubts_found


@pytest.mark.parametrize(
    ("request_text", "text"),
    [
        ("Summarize a.txt and keep the original below.", f"The choir moves.\n\n{NOTE}"),
        ("Add a summary to a.txt.", f"The choir moves.\n\n{NOTE}"),
        ("Füge a.txt eine Zusammenfassung hinzu.", f"Der Chor zieht um.\n\n{NOTE}"),
        ("Correct a.txt and give me a summary of what you did.", f"{NOTE}\n\nThere was nothing to correct."),
        ("Summarize a.txt.", "The choir meets in the old school from May on, and everybody brings a cup."),
    ],
)
def test_a_summary_may_have_parts_of_its_source_or_stand_next_to_it(request_text: str, text: str) -> None:
    assert against(request_text, {"s1.txt": text}, {"a.txt": NOTE}) == []


@pytest.mark.parametrize(
    "request_text",
    [
        "Translate a.txt into German, please.",
        "Übersetze a.txt ins Deutsche.",
        "Traduis a.txt en allemand.",
        "Traduce a.txt al alemán.",
        "What does a.txt say in German?",
        "Could you translate a.txt into German?",
    ],
)
def test_a_translation_of_a_part_is_doubted(request_text: str) -> None:
    short = "Der Chor trifft sich ab Mai in der alten Schule."
    doubt = "You asked for a translation; the answer has 10 words, and the original 30."
    assert against(request_text, {"s1.txt": short}, {"a.txt": NOTE}) == [doubt]
    assert against(request_text, {"s1.txt": GERMAN_NOTE}, {"a.txt": NOTE}) == []


@pytest.mark.parametrize(
    "request_text",
    [
        "Translate the first sentence of a.txt into German.",
        "Translate a.txt into German, in short.",
        "Should I translate a.txt into German?",
        "Translate the title of a.txt into German.",
        "Übersetze nur den ersten Satz von a.txt ins Deutsche.",
        "Traduis la dernière phrase de a.txt en allemand.",
        "Traduce el primer párrafo de a.txt al alemán.",
        "Write a function that can translate a.txt into German.",
        "Is the translation of a.txt good German?",
    ],
)
def test_what_is_no_translation_of_all_may_be_short(request_text: str) -> None:
    short = "Der Chor trifft sich ab Mai in der alten Schule."
    assert against(request_text, {"s1.txt": short}, {"a.txt": NOTE}) == []


def test_each_of_several_texts_is_translated() -> None:
    named = "[a.txt] - English\n[b.txt] - French"
    inputs = {"a.txt": NOTE, "b.txt": REVIEW}
    doubt = "You asked for a translation; the answer has 6 words, and the original 56."
    assert against("What does each of the texts say in Spanish?", {"s1.txt": named}, inputs) == [doubt]
    assert against("Translate a.txt into Spanish with the terms of b.txt.", {"s1.txt": named}, inputs) == []


def test_of_several_files_only_the_translations_are_compared() -> None:
    request = "Translate a.txt into German as a.de.txt, and write a slogan for it as slogan.txt."
    outputs = {"a.de.txt": GERMAN_NOTE, "slogan.txt": "Sing with us!"}
    assert against(request, outputs, {"a.txt": NOTE}) == []
    request = "Translate a.txt into German as a.de.txt."
    outputs |= {"a.de.txt": "Der Chor trifft sich in der Schule."}
    doubt = "You asked for a translation; a.de.txt has 7 words, and the original 30."
    assert against(request, outputs, {"a.txt": NOTE}) == [doubt]


def test_a_translation_into_a_script_without_spaces_is_not_measured() -> None:
    text = "合唱团从五月起在旧学校集合。"
    assert against("Translate a.txt into Chinese.", {"s1.txt": text}, {"a.txt": NOTE}) == []


@given(
    st.lists(st.sampled_from(("river", "stone", "lamp", "tent", "bird", "cup")), min_size=30, max_size=80), st.data()
)
def test_a_translation_is_doubted_if_and_only_if_it_is_shorter_than_half(
    source: list[str], data: st.DataObject
) -> None:
    length = data.draw(st.integers(8, len(source)))
    text = " ".join(["maison", "pierre", "lampe", "tente", "oiseau"][at % 5] for at in range(length))
    doubted = against("Translate a.txt into French.", {"s1.txt": text}, {"a.txt": " ".join(source)})
    assert bool([doubt for doubt in doubted if doubt.startswith("You asked for a translation")]) == (
        length < len(source) / 2
    )
