"""A daemon with the model that thinks aloud and calls tools, in both of its syntaxes, and tools for it to call."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.tool_caller.recipe import SHIPPED
from benchmarks.tool_caller.variants import with_template
from tests.orchestrator.api.daemon_process import Running, running_daemon

SYNTAXES: Final = ("hermes", "llama3")
"""The names of the models: the same weights with two chat templates."""
REGISTRY: Final = """
defaults: {{context: 2048, slots: 4, temperature: 0}}
models:
  hermes: {{file: {hermes}, threads: 1, prompts: general}}
  llama3: {{file: {llama3}, threads: 1, prompts: general}}
  {more}
roles:
  worker: {{model: hermes, tier: C, system: Answer the question., max_tokens: 256}}
"""
PRICES: Final = {"quartz": 214, "Bremol": 12}
REQUEST: Final = "Look up the price of quartz, then add 12."
RESULT: Final = "The result is 226."


def get_price(item: str) -> int:
    """Return the price of an item.

    Args:
        item: The item.
    """
    return PRICES[item]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@contextmanager
def tool_calling_daemon(folder: Path, more: str = "") -> Iterator[Running]:
    """Start the daemon, with its files in `folder`, and shut it down at the end of the block.

    `more` is the entry of a further model in its registry.
    """
    registry = folder / "model_registry.yaml"
    llama3 = with_template(SHIPPED, folder / "llama3.gguf", "llama3")
    registry.write_text(REGISTRY.format(hermes=SHIPPED, llama3=llama3, more=more))
    with running_daemon(folder / "home", ORCHESTRATOR_REGISTRY=str(registry)) as running:
        yield running
