"""All drafting methods. A new one is a file here, a row in `DRAFTERS`, and its option in `registry/options.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.speculation.controller import Acceptance, AcceptancePrior
from orchestrator.engine.speculation.draft_model import load_draft_model
from orchestrator.engine.speculation.drafter import Beat, Drafter
from orchestrator.engine.speculation.heads import load_eagle, load_mtp
from orchestrator.engine.speculation.prompt_lookup import PromptLookupDrafter


@dataclass(frozen=True, slots=True)
class DrafterRow:
    option: str  # of `LoadOptions`, that turns it on
    load: Callable[[EngineSpec, Llama, Beat], Drafter]  # raises CannotLoad, CannotDraft
    prior: AcceptancePrior


# In the order in which they are asked: the first that offers a token drafts.
DRAFTERS: Final[Mapping[str, DrafterRow]] = {
    "lookup": DrafterRow("prompt_lookup", PromptLookupDrafter, AcceptancePrior(rate=0.5, memory=16, weight=4.0)),
    "mtp": DrafterRow("mtp", load_mtp, AcceptancePrior(rate=0.7, memory=128, weight=16.0)),
    "eagle": DrafterRow("eagle", load_eagle, AcceptancePrior(rate=0.7, memory=128, weight=16.0)),
    "draft": DrafterRow("speculation", load_draft_model, AcceptancePrior(rate=0.7, memory=128, weight=16.0)),
}


def model_acceptance() -> dict[str, Acceptance]:
    """Return a model's estimates by drafter."""
    return {name: row.prior.of_model() for name, row in DRAFTERS.items()}


def sequence_acceptance(model: Mapping[str, Acceptance]) -> dict[str, Acceptance]:
    """Return the estimates for a new sequence. Its observations also update those of the model."""
    return {name: DRAFTERS[name].prior.of_sequence(estimate) for name, estimate in model.items()}
