"""Measure how often greedy text differs from what `batch_invariant` gives: batched, from a shared pool, with drafts.

    python -m benchmarks.divergence [FILE.gguf …]

Without files it takes the embedded models. The reference is each text computed alone with `batch_invariant`. The same
setting with a full batch is a check: it must not differ at all.
"""

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.results import FOLDER, write
from orchestrator.bench.environment import machine, versions
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.registry.options import PromptLookupOptions
from orchestrator.run.steps.role import StepInput, step_messages

_TINY: Final = Path(__file__).parents[1] / "registry" / "tiny"
_SLOTS: Final = 8
_MAX_TOKENS: Final = 96
_SUBJECTS: Final = ("the harbour", "a red bicycle", "the night train", "an old clock", "the north wind", "two sisters")
_ACTIONS: Final = ("Summarize the text.", "List the nouns as JSON.", "Compare the first and the last sentence.")
_LOOKUP: Final = PromptLookupOptions(ngram=3, k=8)
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "batch_invariant, batched": {"batch_invariant": True},
    "batch_invariant, batched, prompt lookup": {
        "batch_invariant": True,
        "prompt_lookup": _LOOKUP,
        "always_draft": True,
    },
    "split cache, batched": {"split": True},
    "common pool, batched": {},
    "common pool, batched, prompt lookup": {"prompt_lookup": _LOOKUP, "always_draft": True},
    "common pool, one slot": {"slots": 1},
    "common pool, one slot, prompt lookup": {"slots": 1, "prompt_lookup": _LOOKUP, "always_draft": True},
}  # the settings of an EngineSpec that are compared, by the name of each combination


@dataclass(frozen=True, slots=True)
class Divergence:
    """How many texts differ from their reference, and where."""

    texts: int
    differing: int
    earliest: int | None  # the smallest index of a character at which a text differs first; None if none differs
    typical: float | None  # the median of these indices

    @property
    def share(self) -> float:
        """The fraction of the texts that differ."""
        return self.differing / self.texts if self.texts else 0.0


def divergence(reference: Sequence[str], texts: Sequence[str]) -> Divergence:
    """Compare each text with its reference. Raises ValueError for unequal numbers of them."""
    firsts = [
        first
        for right, text in zip(reference, texts, strict=True)
        if (first := _first_difference(right, text)) is not None
    ]
    typical = median(firsts) if firsts else None
    return Divergence(len(texts), len(firsts), min(firsts, default=None), typical)


def prompts() -> list[Generation]:
    """Return requests of different lengths, some of which share a prefix, as the steps of a run do."""
    requests = []
    for number, subject in enumerate(_SUBJECTS):
        sentence = f"This is about {subject}, which somebody saw {number + 2} times before noon. "
        for action in _ACTIONS:
            text = StepInput("notes.txt", sentence * (1 + 3 * (number % 3)))
            messages = step_messages("Do the task.", "", [text], action)
            requests.append(Generation(messages=messages, max_tokens=_MAX_TOKENS))
    return requests


async def compare(spec: EngineSpec, requests: Sequence[Generation]) -> dict[str, Divergence]:
    """Return how much the texts of each of `MODES` differ from those of `batch_invariant` with one text at a time.

    A mode changes some settings of `spec`.
    """
    async with await Engine.start(dataclasses.replace(spec, batch_invariant=True)) as engine:
        alone = [(await engine.generate(request)).text for request in requests]
    by_mode = {}
    for mode, settings in MODES.items():
        async with await Engine.start(dataclasses.replace(spec, **settings)) as engine:
            done = await asyncio.gather(*map(engine.generate, requests))
        by_mode[mode] = divergence(alone, [completion.text for completion in done])
    return by_mode


def _first_difference(text: str, other: str) -> int | None:
    return next((at for at, (left, right) in enumerate(zip_longest(text, other)) if left != right), None)


def _spec(file: Path, step_costs: str) -> EngineSpec:
    return EngineSpec(file=str(file), context=1024, slots=_SLOTS, threads=1, step_costs=step_costs, hung_seconds=120.0)


def _rows(model: str, by_mode: Mapping[str, Divergence]) -> list[dict[str, Any]]:
    return [
        {"model": model, "mode": mode, **dataclasses.asdict(result), "share": round(result.share, 4)}
        for mode, result in by_mode.items()
    ]


def main(files: Sequence[str]) -> None:
    """Compare all modes with these models, or with the embedded ones, then print and write the results."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as step_costs:
        for file in map(Path, files) if files else sorted(_TINY.glob("*.gguf")):
            rows += _rows(file.name, asyncio.run(compare(_spec(file, step_costs), prompts())))
    for row in rows:
        typical = "" if row["typical"] is None else f"; first difference typically at character {row['typical']:g}"
        print(f"{row['model']}: {row['mode']}: {row['differing']} of {row['texts']} texts differ{typical}")
    results = {
        "command": "python -m benchmarks.divergence",
        "machine": machine(),
        "versions": versions("llama-cpp-python"),
        "rows": rows,
        "goals": [],
    }
    write(FOLDER / "divergence.json", results)


if __name__ == "__main__":
    main(sys.argv[1:])
