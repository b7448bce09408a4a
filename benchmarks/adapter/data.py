"""Turn generated examples into tokens: the prompt as the product lays it out, and the plan that is the answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from benchmarks.adapter.base import messages_of
from benchmarks.adapter.plans import Example, generate
from orchestrator.frontdoor.compact import plan_text

SEED: Final = 31
UNSEEN_SEED: Final = 1_000_003
LONGEST: Final = 512
"""Examples with more tokens are left out."""
MULTIPLE: Final = 64
"""Batches are padded to a multiple of so many tokens, since each new shape costs seconds the first time."""
POOL: Final = 256
"""So many examples are sorted by length together, so that those of a batch are about equally long."""


@dataclass(frozen=True, slots=True)
class TokenizedExample:
    """The tokens of an example."""

    tokens: list[int]
    """Prompt and answer."""
    prompt: int
    """How many of them are the prompt, on which there is no loss."""


def tokenize(tokenizer: Any, example: Example) -> TokenizedExample:
    """Return the tokens of an example. `tokenizer` is that of `transformers`, with the model's chat template."""
    messages = [{"role": said.role, "content": said.content} for said in messages_of(example.request, example.files)]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer: list[int] = tokenizer(plan_text(example.parts), add_special_tokens=False)["input_ids"]
    return TokenizedExample([*prompt, *answer, tokenizer.eos_token_id], len(prompt))


def batches(tokenizer: Any, seed: int, width: int, skip: int = 0) -> Iterator[list[TokenizedExample]]:
    """Yield batches of about equally long examples without end, each of at most `width` tokens with its padding.

    The first `skip` batches are left out, for a run that goes on.
    """
    examples = (tokenize(tokenizer, example) for example in generate(seed))
    fitting = (example for example in examples if len(example.tokens) <= LONGEST)
    while True:
        pool = sorted(islice(fitting, POOL), key=lambda example: len(example.tokens))
        made = list(_batches(pool, width))
        # The shortest first would be a curriculum that starts anew with every pool.
        order = sorted(range(len(made)), key=lambda index: (index * 7919) % len(made))
        for index in order:
            if skip:
                skip -= 1
            else:
                yield made[index]


def _batches(pool: Sequence[TokenizedExample], width: int) -> Iterator[list[TokenizedExample]]:
    batch: list[TokenizedExample] = []
    for example in pool:
        if batch and padded(len(example.tokens)) * (len(batch) + 1) > width:
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def padded(length: int) -> int:
    """Return how many tokens a row of `length` tokens is padded to."""
    return -(-length // MULTIPLE) * MULTIPLE


def unseen(count: int) -> list[Example]:
    """Return examples of words that are held out from training."""
    return list(islice(generate(UNSEEN_SEED, unseen=True), count))
