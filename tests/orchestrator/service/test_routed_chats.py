"""How the answers of a routed chat ended is journaled, whatever ended them."""

import asyncio
from pathlib import Path

import pytest

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.errors import EngineDied, PromptTooLong
from orchestrator.run.journal.chats import ChatAnswered
from orchestrator.run.journal.errors import UnknownChat
from orchestrator.run.journal.journal import Journal
from orchestrator.run.routing import Decision
from orchestrator.run.state_folder import SystemClock
from orchestrator.service.chats import RoutedChat
from orchestrator.task.events import FailureKind, Usage
from tests.orchestrator.chat_events import ROUTED

DECISION = Decision(role="coder", persona="terse", model="m", reason="it did so before")
DONE = Completion("a text", "stop", Usage(prompt_tokens=5, output_tokens=2))


def ended(journal: Journal) -> list[ChatAnswered]:
    return [event for _, event in journal.chat_events() if isinstance(event, ChatAnswered)]


async def settle(journal: Journal) -> None:
    """Wait until what was noted is committed, which a later event shows."""
    await journal.append_chat_event(ROUTED)


async def test_the_choice_comes_first_and_then_the_end_of_each_answer(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        chat = RoutedChat(journal, SystemClock(), DECISION, ROUTED)
        with pytest.raises(UnknownChat):
            journal.chat(ROUTED.chat)
        with chat.answering(1) as end:
            end(DONE, "")
        with chat.answering(0) as end:
            end(DONE, "no object")
        await settle(journal)
        assert next(event for _, event in journal.chat_events()) == ROUTED
        good, bad = ended(journal)
        assert (good.answer, good.finish, good.failure, good.usage) == (1, "stop", None, DONE.usage)
        assert (bad.answer, bad.finish, bad.failure, bad.message) == (0, "stop", FailureKind.SCHEMA, "no object")
        assert good.seconds >= 0
        assert good.at > ROUTED.at


@pytest.mark.parametrize(
    ("error", "finish", "failure"),
    [
        (asyncio.CancelledError(), "cancelled", None),
        (EngineDied("the engine has died"), "failed", FailureKind.INFRASTRUCTURE),
        (PromptTooLong(9, 8), "failed", FailureKind.RESOURCE),
        (ZeroDivisionError("a defect"), "failed", FailureKind.INFRASTRUCTURE),
    ],
)
async def test_what_ends_an_answer_is_passed_on(
    tmp_path: Path, error: BaseException, finish: str, failure: FailureKind | None
) -> None:
    with Journal.open(tmp_path) as journal:
        with pytest.raises(type(error)), RoutedChat(journal, SystemClock(), DECISION, ROUTED).answering(0):
            raise error
        await settle(journal)
        (one,) = ended(journal)
        assert (one.finish, one.failure) == (finish, failure)
