"""Keep conversations of /v1/messages, which Anthropic's API calls threads, so that requests send only what is new.

A thread is a row of answers. Each is kept under its id, with the messages that it answers, the system prompt and the
tools. These two are the same in all of a thread. Two requests may go on with the same answer.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from orchestrator.api.anthropic.answers import MessageAnswer
from orchestrator.api.anthropic.requests import MessagesBody, TurnBody
from orchestrator.api.errors import ThreadFingerprintMismatch, ThreadNotFound
from orchestrator.errors import InputError, Problem
from orchestrator.service.callers import Access
from orchestrator.service.stored_responses import StoredResponse, StoredResponses, UnknownResponse

_SAME = ("system", "tools")
"""The fields of a request that are the same in all of a thread, and need to be in its first request only."""


@dataclass(frozen=True, slots=True)
class Thread:
    """The conversation that a request belongs to."""

    body: MessagesBody
    """The request, with the system prompt and the tools of the thread."""
    earlier: Sequence[TurnBody]
    """The messages before those of the request."""
    _threads: StoredResponses
    _access: Access

    @classmethod
    def of(cls, body: MessagesBody, threads: StoredResponses, access: Access) -> "Thread":
        """Return the conversation that a caller's request begins or continues. It reads files: call it in a thread.

        Raises ThreadNotFound if the answer that the request continues is not kept, or the caller may not see it, and
        InputError if the request names none, or changes what is the same in all of a thread.
        """
        asked = body.thread
        if asked is None or asked.type == "create":
            return cls(body, (), threads, access)
        if (previous := asked.previous_message_id) is None:
            raise InputError(Problem("thread/previous_message_id", "is missing", "the id of an answer of the thread"))
        try:
            kept = threads.load(previous).answer
            earlier = [TurnBody.model_validate(turn) for turn in threads.conversation(previous, access.sees)]
            begun = MessagesBody.model_validate(
                {**body.model_dump(include={"model", "messages", "max_tokens"}), **kept}
            )
        except (UnknownResponse, ValidationError) as error:
            what = f"thread/previous_message_id: no thread is kept that has an answer {previous!r:.80}"
            raise ThreadNotFound(
                f'{what}; accepted: the whole conversation, with thread: {{"type": "create"}}'
            ) from error
        for name in _SAME:
            if (given := getattr(body, name)) is not None and given != getattr(begun, name):
                accepted = f"the one of the thread, or no {name}"
                raise ThreadFingerprintMismatch(Problem(name, "is another than that of the thread", accepted))
        same = {name: getattr(begun, name) for name in _SAME}
        return cls(body.model_copy(update=same), earlier, threads, access)

    async def keep(self, answer: MessageAnswer) -> None:
        """Keep an answer to the request under its id, where the request wants that. Raises JournalError."""
        if (asked := self.body.thread) is None:
            return
        shown = self.body.model_dump(include={"messages", *_SAME}, exclude_none=True)
        given = shown.pop("messages")
        turn = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
        previous = asked.previous_message_id if asked.type == "continue" else None
        stored = StoredResponse(previous, given, {"output": [turn], **shown}, self._access.key)
        await asyncio.to_thread(self._threads.store, answer.id, stored)
