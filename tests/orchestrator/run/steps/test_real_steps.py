"""Attempts on the models that ship with the project."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.pool.machine import Topology
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.steps.attempt import Attempt, AttemptError
from orchestrator.run.steps.generate import GenerateRunner
from orchestrator.run.steps.role import StepInput
from orchestrator.task.events import FailureKind, Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import attempt_of

RECORD = StepInput("koldin.txt", "name: Koldin\nowner: Hillem\nlength: 187\nspeed: 52")
SHORT: dict[str, Any] = {"type": "string", "maxLength": 20}
FACTS = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "speed": {"type": "integer"}},
    "required": ["name", "speed"],
    "additionalProperties": False,
}


run = GenerateRunner().run


def pool_at(folder: Path) -> Pool:
    # One thread: on cores that others use too, two of them mostly wait for each other.
    return Pool(load_registry(find_registry(None)), folder, topology=Topology.flat(1, 1 << 40))


def attempt(action: str, *inputs: StepInput, outputs: tuple[str, ...] = ("o.txt",), **step: Any) -> Attempt:
    made = Step(id="S1", actor="worker", action=action, outputs=outputs, **step)
    return attempt_of(made, model="tiny-large", inputs=inputs, context=2048, max_tokens=400)


async def test_text_and_json_side_by_side(tmp_path: Path) -> None:
    pieces: list[str] = []
    async with pool_at(tmp_path) as pool:
        models = pool
        text, data, both = await asyncio.gather(
            run(attempt("Summarize koldin.txt.", RECORD), models, on_text=pieces.append),
            run(attempt("Extract name and speed from koldin.txt.", RECORD, output_schema=FACTS), models),
            run(attempt("Summarize koldin.txt.", RECORD, outputs=("a", "b"), output_schema=SHORT), models),
        )
    summary = text.outputs["o.txt"].decode()
    assert "".join(pieces).strip() == summary
    assert "Koldin" in summary
    assert text.usage.prompt_tokens > 20
    assert json.loads(data.outputs["o.txt"]).keys() == {"name", "speed"}
    assert set(both.outputs) == {"a", "b"}
    assert all(len(json.loads(data)) <= SHORT["maxLength"] for data in both.outputs.values())


async def test_prompt_that_does_not_fit_is_refused_with_its_tokens(tmp_path: Path) -> None:
    long = StepInput("long.txt", "The owner is Hillem. " * 2000)
    async with pool_at(tmp_path) as pool:
        models = pool
        with pytest.raises(AttemptError, match="one sequence of this model may have 2048 tokens") as caught:
            await run(attempt("Summarize long.txt.", long), models)
    assert caught.value.failure.kind is FailureKind.RESOURCE
    assert caught.value.failure.final


async def test_killed_engine_fails_the_attempt_and_serves_the_next(tmp_path: Path) -> None:
    endless = {"type": "array", "items": {"type": "integer"}, "minItems": 250}
    async with pool_at(tmp_path) as pool:
        models = pool

        def kill(_: str) -> None:
            pid = next(model.pid for model in pool.snapshot().models if model.model == "tiny-large")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

        with pytest.raises(AttemptError, match="SIGKILL") as caught:
            await run(attempt("List numbers.", output_schema=endless), models, on_text=kill)
        assert caught.value.failure.kind is FailureKind.INFRASTRUCTURE
        assert not caught.value.failure.final
        again = await run(attempt("Summarize koldin.txt.", RECORD), models)
    assert again.outputs["o.txt"]


async def test_answer_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    endless = {"type": "array", "items": {"type": "integer"}, "minItems": 250}
    async with pool_at(tmp_path) as pool:
        models = pool
        await run(attempt("Summarize koldin.txt.", RECORD), models)  # loaded: the time is the answer's alone
        seen: list[Usage] = []
        late = attempt("List numbers.", output_schema=endless, timeout_seconds=0.02)
        with pytest.raises(AttemptError, match="no answer in time") as caught:
            await run(late, models, seen.append)
    assert caught.value.failure.kind is FailureKind.TIMEOUT
    assert len(seen) == 1, "what it took counts"
