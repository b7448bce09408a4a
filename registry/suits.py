"""Guess from a model's file which role it suits. Pure.

A guess from names and sizes: what a model is really good at, only its results show.
"""

import re
from dataclasses import dataclass
from typing import Final

from registry.checks import why_no_text
from registry.forms import EMBEDDER
from registry.gguf import GgufHeader

DRAFT: Final = "draft"
LARGE: Final = 20 * 10**9
"""Weights from which on a model is one to escalate to."""
_WORDS: Final = {
    EMBEDDER: frozenset({"embed", "embedding", "embeddings", "bge", "gte", "e5"}),
    DRAFT: frozenset({"draft", "drafter"}),
    "coder": frozenset(
        {"code", "coder", "codellama", "codeqwen", "starcoder", "starcoder2", "codestral", "codegemma", "devstral"}
    ),
    "judge": frozenset({"judge", "prometheus"}),
}
TIERS: Final = {"frontdoor": "A", "coder": "B", "architect": "B", "judge": "B", DRAFT: "D", EMBEDDER: "D"}


@dataclass(frozen=True, slots=True)
class Suits:
    """The role that a model suits, None if it suits none, and why."""

    role: str | None
    why: str


def suits(header: GgufHeader, stem: str, *, drafts_for: str | None) -> Suits:
    """Guess the role of a model whose file is named `stem`; `drafts_for` is a larger one with the same vocabulary."""
    words = frozenset(re.findall(r"[a-z]+\d*", f"{stem} {header.name}".lower()))
    named = next((role for role, known in _WORDS.items() if words & known), None)
    if header.pooling == "rank":
        return Suits(None, "it ranks texts, which no role does")
    if (reason := why_no_text(header)) is not None:
        embeds = header.pooling is not None or named == EMBEDDER or "bert" in header.architecture
        return Suits(EMBEDDER if embeds else None, reason)
    if named == EMBEDDER:
        return Suits(EMBEDDER, "its name says that it embeds")
    if drafts_for is not None and named in (None, DRAFT):
        return Suits(DRAFT, f"it is much smaller than {drafts_for} and has the same vocabulary")
    if header.chat_template is None:
        return Suits(None, "without a chat template it goes on with a text rather than answers")
    if named is not None and named != DRAFT:
        return Suits(named, "its name says so")
    if header.parameters >= LARGE:
        return Suits("architect", f"it is large: {header.parameters / 1e9:.0f} B weights")
    return Suits("worker", "it is a general model of no great size")


def tier_of(role: str) -> str:
    """Return the tier of a role by its name."""
    return TIERS.get(role, "C")
