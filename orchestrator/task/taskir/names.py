"""Find names despite different Unicode spellings.

Unicode writes "é" as one character or as "e" plus an accent. Most programs write the first form, macOS file names use
the second.
"""

import unicodedata
from collections.abc import Collection


def find_name(name: str, known: Collection[str]) -> str | None:
    """Return this name from `known`, or else the first that looks the same; None for none."""
    if name in known or name.isascii():
        return name if name in known else None
    composed = compose_name(name)
    return min((candidate for candidate in known if compose_name(candidate) == composed), default=None)


def compose_name(name: str) -> str:
    """Return a name in NFC, so that names that look the same are equal."""
    return unicodedata.normalize("NFC", name)
