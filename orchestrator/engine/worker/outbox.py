"""Collect what an engine has to say in a step, and send it in one piece."""

import time

from orchestrator.engine import protocol
from orchestrator.engine.errors import EngineError, told
from orchestrator.engine.worker.link import Link

_TEXT_SECONDS = 0.02
"""Text is sent at most so often: to send and to receive takes both processes longer than to make a token's text."""


class Outbox:
    """Replies that wait to be sent over a link, and the texts that are sent before them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._texts: dict[int, str] = {}
        self._texts_due = 0.0
        self._replies: list[protocol.Reply] = []

    def add(self, reply: protocol.Reply) -> None:
        """Send a reply with the next `flush`."""
        self._replies.append(reply)

    def say(self, number: int, text: str) -> None:
        """Send text of a sequence when it is time for texts, and before any reply."""
        self._texts[number] = self._texts.get(number, "") + text

    def refuse(self, number: int, error: EngineError) -> None:
        """Say that a request came to nothing, and why."""
        self.add(protocol.Failed(number, *told(error)))

    def flush(self) -> None:
        """Send what there is to say. A text waits for its turn, but for no longer than its sequence."""
        if self._texts and (self._replies or time.monotonic() >= self._texts_due):
            self._replies.insert(0, protocol.Texts(list(self._texts.items())))
            self._texts.clear()
            self._texts_due = time.monotonic() + _TEXT_SECONDS
        if self._replies:
            self._link.send(self._replies)
            self._replies = []
