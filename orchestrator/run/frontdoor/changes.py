"""Read by code which programs of the folder a request wants to change, in English, German, French and Spanish.

Only orders count, not questions about programs.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.listed import is_program
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.sentences import sentences_of
from orchestrator.run.frontdoor.words import folded
from orchestrator.run.gates.planned import module_under_test
from orchestrator.task.taskir.models import compose_name

_CHANGE: Final = re.compile(
    r"(?<!\bthe )(?<!\ba )(?<!\ban )\b(?:fix|repair|correct|debug|extend|refactor|rewrite|update|rename|move"
    r"|remove|delete|replace|change|modify|edit|improve|simplify|optimi[sz]e|adapt|adjust|restructure"
    r"|clean up|speed up|make (?:it|them|sure)|add(?!\s+(?:\w+\s+){0,2}tests?\b)"
    r"|korrigier\w*|beheb\w*|reparier\w*|erweiter\w*|uberarbeit\w*|refaktorier\w*|ander[en]?|ersetz\w*|verbesser[en]?"
    r"|vereinfach\w*|erganz\w*|entfern\w*|losch\w*|fug\w*|benenn\w*"
    r"|corrig\w+|repar\w+|etend\w+|modifi\w+|refactori\w+|amelior\w+|renomm\w+|remplac\w+|ajout\w+|supprim\w+|simplifi\w+"
    r"|arregl\w+|ampli\w+|extiend\w+|mejor\w+|renombr\w+|reemplaz\w+|anad\w+|agreg\w+|elimin\w+|cambi\w+)\b"
)
# beginnings of sentences that ask about a program
_QUESTION: Final = re.compile(
    r"\s*(?:what|why|how|which|where|who|when|does|do|did|is|are|was|were|should|has|have|warum|wieso|wie|was|welche\w*|wo"
    r"|wer|wann|ist|sind|hat|soll\w*|pourquoi|comment|que|quel\w*|ou|qui|quand|est-ce|por que|como|cual\w*|donde|quien"
    r"|cuando|explain|describe|review|summari[sz]e|list|tell|erklar\w*|beschreib\w*|expliqu\w*|explic\w*|describ\w*)\b"
)


def changed_programs(request: str, named: Sequence[str], new: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the programs that a request wants in a new version, in its order.

    `named` are the files that it names, and `new` those that it wants to be written: `a.py` stays if `a_fixed.py` is.
    Changed programs follow an order to change something, or lack it ("a.py needs a method"). If an order names none,
    the only program that the request names is meant. If there is another program, tests only count as the object of
    such a verb ("extend test_a.py").
    """
    named = [name for name in named if not any(_is_version(version, name) for version in new)]
    text, ordered, objects = instruction(compose_name(request)), False, list[str]()
    programs, extended = [name for name in named if is_program(name)], set[str]()
    for start, end in sentences_of(text):
        sentence = folded(text[start:end])
        verb = None if _QUESTION.match(sentence) else _CHANGE.search(sentence)
        if verb is not None:
            ordered = True
            objects += [name for name in named if _follows(sentence, verb.end(), name)]
            extended |= {name for name in programs if _follows_at_once(sentence, verb.end(), name)}
        objects += [name for name in programs if _lacks_something(sentence, name)]
    modules = [name for name in programs if module_under_test(name) is None] or programs
    if objects:
        return tuple(name for name in dict.fromkeys(objects) if name in modules or name in extended)
    return tuple(modules) if ordered and len(modules) == 1 else ()


def _follows(sentence: str, at: int, name: str) -> bool:
    # the file is the object of a verb that ends at `at` if no other clause comes between them
    called = sentence.find(folded(compose_name(PurePosixPath(name).name)), at)
    return called >= 0 and not re.search(r"[,;:]|\b(?:with|by|so that|using|mit|damit|avec|con)\b", sentence[at:called])


def _is_version(version: str, name: str) -> bool:
    new, old = PurePosixPath(version), PurePosixPath(name)
    return new.suffix == old.suffix and new.stem.startswith(old.stem)


def _follows_at_once(sentence: str, at: int, name: str) -> bool:
    words_between = r"(?:\s+(?:also|the|file|auch|die|datei|aussi|le|fichier|tambien|el|archivo))*\s+"
    return re.match(words_between + _called(name), sentence[at:]) is not None


def _lacks_something(sentence: str, name: str) -> bool:
    lacks = r"\s+(?:needs|lacks|should|must|has to|braucht|soll\w*|muss|doit|devrait|debe\w*|necesita)\b"
    return not _QUESTION.match(sentence) and re.search(_called(name) + lacks, sentence) is not None


def _called(name: str) -> str:
    return re.escape(folded(compose_name(PurePosixPath(name).name)))
