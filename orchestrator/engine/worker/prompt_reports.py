"""Report how long requests wait in the queue and how far their prompts are read, as often as people can follow."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from orchestrator.engine.protocol import Prompts

REPORT_SECONDS: Final = 0.25
"""The least time between two reports of a request, in seconds."""
LONG_PROMPT: Final = 64
"""Prompts with fewer tokens to compute are not reported: they are read before anybody could follow."""


class PendingPrompt(NamedTuple):
    """A request that has no text yet."""

    number: int
    computed: int
    """Tokens of the prompt that are computed."""
    total: int
    """Tokens of the prompt."""


class PromptReports:
    """Remembers what was reported of each request."""

    def __init__(self) -> None:
        self._queued: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._due = 0.0

    def changes(self, queue: Iterable[tuple[int, int]], reading: Iterable[PendingPrompt], now: float) -> Prompts | None:
        """Return what has changed for requests in the queue and for prompts that are read; None if nothing has.

        `queue` has pairs of a request's number and how many others are ahead of it; `now` is in seconds.
        What was never reported of a request is reported at once, and other changes when the time has come for them.
        """
        places = dict(queue)
        prompts = {each.number: each for each in reading if each.number in self._read or _is_long(each)}
        due = now >= self._due
        queued = [(n, ahead) for n, ahead in places.items() if _is_news(self._queued, n, ahead, due=due)]
        read = [(n, p.computed, p.total) for n, p in prompts.items() if _is_news(self._read, n, p.computed, due=due)]
        self._queued = {n: ahead for n, ahead in self._queued.items() if n in places} | dict(queued)
        self._read = {n: tokens for n, tokens in self._read.items() if n in prompts} | {n: done for n, done, _ in read}
        if not queued and not read:
            return None
        self._due = now + REPORT_SECONDS
        return Prompts(queued, read)


def _is_long(prompt: PendingPrompt) -> bool:
    return prompt.total - prompt.computed >= LONG_PROMPT


def _is_news(reported: dict[int, int], number: int, value: int, *, due: bool) -> bool:
    return number not in reported or (due and reported[number] != value)
