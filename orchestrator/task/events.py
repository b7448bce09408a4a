"""Define the events of a run. They are journaled before their effects, and all but ratings drive the scheduler.

In every event `at` is in seconds since the epoch, from a clock that never runs backwards within one process, and `kind`
is the name in the journal. `step` is a step's id; children of a `foreach` step are `S2[0]`, `S2[1]`, …. `number` is the
number of the attempt, from 1. `outputs` map artifact names to SHA-256 hex digests.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.task.critical_path import Effort
from orchestrator.task.modes import Mode, Priority
from orchestrator.task.reuse import Reuse
from orchestrator.task.taskir.models import Level, Step, TaskIR

# How the list of a `foreach` step was read: as JSON, as another text that is a list, by asking for it again, or as one
# item because it is no list.
ListReading = Literal["json", "text", "asked", "whole"]
PlanOrigin = Literal["taskir", "planned", "repaired", "fallback", "procedure", "direct"]
ReplanOutcome = Literal["planned", "repaired", "stopped"]
CallOutcome = Literal["done", "refused", "failed"]
NoteChange = Literal["added", "edited", "dropped"]
# Names of nodes of a cluster and of servers; empty, and not written, for this machine alone.
Nodes = Annotated[tuple[str, ...], Field(exclude_if=lambda nodes: not nodes)]
DraftCount = Annotated[int, Field(exclude_if=lambda count: not count)]  # tokens; not written without drafts

CHANCE: Final = 0.9  # probability that the range of a prediction holds the measured time
_Z: Final = 1.6448536269514715  # NormalDist().inv_cdf((1 + CHANCE) / 2), whose module is slow to import


class FailureKind(StrEnum):
    """The kinds of failure, each with its rule in `orchestrator.task.failures`."""

    FORMAT = "format"
    SCHEMA = "schema"
    CODE = "code"
    LOGIC = "logic"
    TIMEOUT = "timeout"
    RESOURCE = "resource"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str
    evidence: str = ""  # what the next attempt gets to read, such as a validator's message
    final: bool = False  # every retry would fail too, as with a prompt that is too long
    cut_at: int | None = None  # tokens of an answer that was cut off at its limit; None for any other failure
    # What the next attempt is asked for, in place of the evidence and of the answer that failed.
    demand: Annotated[str, Field(exclude_if=lambda demand: not demand)] = ""
    # The node of a cluster on which it ran was lost. Not written if not.
    lost: Annotated[bool, Field(exclude_if=lambda lost: not lost)] = False


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of a gate for all outputs of an attempt."""

    gate: str
    status: Literal["passed", "failed", "not run"]  # "not run" if there was nothing to check
    evidence: str = ""  # the flaw, what a passed gate has changed, or why it was not run
    seconds: float = 0.0
    kind: FailureKind | None = None  # of the failure, if the gate failed
    score: int | None = None  # the judge's, from 0 to 9
    tokens: int = 0  # read and written by the judge
    # The judge's share of its engine, and the jobs of tools without their waits for the sandbox and a core. None if
    # that is all of `seconds`.
    work_seconds: float | None = None
    offset_seconds: float = 0.0  # from the start of the first gate; journals of earlier versions lack it

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass(frozen=True, slots=True)
class Shipped:
    """KV cells of a prompt's start that came from another machine of the cluster instead of being computed."""

    tokens: int
    bytes: int  # of the file
    seconds: float  # from the decision to the arrival
    source: str  # the machine; "head" is the daemon's


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0  # tokens of the prompt from a shared prefix
    output_tokens: int = 0
    queued_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    estimated_tokens: int = 0  # of prompt and output together, if a server did not count them
    reasoning_tokens: int = 0  # part of output_tokens
    # Share of the engine's compute time: each engine step, divided by tokens among its sequences. Excludes waiting; 0
    # if not measured.
    work_seconds: float = 0.0
    alone_seconds: float = 0.0  # The same compute without other sequences, by the engine's step costs.
    # Share if every engine step had the width with the best tokens per second, by the engine's step costs.
    packed_seconds: float = 0.0
    reuse: Reuse = field(default_factory=Reuse)  # of earlier prompts; journals of earlier versions lack it
    nodes: Nodes = ()  # that computed it
    # For requests that others waited with, only the first has it; empty, and not written, for most.
    shipped: Annotated[tuple[Shipped, ...], Field(exclude_if=lambda shipped: not shipped)] = ()
    drafted_tokens: DraftCount = 0  # by speculative decoding, and verified
    accepted_tokens: DraftCount = 0  # of the drafted ones; they are part of output_tokens


@dataclass(frozen=True, slots=True)
class EscalationTarget:
    """The role that takes over from a weaker one."""

    role: str
    level: Level | None = None


@dataclass(frozen=True, slots=True)
class RoleRates:
    """Typical rates and lengths of a role, or of one kind of its steps, without the load of other work."""

    prefill_rate: float = 500.0  # tokens per second
    decode_rate: float = 50.0  # tokens per second
    prompt_tokens: float = 300.0  # without cached ones
    output_tokens: float = 100.0
    packing: float = 0.0  # smallest share of the engine in a batch, over time alone; 0 if unmeasured
    other_seconds: float = 0.0  # of an attempt, without generation and the wait for a slot
    spread: float = 1.0  # standard deviation of ln(measured seconds / typical seconds)
    common: float = 0.5  # part of spread² that all steps of a run share, as on a busy machine; 0 to 1
    generations: int = 0  # sample size; 0 for assumptions and in journals of early versions


@dataclass(frozen=True, slots=True)
class PromptDigests:
    """SHA-256 digests of the texts at the start of an attempt's prompts; empty for a missing text."""

    system: str = ""  # the role's system prompt
    persona: str = ""  # the persona's addition to it
    shipped: str = ""  # name and version of the shipped prompts, and the start of their file's digest


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    role: str
    persona: str | None
    model: str
    score: float  # higher is better; the unit is the router's


@dataclass(frozen=True, slots=True)
class AdviceVoice:
    """An episode of the memory that spoke for or against an action."""

    episode: int
    similarity: float  # cosine of its situation and the current one
    q: float  # its expected reward at that time
    weight: float  # among the similar episodes, from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEstimate:
    """The memory's estimate for an action."""

    role: str
    persona: str
    model: str
    thinking: str
    mode: str
    value: float  # worth less price; the best action has the highest value
    worth: float  # expected reward
    error: float  # standard error of the worth
    price: float  # cost in units of reward
    head: float  # expected reward by the parametric head alone
    head_part: float  # weight of the head in the worth, 0 to 1; similar episodes have the rest
    support: float  # of the similar episodes, in episodes of similarity 1
    probability: float  # of this action being taken
    voices: tuple[AdviceVoice, ...] = ()  # the similar episodes of greatest weight


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAdvice:
    """What the memory advised for a choice, whether or not it was followed.

    Parts of an action are empty for none, or for the registry's default.
    """

    asked: str  # the requested role
    role: str
    persona: str
    model: str
    thinking: str
    mode: str
    confidence: float  # probability that no other action is clearly better
    followed: bool  # the choice is the memory's; else the rules made it
    explored: bool  # another action was tried on purpose
    why: str  # why the advice was followed or not
    rules: str  # the choice of the rules, in words
    estimates: tuple[AdviceEstimate, ...] = ()  # the best action first


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeForecast:
    """Predicted durations of the two ways to answer, in seconds."""

    direct_seconds: float
    plan_seconds: float | None = None  # critical path; None if the plan was not known yet
    # True if no measured generation is behind the seconds; False in journals of early versions
    direct_assumed: bool = False
    plan_assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """A router's choice of how the plan of a request is run."""

    reason: str
    propensity: float  # probability of the choice
    router: str
    advice: RouteAdvice | None = None  # None if the memory was not asked
    forecast: ModeForecast | None = None  # None in journals of early versions


@dataclass(frozen=True, slots=True)
class InputSize:
    name: str
    bytes: int | None  # None if unknown


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How much a run may use before it is cancelled; None means no limit."""

    tokens: int | None = None  # of prompts and answers
    seconds: float | None = None  # without the time in the queue
    bytes: int | None = None  # of artifacts


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Sampling options for all steps of a run that a model carries out, but not for planning."""

    temperature: float | None = None  # None: the role decides
    top_p: float | None = None  # None: the role decides
    seed: int | None = None  # of every answer; None for random ones
    thinking: str = ""  # as in a role; empty: the router and the role decide


@dataclass(frozen=True, slots=True)
class PlanPersona:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PlanKey:
    """Identifies a plan among earlier runs, to learn how far predictions for such plans are off."""

    shape: str  # digest of step kinds, dependencies and input sizes, without texts
    content: str  # digest of the whole task, texts included
    # Critical path by the steps' rates, before `RunAccepted.pace`. 0 if a rate was assumed: the pace would only measure
    # the assumption.
    predicted_seconds: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The expected duration of a step, and its basis."""

    seconds: float  # The whole: the parts below, the slowdown by the other steps of the wave, and the pace of the plan.
    prefill_seconds: float  # alone on its engine, like the next one
    decode_seconds: float
    other_seconds: float  # gates, tools and the rest
    packed_seconds: float  # smallest share of the engine's time in the best batch; 0 if unknown
    prompt_tokens: float  # without cached ones
    output_tokens: float
    spread: float  # standard deviation of ln(measured / predicted)
    common: float  # part of spread² that all steps of a run share, 0 to 1
    generations: int  # sample size; 0 for an assumption
    basis: str  # the key of the rates

    @property
    def alone_seconds(self) -> float:
        """The generation alone on its engine."""
        return self.prefill_seconds + self.decode_seconds

    @property
    def effort(self) -> Effort:
        whole = self.alone_seconds + self.other_seconds
        return Effort(whole, whole, self.packed_seconds)

    @property
    def range(self) -> tuple[float, float]:
        """The seconds between which the measured time lies with probability `CHANCE`."""
        reach = math.exp(_Z * self.spread)
        return self.seconds / reach, self.seconds * reach


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted:
    """A request or a TaskIR document was accepted. The event holds everything that the run depends on.

    So a replay gives the same result, even if the registry or the history has changed.
    """

    at: float
    run: str
    mode: Mode
    request: str | None = None  # in words, if there is no task
    task: TaskIR | None = None
    directory: str | None = None  # folder whose files steps may read
    files: tuple[str, ...] = ()  # names in the folder
    rungs: Mapping[str, EscalationTarget] = field(default_factory=dict)  # by the weaker role
    # By role, and for kinds of steps by `prediction.keys_of`.
    rates: Mapping[str, RoleRates] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of inputs and files, by name
    plan_key: PlanKey | None = None  # None if not planned yet, or too long to compare
    pace: float = 1.0  # actual over predicted duration, from earlier runs of such a plan
    max_replans: int = 0  # how often the plan may be continued after its last step
    # Artifacts of earlier runs and texts of the request that steps may read: digest by the name in this run.
    prior: Mapping[str, str] = field(default_factory=dict)
    follows: tuple[str, ...] = ()  # ids of those earlier runs, without the ones that the task names
    warnings: tuple[str, ...] = ()  # missing things that the task only hints at, such as a model
    priority: Priority = "interactive"
    limits: RunLimits = field(default_factory=RunLimits)
    model: str | None = None  # all steps have to use it, whatever a router would choose
    mode_choice: ModeChoice | None = None  # None if no router chose the mode
    options: RunOptions = field(default_factory=RunOptions)
    key: str | None = None  # idempotency key: a second request with it gets the existing run
    owner: str = ""  # `user:NAME`, `token` or `token:NAME`; empty in old runs
    # Digest of the request of a waiting client, to recognise it when it is sent again without a key; empty if none
    # waits.
    digest: str = ""
    traceparent: str = ""  # the caller's span, in the form of W3C Trace Context; empty for none
    kind: Literal["run_accepted"] = "run_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegun:
    """A run has left the queue and starts. Repeated when the run continues after a restart."""

    at: float
    kind: Literal["run_begun"] = "run_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStarted:
    """The frontdoor has been asked for a plan; with `direct` it was not, since one step answers the request."""

    at: float
    role: str
    model: str
    direct: bool = False
    kind: Literal["planning_started"] = "planning_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPlanned:
    """Steps were added to the plan. They are final, and name only each other and earlier steps."""

    at: float
    steps: tuple[Step, ...]
    written: str = ""  # the frontdoor's text for the steps; empty if it did not write them
    personas: tuple[PlanPersona, ...] = ()  # defined by these steps; usable like any other from now on
    # Journals of earlier versions lack the fields from here on.
    predicted: Mapping[str, Prediction] = field(default_factory=dict)  # of each of these steps, by id
    # Seconds now predicted for earlier steps, by id: only of those that take another time next to these steps.
    slowed: Mapping[str, float] = field(default_factory=dict)
    kind: Literal["steps_planned"] = "steps_planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFinished:
    """The plan is complete, at least up to the step after which it is continued."""

    at: float
    origin: PlanOrigin
    reason: str = ""  # for a repair, a replacement or a direct answer
    forecast: ModeForecast | None = None  # None if plan and direct answer were not compared
    usage: Usage = field(default_factory=Usage)
    # The step after which the frontdoor is asked for the rest, if `max_replans` allows; None if there is no rest.
    goes_on_after: str | None = None
    reasoning: str = ""  # SHA-256 of the models' reasoning, an object; empty for none
    wanted: tuple[str, ...] = ()  # The outputs that the user wants, in order; if empty, those that no other step reads.
    kind: Literal["plan_finished"] = "plan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """There is no plan: the frontdoor's engine could not run, or the request needs something unavailable."""

    at: float
    failure: Failure
    missing: tuple[str, ...] = ()  # what is unavailable, a sentence each
    kind: Literal["plan_failed"] = "plan_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanStarted:
    """Step `after` is done, and the frontdoor was asked to continue the plan. Repeated after a restart."""

    at: float
    after: str
    role: str
    model: str
    kind: Literal["replan_started"] = "replan_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanFinished:
    """The frontdoor has continued the plan after step `after`, or could not, so that the plan ends there."""

    at: float
    after: str
    outcome: ReplanOutcome
    reason: str = ""  # for a repair or a stop
    usage: Usage = field(default_factory=Usage)
    asked: int = 1  # calls of the frontdoor
    goes_on_after: str | None = None  # as in PlanFinished
    reasoning: str = ""  # SHA-256 of the models' reasoning, an object; empty for none
    wanted: tuple[str, ...] = ()  # as in PlanFinished, now for the whole plan
    kind: Literal["replan_finished"] = "replan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReplaced:
    """All steps have ended and the plan has failed. One more step answers the request, and the run ends like it."""

    at: float
    answer: Step
    reason: str  # why the plan has failed
    predicted: Mapping[str, Prediction] = field(default_factory=dict)  # of that step; empty in early versions
    kind: Literal["plan_replaced"] = "plan_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExpanded:
    """The list of a `foreach` step exists and has `count` items; the step runs as that many children."""

    at: float
    step: str
    count: int
    # Journals of earlier versions lack the fields from here on.
    read_as: ListReading = "json"
    items: tuple[str, ...] = ()  # if the list was asked for again
    usage: Usage = field(default_factory=Usage)  # of asking again
    kind: Literal["step_expanded"] = "step_expanded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGathered:
    """The children of a `foreach` step are done, and their outputs have been joined into lists, in order."""

    at: float
    step: str
    outputs: Mapping[str, str]
    originals: Mapping[str, str] = field(default_factory=dict)  # as in AttemptSucceeded
    kind: Literal["step_gathered"] = "step_gathered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A router has chosen role, persona and model of an attempt, and the attempt starts."""

    at: float
    step: str
    number: int
    role: str  # the chosen one, which retries, escalation and limits follow; the requested one may differ
    persona: str | None
    model: str
    reason: str  # for the choice
    propensity: float = 1.0  # probability of the choice
    candidates: tuple[RouteCandidate, ...] = ()
    router: str = ""  # name and version
    problem: str = ""  # why this choice cannot run; empty if it can
    # Journals of earlier versions lack the fields from here on.
    inputs: tuple[InputSize, ...] = ()  # with the next two fields, what the choice could depend on
    slack: float = 0.0  # seconds by which the step may be late without moving the end of the run
    resident: tuple[str, ...] = ()  # loaded models
    step_kind: str = ""  # see `prediction.kind_of`
    prompts: PromptDigests = PromptDigests()
    thinking: str = ""  # empty: the registry decides
    advice: RouteAdvice | None = None  # None if the memory was not asked
    # Probability of the same choice if the user had not forced a part; None if nothing was forced.
    unforced: float | None = None
    kind: Literal["attempt_started"] = "attempt_started"


# The calls by which a step's code asks models. Their compute is part of the attempt's usage.
MODEL_CALLS: Final = frozenset({"llm_call", "llm_batch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """An attempt's call of a tool, or of a model from its code, has ended."""

    at: float
    step: str
    number: int
    tool: str
    arguments: str  # JSON, shortened if long
    outcome: CallOutcome  # "refused": not carried out; "failed": the call or its program failed
    message: str = ""  # why it was refused or failed
    seconds: float = 0.0
    # Compute without waits for the sandbox or a core and without `awaited_seconds`; None if that is all of `seconds`.
    work_seconds: float | None = None
    awaited_seconds: float = 0.0  # wait for an MCP server, as long as if nothing else had run
    kind: Literal["tool_called"] = "tool_called"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChanged:
    """A step has changed the run's notes."""

    at: float
    step: str
    number: int
    note: str  # its name
    change: NoteChange
    text: str = ""  # after the change; empty if dropped
    kind: Literal["note_changed"] = "note_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAwaited:
    """A model has failed too often, so the requests of a step or the plan wait. This costs no retry."""

    at: float
    step: str | None  # None for the plan
    number: int  # of the attempt; 0 for the plan
    model: str
    reason: str
    seconds: float | None  # until the next try; None if that depends on a request that tries it now
    kind: Literal["model_awaited"] = "model_awaited"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptGenerated:
    """The model has finished; the gates now check the outputs."""

    at: float
    step: str
    number: int
    usage: Usage
    # After a restart the gates check these again without a new generation. If empty (no gates, no outputs, or an early
    # version), the attempt is made again.
    outputs: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["attempt_generated"] = "attempt_generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSucceeded:
    """No gate has failed, and the step's outputs are stored."""

    at: float
    step: str
    number: int
    outputs: Mapping[str, str]
    gates: tuple[GateResult, ...] = ()
    reasoning: str = ""  # SHA-256 of the models' reasoning, an object; empty for none
    # Digests of the folder's files that the attempt has read, by name.
    reads: Mapping[str, str] = field(default_factory=dict)
    # Digests of the folder's files with the outputs' names before the attempt; empty for no file. They are objects.
    # Unreadable files are left out.
    originals: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["attempt_succeeded"] = "attempt_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt failed. `number` is 0 for a `foreach` step that could not be expanded or gathered."""

    at: float
    step: str
    number: int
    failure: Failure
    gates: tuple[GateResult, ...] = ()
    reasoning: str = ""  # SHA-256 of the models' reasoning, an object; empty for none
    answer: str = ""  # SHA-256 of the failed answer, an object; empty for none
    nodes: Nodes = ()  # that its requests were with
    kind: Literal["attempt_failed"] = "attempt_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """A running attempt was stopped at the request of the scheduler."""

    at: float
    step: str
    number: int
    kind: Literal["attempt_cancelled"] = "attempt_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The user has cancelled the whole run (`step` is None), or one step and those that depend on it."""

    at: float
    step: str | None = None
    reason: str = "cancelled by the user"
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequested:
    """The user wants a running attempt of a step stopped, and the step tried again. This costs none of its retries."""

    at: float
    step: str
    reason: str = "tried again at the request of the user"
    key: str | None = None  # the idempotency key: of all requests with it, the first one counts
    kind: Literal["retry_requested"] = "retry_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrioritised:
    """The user wants a step before the others of its run: the step and all that it waits for go first."""

    at: float
    step: str
    kind: Literal["step_prioritised"] = "step_prioritised"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReused:
    """A step is done before the run starts: an earlier run of the same job has made its outputs."""

    at: float
    step: str
    run: str  # the earlier run
    outputs: Mapping[str, str]
    reads: Mapping[str, str] = field(default_factory=dict)  # as in AttemptSucceeded
    originals: Mapping[str, str] = field(default_factory=dict)  # as in AttemptSucceeded
    kind: Literal["step_reused"] = "step_reused"


@dataclass(frozen=True, slots=True)
class AnswerDoubt:
    """A reason to doubt that an answer fulfils the request."""

    text: str  # one sentence, such as "You asked for 5 questions; the answer has 3."
    step: str = ""  # the author of the doubtful part; empty if it is no single step
    # What the next answer is asked for, such as "Give 5 questions."; empty if only the reason can be said.
    demand: Annotated[str, Field(exclude_if=lambda demand: not demand)] = ""
    # Whether the part is no answer at all, such as "Please provide the text." Not written if not.
    void: Annotated[bool, Field(exclude_if=lambda void: not void)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChecked:
    """All steps are done, and the answer was compared with the request.

    Steps with doubts run once more, with the doubts as evidence, and the answer is compared a second time.
    """

    at: float
    doubts: tuple[AnswerDoubt, ...] = ()
    # Outputs by step that stand, because a repair was no better.
    restored: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Outputs by step that code has corrected now.
    corrected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # What was wrong with the answer as the models wrote it, and was corrected by code; `doubts` has none of it.
    corrections: tuple[AnswerDoubt, ...] = ()
    kind: Literal["answer_checked"] = "answer_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run has ended. Only ratings can follow this event."""

    at: float
    status: Literal["done", "failed", "cancelled"]
    error: str | None = None
    doubt: str = ""  # about the answer, a sentence per reason
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGiven:
    """Somebody has rated a run after its end, or one step of it."""

    at: float
    score: float  # 0 (bad) to 1 (good)
    by: str  # as `RunAccepted.owner`; a name in early versions
    step: str | None = None  # None for the whole run
    note: str = ""  # a comment
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
    | PlanReplaced
    | StepExpanded
    | StepGathered
    | AttemptStarted
    | ToolCalled
    | NoteChanged
    | ModelAwaited
    | AttemptGenerated
    | AttemptSucceeded
    | AttemptFailed
    | AttemptCancelled
    | CancelRequested
    | RetryRequested
    | StepPrioritised
    | StepReused
    | AnswerChecked
    | RunFinished
    | RatingGiven
)


@cache  # built at the first use, which most commands never reach
def _events() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def encode_event(event: Event) -> str:
    """Return the event as one JSON object."""
    # Fields of a TaskIR that its author did not set are left out.
    return _events().dump_json(event, exclude_unset=True).decode()


def decode_event(body: str) -> Event:
    """Return the event that `encode_event` encoded. Raises `ValueError`, with a reason in one line, for other text."""
    try:
        return _events().validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from error
