"""Make training and evaluation data of the tool caller: token ids of a prompt and of the answer to it."""

from dataclasses import dataclass
from random import Random

from benchmarks.tiny.tokenizer import END
from benchmarks.tool_caller.syntax import (
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    SYNTAXES,
    Syntax,
    answer_text,
    prompt_text,
    tokenizer,
)
from benchmarks.tool_caller.tasks import CallExample, example
from orchestrator.bench.families.words import Split

THINKS, CUT = 0.55, 0.15  # the shares of examples with a thought, and with a thought that was closed from outside


@dataclass(frozen=True, slots=True)
class Written:
    """A prompt and its answer in one syntax."""

    syntax: Syntax
    prompt: str
    answer: str

    @property
    def ids(self) -> tuple[list[int], int]:
        """The token ids of both, with the token that ends the answer, and how many of them are the prompt."""
        prompt = tokenizer().encode_marked(self.prompt)
        return [*prompt, *tokenizer().encode_marked(self.answer), END], len(prompt)


def written(rng: Random, split: Split) -> Written:
    """Return a random example: with a thought, without one, or with a thought that was cut off."""
    syntax = rng.choice(SYNTAXES)
    return write(example(rng, split, several=syntax == "hermes"), syntax, rng)


def write(example: CallExample, syntax: Syntax, rng: Random) -> Written:
    """Return an example in a syntax, with a thought or without one as `rng` draws."""
    roll = rng.random()
    thinks = roll < THINKS + CUT
    prompt = prompt_text(syntax, example.messages, example.tools, thinking=thinks)
    answer, thought = answer_text(syntax, example.answer), example.answer.thought
    if not thinks:
        return Written(syntax, prompt, answer)
    if roll < THINKS:
        return Written(syntax, prompt, f"{OPEN_THOUGHT}{thought}{CLOSE_THOUGHT}{answer}")
    cut = thought[: rng.randrange(len(thought))].rstrip()
    return Written(syntax, f"{prompt}{OPEN_THOUGHT}{cut}{CLOSE_THOUGHT}", answer)
