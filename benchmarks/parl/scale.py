"""Choose how strongly an adapter acts, so that the frontdoor does not unlearn the requests that it is not trained on.

A training rewards plans for its own families of requests. The embedded frontdoor was made for many more kinds, and an
adapter that acts in full spoils some of their plans.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.tiny.evaluate import HELD_OUT, PROMPTS, engine_spec, family_examples, is_right, longest_answer
from orchestrator.bench.families.example import Example
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import Generation, Message
from orchestrator.registry.options import Lora

SCALES: Final = (1.0, 0.8, 0.6, 0.4)
CORES: Final = 16
LOSS: Final = 0.01  # of the share of right plans, which an adapter may cost

RightPlans = Mapping[str, float]
"""The share of right plans, by the split of the held-out requests."""


async def right_plans(model: Path, adapter: Path) -> dict[float, RightPlans]:
    """Return how many plans for all kinds of requests are right, by the adapter's scale; 0 is without it.

    `model` is the embedded frontdoor. Raises EngineError.
    """
    spec = replace(engine_spec(model), adapters=(str(adapter),))
    examples = {split: family_examples("plan", split, PROMPTS) for split in HELD_OUT}
    async with await Engine.start(spec) as engine:
        return {
            scale: {split: await _right(engine, adapter, scale, listed) for split, listed in examples.items()}
            for scale in (0.0, *SCALES)
        }


def greatest_harmless(plans: Mapping[float, RightPlans]) -> float | None:
    """Return the greatest scale that costs at most `LOSS` of the right plans of each split; None if there is none."""
    least = {split: share - LOSS for split, share in plans[0.0].items()}
    harmless = (scale for scale in plans if scale and all(plans[scale][split] >= least[split] for split in least))
    return max(harmless, default=None)


async def _right(engine: Engine, adapter: Path, scale: float, examples: Sequence[Example]) -> float:
    lora = (Lora(file=str(adapter), scale=scale),) if scale else ()

    async def ask(example: Example) -> Completion:
        messages = _told_cores(example) if scale else tuple(example.messages)
        request = Generation(messages=messages, schema=example.schema, max_tokens=longest_answer(example), lora=lora)
        return await engine.generate(request)

    completions = await asyncio.gather(*map(ask, examples))
    right = [is_right("plan", *pair) for pair in zip(examples, completions, strict=True)]
    return sum(right) / len(right)


def _told_cores(example: Example) -> tuple[Message, ...]:
    # as `plan_messages` has it for a frontdoor that plans by cores
    *before, last = example.messages
    files, mark, request = last.content.partition("Request: ")
    return (*before, Message(last.role, f"{files}Cores: {CORES}\n{mark}{request}"))
