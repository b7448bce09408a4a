"""One agent instead of a plan, which may use as much as a trained frontdoor's plan has used."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.bench.simulate.machine import Machine
from orchestrator.memrl.parl.compare import HeldOutRun
from orchestrator.memrl.parl.harness import FixedPlan, Harness, Rollout
from orchestrator.memrl.parl.requests import PlannedRequest
from orchestrator.memrl.parl.reward import MeasuredPlan

MOST_TRIES: Final = 8
NO_PLAN: Final = FixedPlan("")  # a direct answer needs none


@dataclass(frozen=True, slots=True)
class RepeatedAgent:
    """Answers a request again and again, and gives the answer that most tries agree on.

    The first try is greedy, others are sampled. There are as many as the tokens, or the seconds of the critical path,
    allow that a plan has used for the same request on the same machine. The first try may take more tokens, but not
    more seconds: an answer that is late is none.
    """

    used: Mapping[tuple[str, str], MeasuredPlan]
    """By request and machine."""
    budget: Literal["tokens", "seconds"]

    def run(self, harness: Harness, request: PlannedRequest, machine: Machine) -> MeasuredPlan:
        """Return how the tries together went. Raises what `Harness.run` raises."""
        allowed = getattr(self.used[request.name, machine.name], self.budget)
        tries: list[Rollout] = []
        spent: float = 0
        for number in range(MOST_TRIES):
            tried = harness.run(request, machine, NO_PLAN, by_cores=False, mode="direct", attempt=number)
            spent += getattr(tried.result, self.budget)
            if spent > allowed and (tries or self.budget == "seconds"):
                return together(tries) if tries else replace(tried.result, score=0.0, used=0)
            tries.append(tried)
        return together(tries)


def together(tries: list[Rollout]) -> MeasuredPlan:
    """Return the result of tries one after the other, of which the most frequent answer counts."""
    answer, _ = Counter(each.answer for each in tries).most_common(1)[0]
    result = next(each.result for each in tries if each.answer == answer)
    seconds = sum(each.result.seconds for each in tries)
    return replace(
        result,
        seconds=seconds,
        serial_seconds=seconds,
        critical_steps=sum(each.result.critical_steps for each in tries),
        tokens=sum(each.result.tokens for each in tries),
    )


def used_by(runs: list[HeldOutRun]) -> dict[tuple[str, str], MeasuredPlan]:
    """Return what plans have used, by request and machine."""
    return {(run.request, run.machine): run.result for run in runs}
