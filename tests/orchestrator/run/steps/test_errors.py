import pytest

from orchestrator.engine.errors import BadPrompt, EngineDied, EngineError, ModelLoadFailed, PromptTooLong
from orchestrator.pool.errors import ModelTooLarge, PoolError
from orchestrator.run.steps.attempt import map_error, unusable_input
from orchestrator.task.events import EscalationTarget, FailureKind
from orchestrator.task.failures import EscalationChain, FailedAttempt, GiveUp, Retry, decide

CHAIN_OF_ROLES = EscalationChain({"worker": EscalationTarget("coder", "B1")})


def test_the_log_of_a_dead_engine_is_not_reported() -> None:
    failure = map_error(EngineDied("the engine process was killed by SIGSEGV", log="line 1\nline 2"))
    assert failure.message == "the engine process was killed by SIGSEGV"


@pytest.mark.parametrize(
    "error",
    [
        PromptTooLong(9, 8),
        BadPrompt("no such role"),
        ModelLoadFailed("m.gguf", "missing", "gone"),
        ModelTooLarge("m", "never", wanted=2, budget=1, pinned=0),
    ],
)
def test_what_would_only_happen_again_ends_the_step(error: EngineError | PoolError) -> None:
    assert isinstance(decide(FailedAttempt("worker", map_error(error)), [], CHAIN_OF_ROLES), GiveUp)


def test_input_that_cannot_be_read_ends_the_step() -> None:
    failure = unusable_input("file 'a' is a link").failure
    assert failure.kind is FailureKind.RESOURCE
    assert isinstance(decide(FailedAttempt("worker", failure), [], CHAIN_OF_ROLES), GiveUp)


def test_dead_engine_is_tried_again() -> None:
    assert isinstance(decide(FailedAttempt("worker", map_error(EngineDied("dead"))), [], CHAIN_OF_ROLES), Retry)
