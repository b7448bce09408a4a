"""Count how many plans have the right structure, with the adapter and without, as the product asks for them."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.adapter.base import SYSTEM
from benchmarks.adapter.plans import Example
from benchmarks.adapter.structure import CODER
from benchmarks.real.measure import Measured, Say, measure
from benchmarks.real.requests import RealRequest, RightPart
from orchestrator.frontdoor.compact import Part
from registry.load import load_registry

MODEL: Final = "smollm2-135m"
MAX_TOKENS: Final = 400


def as_request(example: Example) -> RealRequest:
    """Return a generated example as a request of benchmarks/real, of which only the generated plan is right."""
    return RealRequest(request=example.request, files=example.files, right=(tuple(map(_right, example.parts)),))


def _right(part: Part) -> RightPart:
    return RightPart(
        code=part.role == CODER,
        each=part.each,
        inputs=part.inputs,
        foreach=part.foreach,
        output=part.output,
        replan=part.replan,
    )


async def evaluate(model: Path, adapter: Path | None, requests: Sequence[RealRequest], say: Say) -> Measured:
    """Have the requests planned by the model with the adapter, or with the prompt that ships if there is none."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-adapter-") as folder:
        registry = Path(folder) / "registry.yaml"
        registry.write_text(json.dumps(registry_form(model, adapter)), "utf-8")  # JSON is YAML
        return await measure(load_registry(registry), MODEL, requests, (), Path(folder), say)


def registry_form(model: Path, adapter: Path | None) -> dict[str, Any]:
    """Return a registry in which the frontdoor has the adapter and the prompt that it is trained with, if any."""
    frontdoor: dict[str, Any] = {"model": MODEL, "max_tokens": MAX_TOKENS}
    if adapter is not None:
        frontdoor |= {"system": SYSTEM, "lora": [{"file": str(adapter.resolve())}]}
    return {
        "models": {MODEL: {"file": str(model), "context": 2048, "slots": 4}},
        "roles": {"frontdoor": frontdoor, "worker": {"model": MODEL}, CODER: {"model": MODEL}},
    }
