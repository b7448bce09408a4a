"""Find replies that say the sentences of the text that they reply to, as if these were their own.

A small model that is asked to answer a mail continues it: "I would like to collect the roses myself" comes back as the
answer to the customer who wrote it. In English, German, French and Spanish.
"""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.request import instruction
from orchestrator.run.frontdoor.words import folded, words

_LEAST_WORDS: Final = 6  # of a sentence that nobody writes again by chance
_MESSAGE = (
    r"(?:e-?mails?|mails?|letters?|messages?|briefen?|brief|nachrichten?|anfragen?|lettres?|courriels?|cartas?|correos?"
    r"|mensajes?|customers?|kunden|kundinnen|clients?|clientes?)"
)
_REPLY = re.compile(
    rf"\b(?:repl(?:y|ies)|respond|responses?)\b|\banswer\b[^.?!]*\b{_MESSAGE}\b"
    rf"|\b(?:beantworte\w*|antworte)\b[^.?!]*\b{_MESSAGE}\b|\bantwort(?:en)? auf\b"
    r"|\brepon(?:ds|dez|dre|ses?)\b|\brespon(?:de|der|da)\b|\brespuestas?\b"
)
_OF_THE_WRITER = re.compile(r"\b(?:i|my|me|ich|mein\w*|mir|mich|je|j|mon|ma|mes|moi|yo|mi|mis|me)\b")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]")


def about_replies(request: str, answer: WrittenAnswer) -> Iterator[Doubt]:
    """Yield a doubt for each reply with a sentence in which the writer of what was read speaks of themselves."""
    if not _REPLY.search(folded(instruction(request))):
        return
    files = {
        sentence: file
        for file, text in answer.inputs.items()
        for sentence in _sentences(text)
        if _OF_THE_WRITER.search(sentence)
    }
    for name, text in answer.outputs.items():
        own_lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">"))
        file = next((files[sentence] for sentence in _sentences(own_lines) if sentence in files), None)
        if file is not None and name not in files.values():
            demand = f"Reply to {file} as the one who got it, in sentences that are not in it."
            yield Doubt(f"A sentence of {file} is in the reply, as if it were its own.", name, demand=demand)


def _sentences(text: str) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = words(match[0])
        if len(sentence) >= _LEAST_WORDS:
            yield " ".join(sentence)
