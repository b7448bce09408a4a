"""Route chats, and journal each choice and how each answer ended.

No answer waits for the journal: these events are written with its next group.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.errors import EngineError
from orchestrator.errors import OrchestratorError
from orchestrator.pool.errors import PoolError
from orchestrator.run.journal.chats import MAX_OBJECTIVE_LENGTH, ChatAnswered, ChatFinish, ChatRouted
from orchestrator.run.journal.journal import Journal, prompt_digests
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.routing import Decision
from orchestrator.run.state_folder import Clock
from orchestrator.run.steps.attempt import map_error
from orchestrator.task.events import FailureKind, Usage

# Takes a complete answer, and what is wrong with its form (empty if nothing is).
EndAnswer = Callable[[Completion, str], None]


async def route_chat(
    orchestrator: Orchestrator,
    chat: str,
    objective: str,
    persona: str | None = None,
    model: str | None = None,
    owner: str = "",
) -> "RoutedChat":
    """Let the router choose who answers a chat; the decision may have a `problem`.

    The router starts from the role that answers whole requests. `chat` is the id of the response, `objective` the last
    message of the user, `persona` the requested one, `model` the forced one, and `owner` the key of the caller. The
    registry must have a role that does steps.
    """
    registry = orchestrator.registry
    usual_role = registry.answering_roles[0]
    decision = await orchestrator.choose(usual_role, objective, persona, model)
    routed = ChatRouted(
        at=orchestrator.clock.now(),
        chat=chat,
        objective=objective[:MAX_OBJECTIVE_LENGTH],
        asked_role=usual_role,
        asked_persona=persona,
        role=decision.role,
        persona=decision.persona,
        model=decision.model,
        reason=decision.reason,
        propensity=decision.propensity,
        unforced=decision.unforced,
        candidates=decision.candidates,
        router=decision.router,
        thinking=decision.thinking,
        advice=decision.advice,
        resident=tuple(sorted(orchestrator.pool.resident)),
        prompts=prompt_digests(registry, decision.role, decision.persona, decision.model),
        owner=owner,
    )
    return RoutedChat(orchestrator.journal, orchestrator.clock, decision, routed)


class RoutedChat:
    """A chat, and the router's `decision` who answers it."""

    def __init__(self, journal: Journal, clock: Clock, decision: Decision, routed: ChatRouted) -> None:
        self.decision = decision
        self._clock = clock
        self._journal = journal
        self._routed = routed
        self._begun = False

    @contextmanager
    def answering(self, answer: int) -> Iterator[EndAnswer]:
        """Return a context manager in which answer number `answer` is made; it journals how that ends.

        The block gets a function to which it passes the complete answer. If an error or a cancellation ends the block,
        that is journaled.
        """
        if not self._begun:
            self._begun = True
            self._journal.note_chat_event(self._routed)  # the choice, before the first answer
        loop = asyncio.get_running_loop()
        begun, ended = loop.time(), False

        def note(
            finish: ChatFinish, failure: FailureKind | None = None, message: str = "", usage: Usage | None = None
        ) -> None:
            nonlocal ended
            ended = True
            self._journal.note_chat_event(
                ChatAnswered(
                    at=self._clock.now(),
                    chat=self._routed.chat,
                    answer=answer,
                    finish=finish,
                    failure=failure,
                    message=message,
                    usage=usage or Usage(),
                    seconds=loop.time() - begun,
                )
            )

        def end(completion: Completion, mismatch: str) -> None:
            note(completion.finish, FailureKind.SCHEMA if mismatch else None, mismatch, completion.usage)

        try:
            yield end
        except asyncio.CancelledError:
            if not ended:
                note("cancelled")
            raise
        except OrchestratorError as error:
            note("failed", _failure_kind(error), str(error))
            raise
        except Exception as error:
            note("failed", FailureKind.INFRASTRUCTURE, f"a defect: {error!r}")
            raise


def _failure_kind(error: OrchestratorError) -> FailureKind:
    return map_error(error).kind if isinstance(error, EngineError | PoolError) else FailureKind.INFRASTRUCTURE
