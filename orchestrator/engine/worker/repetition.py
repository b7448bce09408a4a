"""Notice a text that only repeats itself, and find out whether its grammar allows anything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.engine.llama import Grammar, Tokens, Vocabulary, as_tokens
from orchestrator.engine.worker.text import TextStream

LOOP_TOKENS: Final = 256  # this many tokens have to repeat a cycle before a text counts as repeating itself
LOOP_PERIOD: Final = 32  # the most tokens of a cycle, and after how many tokens it is looked for
_QUOTE, _COMMA, _ESCAPE = b'",\\'
_OPENERS, _CLOSERS = frozenset(b"[{"), frozenset(b"]}")


def cycle_length(output: Sequence[int]) -> int:
    """Return the length of the cycle, at most 32 tokens, that the last 256 tokens repeat; 0 if there is none."""
    if len(output) < LOOP_TOKENS:
        return 0
    tail = np.asarray(output[-LOOP_TOKENS:])
    periods = range(1, LOOP_PERIOD + 1)
    return next((period for period in periods if bool((tail[period:] == tail[:-period]).all())), 0)


class SingleBytes:
    """Follows a grammar byte by byte. `tokens` has one for each byte, -1 if there is none, and then the end tokens."""

    def __init__(self, vocab: Vocabulary) -> None:
        of_byte = {piece[0]: token for token in range(vocab.size) if len(piece := vocab.piece(token)) == 1}
        self.tokens: Tokens = as_tokens([*(of_byte.get(byte, -1) for byte in range(256)), *sorted(vocab.end)])

    def allowed(self, grammar: Grammar) -> tuple[frozenset[int], bool]:
        """Return the bytes that the grammar allows next, and whether the text may end."""
        allowed = grammar.allows_each(self.tokens)
        return frozenset(np.flatnonzero(allowed[:256]).tolist()), bool(allowed[256:].any())


@dataclass(slots=True)
class _JsonPlace:
    depth: int = 0
    in_string: bool = False
    escaped: bool = False  # after a backslash in a string

    def advance(self, byte: int) -> None:
        if self.in_string:
            self.in_string = self.escaped or byte != _QUOTE
            self.escaped = byte == _ESCAPE and not self.escaped
        elif byte == _QUOTE:
            self.in_string = True
        else:
            self.depth += (byte in _OPENERS) - (byte in _CLOSERS)


class RepetitionGuard:
    """Ends a text that repeats itself although its grammar allows something else.

    `is_json` says whether the grammar was made from a JSON Schema.
    """

    def __init__(self, vocab: Vocabulary, single: SingleBytes, *, is_json: bool) -> None:
        self._vocab = vocab
        self._single = single
        self._is_json = is_json

    def ends(self, output: Sequence[int], grammar: Grammar, text: TextStream) -> bool:
        """Return whether the tokens `output`, which make `text`, should end. It checks only every 32 tokens."""
        period = 0 if len(output) % LOOP_PERIOD else cycle_length(output)
        if not period:
            return False
        cycle = b"".join(map(self._vocab.piece, output[-period:]))  # control tokens count as no text
        return has_exit(grammar, self._single, cycle, text.whole if self._is_json else None)


def has_exit(grammar: Grammar, single: SingleBytes, cycle: bytes, before: bytes | None) -> bool:
    """Return whether the grammar lets a text end its repetition of `cycle`, which comes next once more.

    `before` is the text so far if it is JSON, otherwise None. The grammar's state does not change.
    """
    # In JSON, only the end of the string, number, or innermost list or object around all of the repetition is an
    # exit. A list that needs a thousand items has none before its last item. In other texts, anything but the
    # repetition is an exit.
    place = _JsonPlace()
    for byte in before or b"":
        place.advance(byte)
    places: list[tuple[_JsonPlace, frozenset[int], bool]] = []
    walker = grammar.clone()
    try:
        for byte in cycle:
            token = int(single.tokens[byte])
            allowed, may_end = single.allowed(walker)
            if token < 0:
                return True  # it cannot be followed
            if byte not in allowed:
                return False  # the grammar itself ends the repetition
            if before is None and (may_end or len(allowed) > 1):
                return True
            places.append((_JsonPlace(place.depth, place.in_string, place.escaped), allowed, may_end))
            walker.accept(token)
            place.advance(byte)
    finally:
        walker.close()
    return before is not None and _leaves_json(places, has_comma=_has_comma(places, cycle))


def _has_comma(places: Sequence[tuple[_JsonPlace, frozenset[int], bool]], cycle: bytes) -> bool:
    return any(byte == _COMMA and not place.in_string for (place, _, _), byte in zip(places, cycle, strict=True))


def _leaves_json(places: Sequence[tuple[_JsonPlace, frozenset[int], bool]], *, has_comma: bool) -> bool:
    outside = [entry for entry in places if not entry[0].in_string]
    if not outside:
        return any(_QUOTE in allowed and not place.escaped for place, allowed, _ in places)
    lowest = min(place.depth for place, _, _ in outside)
    exits = _CLOSERS if has_comma else _CLOSERS | {_COMMA}
    return any(place.depth == lowest and (may_end or exits & allowed) for place, allowed, may_end in outside)
