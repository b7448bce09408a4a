"""Mix the tasks of `families` into batches to train on, with answers of the model itself to other work of the worker.

Without these the adapter would teach the worker to answer everything with a few words.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.adapter.data import TokenizedExample, batched, tokenize_answer
from benchmarks.adapter.families import JudgeCase, extractions, judgements
from orchestrator.bench.real.tasks import RealTask
from orchestrator.engine.contract import Message
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.gates.judge import ACTION
from orchestrator.run.steps.role import StepInput, step_messages

RANK: Final = 8  # Half of the frontdoor's adapter, and so half of its bytes
TOKENS: Final = 80_000
# The kinds of examples and how often each is drawn. `kept` are answers of the model itself.
SHARES: Final = {"extract": 0.6, "judge": 0.25, "kept": 0.15}
LONGEST: Final = 440
_KEY: Final = re.compile(r'"\w+":')


def _system(role: str, tier: str) -> str:
    return prompt_set("general").system(role, tier, {})


def worker_messages(task: RealTask) -> tuple[Message, ...]:
    """Return the messages that ask the worker for a task."""
    return step_messages(_system("worker", "C"), "", task.reads, task.ask)


def judge_messages(case: JudgeCase) -> tuple[Message, ...]:
    """Return the messages with which the gate `judge` asks for an opinion."""
    reads = (*case.task.reads, StepInput("task", case.task.ask), StepInput("answer", case.answer))
    return step_messages(_system("judge", "B"), "", reads, ACTION)


def family_batches(
    tokenizer: Any, seed: int, width: int, skip: int, own_answers: Path
) -> Iterator[list[TokenizedExample]]:
    """Yield batches of at most `width` tokens without end. `own_answers` is the file of the model's own answers."""
    tokenized = (tokenize_answer(tokenizer, *example, _weight) for example in _examples(seed, own_answers))
    return batched((example for example in tokenized if len(example.tokens) <= LONGEST), width, skip)


def _examples(seed: int, own_answers: Path) -> Iterator[tuple[tuple[Message, ...], str]]:
    """Yield messages and the answers to them."""
    draw = random.Random(seed)  # noqa: S311 (data to learn from, no secrets)
    tasks, cases = extractions(seed + 1), judgements(seed + 2)
    own = [(RealTask(**task), str(answer)) for task, answer in json.loads(own_answers.read_text("utf-8"))]
    while True:
        match draw.choices([*SHARES], [*SHARES.values()])[0]:
            case "extract":
                example = next(tasks)
                yield worker_messages(example.task), example.answer
            case "judge":
                case = next(cases)
                yield judge_messages(case), case.opinion
            case _:
                task, answer = draw.choice(own)
                yield worker_messages(task), answer


def _weight(written: str, start: int, end: int) -> float:
    """Return the weight of a token of an answer: nothing for keys, which the grammar gives."""
    return 0.0 if any(key.start() <= start and end <= key.end() for key in _KEY.finditer(written)) else 1.0
