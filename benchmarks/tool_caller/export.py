"""Write the tool caller as a GGUF file, with the chat template of one of its syntaxes."""

from typing import Final

import gguf

from benchmarks.tiny.export import CONTROL_TOKENS, export
from benchmarks.tool_caller.recipe import SIZE
from benchmarks.tool_caller.syntax import CONTROL, MARKS, SYNTAXES, template_source, tokenizer

TYPES: Final = (
    CONTROL_TOKENS | dict.fromkeys(CONTROL, gguf.TokenType.CONTROL) | dict.fromkeys(MARKS, gguf.TokenType.USER_DEFINED)
)


def write() -> None:
    """Write the trained model. The template for Hermes is the one that it is used with."""
    export(SIZE, tokenizer(), TYPES, template_source(SYNTAXES[0]))


if __name__ == "__main__":
    write()
