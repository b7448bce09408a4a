"""Define the events of a run. They are journaled before their effects, and all but ratings drive the scheduler.

In every event `at` is in seconds since the epoch, from a clock that never runs backwards within one process, and `kind`
is the name of the event in the journal. `step` is the id of a step; children of a `foreach` step are `S2[0]`, `S2[1]`,
…. `number` is the number of an attempt at the step, from 1. `outputs` map artifact names to SHA-256 hex digests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from orchestrator.task.taskir import Level, Step, TaskIR

Mode = Literal["as-planned", "discover", "serial", "direct"]
"""How a run is carried out. "direct" is a plan of one step that answers the whole request."""
RunStatus = Literal["queued", "planning", "running", "done", "failed", "cancelled"]
Priority = Literal["interactive", "batch"]
ListReading = Literal["json", "text", "asked", "whole"]
"""What the list of a `foreach` step was: a JSON list, another text that is a list, one that was asked for again, or no
list: then the whole text is its one item."""
PlanOrigin = Literal["taskir", "planned", "repaired", "fallback", "procedure", "direct"]
ReplanOutcome = Literal["planned", "repaired", "stopped"]
CallOutcome = Literal["done", "refused", "failed"]
NoteChange = Literal["added", "edited", "dropped"]


class FailureKind(StrEnum):
    """The kinds of failure. `orchestrator.task.failures` has a rule for each."""

    FORMAT = "format"
    SCHEMA = "schema"
    CODE = "code"
    LOGIC = "logic"
    TIMEOUT = "timeout"
    RESOURCE = "resource"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed."""

    kind: FailureKind
    message: str
    evidence: str = ""
    """What the next attempt gets to read, such as a validator's message or a critique."""
    final: bool = False
    """Whether every other attempt would fail in the same way, as with a prompt that is too long. It is not retried."""
    cut_at: int | None = None
    """How many tokens the answer had when it was cut off at its limit; None for any other failure."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of a gate for all outputs of an attempt."""

    gate: str
    status: Literal["passed", "failed", "not run"]
    """A gate that had nothing to check is "not run", never "passed"."""
    evidence: str = ""
    """What is wrong; or what a gate that passed has changed; or why it was not run."""
    seconds: float = 0.0
    """How long the gate ran."""
    kind: FailureKind | None = None
    """The kind of the failure, if the gate failed."""
    score: int | None = None
    """The judge's score, from 0 to 9."""
    tokens: int = 0
    """How many tokens the judge read and wrote."""
    work_seconds: float | None = None
    """What it computed: the judge's share of its engine, and the jobs of tools without what they waited for the sandbox
    and for a core. None where that is all of its time."""

    @property
    def passed(self) -> bool:
        """Return whether the gate was run and found nothing wrong."""
        return self.status == "passed"


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and seconds of one generation."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """How many tokens of the prompt came from a shared prefix."""
    output_tokens: int = 0
    queued_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    estimated_tokens: int = 0
    """How many tokens of prompt and output together were estimated, because a server did not count them."""
    reasoning_tokens: int = 0
    """How many of the output tokens belong to thoughts, and not to the answer."""
    work_seconds: float = 0.0
    """Its share of the engine's computing: the time of each engine step, divided by tokens among the sequences in it.
    Time in which it waited is not in it. 0 where it was not measured, as by early versions."""
    alone_seconds: float = 0.0
    """How long the same computing would have taken if it had been alone in the engine, by the engine's step costs."""
    packed_seconds: float = 0.0
    """Its share if every engine step had been as wide as is best for tokens per second, by the engine's step costs."""


@dataclass(frozen=True, slots=True)
class EscalationTarget:
    """The role that takes over from a weaker one, and its level if it has one."""

    role: str
    level: Level | None = None


@dataclass(frozen=True, slots=True)
class RoleRates:
    """Typical rates and lengths of a role, or of one kind of its steps. What others computed meanwhile is left out."""

    prefill_rate: float = 500.0
    """Tokens of a prompt per second."""
    decode_rate: float = 50.0
    """Tokens of an answer per second."""
    prompt_tokens: float = 300.0
    """Tokens of a prompt, without those that were in a cache."""
    output_tokens: float = 100.0
    """Tokens of an answer."""
    packing: float = 0.0
    """The least share of the engine's time that a generation takes beside others, as a part of its time alone; 0 where
    nothing was measured."""
    other_seconds: float = 0.0
    """What an attempt takes besides its generation, without waiting for a slot."""
    spread: float = 1.0
    """The standard deviation of the natural logarithm of the measured seconds over the typical ones."""
    common: float = 0.5
    """Which part of the square of the spread all steps of a run have in common, as on a busy machine; from 0 to 1."""
    generations: int = 0
    """How many generations this was taken from; 0 for assumptions, and in journals of early versions."""


@dataclass(frozen=True, slots=True)
class PromptDigests:
    """The SHA-256 digests of the texts with which an attempt's prompts began; empty where there was no such text."""

    system: str = ""
    """Of the role's system prompt."""
    persona: str = ""
    """Of the text that the persona adds to it."""
    shipped: str = ""
    """The set of prompts that ship which the model got: name, version and the beginning of the digest of its file."""


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """A choice that a router has considered."""

    role: str
    persona: str | None
    model: str
    score: float
    """Higher is better; the unit is the router's."""


@dataclass(frozen=True, slots=True)
class AdviceVoice:
    """An episode of the memory that spoke for or against an action."""

    episode: int
    similarity: float
    """The cosine of its situation and the one at hand."""
    q: float
    """Its expected reward at that time."""
    weight: float
    """Its part in what similar episodes expect of the action, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEstimate:
    """What the memory expects of an action."""

    role: str
    persona: str
    model: str
    thinking: str
    mode: str
    value: float
    """Its worth less its price: the best action is the one with the highest value."""
    worth: float
    """The expected reward."""
    error: float
    """The standard error of the worth."""
    price: float
    """What it costs, in units of reward."""
    head: float
    """The expected reward by the parametric head alone."""
    head_part: float
    """The head's part in the worth, from 0 to 1; the rest is that of similar episodes."""
    support: float
    """How many episodes of similarity 1 the similar ones are worth."""
    probability: float
    """How probable it was that this action is taken."""
    voices: tuple[AdviceVoice, ...] = ()
    """The similar episodes that had the greatest weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAdvice:
    """What the memory advised for a choice, whether or not it was followed.

    The names of an action's parts are empty for none, or for what the registry says.
    """

    asked: str
    """The role that was asked for."""
    role: str
    persona: str
    model: str
    thinking: str
    mode: str
    confidence: float
    """How probable it is, by the memory, that no other action is clearly better."""
    followed: bool
    """Whether the choice is the memory's; the rules made it otherwise."""
    explored: bool
    """Whether another action was tried on purpose, to learn about it."""
    why: str
    """Why the advice was followed or not."""
    rules: str
    """What the rules choose, in words."""
    estimates: tuple[AdviceEstimate, ...] = ()
    """What was expected of each action, the best one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeForecast:
    """What the two ways to answer a request were predicted to take, in seconds."""

    direct_seconds: float
    """The one step that answers the whole request."""
    plan_seconds: float | None = None
    """The critical path of the plan; None if the plan was not known when the choice was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """A router's choice of how the plan of a request is run."""

    reason: str
    propensity: float
    """The probability of the choice."""
    router: str
    advice: RouteAdvice | None = None
    """What the memory advised; None where it was not asked."""
    forecast: ModeForecast | None = None
    """What a direct answer was predicted to take; None in journals of early versions."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """The size of something that a step reads."""

    name: str
    bytes: int | None
    """None if the size could not be found out."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How much a run may use before it is cancelled; None means no limit."""

    tokens: int | None = None
    """Tokens of prompts and answers."""
    seconds: float | None = None
    """Seconds since the run began, without the time in the queue."""
    bytes: int | None = None
    """Bytes of artifacts."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the models of a run's steps are asked. It holds for all steps that a model carries out, not for the plan."""

    temperature: float | None = None
    """None leaves it to the role."""
    top_p: float | None = None
    """None leaves it to the role."""
    seed: int | None = None
    """The seed of every answer; None for a random one each."""
    thinking: str = ""
    """How much the models may think, as `thinking` of a role; empty leaves it to the router and the role."""


@dataclass(frozen=True, slots=True)
class PlanPersona:
    """A persona that a plan defines for its steps."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PlanKey:
    """What the run of a plan is compared by with earlier runs, to learn how far predictions of such plans are off."""

    shape: str
    """A digest of the kinds of its steps, what they wait for, and how much they read; texts are no part of it."""
    content: str
    """A digest of the whole task, texts included."""
    predicted_seconds: float
    """The critical path by the rates of its steps alone, before `RunAccepted.pace`; 0 where the rates of some step were
    nothing but assumed, so that a pace would tell of the assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted:
    """A request or a TaskIR document was accepted. The event has everything that the run depends on.

    So a replay has the same result, and a registry or a history that changes later does not change the run.
    """

    at: float
    run: str
    """The id of the run."""
    mode: Mode
    request: str | None = None
    """The request in words, if there is no task."""
    task: TaskIR | None = None
    directory: str | None = None
    """The folder whose files steps may read."""
    files: tuple[str, ...] = ()
    """The names of the files in the folder."""
    rungs: Mapping[str, EscalationTarget] = field(default_factory=dict)
    """The role that takes over from each role, by role. The journal knows them by this name."""
    rates: Mapping[str, RoleRates] = field(default_factory=dict)
    """What was typical of each role, by role, and of kinds of steps, by the keys of `prediction.keys_of`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of inputs and files that steps may read, by name, as far as predictions need them."""
    plan_key: PlanKey | None = None
    """None for a request that is still to be planned, and for a plan that is too long to be compared."""
    pace: float = 1.0
    """How many times longer the steps take than by their rates, as earlier runs of such a plan did."""
    max_replans: int = 0
    """How often the plan may be continued after its last step."""
    prior: Mapping[str, str] = field(default_factory=dict)
    """Artifacts of earlier runs, and texts that came with the request, that steps may read: digest by the name that
    they have in this run."""
    follows: tuple[str, ...] = ()
    """The ids of those earlier runs, without the ones that the task itself names."""
    warnings: tuple[str, ...] = ()
    """What the task names that was not here, such as a model that is only hinted at."""
    priority: Priority = "interactive"
    limits: RunLimits = field(default_factory=RunLimits)
    model: str | None = None
    """The model that all steps have to use, whatever a router would choose."""
    mode_choice: ModeChoice | None = None
    """How a router chose the mode; None where the user did, or nobody."""
    options: RunOptions = field(default_factory=RunOptions)
    """How the models of the steps are asked."""
    key: str | None = None
    """The idempotency key. No two runs have the same one: a second request with it gets the existing run."""
    owner: str = ""
    """Who submitted it: `user:NAME`, `token`, or `token:NAME`. Empty for runs from before owners were recorded."""
    digest: str = ""
    """The digest of the request of a client that waits for the answer, by which the request is recognised when it is
    sent again without a key; empty where no client waits."""
    kind: Literal["run_accepted"] = "run_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegun:
    """A run has left the queue and begins. The event is repeated when the run continues after a restart."""

    at: float
    kind: Literal["run_begun"] = "run_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStarted:
    """The frontdoor has been asked for a plan; with `direct`, it has not been, as one step answers the request."""

    at: float
    role: str
    model: str
    direct: bool = False
    kind: Literal["planning_started"] = "planning_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPlanned:
    """Steps were added to the plan. They do not change any more, and name only each other and earlier steps."""

    at: float
    steps: tuple[Step, ...]
    written: str = ""
    """The text of the frontdoor that the steps were made from; empty if it did not write them."""
    personas: tuple[PlanPersona, ...] = ()
    """The personas that these steps define. From now on they can be used like any other."""
    kind: Literal["steps_planned"] = "steps_planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFinished:
    """The plan is complete, at least up to the step after which it will be continued."""

    at: float
    origin: PlanOrigin
    reason: str = ""
    """Why the plan had to be repaired or replaced, or why the request is answered directly instead; empty otherwise."""
    forecast: ModeForecast | None = None
    """What the plan and a direct answer were predicted to take; None if they were not compared."""
    usage: Usage = field(default_factory=Usage)
    goes_on_after: str | None = None
    """The last step, if the frontdoor is to be asked for the rest of the plan when that step is done, unless the run's
    `max_replans` are used up. If it is None, there will be no more steps."""
    reasoning: str = ""
    """The SHA-256 digest of what the models have thought, which is an object; empty where they have not."""
    wanted: tuple[str, ...] = ()
    """The outputs that the user wants, in the order of the request. If empty, those that no other step reads."""
    kind: Literal["plan_finished"] = "plan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """There is no plan at all, because the frontdoor's engine could not run or the request needs what is not here."""

    at: float
    failure: Failure
    missing: tuple[str, ...] = ()
    """What the request needs and is not here, a sentence for each thing; empty for any other failure."""
    kind: Literal["plan_failed"] = "plan_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanStarted:
    """Step `after` is done, and the frontdoor has been asked to continue the plan. It is repeated after a restart."""

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
    reason: str = ""
    """Why the continuation had to be repaired or was stopped, if it was."""
    usage: Usage = field(default_factory=Usage)
    asked: int = 1
    """How often the frontdoor was asked."""
    goes_on_after: str | None = None
    """As in PlanFinished."""
    reasoning: str = ""
    """The SHA-256 digest of what the models have thought, which is an object; empty where they have not."""
    wanted: tuple[str, ...] = ()
    """As in PlanFinished, now for the whole plan."""
    kind: Literal["replan_finished"] = "replan_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReplaced:
    """All steps have ended, the plan has failed, and one more step answers the whole request directly.

    The run then ends as this step does.
    """

    at: float
    answer: Step
    """The step."""
    reason: str
    """Why the plan has failed."""
    kind: Literal["plan_replaced"] = "plan_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExpanded:
    """The list of a `foreach` step exists and has `count` items. The step runs as that many children.

    Journals of earlier versions do not have the fields from `read_as` on.
    """

    at: float
    step: str
    count: int
    read_as: ListReading = "json"
    """How the list was read."""
    items: tuple[str, ...] = ()
    """The items, if the list was asked for again."""
    usage: Usage = field(default_factory=Usage)
    """What asking again took."""
    kind: Literal["step_expanded"] = "step_expanded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGathered:
    """The children of a `foreach` step are done, and their outputs have been joined into lists, in order."""

    at: float
    step: str
    outputs: Mapping[str, str]
    originals: Mapping[str, str] = field(default_factory=dict)
    """As in AttemptSucceeded."""
    kind: Literal["step_gathered"] = "step_gathered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A router has chosen role, persona and model of an attempt, and the attempt begins.

    Journals of earlier versions do not have the fields from `inputs` on.
    """

    at: float
    step: str
    number: int
    role: str
    """The chosen role, which retries, escalation and limits follow. The scheduler may have asked for another one."""
    persona: str | None
    model: str
    reason: str
    """Why the router chose them."""
    propensity: float = 1.0
    """The probability of the choice."""
    candidates: tuple[RouteCandidate, ...] = ()
    """What the router considered."""
    router: str = ""
    """The router's name and version."""
    problem: str = ""
    """Why the attempt cannot be carried out with this choice; empty if it can."""
    inputs: tuple[InputSize, ...] = ()
    """What the step reads. The choice could depend on it, and on the next two fields."""
    slack: float = 0.0
    """How many seconds later the step may finish without moving the end of the run."""
    resident: tuple[str, ...] = ()
    """The models that were loaded."""
    step_kind: str = ""
    """The kind of the step, as predictions tell kinds apart (`prediction.kind_of`)."""
    prompts: PromptDigests = PromptDigests()
    """The versions of the prompts that the attempt uses."""
    thinking: str = ""
    """How much the model may think; empty for what the registry says."""
    advice: RouteAdvice | None = None
    """What the memory advised; None where it was not asked."""
    unforced: float | None = None
    """How probable the same choice would have been if the user had forced no part of it; None if nothing was forced."""
    kind: Literal["attempt_started"] = "attempt_started"


MODEL_CALLS: Final = frozenset({"llm_call", "llm_batch"})
"""The calls by which a step's code asks models. What they compute is a part of the attempt's usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """An attempt's call of a tool, or of a model from its code, has ended."""

    at: float
    step: str
    number: int
    tool: str
    arguments: str
    """The arguments as JSON, shortened if they are long."""
    outcome: CallOutcome
    """"refused" if the call was not carried out, "failed" if the call or the program that it ran failed."""
    message: str = ""
    """Why it was refused or failed."""
    seconds: float = 0.0
    work_seconds: float | None = None
    """What it computed, without what its jobs waited for the sandbox and for a core, and without `awaited_seconds`;
    None where that is all of its time."""
    awaited_seconds: float = 0.0
    """How long it waited for the answer of an MCP server, as it would have also with nothing else running."""
    kind: Literal["tool_called"] = "tool_called"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChanged:
    """A step has changed the run's notes."""

    at: float
    step: str
    number: int
    note: str
    """The name of the note."""
    change: NoteChange
    text: str = ""
    """The text of the note after the change; empty if the note was dropped."""
    kind: Literal["note_changed"] = "note_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAwaited:
    """A model has failed too often, so what a step or the plan asks of it waits. This wait costs no retry."""

    at: float
    step: str | None
    """None for the plan."""
    number: int
    """The number of the attempt, 0 for the plan."""
    model: str
    reason: str
    seconds: float | None
    """In how many seconds the model is tried again; None if that depends on a request that tries it now."""
    kind: Literal["model_awaited"] = "model_awaited"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptGenerated:
    """The model has finished; the gates now check the outputs."""

    at: float
    step: str
    number: int
    usage: Usage
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What the gates check. After a restart they check it again, and the model is not asked again. Empty if there are
    no gates or no outputs, and in journals of early versions: then the attempt is made again."""
    kind: Literal["attempt_generated"] = "attempt_generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSucceeded:
    """No gate has failed, and the step's outputs are stored."""

    at: float
    step: str
    number: int
    outputs: Mapping[str, str]
    gates: tuple[GateResult, ...] = ()
    reasoning: str = ""
    """The SHA-256 digest of what the models have thought, which is an object; empty where they have not."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """The digests of the files of the folder that the attempt has read, by name."""
    originals: Mapping[str, str] = field(default_factory=dict)
    """The digests of the files of the folder with the names of the outputs, as the attempt found them; empty for no
    file. They are objects. A file that could not be read is not among them."""
    kind: Literal["attempt_succeeded"] = "attempt_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt failed. For a `foreach` step that could not be expanded or gathered, `number` is 0."""

    at: float
    step: str
    number: int
    failure: Failure
    gates: tuple[GateResult, ...] = ()
    reasoning: str = ""
    """The SHA-256 digest of what the models have thought, which is an object; empty where they have not."""
    answer: str = ""
    """The SHA-256 digest of the answer that failed, which is an object; empty if there was none."""
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
    """The user has cancelled the whole run (`step` is None), or one step and the steps that depend on it."""

    at: float
    step: str | None = None
    reason: str = "cancelled by the user"
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True)
class AnswerDoubt:
    """A reason to doubt that an answer does what was asked for."""

    text: str
    """One sentence, such as "You asked for 5 questions; the answer has 3."."""
    step: str = ""
    """The step that has written what is doubtful; empty if it is no single step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChecked:
    """All steps are done, and the answer was compared with the request.

    If there are doubts, the steps that they name run once more, each with the doubts about it as evidence, and the
    answer is compared a second time.
    """

    at: float
    doubts: tuple[AnswerDoubt, ...] = ()
    restored: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The outputs by step that stand although a repair has written others, because those are not better."""
    kind: Literal["answer_checked"] = "answer_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run has ended. Only ratings can follow this event."""

    at: float
    status: Literal["done", "failed", "cancelled"]
    error: str | None = None
    doubt: str = ""
    """Why the answer of a run that is done is doubtful, in one sentence for each reason; empty if nothing is known."""
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGiven:
    """Somebody has rated a run after its end, or one step of it."""

    at: float
    score: float
    """From 0 (bad) to 1 (good)."""
    by: str
    """Who gave the rating, as `RunAccepted.owner`; a name in ratings of early versions."""
    step: str | None = None
    """The rated step, or None for the run as a whole."""
    note: str = ""
    """A comment on the rating; may be empty."""
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
    | AnswerChecked
    | RunFinished
    | RatingGiven
)
