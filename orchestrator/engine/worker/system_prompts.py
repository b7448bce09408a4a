"""Find what all prompts with a system prompt have in common."""

import sys

from orchestrator.engine.contract import Message, SystemPrompt
from orchestrator.engine.errors import BadPrompt
from orchestrator.engine.kv.prefix_tree import common_prefix
from orchestrator.engine.llama import Llama, Tokens
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.registry.options import Adapters

PromptStart = tuple[Adapters, Tokens]  # adapters, in addition to the model's own, and tokens
_LEAST_TOKENS = 32  # computing fewer takes less time than keeping a state


def prompt_starts(
    llama: Llama, template: PromptTemplate, system_prompts: tuple[SystemPrompt, ...]
) -> tuple[PromptStart, ...]:
    """Return the tokens with which prompts start, for a model that can be restored only at the ends that are stored."""
    starts: dict[tuple[Adapters, bytes], Tokens] = {}
    for text, lora, _ in system_prompts if llama.restores_ends else ():
        if not llama.has_adapters(lora):
            continue
        try:
            first, second = (template.tokens((Message("system", text), Message("user", content))) for content in "a1")
        except BadPrompt as error:
            print(f"no state is kept after a system prompt: {error}", file=sys.stderr, flush=True)
            continue
        start = first[: common_prefix(first, second)]
        if _LEAST_TOKENS <= len(start) < llama.context_limit:
            starts[lora, start.tobytes()] = start
    return tuple((lora, tokens) for (lora, _), tokens in starts.items())
