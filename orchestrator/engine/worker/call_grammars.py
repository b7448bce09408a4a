"""Constrain the tool calls that a model starts by itself: a grammar holds for the arguments of each."""

import codecs
from collections.abc import Callable, Mapping, Sequence

from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama import Grammar
from orchestrator.engine.tool_calls import ArgumentsDelta, ToolCallFinished, ToolCallParser, ToolCallStarted
from orchestrator.registry.call_syntax import CallSyntax


class CallGrammars:
    """Follows the calls in one text of a model with this syntax. `tools` are the names of all tools.

    `grammars` has the tools with a grammar, in GBNF.
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
        """Take the bytes of a token, and return the grammar for what follows if it starts the arguments of a call."""
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
        # The token may also hold the first arguments, which the grammar may not allow.
        if self._follow(grammar, arguments):
            return grammar
        grammar.close()
        return None

    def _follow(self, grammar: Grammar, text: str) -> bool:
        for token in self._tokenize(text) if text else ():
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        return True
