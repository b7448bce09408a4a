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
from orchestrator.run.gates.tests import module_under_test
from orchestrator.task.taskir.names import compose_name

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


def changed_programs(request: str, named: Sequence[str]) -> tuple[str, ...]:
    """Return the programs that a request wants in a new version, in its order. `named` are the files that it names.

    They follow an order to change something. If an order names none, the only program that the request names is meant;
    tests do not count if there is another program.
    """
    text, ordered, objects = instruction(compose_name(request)), False, list[str]()
    for start, end in sentences_of(text):
        sentence = folded(text[start:end])
        verb = None if _QUESTION.match(sentence) else _CHANGE.search(sentence)
        if verb is not None:
            ordered = True
            objects += [name for name in named if _follows(sentence, verb.end(), name)]
    programs = [name for name in named if is_program(name)]
    modules = [name for name in programs if module_under_test(name) is None] or programs
    if objects:
        return tuple(name for name in dict.fromkeys(objects) if name in modules)
    return tuple(modules) if ordered and len(modules) == 1 else ()


def _follows(sentence: str, at: int, name: str) -> bool:
    # the file is the object of a verb that ends at `at` if no other clause comes between them
    called = sentence.find(folded(compose_name(PurePosixPath(name).name)), at)
    return called >= 0 and not re.search(r"[,;:]|\b(?:with|by|so that|using|mit|damit|avec|con)\b", sentence[at:called])
