"""Report queue positions and the progress of prompts, as often as people can follow."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from orchestrator.engine.protocol import Prompts

REPORT_SECONDS: Final = 0.25  # the least time between two reports of a request
# Prompts with fewer tokens to compute are not reported: they are done before anybody could follow.
LONG_PROMPT: Final = 64


class PendingPrompt(NamedTuple):
    number: int
    computed: int  # prompt tokens that are computed
    total: int  # prompt tokens


class PromptReports:
    """Remembers what was reported about each request."""

    def __init__(self) -> None:
        self._queued: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._due = 0.0

    def changes(self, queue: Iterable[tuple[int, int]], reading: Iterable[PendingPrompt], now: float) -> Prompts | None:
        """Return what has changed for queued requests and prompts in prefill; None if nothing has.

        `queue` has pairs (request number, requests ahead of it). `now` is in seconds.
        """
        places = dict(queue)
        prompts = {prompt.number: prompt for prompt in reading if prompt.number in self._read or _is_long(prompt)}
        due = now >= self._due
        queued = [(n, ahead) for n, ahead in places.items() if _is_news(self._queued, n, ahead, due=due)]
        read = [(n, p.computed, p.total) for n, p in prompts.items() if _is_news(self._read, n, p.computed, due=due)]
        self._queued = {n: ahead for n, ahead in self._queued.items() if n in places} | dict(queued)
        self._read = {n: tokens for n, tokens in self._read.items() if n in prompts} | {
            n: computed for n, computed, _ in read
        }
        if not queued and not read:
            return None
        self._due = now + REPORT_SECONDS
        return Prompts(queued, read)


def _is_long(prompt: PendingPrompt) -> bool:
    return prompt.total - prompt.computed >= LONG_PROMPT


def _is_news(reported: dict[int, int], number: int, value: int, *, due: bool) -> bool:
    return number not in reported or (due and reported[number] != value)
