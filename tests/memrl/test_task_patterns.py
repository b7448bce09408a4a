"""Which persona is proposed for tasks that come often, and when none is."""

from dataclasses import replace

import pytest

from orchestrator.memrl.episodes import Action, Episode, Outcome, Reward, Situation
from orchestrator.memrl.task_patterns import common_words, proposed_persona, room_for_proposals
from orchestrator.registry.persona import Persona
from orchestrator.task.personas import MadePersona, persona_problems

TERSE = Persona("terse", "Write terse code.", "")


def episode(text: str, *, q: float = 0.3, count: int = 40, persona: str = "", failure: str = "LOGIC") -> Episode:
    return Episode(
        id=1,
        action=Action("worker", persona, "m"),
        q=q,
        count=count,
        last_seen=1.0,
        situation=Situation(task_type=None, kind="generate", role="worker", text=text),
        created=1.0,
        propensity=1.0,
        outcome=Outcome(success=0.0, source="gate", failure=failure),
        reward=Reward(total=0.0),
    )


PATTERN = episode("Compute the interest of account 17 over three years.")
OTHERS = [PATTERN, episode("Compute the interest of account Smith over five years.", failure="TIMEOUT", count=3)]


def test_it_names_what_the_tasks_have_in_common_and_asks_for_care_where_they_fail() -> None:
    found = proposed_persona(PATTERN, OTHERS, [TERSE], [])
    assert found is not None
    assert (found.name, found.maker) == ("compute-interest-account", "memory")
    assert found.text == (
        "You are an expert in tasks of this kind: compute, interest, account, three, years. Work out one part after the"
        " other, and compare the answer with what was asked before you give it."
    )
    assert not persona_problems(found.name, found.text, found.description, "memory")


@pytest.mark.parametrize("failure", ["", "INFRASTRUCTURE"])
def test_without_a_failure_of_the_model_it_asks_for_what_is_usual(failure: str) -> None:
    alone = replace(PATTERN, outcome=replace(PATTERN.outcome, failure=failure))
    found = proposed_persona(alone, [alone], [], [])
    assert found is not None
    assert found.text.endswith("Give all that is asked for and nothing else, and check it before you answer.")


def test_none_is_proposed_where_a_persona_does_better_or_is_about_such_tasks() -> None:
    better = [*OTHERS, episode(PATTERN.situation.text, q=0.9, count=5, persona="terse")]
    assert proposed_persona(PATTERN, better, [TERSE], []) is None
    no_better = [*OTHERS, episode(PATTERN.situation.text, q=0.35, count=5, persona="terse")]
    assert proposed_persona(PATTERN, no_better, [TERSE], []) is not None
    banker = Persona("banker", "You compute the interest of accounts over years.", "")
    assert proposed_persona(PATTERN, OTHERS, [TERSE, banker], []) is None


def test_what_was_retired_is_not_proposed_again() -> None:
    gone = MadePersona(name="compute-interest-account", text="t", maker="memory", made=1.0, retired=2.0)
    assert proposed_persona(PATTERN, OTHERS, [TERSE], [gone]) is None


@pytest.mark.parametrize("text", ["", "12 34 + 5", "a b c", "what when where"])
def test_tasks_without_words_that_say_something_get_none(text: str) -> None:
    assert proposed_persona(episode(text), [episode(text)], [TERSE], []) is None


def test_words_that_only_one_task_has_are_left_out() -> None:
    others = ["Sort the ships by tonnage.", "Sort the ships by name.", "Sort the ships by flag."]
    assert common_words(others[0], others) == ["sort", "ships"]
    assert common_words("Sort the ships", []) == ["sort", "ships"]


def test_there_is_room_for_as_many_as_are_allowed() -> None:
    made = [MadePersona(name=f"p{n}", text="t", maker="memory", made=1.0) for n in range(2)]
    assert room_for_proposals(made, 3)
    assert not room_for_proposals(made, 2)
    assert room_for_proposals([replace(made[0], retired=2.0), made[1]], 2)
    assert not room_for_proposals([], 0)
