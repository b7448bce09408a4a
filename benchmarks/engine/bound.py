"""Compute what speculation could bring at best: `max over K of E[tokens a step] · t(1) ÷ (t(K+1) + draft cost)`.

The expectation is not taken from an acceptance rate but from the very texts: they are known, so what a drafter would
propose and how much of it would stay can be counted for every K. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.engine.chain import Next, walk
from benchmarks.engine.system import Tokens
from orchestrator.engine.speculation.prompt_lookup import PromptLookup

Propose = Callable[[Tokens, int], Tokens]
"""Takes what was said so far, after the prompt, and the most tokens to draft."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long a step with n + 1 tokens takes, for n from 0, and a drafted token; in seconds."""

    steps: tuple[float, ...]
    draft: float

    def seconds(self, drafted: Sequence[int]) -> float:
        """Return how long steps with so many drafts take."""
        return sum(self.steps[count] + count * self.draft for count in drafted)


def by_lookup(prompt: Tokens, longest: int) -> Propose:
    """Return the proposals of prompt lookup for one sequence; what was said may only grow."""
    lookup = PromptLookup(np.array(prompt, np.int32), longest)
    seen = 0

    def propose(said: Tokens, most: int) -> Tokens:
        nonlocal seen
        for token in said[seen:]:
            lookup.append(token)
        seen = len(said)
        return tuple(lookup.propose(most).tolist())

    return propose


def by_model(following: Next) -> Propose:
    """Return the proposals of a draft model that follows `following`."""
    return lambda said, most: walk(following, said[-1], most)


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
    """Return how many tokens of a proposal are those of the text, up to the first that is not."""
    wrong = (index for index, (left, right) in enumerate(zip(proposal, text, strict=False)) if left != right)
    return next(wrong, min(len(proposal), len(text)))


def best_speedup(answers: Sequence[Tokens], proposals: Sequence[Callable[[], Propose]], times: StepTimes) -> float:
    """Return the speed-up over no drafts with the best K, from 0 to what `times` has steps for.

    `proposals` make fresh proposals for each of the answers.
    """
    plain = sum(len(answer) for answer in answers) * times.steps[0]
    seconds = [
        sum(times.seconds(drafted(answer, make(), most)) for answer, make in zip(answers, proposals, strict=True))
        for most in range(len(times.steps))
    ]
    return plain / min(seconds)
