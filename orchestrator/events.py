"""What can happen to a run. Events are journaled before their effect, and drive the scheduler, but for ratings.

`at` is in seconds since the epoch, from a clock that never runs backwards within one process. An event names its step
by id; children of a `foreach` step are `S2[0]`, `S2[1]`, …. Outputs map artifact names to SHA-256 hex digests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from orchestrator.taskir import Step, TaskIR

Level = Literal["B1", "B2", "B3"]
Mode = Literal["as-planned", "discover", "serial"]
RunStatus = Literal["queued", "planning", "running", "done", "failed", "cancelled"]
Priority = Literal["interactive", "batch"]
PlanOrigin = Literal["taskir", "planned", "repaired", "fallback"]
ReplanOutcome = Literal["planned", "repaired", "stopped"]
CallOutcome = Literal["done", "refused", "failed"]
NoteChange = Literal["added", "edited", "dropped"]


class FailureKind(StrEnum):
    """Kinds of failure, each with its own rule (see `orchestrator.failures`)."""

    FORMAT = "format"
    SCHEMA = "schema"
    CODE = "code"
    LOGIC = "logic"
    TIMEOUT = "timeout"
    RESOURCE = "resource"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. `evidence` is what the next attempt may learn from: a validator's message, a critique.

    A `final` failure would happen again however often it is tried (a prompt that is too long), so it is not retried.
    """

    kind: FailureKind
    message: str
    evidence: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate said of all that an attempt made. One that had nothing to look at is "not run", never passed.

    `kind` is what a failure counts as. `evidence` of a gate that passed tells what it has mended. The judge gives a
    `score` from 0 to 9, and takes `tokens` for it: those it read and wrote.
    """

    gate: str
    status: Literal["passed", "failed", "not run"]
    evidence: str = ""
    seconds: float = 0.0
    kind: FailureKind | None = None
    score: int | None = None
    tokens: int = 0

    @property
    def passed(self) -> bool:
        """Whether the gate looked, and found nothing wrong."""
        return self.status == "passed"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and seconds of one generation. `cached_tokens` of the prompt came from a shared prefix.

    `estimated_tokens`, of prompt and output together, have not been counted but estimated: not every server counts.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queued_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    estimated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EscalationTarget:
    """The role that takes over from a weaker one, and its level, if it has one."""

    role: str
    level: Level | None = None


@dataclass(frozen=True, slots=True)
class RoleRates:
    """What is typical of a role: tokens per second of prefill and decode, and tokens per prompt and answer."""

    prefill_rate: float = 500.0
    decode_rate: float = 50.0
    prompt_tokens: float = 300.0
    output_tokens: float = 100.0


@dataclass(frozen=True, slots=True)
class PromptDigests:
    """The texts that an attempt's prompts began with: SHA-256 digests of objects, empty where there was no such text.

    `system` is the role's system prompt, `persona` what the persona adds to it.
    """

    system: str = ""
    persona: str = ""


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """A role, a persona and a model that a router has considered, and its score: higher is better, any unit."""

    role: str
    persona: str | None
    model: str
    score: float


@dataclass(frozen=True, slots=True)
class InputSize:
    """What a step reads, by name, and its bytes; None where they could not be found out."""

    name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may take before it is cancelled; None: as much as it wants.

    `tokens` are those of prompts and answers, `seconds` count from when it began to run, `bytes` are its artifacts'.
    """

    tokens: int | None = None
    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted:
    """A request or a TaskIR was taken in, with all that its course depends on, so that a replay gives the same.

    `rungs` (role → who takes over from it) and `rates` are those of this moment: a registry or a history that changes
    later does not change a run. `max_replans` is how often its plan may go on after a step that it ended with.
    `prior` are artifacts of earlier runs that its steps may read, by the name they have here; `follows` are those runs,
    but for the ones that the task names itself. No two runs have the same `key`: who asks again with one gets the run
    that there is.
    """

    at: float
    run: str
    mode: Mode
    request: str | None = None
    task: TaskIR | None = None
    directory: str | None = None
    files: tuple[str, ...] = ()
    rungs: Mapping[str, EscalationTarget] = field(default_factory=dict)
    rates: Mapping[str, RoleRates] = field(default_factory=dict)
    max_replans: int = 0
    prior: Mapping[str, str] = field(default_factory=dict)
    follows: tuple[str, ...] = ()
    priority: Priority = "interactive"
    limits: RunLimits = field(default_factory=RunLimits)
    key: str | None = None
    kind: Literal["run_accepted"] = "run_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegun:
    """A run that waited has its turn. It is there again each time that the run goes on after a restart."""

    at: float
    kind: Literal["run_begun"] = "run_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStarted:
    """The frontdoor was asked for a plan."""

    at: float
    role: str
    model: str
    kind: Literal["planning_started"] = "planning_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPlanned:
    """The plan grew. The new steps are frozen from here on; they name only each other and earlier ones.

    `written` is the part of the plan that they come from as the frontdoor wrote it; empty where it did not write it.
    """

    at: float
    steps: tuple[Step, ...]
    written: str = ""
    kind: Literal["steps_planned"] = "steps_planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFinished:
    """The plan is whole. `reason` says why it had to be repaired or replaced, if it had.

    If it `goes_on_after` its last step, the frontdoor is to be asked for the rest when that step is done, unless the
    run's `max_replans` are used up. Otherwise no more steps will come.
    """

    at: float
    origin: PlanOrigin
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    goes_on_after: str | None = None
    kind: Literal["plan_finished"] = "plan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """No plan could be had at all (the frontdoor's engine could not run)."""

    at: float
    failure: Failure
    kind: Literal["plan_failed"] = "plan_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanStarted:
    """Step `after` is done, and the frontdoor was asked to go on with the plan. It is there again after a restart."""

    at: float
    after: str
    role: str
    model: str
    kind: Literal["replan_started"] = "replan_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanFinished:
    """The frontdoor has gone on with the plan after step `after`, or could not, and what there is of it stands.

    `reason` says why it had to be repaired or was stopped, if it was. `asked` counts how often the frontdoor was asked.
    `goes_on_after` is as in PlanFinished.
    """

    at: float
    after: str
    outcome: ReplanOutcome
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    asked: int = 1
    goes_on_after: str | None = None
    kind: Literal["replan_finished"] = "replan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExpanded:
    """The list of a `foreach` step has arrived and has `count` items: it runs as that many children."""

    at: float
    step: str
    count: int
    kind: Literal["step_expanded"] = "step_expanded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGathered:
    """The children of a `foreach` step are done, and their outputs are joined into lists, in order."""

    at: float
    step: str
    outputs: Mapping[str, str]
    kind: Literal["step_gathered"] = "step_gathered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """An attempt was routed to (role, persona, model), and begins.

    `role` need not be the one that the scheduler asked for: retries, escalation and limits follow this one.
    `propensity` is the probability of the choice, `candidates` is what was considered, and `router` names who chose,
    with its version. Where the choice leads nowhere, `problem` says why. `inputs`, `slack` (seconds) and the models
    that were `resident` are what the choice could depend on beside the earlier events, and `prompts` are the versions
    of the prompts that it uses; journals of earlier versions do not have them.
    """

    at: float
    step: str
    number: int
    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float = 1.0
    candidates: tuple[RouteCandidate, ...] = ()
    router: str = ""
    problem: str = ""
    inputs: tuple[InputSize, ...] = ()
    slack: float = 0.0
    resident: tuple[str, ...] = ()
    prompts: PromptDigests = PromptDigests()
    kind: Literal["attempt_started"] = "attempt_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """An attempt has called a tool, or a model from its code, and the call is over.

    `arguments` are JSON, shortened where they are long. `outcome` is refused for a call that was not carried out, and
    failed for one that came to nothing or whose program did; then `message` says why.
    """

    at: float
    step: str
    number: int
    tool: str
    arguments: str
    outcome: CallOutcome
    message: str = ""
    seconds: float = 0.0
    kind: Literal["tool_called"] = "tool_called"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChanged:
    """A step has changed the run's notes. `text` is what the note says from here on, empty for one that is dropped."""

    at: float
    step: str
    number: int
    note: str
    change: NoteChange
    text: str = ""
    kind: Literal["note_changed"] = "note_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptGenerated:
    """The model is done; the gates look at what it wrote."""

    at: float
    step: str
    number: int
    usage: Usage
    kind: Literal["attempt_generated"] = "attempt_generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSucceeded:
    """The step's outputs are stored and no gate failed."""

    at: float
    step: str
    number: int
    outputs: Mapping[str, str]
    gates: tuple[GateResult, ...] = ()
    kind: Literal["attempt_succeeded"] = "attempt_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt came to nothing. For a `foreach` step that could not be expanded or gathered, `number` is 0."""

    at: float
    step: str
    number: int
    failure: Failure
    gates: tuple[GateResult, ...] = ()
    kind: Literal["attempt_failed"] = "attempt_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """A running attempt has stopped because the scheduler asked it to."""

    at: float
    step: str
    number: int
    kind: Literal["attempt_cancelled"] = "attempt_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The user wants the whole run cancelled (`step` is None), or one step and what depends on it."""

    at: float
    step: str | None = None
    reason: str = "cancelled by the user"
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run has ended. Only what is said of it later comes behind this event."""

    at: float
    status: Literal["done", "failed", "cancelled"]
    error: str | None = None
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGiven:
    """Somebody has said, after the end of a run, how good it was (`step` is None), or how good one step of it was.

    `score` is from 0 (bad) to 1 (good). `by` names who said it, and `note` is what they said about it, or empty.
    """

    at: float
    score: float
    by: str
    step: str | None = None
    note: str = ""
    kind: Literal["rating_given"] = "rating_given"


Event = (
    RunAccepted
    | RunBegun
    | PlanningStarted
    | StepsPlanned
    | PlanFinished
    | PlanFailed
    | ReplanStarted
    | ReplanFinished
    | StepExpanded
    | StepGathered
    | AttemptStarted
    | ToolCalled
    | NoteChanged
    | AttemptGenerated
    | AttemptSucceeded
    | AttemptFailed
    | AttemptCancelled
    | CancelRequested
    | RunFinished
    | RatingGiven
)
