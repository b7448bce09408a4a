"""Find the procedure that a request in words asks for, and its inputs. Deterministic, without a model.

Most requests are about something else, so a match must be certain: the request starts with a word of the procedure's id
and has all of them, and every other word is the value of an input, a filler or one of the procedure's own words.
"remove the model small" matches remove-model; "write a script that removes a model" matches nothing.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.procedures.errors import ProcedureError
from orchestrator.procedures.forms import InputForm, Procedure
from orchestrator.procedures.library import SAYS_NOTHING, Library, Word, root_of, roots_of, words_of
from orchestrator.procedures.plan import check_inputs

_JOINS: Final = frozenset({"and", "its", "with", "also", "including"})
_NAMES: Final = frozenset({"called", "named", "as"})


@dataclass(frozen=True, slots=True)
class Match:
    procedure: str
    inputs: Mapping[str, Any]  # as given in words; missing ones have their defaults


def find_procedure(request: str, library: Library, files: Collection[str] = ()) -> Match | None:
    """Return the only procedure that a request can mean, with its inputs, or None.

    A request with one of the names `files` is about that file, and matches nothing.
    """
    possible = library.possible(request, files)
    if not possible:
        return None
    names = library.files()
    possible.sort(key=lambda name: -len(roots_of(name)))
    matches = [match for name in possible if (match := _matched(name, words_of(request, names), library)) is not None]
    if len(matches) > 1 and len(roots_of(matches[0].procedure)) == len(roots_of(matches[1].procedure)):
        return None
    return matches[0] if matches else None


def _matched(name: str, words: list[Word], library: Library) -> Match | None:
    try:
        procedure = library.procedure(name)
        inputs = _Inputs(procedure, words, roots_of(name)).values()
        if inputs is None:
            return None
        check_inputs(procedure, inputs)
    except ProcedureError:
        return None
    return Match(name, inputs)


class _Inputs:
    def __init__(self, procedure: Procedure, words: list[Word], ids: frozenset[str]) -> None:
        self._form = procedure.form
        self._words = words
        self._ids = ids
        described = f"{self._form.description} {self._form.category} {' '.join(self._form.inputs)}"
        self._own = ids | roots_of(described.replace("_", " "))
        self._values: dict[str, Any] = {}

    def values(self) -> dict[str, Any] | None:
        # None: a word remains that nothing explains, or an input is missing
        self._stated()
        for name, entry in self._form.inputs.items():
            if name not in self._values and entry.type != "secret" and (value := self._typed(name, entry)) is not None:
                self._values[name] = value
        missing = [
            name
            for name, entry in self._form.inputs.items()
            if name not in self._values and entry.default is None and not entry.optional
        ]
        unexplained = list(self._unexplained())
        if len(missing) == 1 and len(unexplained) == 1 and self._form.inputs[missing[0]].type == "string":
            self._values[missing.pop()] = unexplained.pop().text
        return None if missing or unexplained else self._values

    def _stated(self) -> None:
        # NAME=VALUE
        for word in self._words:
            name, sign, value = word.text.partition("=")
            if sign and name in self._form.inputs and self._form.inputs[name].type != "secret":
                self._values[name], word.is_value = value, True

    def _typed(self, name: str, entry: InputForm) -> Any:
        match entry.type:
            case "boolean":
                return True if self._is_asked_for(name) else None
            case "integer" | "number":
                return self._beside(name, lambda word: re.fullmatch(r"\d+(\.\d+)?", word.text) is not None)
            case "path":
                return self._first(lambda word: word.text.startswith(("/", "~/")))
            case "string" if entry.choices:
                return self._first(lambda word: word.text in entry.choices)
            case "string":
                return self._after(name)
        return None

    def _is_asked_for(self, name: str) -> bool:
        # all words of a boolean input are there, the last one after a word such as `and` or `its`
        parts = [root_of(part) for part in name.split("_")]
        places = [place for place, word in enumerate(self._words) if word.root == parts[-1] and not word.is_value]
        roots = {word.root for word in self._words}
        joined = any(_JOINS & {word.text.lower() for word in self._words[max(0, at - 2) : at]} for at in places)
        return joined and set(parts) <= roots

    def _beside(self, name: str, accepted: Any) -> str | None:
        # the value stands before or after the name of the input
        for place, word in enumerate(self._words):
            if word.root != root_of(name):
                continue
            for at in (place - 1, place + 1):
                if 0 <= at < len(self._words) and not self._words[at].is_value and accepted(self._words[at]):
                    return self._take(self._words[at])
        return None

    def _first(self, accepted: Any) -> str | None:
        return next((self._take(word) for word in self._words if not word.is_value and accepted(word)), None)

    def _after(self, name: str) -> str | None:
        # the value of the input `id` follows a word such as `called`
        before = _NAMES if name == "id" else frozenset({root_of(name)})
        for word, following in zip(self._words, self._words[1:], strict=False):
            is_before = word.text.lower() in before if name == "id" else word.root in before and not word.quoted
            if is_before and not following.is_value and (following.quoted or not self._is_explained(following)):
                return self._take(following)
        return None

    def _take(self, word: Word) -> str:
        word.is_value = True
        return word.text

    def _is_explained(self, word: Word) -> bool:
        return not word.quoted and (word.root in self._own or word.text.lower() in SAYS_NOTHING)

    def _unexplained(self) -> Iterator[Word]:
        return (word for word in self._words if not word.is_value and not self._is_explained(word))
