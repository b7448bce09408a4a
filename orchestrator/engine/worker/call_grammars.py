"""Let a grammar hold for the arguments of each call of a tool that a model begins by itself."""

import codecs
from collections.abc import Callable, Mapping, Sequence

from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama import Grammar
from orchestrator.engine.tool_calls import ArgumentsDelta, ToolCallFinished, ToolCallParser, ToolCallStarted
from registry.call_syntax import CallSyntax


class CallGrammars:
    """Follows the calls in one text, which belongs to a model with this syntax. `tools` are the names of all tools.

    `start` returns a grammar in its first state for the arguments of a tool, and `tokenize` the tokens of a text.
    Tools without a grammar are not in `grammars`, whose values are in GBNF.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        tools: Sequence[str],
        grammars: Mapping[str, str],
        start: Callable[[str], Grammar],
        tokenize: Callable[[str], list[int]],
    ) -> None:
        self._parser = ToolCallParser({name: {} for name in tools}, syntax)
        self._grammars = grammars
        self._start = start
        self._tokenize = tokenize
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> Grammar | None:
        """Take the bytes of a token. Return the grammar of what follows if the token begins the arguments of a call.

        A token may hold the first characters of the arguments, too. The grammar is then in the state after them; if it
        does not allow them, or if llama.cpp refuses it, None is returned.
        """
        name, arguments = "", ""
        for event in self._parser.push(self._decoder.decode(data)):
            match event:
                case ToolCallStarted():
                    name, arguments = event.name, ""
                case ArgumentsDelta():
                    arguments += event.text
                case ToolCallFinished():
                    name = ""
        if name not in self._grammars:
            return None
        try:
            grammar = self._start(self._grammars[name])
        except BadGrammar:  # the call can be made without one, and its arguments are checked in any case
            return None
        if self._follow(grammar, arguments):
            return grammar
        grammar.close()
        return None

    def _follow(self, grammar: Grammar, text: str) -> bool:
        """Tell the grammar a text, and return whether it allows that."""
        for token in self._tokenize(text) if text else ():
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        return True
