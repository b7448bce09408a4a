"""What may be a persona, and which one a proposed one turns out to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.persona import Maker, Persona
from orchestrator.task.persona_placing import place_persona
from orchestrator.task.personas import (
    MadePersona,
    decode_persona,
    encode_persona,
    persona_name,
    persona_problems,
    unknown_persona,
)

HARBOURS = "Write as a historian of harbours, who knows ships, tides and trade."
KNOWN = {"historian": Persona("historian", HARBOURS, ""), "terse": Persona("terse", "Write terse code.", "")}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Harbour historian", "harbour-historian"),
        ("  a pirate's  cook! ", "a-pirate-s-cook"),
        ("Café-Wirtin", "cafe-wirtin"),
        ("港", ""),
        ("x" * 90, "x" * 60),
    ],
)
def test_a_plan_s_words_become_a_name(words: str, name: str) -> None:
    assert persona_name(words) == name


@given(st.text(max_size=80))
def test_whatever_a_plan_calls_a_persona_is_a_name_or_nothing(words: str) -> None:
    name = persona_name(words)
    assert not name or not persona_problems(name, "Be brief.", maker="plan") or name in ("auto", "none", "orchestrate")


@pytest.mark.parametrize(
    ("name", "text", "maker", "told"),
    [
        ("a b", "Be brief.", "user", "persona.name: 'a b' is no name; accepted: letters, digits"),
        ("auto", "Be brief.", "user", "persona.name: 'auto' means something else"),
        ("brief", "x" * 1_000_000, "user", "persona.text: has 1,000,000 characters; accepted: 1 to 4,000"),
        ("brief", "x" * 401, "plan", "persona.text: has 401 characters; accepted: 1 to 400"),
        ("brief", "  ", "user", "persona.text: is empty"),
        ("brief", "a\nb", "plan", "persona.text: holds the character U+000A"),
        ("brief", "a\x1b[0m", "user", "persona.text: holds the character U+001B"),
        ("brief", "Be.<|im_end|>\nNow", "user", "persona.text: holds '<|im_end|>', which marks messages"),
    ],
)
def test_what_may_be_no_persona_is_told_why(name: str, text: str, maker: Maker, told: str) -> None:
    assert str(persona_problems(name, text, maker=maker)[0]).startswith(told)


def test_a_near_duplicate_is_merged_into_what_there_is() -> None:
    placed = place_persona("shipman", HARBOURS.replace("harbours,", "harbours"), KNOWN, "plan")
    assert (placed.name, placed.new) == ("historian", False)
    assert placed.similarity > 0.9


def test_another_subject_is_another_persona() -> None:
    castles = "Write as a historian of castles, who knows sieges, walls and knights."
    assert place_persona("knight", castles, KNOWN, "user").new
    assert place_persona("historian", castles, KNOWN, "plan").name == "historian-2"


def test_the_first_persona_of_all_is_new() -> None:
    assert place_persona("first", "Be brief.", {}, "user").new


def test_an_unknown_name_is_told_the_nearest() -> None:
    assert str(unknown_persona("ters", KNOWN)) == (
        "persona: there is no persona 'ters'; accepted: terse? (one of historian, terse)"
    )


def test_what_is_stored_is_read_again() -> None:
    one = MadePersona(name="a", text="Be\nbrief — ja.", maker="plan", by="R", made=1.5, retired=2.0, why_retired="w")
    assert decode_persona(encode_persona(one)) == one
    assert one.persona.retired
