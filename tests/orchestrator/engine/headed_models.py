"""Embedded models with heads that draft, trained and random, and requests that such a head is often right about."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.heads.compose import compose, head_file, random_head, read_head
from benchmarks.heads.eagle import EAGLE_LAYERS, eagle_file, random_eagle, write_eagle
from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import SIZES
from orchestrator.bench.families.words import seeded
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, EngineStats, Generation, Message
from orchestrator.registry.options import EagleOptions, MtpOptions

FAMILIES = ("plan", "extract", "code", "summarize")
LARGE = SIZES["large"]
DRAFTED = np.arange(1, LARGE.vocabulary, 2)  # the tokens that the random EAGLE-3 head drafts: every other one


@dataclass(frozen=True)
class Headed:
    """A model, and the options that let it draft with a head that was trained and with a random one."""

    file: Path
    trained: Mapping[str, Any]
    random: Mapping[str, Any]

    def spec(self, options: Mapping[str, Any], **more: Any) -> EngineSpec:
        """Return the settings of an engine with some of the options, or with none to draft nothing."""
        settings = {"context": 512, "threads": 1, "batch_invariant": True, "hung_seconds": 60, "always_draft": True}
        return EngineSpec(**{"file": str(self.file), **settings, **options, **more})


def with_mtp_head(folder: Path) -> Headed:
    """Write the large model with a trained and with a random MTP head."""
    compose(LARGE.shipped, read_head(head_file(LARGE.name)), folder / "trained.gguf")
    compose(LARGE.shipped, random_head(LARGE.width, LARGE.hidden), folder / "random.gguf")
    mtp = MtpOptions()
    return Headed(folder / "trained.gguf", {"mtp": mtp}, {"file": str(folder / "random.gguf"), "mtp": mtp})


def with_eagle_head(folder: Path) -> Headed:
    """Return the large model with its trained EAGLE-3 head, and write a random one."""
    head = random_eagle(LARGE.width, LARGE.hidden, len(DRAFTED))
    write_eagle(LARGE.shipped, head, DRAFTED, EAGLE_LAYERS, folder / "eagle.gguf")
    trained, random = (EagleOptions(str(file)) for file in (eagle_file(LARGE.name), folder / "eagle.gguf"))
    return Headed(LARGE.shipped, {"eagle": trained}, {"eagle": random})


def asks(count: int, **options: Any) -> list[Generation]:
    """Return requests of several families."""
    examples = [corpus.example(seeded(f"mtp/{n}"), "entity", FAMILIES[n % len(FAMILIES)]) for n in range(count)]
    return [
        Generation(
            messages=tuple(Message(message.role, message.content) for message in example.messages),
            **{"max_tokens": 64, **options},
        )
        for example in examples
    ]


async def answered(spec: EngineSpec, requests: list[Generation]) -> tuple[list[str], EngineStats]:
    """Return the texts that an engine answers to requests at once, and its statistics."""
    async with await Engine.start(spec) as engine:
        answers = await asyncio.gather(*map(engine.generate, requests))
        return [answer.text for answer in answers], await engine.stats()
