"""Runs whose choices the memory has advised on, as a journal has them."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.run.journal.journal import Journal
from orchestrator.task.events import (
    AdviceEstimate,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RatingGiven,
    RouteAdvice,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.task.taskir.models import Step

PERSONA = "terse-writer"


def estimate(model: str, worth: float, persona: str = "", price: float = 0.0) -> AdviceEstimate:
    """Return the estimate of the worker on a model."""
    return AdviceEstimate(
        role="worker",
        persona=persona,
        model=model,
        thinking="",
        mode="",
        value=worth - price,
        worth=worth,
        error=0.1,
        price=price,
        head=worth,
        head_part=1.0,
        support=0.0,
        probability=0.5,
    )


def advice(estimates: Sequence[AdviceEstimate], *, followed: bool = False, explored: bool = False) -> RouteAdvice:
    """Return the advice of a memory that holds these actions possible; the first one is its best."""
    best = estimates[0]
    return RouteAdvice(
        asked="worker",
        role=best.role,
        persona=best.persona,
        model=best.model,
        thinking="",
        mode="",
        confidence=0.75,
        followed=followed,
        explored=explored,
        why="a test",
        rules="worker on tiny-large",
        estimates=tuple(estimates),
    )


def started(at: float, taken: AdviceEstimate, given: RouteAdvice | None, step: str = "S1") -> AttemptStarted:
    return AttemptStarted(
        at=at,
        step=step,
        number=1,
        role=taken.role,
        persona=taken.persona or None,
        model=taken.model,
        reason="a test",
        advice=given,
    )


def advised_run(run: str, at: float, choice: AttemptStarted, score: float, digest: str) -> list[Event]:
    """Return the events of a run of one step, which somebody has rated."""
    step = Step(id=choice.step, actor="worker", action=f"Summarize the letter of {run}.", outputs=("summary",))
    return [
        RunAccepted(at=at, run=run, mode="as-planned", request=f"Summarize the letter of {run}", owner="user:root"),
        StepsPlanned(at=at, steps=(step,)),
        PlanFinished(at=at, origin="planned"),
        choice,
        AttemptSucceeded(at=at + 2.0, step=choice.step, number=1, outputs={"summary": digest}),
        RunFinished(at=at + 2.0, status="done"),
        RatingGiven(at=at + 3.0, score=score, by="user:ann", step=choice.step),
    ]


async def write_advised_runs(home: Path, count: int) -> None:
    """Write runs into a journal. The memory expected 0.8 of the large model and 0.4 of the small one, and was right.

    Every fourth one is on the small model, tried on purpose, and every second one has a persona.
    """
    with Journal.open(home) as journal:
        digest = journal.put(b"a summary")
        for number in range(count):
            persona = PERSONA if number % 2 else ""
            large, small = estimate("tiny-large", 0.8, persona), estimate("tiny-small", 0.4, persona)
            explored = number % 4 == 0
            given = advice([large, small], followed=True, explored=explored)
            taken, at = small if explored else large, 1000.0 + 60.0 * number
            score = 0.4 if explored else 0.8
            events = advised_run(f"R{number}", at, started(at + 1.0, taken, given), score, digest)
            await journal.append(f"R{number}", events)
