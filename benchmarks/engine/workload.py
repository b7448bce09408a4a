"""Make the loads of a cell from seeds: the same prompts for every system, and new ones in every round. Pure."""

import random
from dataclasses import replace
from itertools import takewhile

from benchmarks.engine.cells import Cell, State, TurnCell
from benchmarks.engine.chain import Next, walk
from benchmarks.engine.system import BenchmarkPrompt, RequestLoad, Tokens
from benchmarks.engine.words import COUNT, FIRST, text_of
from orchestrator.engine.contract import Message

WRONG_WORDS = 0.05  # the share of words in which a text to be copied differs from the copy
# The share of the answer's words that occur in the prompt of a free task and are followed by a wrong word there.
DECOYS = 0.2


def loads(cell: Cell, following: Next, number: int) -> dict[State, RequestLoad]:
    """Return the loads of round `number`, with the same prefix in all states."""
    rng = _seeded(cell, number)
    prefix = _words(rng, cell.prefix)
    return {state: _load(cell, following, prefix, rng) for state in cell.states}


def turn_loads(cell: TurnCell, following: Next, number: int) -> tuple[RequestLoad, RequestLoad]:
    """Return the first and the second turn of round `number`."""
    rng = _seeded(cell, number)
    first, second = _words(rng, cell.own), _words(rng, cell.question)
    answers = tuple(walk(following, question[-1], cell.answer) for question in (first, second))
    before = worded((), first)
    messages = (
        *before.messages,
        Message("assistant", text_of(answers[0])),
        Message("user", text_of(second)),
    )
    tokens = first + answers[0] + second
    prompts = (before, BenchmarkPrompt(messages, text_of(tokens), tokens))
    first_turn, second_turn = (
        RequestLoad(prompts=(prompt,), answer=cell.answer, texts=(text_of(answer),))
        for prompt, answer in zip(prompts, answers, strict=True)
    )
    return first_turn, second_turn


def task_loads(cell: Cell, following: Next, number: int) -> tuple[RequestLoad, RequestLoad]:
    """Return the load that computes the prompts of round `number` of a cell with a task, and the load of the round."""
    load = task_load(cell, following, number)
    return replace(load, answer=1, texts=None), load


def task_load(cell: Cell, following: Next, number: int) -> RequestLoad:
    """Return the load of round `number` of a cell with a task."""
    rng = _seeded(cell, number)
    copying = cell.task == "copy"
    prompts = [
        copy_prompt(following, rng, cell.own) if copying else free_prompt(following, rng, cell.own, cell.answer)
        for _ in range(cell.width)
    ]
    texts = tuple(text_of(walk(following, tokens[-1], cell.answer)) for tokens in prompts)
    return RequestLoad(prompts=tuple(worded((), tokens) for tokens in prompts), answer=cell.answer, texts=texts)


def copy_prompt(following: Next, rng: random.Random, length: int) -> Tokens:
    """Return a prompt that contains the `length` - 2 words of the answer, some of them replaced.

    It begins and ends with the word that the answer follows.
    """
    (start,) = _words(rng, 1)
    text = [start, *walk(following, start, length - 2)]
    for index in rng.sample(range(3, len(text)), round(WRONG_WORDS * len(text))):
        text[index] = _other(rng, text[index])
    return (*text, start)


def free_prompt(following: Next, rng: random.Random, length: int, answer: int) -> Tokens:
    """Return a prompt that contains nothing of the answer, except for pairs of words that a wrong word follows."""
    (start,) = _words(rng, 1)
    text = (start, *walk(following, start, answer))
    indices = sorted(rng.sample(range(answer - 1), round(DECOYS * answer)))
    wrong = _words_not_in(text, rng, len(indices) + max(0, length - 1 - 3 * len(indices)))
    decoys = [word for index, other in zip(indices, wrong, strict=False) for word in (*text[index : index + 2], other)]
    return (*wrong[len(indices) :], *decoys[: length - 1], start)


def worded(prefix: Tokens, own: Tokens) -> BenchmarkPrompt:
    """Return a prompt of words: a system message if there is a prefix, and a user message."""
    messages = (Message("system", text_of(prefix)), Message("user", text_of(own)))
    return BenchmarkPrompt(messages if prefix else messages[1:], text_of(prefix + own), prefix + own)


def common(prompts: tuple[Tokens, ...]) -> int:
    """Return the length of the prefix that all prompts share, less than the shortest prompt; 0 for a single one."""
    if len(prompts) < 2:
        return 0
    same = takewhile(lambda column: len(set(column)) == 1, zip(*prompts, strict=False))
    return min(sum(1 for _ in same), min(map(len, prompts)) - 1)


def _load(cell: Cell, following: Next, prefix: Tokens, rng: random.Random) -> RequestLoad:
    owns = [_words(rng, cell.own) for _ in range(cell.width)]
    return RequestLoad(
        prompts=tuple(worded(prefix, own) for own in owns),
        answer=cell.answer,
        shared=cell.prefix,
        texts=tuple(text_of(walk(following, own[-1], cell.answer)) for own in owns),
    )


def _words(rng: random.Random, count: int) -> Tokens:
    return tuple(rng.choices(range(FIRST, FIRST + COUNT), k=count))


def _words_not_in(text: Tokens, rng: random.Random, count: int) -> Tokens:
    """Return random words that do not occur in the text."""
    others = sorted(set(range(FIRST, FIRST + COUNT)).difference(text))
    return tuple(rng.choices(others, k=count))


def _other(rng: random.Random, token: int) -> int:
    """Return a word that is not `token`."""
    return FIRST + (token - FIRST + rng.randrange(1, COUNT)) % COUNT


def _seeded(cell: Cell, number: int) -> random.Random:
    return random.Random(f"{cell.name}/{number}")  # noqa: S311 (prompts, no secrets)
