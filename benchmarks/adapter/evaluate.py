"""Count how many plans have the right structure: with the adapter, with the prompt that ships, and with neither."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.adapter.base import MODEL, SYSTEM
from benchmarks.adapter.plans import PlanExample
from benchmarks.adapter.structure import CODER
from orchestrator.bench.real.measure import AT_ONCE, ModelResults, Say, measure
from orchestrator.bench.real.requests import RealRequest, RightPart
from orchestrator.registry.load import load_registry
from orchestrator.run.frontdoor.compact import Part

BARE_TOKENS: Final = 256  # the longest plan of the bare model: without an end of its own, it writes as long as it may
BARE_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSetup:
    """How the model is set up as the frontdoor. The grammar is always that of the product."""

    about: str
    system: str | None = None  # the system prompt; None for the one that ships, with its worked examples
    adapters: tuple[Path, ...] = ()
    by_cores: bool = False  # whether it is told how many cores the machine has
    at_once: int = AT_ONCE
    # The most tokens of a plan, which is then asked for only once; None for what the product does.
    once: int | None = None


SHIPPED: Final = PlanningSetup(about="with the prompt that ships, asked as the product asks")
BARE: Final = PlanningSetup(
    about=f"with the one sentence that the adapter is trained with, and without the adapter; at most {BARE_TOKENS} "
    f"tokens a plan, which is asked for once only, and {BARE_AT_ONCE} requests at a time, as some plans find no end",
    system=SYSTEM,
    at_once=BARE_AT_ONCE,
    once=BARE_TOKENS,
)


def adapted(*adapters: Path, by_cores: bool = False) -> PlanningSetup:
    """Return the setup with the adapters in these files, and with the prompt that they are trained with."""
    about = f"with the adapter{'s' if len(adapters) > 1 else ''}, asked as the product asks"
    return PlanningSetup(about=about, system=SYSTEM, adapters=adapters, by_cores=by_cores)


def as_request(example: PlanExample) -> RealRequest:
    """Return a generated example as a request of orchestrator.bench.real, of which only the generated plan is right."""
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


async def evaluate(
    model: Path, setup: PlanningSetup, requests: Sequence[RealRequest], say: Say, name: str = MODEL
) -> ModelResults:
    """Have the requests planned by the model in this file. `name` is what the registry calls it."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-adapter-") as folder:
        registry = Path(folder) / "registry.yaml"
        registry.write_text(json.dumps(registry_form(model, setup, name)), "utf-8")  # JSON is YAML
        loaded, logs = load_registry(registry), Path(folder)
        return await measure(loaded, name, requests, (), logs, say, at_once=setup.at_once, once=setup.once)


def registry_form(model: Path, setup: PlanningSetup, name: str = MODEL) -> dict[str, Any]:
    """Return a registry in which the frontdoor is set up so."""
    frontdoor: dict[str, Any] = {"model": name, "plans_by_cores": setup.by_cores}
    if setup.system is not None:
        frontdoor["system"] = setup.system
    if setup.adapters:
        frontdoor["lora"] = [{"file": str(adapter.resolve())} for adapter in setup.adapters]
    return {
        "models": {name: {"file": str(model), "context": 2048, "slots": setup.at_once}},
        "roles": {"frontdoor": frontdoor, "worker": {"model": name}, CODER: {"model": name}},
    }
