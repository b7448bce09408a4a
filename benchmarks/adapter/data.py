"""Turn generated examples into tokens: the prompt as the product lays it out, and the plan that is the answer.

An answer is written as the grammar of listed names wants it (`orchestrator.run.frontdoor.listed`): each part says what
it reads before it says what to do. Examples that this grammar would not allow are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from benchmarks.adapter.base import messages_of
from benchmarks.adapter.plans import PlanExample, generate
from benchmarks.adapter.structure import ROLES
from orchestrator.engine.contract import Message
from orchestrator.run.frontdoor.compact import Part, plan_schema, plan_text
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.run.steps.role import after_flaw, after_parts
from orchestrator.task.taskir.json_text import compact_json

SEED: Final = 31
UNSEEN_SEED: Final = 1_000_003
LONGEST: Final = 256  # Examples with more tokens are left out: they are rare, and each takes the time of two others
# How much a token inside an action counts for the loss. Other tokens of a plan decide its structure, and count 1.
ACTION_WEIGHT: Final = 0.3
# Every plan begins with this. The grammar allows nothing else, so there is no loss on it.
_HEAD: Final = '{"plan":[{"role":"'
# The keys of a part in the order of the grammar of listed names.
_ORDER: Final = ("role", "each", "foreach", "inputs", "action", "output", "replan")
_ACTION: Final = re.compile(r'"action":"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class TokenizedExample:
    """The tokens of an example."""

    tokens: list[int]  # Prompt and answer
    weights: list[float]  # how much the prediction of each token counts for the loss: 0 for those of the prompt


def answer_text(parts: Sequence[Part]) -> str:
    """Return a plan of these parts as the grammar of listed names has a model write it."""
    said = [part.as_json() for part in parts]
    return compact_json({"plan": [{key: part[key] for key in _ORDER if key in part} for part in said]})


def question_text(example: PlanExample) -> str:
    """Return the request of an example; for a repair or the rest of a plan, as the frontdoor asks for that."""
    if example.flaw:
        return after_flaw(example.request, example.flaw)
    if not example.done:
        return example.request
    return after_parts(example.request, plan_text(example.done), f"P{len(example.done)}", example.output)


def is_allowed(example: PlanExample) -> bool:
    """Return whether the grammar of listed names lets a model write the plan of an example."""
    listed, done = Listed.of(example.request, example.files), len(example.done)
    schema = plan_schema(ROLES, least=0 if done else 1, replan=True, listed=listed, done=done)
    return jsonschema_rs.is_valid(schema, {"plan": [part.as_json() for part in example.parts]})


def tokenize(tokenizer: Any, example: PlanExample) -> TokenizedExample:
    """Return the tokens of an example. `tokenizer` is that of `transformers`, with the model's chat template."""
    return tokenize_answer(
        tokenizer, messages_of(question_text(example), example.files), answer_text(example.parts), _weight
    )


def tokenize_answer(
    tokenizer: Any, asked: Sequence[Message], written: str, weight: Callable[[str, int, int], float]
) -> TokenizedExample:
    """Return the tokens of these messages and of the answer to them.

    `weight` says how much a token of the answer counts, given the answer and where in it the token begins and ends.
    """
    messages = [{"role": said.role, "content": said.content} for said in asked]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer = tokenizer(written, add_special_tokens=False, return_offsets_mapping=True)
    weights = [weight(written, *span) for span in answer["offset_mapping"]]
    tokens = [*prompt, *answer["input_ids"], tokenizer.eos_token_id]
    return TokenizedExample(tokens, [*(0.0 for _ in prompt), *weights, 1.0])


def _weight(written: str, start: int, end: int) -> float:
    """Return the weight of the token that writes these characters of a plan."""
    if end <= len(_HEAD):
        return 0.0
    inside = any(match.start(1) <= start and end <= match.end(1) for match in _ACTION.finditer(written))
    return ACTION_WEIGHT if inside else 1.0


def batches(tokenizer: Any, seed: int, width: int, skip: int = 0) -> Iterator[list[TokenizedExample]]:
    """Yield batches of at most `width` tokens without end.

    The first `skip` batches are left out, for a run that continues.
    """
    examples = (tokenize(tokenizer, example) for example in generate(seed) if is_allowed(example))
    return batched((example for example in examples if len(example.tokens) <= LONGEST), width, skip)


def batched(examples: Iterable[TokenizedExample], width: int, skip: int = 0) -> Iterator[list[TokenizedExample]]:
    """Yield batches of at most `width` tokens. The first `skip` are left out."""
    batch: list[TokenizedExample] = []
    for example in examples:
        if batch and sum(len(tokenized.tokens) for tokenized in (*batch, example)) > width:
            if skip:
                skip -= 1
            else:
                yield batch
            batch = []
        batch.append(example)


def common_prefix(batch: Sequence[TokenizedExample]) -> int:
    """Return how many tokens all examples of a batch begin with, fewer than any of their prompts has."""
    first = batch[0].tokens
    most = min(next(index for index, weight in enumerate(tokenized.weights) if weight) for tokenized in batch) - 1
    return next((at for at in range(most) if any(tokenized.tokens[at] != first[at] for tokenized in batch)), most)


def unseen(count: int) -> list[PlanExample]:
    """Return examples of words that are held out from training."""
    made = (
        example
        for example in generate(UNSEEN_SEED, unseen=True)
        if not (example.done or example.flaw) and is_allowed(example)
    )
    return list(islice(made, count))
