"""Propose a persona for a task pattern: tasks that are alike, come often, are not done well, and have no fitting one.

The memory merges similar situations with the same action into one episode, so an episode that was seen often is such a
pattern. A proposed persona names what the tasks are about, and asks for care where they fail. Whether it brings
anything is for the router to find out: it is one more candidate, which is tried as other candidates are, and it is
retired when it brings nothing.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from memrl.episodes import Episode
from orchestrator.run.personas import PersonaProposal
from orchestrator.task.lexical import embed
from orchestrator.task.personas import MadePersona, in_use, persona_name
from registry.models import Persona

OFTEN: Final = 20
"""How often tasks have to have come to be a pattern."""
NOT_WELL: Final = 0.8
"""The highest Q of a pattern that a persona is proposed for."""
PATTERNS: Final = 16
"""How many patterns are looked at, those first that have lost most reward."""
ALIKE_TASKS: Final = 50
"""How many episodes of similar situations are looked at for each."""
FITTING_BETTER: Final = 0.1
"""A persona that was tried fits tasks if their Q with it is higher by so much than without one."""
FITTING_TRIED: Final = 3
"""How often it has to have been tried for that."""
FITTING_TEXT: Final = 0.3
"""From this similarity of its text and that of a task on, a persona fits: the cosine of `lexical.embed`."""
WORDS: Final = 5
"""How many words say what the tasks are about."""
CARE: Final[Mapping[str, str]] = {
    "FORMAT": "Give the answer in exactly the form that is asked for, and nothing else.",
    "SCHEMA": "Give the answer in exactly the form that is asked for, and nothing else.",
    "CODE": "Write the simplest code that does what is asked, and look for errors in it before you answer.",
    "LOGIC": "Work out one part after the other, and compare the answer with what was asked before you give it.",
    "TIMEOUT": "Answer as briefly as the task allows.",
}
"""What is asked for, by the kind of failure that such tasks have most."""
USUAL_CARE: Final = "Give all that is asked for and nothing else, and check it before you answer."
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_EMPTY: Final = frozenset(
    "about after again also before below each every from have into just make more must only other over please should"
    " some such text than that their them then there these they this those what when where which while will with your"
    .split()
)  # fmt: skip
"""Words that say nothing about what a task is about."""


def proposed_persona(
    pattern: Episode, alike: Sequence[Episode], personas: Iterable[Persona], made: Collection[MadePersona]
) -> PersonaProposal | None:
    """Return the persona that is proposed for a pattern; None if it needs none, or none can be named. Pure.

    `alike` are the episodes of similar situations with whatever action, the pattern's own among them. `personas` are
    those in use, and `made` those that were ever made at run time: what was retired is not proposed again.
    """
    words = common_words(pattern.situation.text, [one.situation.text for one in alike])
    name = persona_name(" ".join(words[:3]))
    if not name or any(one.name == name for one in made) or _fits(pattern, alike, personas):
        return None
    failures = Counter(dict.fromkeys(CARE, 0))
    for one in alike:
        if one.outcome.failure in CARE:
            failures[one.outcome.failure] += one.count
    kind, times = failures.most_common(1)[0]
    return PersonaProposal(
        name=name,
        text=f"You are an expert in tasks of this kind: {', '.join(words)}. {CARE[kind] if times else USUAL_CARE}",
        description=f"for tasks of the role {pattern.situation.role} that came {pattern.count} times, with a Q of "
        f"{pattern.q:.2f}",
        maker="memory",
    )


def room_for_proposals(made: Collection[MadePersona], most: int) -> bool:
    """Return whether fewer than `most` personas of the memory are in use. Pure."""
    return sum(one.maker == "memory" for one in in_use(made).values()) < most


def common_words(text: str, others: Sequence[str]) -> list[str]:
    """Return the first words of a text that say what it is about: those that at least half of the other texts have.

    Without other texts, all words of the text count. Pure.
    """
    there = [set(_words(other)) for other in others]
    least = len(there) / 2
    common = (word for word in dict.fromkeys(_words(text)) if sum(word in one for one in there) >= least)
    return list(common)[:WORDS]


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _EMPTY]


def _fits(pattern: Episode, alike: Sequence[Episode], personas: Iterable[Persona]) -> bool:
    """Return whether a persona in use does better at such tasks, or is about them by its words."""
    there = [*personas]
    for persona in there:
        tried = [one for one in alike if one.action.persona == persona.name]
        count = sum(one.count for one in tried)
        if count >= FITTING_TRIED and sum(one.q * one.count for one in tried) / count >= pattern.q + FITTING_BETTER:
            return True
    vectors = embed([pattern.situation.text, *(f"{one.name} {one.description} {one.text}" for one in there)])
    return bool(len(there) and (vectors[1:] @ vectors[0]).max() >= FITTING_TEXT)
