"""Store conversations of /v1/messages ("threads" in Anthropic's API), so that requests send only new messages.

A thread is a chain of answers. Each is stored under its id, with the messages that it answers, the system prompt and
the tools. Two requests may continue the same answer.
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

_SAME = ("system", "tools")  # the same in all of a thread; only its first request has to have them


@dataclass(frozen=True, slots=True)
class Thread:
    """The conversation that a request belongs to."""

    body: MessagesBody  # with the system prompt and the tools of the thread
    earlier: Sequence[TurnBody]  # the messages before those of the request
    _threads: StoredResponses
    _access: Access

    @classmethod
    def of(cls, body: MessagesBody, threads: StoredResponses, access: Access) -> "Thread":
        """Return the thread that a request starts or continues. Blocks on the disk.

        Raises ThreadNotFound if the continued answer is not stored or the caller may not see it, and InputError if the
        request names none, or changes the system prompt or the tools.
        """
        options = body.thread
        if options is None or options.type == "create":
            return cls(body, (), threads, access)
        if (previous := options.previous_message_id) is None:
            raise InputError(Problem("thread/previous_message_id", "is missing", "the id of an answer of the thread"))
        try:
            stored = threads.load(previous).answer
            earlier = [TurnBody.model_validate(turn) for turn in threads.conversation(previous, access.sees)]
            first_body = MessagesBody.model_validate(
                {**body.model_dump(include={"model", "messages", "max_tokens"}), **stored}
            )
        except (UnknownResponse, ValidationError) as error:
            problem = f"thread/previous_message_id: no thread is kept that has an answer {previous!r:.80}"
            raise ThreadNotFound(
                f'{problem}; accepted: the whole conversation, with thread: {{"type": "create"}}'
            ) from error
        for name in _SAME:
            if (value := getattr(body, name)) is not None and value != getattr(first_body, name):
                accepted = f"the one of the thread, or no {name}"
                raise ThreadFingerprintMismatch(Problem(name, "is another than that of the thread", accepted))
        same = {name: getattr(first_body, name) for name in _SAME}
        return cls(body.model_copy(update=same), earlier, threads, access)

    async def keep(self, answer: MessageAnswer) -> None:
        """Store an answer under its id if the request asks for that. Raises JournalError."""
        if (options := self.body.thread) is None:
            return
        shown = self.body.model_dump(include={"messages", *_SAME}, exclude_none=True)
        messages = shown.pop("messages")
        turn = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
        previous = options.previous_message_id if options.type == "continue" else None
        stored = StoredResponse(previous, messages, {"output": [turn], **shown}, self._access.key)
        await asyncio.to_thread(self._threads.store, answer.id, stored)
