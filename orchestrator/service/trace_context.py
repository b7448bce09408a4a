"""The span in which a caller submits a run, by the header `traceparent` (https://www.w3.org/TR/trace-context)."""

import re
from dataclasses import dataclass
from typing import Final

# VERSION-TRACE-PARENT-FLAGS; later versions may have more after it.
_HEADER: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1
_MOST_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True)
class ParentSpan:
    trace: int  # id of 128 bits
    span: int  # id of 64 bits
    is_sampled: bool  # whether the caller records its trace


def valid_traceparent(header: str | None) -> str:
    """Return the header, or nothing if it is missing or invalid, which the standard wants to be ignored."""
    return header if header is not None and parent_span(header) is not None else ""


def parent_span(header: str) -> ParentSpan | None:
    match = _HEADER.fullmatch(header) if len(header) <= _MOST_CHARACTERS else None
    if match is None or (match[1] == "00" and match[5]):
        return None
    return ParentSpan(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & _SAMPLED))
