"""The errors of an engine.

EngineError
├── ModelLoadFailed     the model cannot be loaded; `kind` says why
├── BadRequest          the request cannot be carried out: parameters out of range, NaN, too large
│   ├── BadPrompt       messages that the model's chat template refuses
│   ├── BadGrammar      a JSON Schema or a grammar that cannot be enforced; `keyword` names the culprit
│   ├── PromptTooLong   prompt and answer do not fit the context
│   └── TextTooLong     a text to be embedded has more tokens than the model takes, or none
├── AdapterNotLoaded    the request asks for an adapter that was not loaded with the model
├── BrokenModel         the weights give NaN
└── EngineDied          the process ended; every generation in it is lost
    ├── EngineHung      it had work, made no progress and was killed
    ├── MachineLost     its machine was lost: a node of a cluster ended, or did not answer
    ├── NotStarted      the request was still in its queue, so another engine can carry it out
    └── EngineStopped   it ended because it was asked to
"""

from collections.abc import Callable
from typing import Literal

from orchestrator.errors import OrchestratorError

LoadFailure = Literal[
    "missing",
    "unreadable",
    "not-gguf",
    "corrupt",
    "library",
    "architecture",
    "memory",
    "settings",
    "died",
    "hung",
    "lost",  # with its machine
    "place",  # this machine cannot have the model, another one may
]


class EngineError(OrchestratorError):
    """The base class."""


class ModelLoadFailed(EngineError):
    """The process has ended when this is raised. `log` is the end of its log."""

    def __init__(self, file: str, kind: LoadFailure, message: str, *, log: str = "") -> None:
        super().__init__(f"{file}: {message}")
        self.file = file
        self.kind = kind
        self.log = log

    @property
    def passing(self) -> bool:
        """Whether the next load may succeed. Otherwise the file or the settings are at fault."""
        return self.kind in ("died", "hung", "memory", "lost")


class BadRequest(EngineError):
    """No engine of this model can carry the request out."""


class BadPrompt(BadRequest):
    """The model's chat template refuses these messages or raises an error."""


class BadGrammar(BadRequest):
    def __init__(self, message: str, keyword: str | None = None) -> None:
        super().__init__(message)
        self.keyword = keyword


class PromptTooLong(BadRequest):
    """Prompt and answer together exceed `limit`, the most tokens of a sequence.

    With `at_least`, `tokens` is a lower bound.
    """

    def __init__(self, tokens: int, limit: int, max_tokens: int = 0, at_least: bool = False) -> None:
        super().__init__(
            f"the prompt has {'at least ' if at_least else ''}{tokens} tokens and the answer may take {max_tokens}; "
            f"one sequence of this model may have {limit} tokens in all"
        )
        self.tokens = tokens
        self.limit = limit
        self.max_tokens = max_tokens
        self.at_least = at_least  # not counted: fewer tokens cannot make a text that long


class TextTooLong(BadRequest):
    def __init__(self, index: int, tokens: int, limit: int) -> None:
        super().__init__(f"text {index} has {tokens} tokens; one text of this model may have 1 to {limit} tokens")
        self.index = index
        self.tokens = tokens
        self.limit = limit


class AdapterNotLoaded(EngineError):
    """The adapter was not loaded with the model. The registry has changed since, so a new request may succeed."""


class BrokenModel(EngineError):
    """The logits of a sequence were NaN: damaged weights, or arithmetic that overflows."""


class EngineDied(EngineError):
    """The engine's process ended; the message says how.

    `signal` is the name of the signal that ended it; None if it exited. `log` is the end of its log.
    """

    def __init__(self, message: str, *, signal: str | None = None, exit_code: int | None = None, log: str = "") -> None:
        super().__init__(message)
        self.signal = signal
        self.exit_code = exit_code
        self.log = log


class EngineHung(EngineDied):
    """The engine had work, made no progress for too long and was killed."""


class MachineLost(EngineDied):
    """The node of a cluster that ran the engine was lost. Neither the model nor its process is at fault."""


class NotStarted(EngineDied):
    """The engine's process ended before it computed anything of the request."""


class EngineStopped(EngineDied):
    """The engine was stopped during the request or before it."""


def not_started(failure: EngineDied) -> EngineDied:
    """Return what a request raises that had not left the queue when its engine ended with this failure."""
    if isinstance(failure, EngineStopped):
        return failure
    return NotStarted(str(failure), signal=failure.signal, exit_code=failure.exit_code, log=failure.log)


_WITH_NUMBERS: dict[str, Callable[..., EngineError]] = {kind.__name__: kind for kind in (PromptTooLong, TextTooLong)}
_WITH_MESSAGE: dict[str, type[EngineError]] = {
    kind.__name__: kind for kind in (BadRequest, BadPrompt, BadGrammar, AdapterNotLoaded, BrokenModel)
}


def format_error(error: EngineError) -> tuple[str, str, tuple[int, ...]]:
    """Return the fields of `protocol.Failed`: class name, message and numbers.

    The numbers are constructor arguments, for classes that make their message of numbers.
    """
    match error:
        case PromptTooLong():
            numbers: tuple[int, ...] = error.tokens, error.limit, error.max_tokens, int(error.at_least)
        case TextTooLong():
            numbers = error.index, error.tokens, error.limit
        case _:
            numbers = ()
    return type(error).__name__, str(error), numbers


def parse_error(kind: str, message: str, numbers: tuple[int, ...]) -> EngineError:
    """Invert `format_error`. Returns an EngineError for an unknown class."""
    if kind in _WITH_NUMBERS:
        return _WITH_NUMBERS[kind](*numbers)
    return _WITH_MESSAGE.get(kind, EngineError)(message)
