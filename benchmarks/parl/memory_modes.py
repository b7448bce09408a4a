"""The memory's choice of mode: planned by the frontdoor as it ships, answered directly, or found out (`discover`)."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from orchestrator.memrl.episodes import MODES, Action, Outcome, Situation
from orchestrator.memrl.parl.compare import HeldOutRun
from orchestrator.memrl.policy import Policy
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.task.lexical import embed
from orchestrator.task.modes import Mode

CHOICES: Final[Mapping[Mode, str]] = {"as-planned": "as shipped", "direct": "one agent", "discover": "discover"}
"""The modes, and the controls that have each of them."""
LESSONS: Final = 60  # requests of the trained families that a memory learns from in all modes

Runs = Mapping[str, Sequence[HeldOutRun]]
"""The runs of each of these controls, of the same requests on the same machines."""


def by_memory(lessons: Runs, held_out: Runs, texts: Mapping[str, str]) -> list[HeldOutRun]:
    """Return the held-out runs in the modes that the memory's policy chooses. Each machine has a memory of its own.

    `texts` are those of the requests, by name.
    """
    policies: dict[str, Policy] = {}
    actions = {control: Action(FRONTDOOR, mode=MODES[mode]) for mode, control in CHOICES.items()}
    for runs in zip(*(lessons[control] for control in actions), strict=True):
        text, machine = texts[runs[0].request], runs[0].machine
        vector = embed([text])[0]
        policy = policies.setdefault(machine, Policy(len(vector)))
        outcomes = {action: _outcome(run) for action, run in zip(actions.values(), runs, strict=True)}
        policy.observe_all(_situation(text), vector, outcomes)
    chosen = []
    for runs in zip(*(held_out[control] for control in actions), strict=True):
        text, machine = texts[runs[0].request], runs[0].machine
        made = policies[machine].choose(
            _situation(text), embed([text])[0], (), [*actions.values()], rng=np.random.default_rng(0), explore=False
        )
        chosen.append(runs[[*actions.values()].index(made.action)])
    return chosen


def _situation(text: str) -> Situation:
    return Situation(task_type=None, kind="plan", role=FRONTDOOR, text=text)


def _outcome(run: HeldOutRun) -> Outcome:
    result = run.result
    return Outcome(
        success=result.score, source="checker", critical_seconds=result.seconds, tokens=result.tokens, used=True
    )
