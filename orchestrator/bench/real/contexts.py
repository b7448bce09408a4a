"""Parts of requests about several files, which a model does with its own file alone, and with all of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from orchestrator.bench.real.requests import ROLES
from orchestrator.registry.options import StepContext
from orchestrator.registry.strict_yaml import parse_file
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.models import Step

MAX_TOKENS: Final = 96
_STRICT: Final = ConfigDict(extra="forbid")

ContextKind = Literal["part-own", "part-all", "join-own", "join-all"]
# What the steps of a plan do in each context, the one that reads least first.
KINDS: Final[Mapping[StepContext, tuple[ContextKind, ContextKind]]] = {
    "own": ("part-own", "join-own"),
    "sources": ("part-own", "join-all"),
    "shared": ("part-all", "join-all"),
}


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class _Part:
    ask: str
    expect: tuple[str, ...]
    without: tuple[str, ...] = ()
    about: str | None = None


@pydantic_dataclass(config=_STRICT, frozen=True, kw_only=True)
class _Request:
    request: str
    files: dict[str, str]
    parts: tuple[_Part, ...]
    answers: dict[str, str]
    joins: tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class ContextTask:
    """A part of a request, or a join of its parts, with what is read for it. The file contexts.yaml explains both."""

    name: str
    kind: ContextKind
    ask: str
    reads: tuple[StepInput, ...]
    expect: tuple[str, ...]
    without: tuple[str, ...]
    hidden: tuple[StepInput, ...] = ()

    @property
    def step(self) -> Step:
        """The step of the task."""
        names = tuple(read.name for read in self.reads)
        return Step(
            id="S1", actor=ROLES[0], action=self.ask, inputs=names, outputs=("answer.txt",), max_tokens=MAX_TOKENS
        )

    def is_right(self, answer: str) -> bool:
        """Return whether an answer has all that it should have, and nothing of other files."""
        contains = _phrases_in(answer)
        return all(any(map(contains, phrase.split("|"))) for phrase in self.expect) and not any(
            map(contains, self.without)
        )


@cache
def context_tasks() -> tuple[ContextTask, ...]:
    """Return each part and each join twice: with its own sources, and with all files."""
    data = parse_file(Path(__file__).with_name("contexts.yaml")).data
    return tuple(
        task for request in TypeAdapter(tuple[_Request, ...]).validate_python(data) for task in _tasks(request)
    )


def best_context(right: Mapping[ContextKind, int]) -> StepContext:
    """Return the context with most correct answers, given the counts by kind; of equals, the one that reads least."""
    return max(KINDS, key=lambda context: sum(right[kind] for kind in KINDS[context]))


def _tasks(request: _Request) -> Iterator[ContextTask]:
    files, answers = _inputs(request.files), _inputs(request.answers)
    for part in request.parts:
        own = tuple(file for file in files if file.name == part.about)
        yield from _both(part, ("part-own", own), ("part-all", files))
    for join in request.joins:
        yield from _both(join, ("join-own", answers), ("join-all", (*files, *answers)))


def _both(part: _Part, *ways: tuple[ContextKind, tuple[StepInput, ...]]) -> Iterator[ContextTask]:
    for kind, reads in ways:
        yield ContextTask(f"{kind}: {part.ask}", kind, part.ask, reads, part.expect, part.without)


def _inputs(texts: Mapping[str, str]) -> tuple[StepInput, ...]:
    return tuple(StepInput(name, text) for name, text in texts.items())


def _phrases_in(answer: str) -> Callable[[str], bool]:
    """Return what says whether a phrase is in an answer, as whole words and in any case."""
    return lambda phrase: re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", answer.casefold()) is not None
