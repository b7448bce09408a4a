r"""Mend Python code in a JSON answer whose string literals are broken by newlines.

In a JSON string, the `'\n'` of code has to be written `'\\n'`. A small model often writes `'\n'`, which JSON reads as a
newline inside of the literal.
"""

import ast
import re
import warnings
from typing import Final

# Strings of several lines first, since they begin like the others.
_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|#[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL
)
_NEWLINE: Final = re.compile(r"\\.|\n", re.DOTALL)


def mended(code: str) -> str:
    """Return Python code with newlines in string literals of one line as escapes, if only that makes it valid."""
    changed = _TOKEN.sub(lambda token: _escaped(token[0]), code)
    return changed if changed != code and not _is_valid(code) and _is_valid(changed) else code


def _escaped(token: str) -> str:
    if token.startswith(('"""', "'''", "#")):
        return token
    return _NEWLINE.sub(lambda match: r"\n" if match[0] == "\n" else match[0], token)


def _is_valid(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, which are a matter for the gates
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True
