"""Propose a persona for a task pattern: similar tasks that come often, are not done well, and have no fitting one.

The memory merges similar situations with the same action into one episode, so a frequent episode is such a pattern. A
proposed persona names what the tasks are about, and asks for care where they fail. The router tries it like any other
candidate, and it is retired if it brings nothing.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from orchestrator.memrl.episodes import Episode
from orchestrator.registry.persona import Persona
from orchestrator.run.personas import PersonaProposal
from orchestrator.task.lexical import embed
from orchestrator.task.personas import MadePersona, in_use, persona_name

OFTEN: Final = 20  # times that tasks have to come to be a pattern
NOT_WELL: Final = 0.8  # highest Q of a pattern that gets a persona
PATTERNS: Final = 16  # looked at, those first that lost most reward
ALIKE_TASKS: Final = 50  # episodes of similar situations that are looked at for each
FITTING_BETTER: Final = 0.1  # a persona fits tasks if it raises their Q by this much
FITTING_TRIED: Final = 3  # after at least this many tries
FITTING_TEXT: Final = 0.3  # or if the cosine (`lexical.embed`) of its text and a task's is this high
WORDS: Final = 5  # that say what the tasks are about
# By the kind of failure that such tasks have most.
CARE: Final[Mapping[str, str]] = {
    "FORMAT": "Give the answer in exactly the form that is asked for, and nothing else.",
    "SCHEMA": "Give the answer in exactly the form that is asked for, and nothing else.",
    "CODE": "Write the simplest code that does what is asked, and look for errors in it before you answer.",
    "LOGIC": "Work out one part after the other, and compare the answer with what was asked before you give it.",
    "TIMEOUT": "Answer as briefly as the task allows.",
}
USUAL_CARE: Final = "Give all that is asked for and nothing else, and check it before you answer."
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
# These words say nothing about what a task is about.
_EMPTY: Final = frozenset(
    "about after again also before below each every from have into just make more must only other over please should"
    " some such text than that their them then there these they this those what when where which while will with your"
    .split()
)  # fmt: skip


def proposed_persona(
    pattern: Episode, alike: Sequence[Episode], personas: Iterable[Persona], made_personas: Collection[MadePersona]
) -> PersonaProposal | None:
    """Return the persona to propose for a pattern; None if it needs none, or none can be named. Pure.

    `alike` are the episodes of similar situations with any action, the pattern included. `personas` are those in use,
    and `made_personas` all that were ever made at run time: a retired one is not proposed again.
    """
    words = common_words(pattern.situation.text, [episode.situation.text for episode in alike])
    name = persona_name(" ".join(words[:3]))
    if not name or any(persona.name == name for persona in made_personas) or _fits(pattern, alike, personas):
        return None
    failures = Counter(dict.fromkeys(CARE, 0))
    for episode in alike:
        if episode.outcome.failure in CARE:
            failures[episode.outcome.failure] += episode.count
    kind, times = failures.most_common(1)[0]
    return PersonaProposal(
        name=name,
        text=f"You are an expert in tasks of this kind: {', '.join(words)}. {CARE[kind] if times else USUAL_CARE}",
        description=f"for tasks of the role {pattern.situation.role} that came {pattern.count} times, with a Q of "
        f"{pattern.q:.2f}",
        maker="memory",
    )


def room_for_proposals(personas: Collection[MadePersona], most: int) -> bool:
    """Return whether fewer than `most` personas of the memory are in use. Pure."""
    return sum(persona.maker == "memory" for persona in in_use(personas).values()) < most


def common_words(text: str, other_texts: Sequence[str]) -> list[str]:
    """Return the first words of a text that at least half of the other texts have too. Pure.

    Without other texts, all words of the text count.
    """
    vocabularies = [set(_words(other_text)) for other_text in other_texts]
    least = len(vocabularies) / 2
    common = (
        word for word in dict.fromkeys(_words(text)) if sum(word in vocabulary for vocabulary in vocabularies) >= least
    )
    return list(common)[:WORDS]


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _EMPTY]


def _fits(pattern: Episode, alike: Sequence[Episode], personas: Iterable[Persona]) -> bool:
    names = [*personas]
    for persona in names:
        tried = [episode for episode in alike if episode.action.persona == persona.name]
        count = sum(episode.count for episode in tried)
        if (
            count >= FITTING_TRIED
            and sum(episode.q * episode.count for episode in tried) / count >= pattern.q + FITTING_BETTER
        ):
            return True
    vectors = embed(
        [pattern.situation.text, *(f"{candidate.name} {candidate.description} {candidate.text}" for candidate in names)]
    )
    return bool(len(names) and (vectors[1:] @ vectors[0]).max() >= FITTING_TEXT)
