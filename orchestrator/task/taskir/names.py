"""Find names that are written in another way.

Unicode writes "é" as one character or as an "e" with an accent that follows. People and most programs write the first
form, and macOS gives files names of the second.
"""

import unicodedata
from collections.abc import Collection


def find_name(name: str, known: Collection[str]) -> str | None:
    """Return the name among those `known` that is this name, or else the first that looks the same; None for none."""
    if name in known or name.isascii():
        return name if name in known else None
    composed = compose_name(name)
    return min((one for one in known if compose_name(one) == composed), default=None)


def compose_name(name: str) -> str:
    """Return a name with composed characters: all names that look the same are equal then."""
    return unicodedata.normalize("NFC", name)
