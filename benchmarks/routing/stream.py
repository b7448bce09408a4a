"""Pass prompts to a learner one after the other, and score what it predicted and chose before it learned.

The score is APGR as RouteLLM defines it (Ong et al., RouteLLM: learning to route LLMs with preference data, ICLR 2025):
the share of prompts that go to the strong model is swept from 0 to 1, those with the highest predicted gain first; the
recovered gap is (accuracy - weak) / (strong - weak), and APGR its mean over the sweep. A random router has 0.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.routing.outcomes import Outcomes
from orchestrator.memrl.head import calibration_error

Floats = NDArray[np.float64]
# Which outcomes a learner sees: both, that of a model drawn at random, or that of the model that it chose itself.
Mode = Literal["full", "uniform", "chosen"]

WEAK: Final = 0
STRONG: Final = 1


class Learner(Protocol):
    """Predicts how well both models answer a prompt, chooses one, and learns from outcomes."""

    def predict(self, prompt: int) -> Floats:
        """Return the expected outcomes of both models: shape (2,)."""

    def choose(self, prompt: int) -> tuple[Floats, int]:
        """Return the same, and the model that it chooses within its budget."""

    def learn(self, prompt: int, outcomes: Mapping[int, float]) -> None:
        """Take in the outcomes of one model or of both."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a learner predicted and chose, in the order of the stream."""

    predicted: Floats  # Shape (prompts, 2)
    correct: Floats  # Shape (prompts, 2)
    chosen: NDArray[np.intp]  # the models whose outcomes were seen; the strong one where both were


def run_stream(data: Outcomes, learner: Learner, mode: Mode, order: Sequence[int], rng: np.random.Generator) -> Trace:
    """Return what the learner predicts and chooses in this order of prompts."""
    predicted = np.empty((len(order), 2))
    chosen = np.full(len(order), STRONG)
    for place, prompt in enumerate(order):
        if mode == "chosen":
            predicted[place], chosen[place] = learner.choose(prompt)
        else:
            predicted[place] = learner.predict(prompt)
        if mode == "uniform":
            chosen[place] = rng.integers(2)
        seen = (WEAK, STRONG) if mode == "full" else (int(chosen[place]),)
        learner.learn(prompt, {model: float(data.correct[prompt, model]) for model in seen})
    return Trace(predicted, data.correct[list(order)], chosen)


def apgr(predicted: Floats, correct: Floats) -> float:
    """Return the APGR of predictions. Prompts with the same predicted gain are taken in the order of the stream."""
    curve = recovered_curve(predicted, correct)
    return float((curve[:-1] + curve[1:]).mean() / 2)


def recovered_curve(predicted: Floats, correct: Floats) -> Floats:
    """Return the recovered gap for each number of prompts that go to the strong model: shape (prompts + 1,)."""
    gains = correct[:, STRONG] - correct[:, WEAK]
    order = np.argsort(predicted[:, WEAK] - predicted[:, STRONG], kind="stable")
    curve: Floats = np.concatenate(((0.0,), np.cumsum(gains[order]))) / gains.sum()
    return curve


def strong_share_for(predicted: Floats, correct: Floats, part: float) -> float:
    """Return the smallest share of strong calls that reaches this part of the strong model's accuracy."""
    weak, strong = correct.mean(axis=0)
    accuracy = weak + (strong - weak) * recovered_curve(predicted, correct)
    reached = np.flatnonzero(accuracy >= part * strong)
    return float(reached[0] / len(correct)) if len(reached) else 1.0


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a trace."""

    apgr: float
    second_half: float  # the APGR of the second half of the stream
    recovered: float  # the part of the gap that the choices recovered; what was seen, not the sweep
    strong_share: float  # the share of choices that went to the strong model
    weak_error: float  # the calibration error of the predictions for the weak model, in 15 bins
    strong_error: float
    share_95: float  # the strong share at which the sweep reaches 95 % of the strong model's accuracy


def score(trace: Trace) -> Scores:
    """Return the scores of a trace."""
    half = len(trace.correct) // 2
    gains = trace.correct[:, STRONG] - trace.correct[:, WEAK]
    return Scores(
        apgr=apgr(trace.predicted, trace.correct),
        second_half=apgr(trace.predicted[half:], trace.correct[half:]),
        recovered=float(gains[trace.chosen == STRONG].sum() / gains.sum()),
        strong_share=float((trace.chosen == STRONG).mean()),
        weak_error=calibration_error(np.clip(trace.predicted[:, WEAK], 0, 1), trace.correct[:, WEAK]),
        strong_error=calibration_error(np.clip(trace.predicted[:, STRONG], 0, 1), trace.correct[:, STRONG]),
        share_95=strong_share_for(trace.predicted, trace.correct, 0.95),
    )
