"""Compute what speculation could bring at best: `max over K of E[tokens a step] · t(1) ÷ (t(K+1) + draft cost)`.

The expectation does not come from an acceptance rate but from the texts themselves: they are known, so for every K it
can be counted what would be proposed and how much of it would be accepted. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.engine.chain import Next, walk
from benchmarks.engine.system import Tokens
from orchestrator.engine.speculation.prompt_lookup import PromptLookup

# Takes the answer so far, and the most tokens to draft, and returns the draft tokens.
Propose = Callable[[Tokens, int], Tokens]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long steps take, in seconds."""

    steps: tuple[float, ...]  # the time of a step that verifies n draft tokens, for n from 0
    draft: float  # the time to draft one token

    def seconds(self, drafted: Sequence[int]) -> float:
        """Return the seconds of a series of steps that draft these numbers of tokens."""
        return sum(self.steps[count] + count * self.draft for count in drafted)


def by_lookup(prompt: Tokens, longest: int) -> Propose:
    """Return a function that proposes by prompt lookup for one sequence, whose answer may only grow between calls."""
    lookup = PromptLookup(np.array(prompt, np.int32), longest)
    seen = 0

    def propose(answer: Tokens, most: int) -> Tokens:
        nonlocal seen
        for token in answer[seen:]:
            lookup.append(token)
        seen = len(answer)
        return tuple(lookup.propose(most).tolist())

    return propose


def by_model(following: Next) -> Propose:
    """Return a function that proposes as a draft model does that expects `following` after each word."""
    return lambda answer, most: walk(following, answer[-1], most)


def drafted(answer: Tokens, propose: Propose, most: int) -> list[int]:
    """Return how many tokens are drafted in each step that makes `answer`, with at most `most` a step.

    The first token comes with the prompt, in a step without drafts.
    """
    counts, done = [0], 1
    while done < len(answer):
        proposal = propose(answer[:done], min(most, len(answer) - done - 1))
        counts.append(len(proposal))
        done += agreed(proposal, answer[done:]) + 1
    return counts


def agreed(proposal: Tokens, text: Tokens) -> int:
    """Return how many tokens of a proposal agree with the text, up to the first that does not."""
    wrong = (index for index, (left, right) in enumerate(zip(proposal, text, strict=False)) if left != right)
    return next(wrong, min(len(proposal), len(text)))


def best_speedup(answers: Sequence[Tokens], proposals: Sequence[Callable[[], Propose]], times: StepTimes) -> float:
    """Return the speed-up over decoding without drafts for the best K, out of those for which `times` has steps.

    `proposals` return, for each of the answers, a function that proposes from the start.
    """
    plain = sum(len(answer) for answer in answers) * times.steps[0]
    seconds = [
        sum(times.seconds(drafted(answer, make(), most)) for answer, make in zip(answers, proposals, strict=True))
        for most in range(len(times.steps))
    ]
    return plain / min(seconds)
