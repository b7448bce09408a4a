"""Let a grammar begin to hold within a text: where the text has begun something whose form is known."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.engine.llama import Grammar

WINDOW: Final = 64
"""How many of the last bytes of a text are searched; a pattern for the begin of a text is tried on so many bytes."""


class TriggeredGrammars:
    """The grammars of one text that may begin to hold in it, each with a pattern as in `contract.GrammarTrigger`.

    `tokenize` returns the tokens of a text. It belongs to whoever made it until `push` has returned a grammar, which
    then is the caller's, or until `close`.
    """

    def __init__(self, grammars: Sequence[tuple[str, Grammar]], tokenize: Callable[[str], list[int]]) -> None:
        self._grammars = [(re.compile(pattern.encode()), pattern.startswith("^"), one) for pattern, one in grammars]
        self._tokenize = tokenize
        self._text = b""
        self._length = 0

    def push(self, data: bytes) -> Grammar | None:
        """Take the bytes of a token, and return the grammar that holds from here on, or None.

        A token may reach beyond the place where the grammar begins. The grammar is then told the rest of it. If it does
        not allow that, it never holds.
        """
        new = self._length
        self._length += len(data)
        self._text = (self._text + data)[-(len(data) + WINDOW) :]
        begin = self._length - len(self._text)
        for entry in self._grammars:
            pattern, first, grammar = entry
            if first and begin:
                continue
            found = next((one for one in pattern.finditer(self._text) if begin + one.end() > new), None)
            if found is None:
                continue
            self._grammars.remove(entry)
            if self._follow(grammar, self._text[found.end() :].decode("utf-8", "replace")):
                self.close()
                return grammar
            grammar.close()
            return None
        return None

    def close(self) -> None:
        """Free the grammars that have not begun to hold."""
        for _, _, grammar in self._grammars:
            grammar.close()
        self._grammars.clear()

    def _follow(self, grammar: Grammar, rest: str) -> bool:
        """Tell the grammar the rest of a token, and return whether it allows that."""
        for token in self._tokenize(rest) if rest else ():
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        return True
