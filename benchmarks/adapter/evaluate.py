"""Count how many plans have the right structure, with the adapter and without, as the product asks for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.adapter.base import messages_of
from benchmarks.adapter.structure import ROLES, StepStructure, Structure, structure_of
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.frontdoor.compact import Part, PlanFlaw, PlanStream, plan_schema
from registry.options import Adapters, Lora

TUNING: Final = Path(__file__).parents[1] / "real" / "tuning.yaml"
MAX_TOKENS: Final = 400


@dataclass(frozen=True, slots=True)
class Question:
    """A request and the structures that are right for it."""

    request: str
    files: tuple[str, ...]
    right: tuple[Structure, ...]
    strict: bool = True
    """Whether outputs count that only the plan names, and whether it is the coder that does a step."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a model has made of some requests."""

    right: int
    """How many plans have a right structure."""
    valid: int
    """How many are plans at all: read, and accepted by the product."""
    wrong: tuple[tuple[str, str], ...]
    """The requests whose plans are wrong, and the plans."""


def read_questions(file: Path = TUNING) -> list[Question]:
    """Return the requests of a file of benchmarks/real."""
    return [
        Question(
            entry["request"],
            tuple(entry["files"]),
            tuple(structure_of(entry["files"], [_part(part) for part in parts]) for parts in entry["right"]),
            strict=False,
        )
        for entry in yaml.safe_load(file.read_text("utf-8"))
    ]


def _part(right: dict[str, Any]) -> Part:
    """Return a part with the structure that a file of benchmarks/real describes."""
    fields = {key: value for key, value in right.items() if key != "code"}
    action = "Do it for {each}." if "each" in fields else "Do it."
    return Part(role=ROLES[bool(right.get("code"))], action=action, **fields)


def is_right(question: Question, parts: Sequence[Part]) -> bool:
    """Return whether a plan has one of the structures that are right. Raises PlanFlaw for a plan that is none."""
    found = structure_of(question.files, parts)
    if question.strict:
        return found in question.right
    return any(_agrees(right, found) for right in question.right)


def _agrees(right: Structure, found: Structure) -> bool:
    """Return whether a structure has all that the right one asks for. Other outputs and coders do not count."""
    if len(right) != len(found):
        return False
    named = [next(iter(steps)).output for steps in right]
    coded = [any(step.code for step in steps) for steps in right]
    return right == tuple(
        frozenset(
            StepStructure(
                step.reads, step.code and code, step.foreach, step.output if output is not None else None, step.replan
            )
            for step in steps
        )
        for steps, output, code in zip(found, named, coded, strict=True)
    )


def read_plan(text: str) -> list[Part]:
    """Return the parts of a plan. Raises PlanFlaw."""
    stream = PlanStream()
    parts = stream.feed(text)
    stream.finish()
    return parts


async def evaluate(model: Path, adapter: Path | None, questions: Sequence[Question], threads: int = 2) -> Outcome:
    """Ask a model for the plans, with a grammar as the product does, and return what came of it."""
    lora: Adapters = () if adapter is None else (Lora(str(adapter)),)
    spec = EngineSpec(file=str(model), context=2048, slots=4, threads=threads, adapters=tuple(one.file for one in lora))
    schema = plan_schema(ROLES, replan=True)

    async with await Engine.start(spec) as engine:
        running = asyncio.Semaphore(2 * spec.slots)

        async def ask(question: Question) -> str:
            messages = messages_of(question.request, question.files)
            request = Generation(messages=messages, schema=schema, max_tokens=MAX_TOKENS, lora=lora)
            async with running:
                return (await engine.generate(request)).text

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(question)) for question in questions]
    right = valid = 0
    wrong = []
    for question, task in zip(questions, tasks, strict=True):
        try:
            correct = is_right(question, read_plan(task.result()))
            valid += 1
        except PlanFlaw:
            correct = False
        right += correct
        if not correct:
            wrong.append((question.request, task.result()))
    return Outcome(right, valid, tuple(wrong))
