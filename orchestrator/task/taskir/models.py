"""Define the models of a TaskIR document. They are frozen and strict, and can be dumped as they were read."""

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.task.taskir.fields import (
    MAX_ITEMS,
    MAX_STEPS,
    ArtifactNames,
    CommandWords,
    Concurrency,
    FilledText,
    Flag,
    FreeForm,
    JsonObject,
    Name,
    Names,
    Reads,
    Seconds,
    StepId,
    StepIds,
    Text,
    Texts,
    Timestamp,
    Tokens,
)

StepKind = Literal["generate", "repl", "tool"]
StepContext = Literal["own", "sources", "shared"]


@dataclass(frozen=True, slots=True)
class KindRow:
    description: str  # what such a step does, for TaskIR's JSON Schema
    runner: str  # makes what carries it out, as `MODULE:FUNCTION` in `orchestrator.run.steps`
    acts: bool = True  # does more than write text, even without tools: so it may have no outputs, and its order matters
    calls_tools: bool = False  # must have tools; may be one call that the document gives
    sandboxed: bool = False  # runs code in the sandbox


KINDS: Final[Mapping[StepKind, KindRow]] = {
    "generate": KindRow("generate text", "generate:runner", acts=False),
    "repl": KindRow("work by writing Python in the sandbox, turn by turn", "repl.attempt:runner", sandboxed=True),
    "tool": KindRow("use tools", "tools.attempt:runner", calls_tools=True),
}


Level = Literal["B1", "B2", "B3"]
InputType = Literal["path", "url", "text", "image", "audio"]

# Describes fields that are accepted and returned, but change nothing in a run.
UNUSED = "kept for readers of the document: it is in no prompt, and nothing depends on it"
_KINDS = "; ".join(f"{kind}: {row.description}" for kind, row in KINDS.items())


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Record):
    """One node of the DAG: which role does what, with which inputs, and the outputs."""

    id: StepId = Field(description="S1, S2, …; unique in a plan")
    actor: Name = Field(description="the role that does the step")
    action: FilledText = Field(description="what to do, in plain language")
    outputs: ArtifactNames = Field(
        description="the artifacts the step writes: relative POSIX names; that of an input or a file is a new version"
    )
    inputs: Reads = Field(
        default=(), description="what the step reads: artifacts of earlier steps in the document, input labels, files"
    )
    context: StepContext | None = Field(
        default=None,
        description="what the step reads in addition to its inputs; without it, what the plan's context says",
    )
    depends_on: StepIds = Field(default=(), description="steps that must be done before this one starts")
    parallel_group: Name | None = Field(
        default=None, description=f"a name for steps meant to run side by side; {UNUSED}"
    )
    run_gates: Flag = Field(default=True, description="false: no gate looks at this step's outputs")
    timeout_seconds: Seconds | None = Field(default=None, description="limit for each attempt, without gates")
    persona: Name | None = Field(default=None, description="the persona with which the role does it")
    foreach: Name | None = Field(
        default=None, description="a JSON list: the step runs once for each of its items, at most 10,000"
    )
    kind: StepKind = Field(default="generate", description=_KINDS)
    tools: Names = Field(default=(), description="the tools the step may use; those of MCP servers as mcp:SERVER/TOOL")
    arguments: JsonObject | None = Field(
        default=None,
        description='kind tool: the step is one call of its only tool; {"$input": NAME} is the text of an input',
    )
    output_schema: JsonObject | None = Field(default=None, description="a JSON Schema the output has to match")
    max_tokens: Tokens | None = Field(default=None, description="limit on the tokens of one answer")
    gates: Names | None = Field(default=None, description="gates for this step instead of the task's")

    @property
    def acts(self) -> bool:
        """Whether it does more than write text."""
        return KINDS[self.kind].acts or bool(self.tools)

    @property
    def is_call(self) -> bool:
        """Whether it is one call of a tool, without a model."""
        return KINDS[self.kind].calls_tools and self.arguments is not None


class Parallelism(_Record):
    """Limits on what runs at once, over the whole plan."""

    max_concurrent_steps: Concurrency | None = Field(default=None, description="steps that may run at once")
    max_concurrent_workers: Concurrency | None = Field(default=None, description="worker steps that may run at once")


class Plan(_Record):
    """The steps, in document order, and how many may run at once."""

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_STEPS)] = Field(
        description="the steps; one may read what those before it write"
    )
    parallelism: Parallelism = Field(default_factory=Parallelism, description="how many may run at once")
    context: StepContext = Field(
        default="own",
        description="what steps read in addition to their inputs: own: nothing; sources: the texts that the outputs of"
        " other steps were made from; shared: all inputs and files that any step of the plan reads",
    )
    wanted: Names = Field(
        default=(),
        description="the outputs that make the answer, in this order; without it those that no other step reads",
    )
    check_answer: bool = Field(
        default=False, description="compare the answer with the objective when all steps are done, and repair it once"
    )


class TaskInput(_Record):
    """An input of the task. Steps read it by its label."""

    type: InputType = Field(description="what the value is; runs read path and text, and refuse the other types")
    value: Text = Field(description="the text itself, or the path or address of it")
    label: Name | None = Field(default=None, description="its name; without one a path or url goes by its value")
    content_type: Name | None = Field(default=None, description=f"a media type such as text/markdown; {UNUSED}")


class Agent(_Record):
    """What the plan wants from one role."""

    tier: Literal["A", "B", "C", "D"] = Field(description="C: the role's steps are worker steps; others change nothing")
    role: Name = Field(description="the role, by its name in the registry")
    model_hint: Name | None = Field(default=None, description="the model to prefer, by its id in the registry")
    max_concurrency: Concurrency | None = Field(default=None, description="steps of this role that may run at once")
    persona_hint: Name | None = Field(default=None, description="the persona for steps that name none")
    notes: Text | None = Field(default=None, description=f"a note; {UNUSED}")


class Escalation(_Record):
    """How far a failing step may escalate."""

    max_level: Level = Field(default="B3", description="the highest level of specialist that may be asked")
    on_second_failure: Flag = Field(
        default=False, description="escalate at the second failure of any kind that escalates at all"
    )
    notes: Text | None = Field(default=None, description=f"a note; {UNUSED}")


class Bench(_Record):
    """The command of the gate bench, and how long it may take."""

    run: CommandWords = Field(description="the command, word by word: no shell reads it")
    max_seconds: Seconds = Field(description="how long the quickest of three runs may take")


class Commands(_Record):
    """Commands that gates run in the sandbox, in a folder with the outputs of a step and the texts that it reads."""

    build: CommandWords | None = Field(default=None, description="the command of the gate build, word by word")
    bench: Bench | None = Field(default=None, description="the command of the gate bench, and its threshold")


class Context(_Record):
    """The circumstances of the task."""

    conversation_id: Name | None = Field(default=None, description=f"the conversation it belongs to; {UNUSED}")
    prior_task_ids: Names = Field(
        default=(), description="earlier runs whose artifacts steps may read, by their id or their document's task_id"
    )
    relevant_files: Reads = Field(
        default=(), description=f"files that matter to it; {UNUSED}, so name them in the inputs of steps"
    )
    notes: Text | None = Field(default=None, description=f"a note; {UNUSED}")


class TaskIR(_Record):
    """A task: its objective, its inputs, and the plan of steps that reaches the objective."""

    task_id: Name | None = Field(default=None, description="a name, by which later documents may name runs of it")
    task_type: Literal["chat", "doc", "code", "ingest", "manage"] = Field(
        default="chat", description=f"the kind of work; {UNUSED}"
    )
    priority: Literal["interactive", "batch"] = Field(
        default="interactive", description="interactive runs start first, and their requests go first"
    )
    objective: FilledText = Field(description="the aim, in plain language")
    inputs: Annotated[tuple[TaskInput, ...], Field(max_length=MAX_ITEMS)] = Field(
        default=(), description="texts and files that steps read by a label"
    )
    constraints: Texts = Field(
        default=(), description=f"what the result has to keep to; {UNUSED}, so say it in the actions of steps"
    )
    assumptions: Texts = Field(default=(), description=f"what was taken for granted; {UNUSED}")
    agents: Annotated[tuple[Agent, ...], Field(max_length=MAX_ITEMS)] = Field(
        default=(), description="what the plan wants from roles"
    )
    plan: Plan = Field(description="the steps, and how many may run at once")
    gates: Names = Field(default=(), description="gates that look at the outputs of every step")
    commands: Commands = Field(default_factory=Commands, description="commands of gates that have none of their own")
    definition_of_done: Texts = Field(
        default=(), description=f"how to know that the objective is reached; {UNUSED}, so give the steps gates"
    )
    escalation: Escalation = Field(default_factory=Escalation, description="how far a failing step may escalate")
    created_at: Timestamp | None = Field(default=None, description="ISO 8601, kept as it is written")
    context: Context = Field(default_factory=Context, description="the circumstances of the task")
    formalization: FreeForm = Field(default=None, description=f"a formal statement of the task, in any form; {UNUSED}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each input: its label, else a path's or url's value, else `input1`, `input2`, …."""
        return tuple(
            item.label or (item.value if item.type in ("path", "url") and item.value else f"input{number}")
            for number, item in enumerate(self.inputs, start=1)
        )

    @property
    def paths(self) -> dict[str, TaskInput]:
        """Labelled inputs of type path, by path: a step may name either."""
        # A path that is also another input's name stands for that one. Of two inputs with one path the first counts.
        labels, named = frozenset(self.labels), dict[str, TaskInput]()
        for item in self.inputs:
            if item.type == "path" and item.label and item.value and item.value not in labels:
                named.setdefault(item.value, item)
        return named

    @property
    def paths_by_label(self) -> dict[str, str]:
        """Paths of labelled inputs by label, except paths that are also another input's name."""
        labels = frozenset(self.labels)
        paths = [item for item in self.inputs if item.type == "path" and item.value and item.value not in labels]
        return {item.label: item.value for item in paths if item.label}


def find_name(name: str, known: Collection[str]) -> str | None:
    """Return this name from `known`, or else the first that looks the same; None for none."""
    if name in known or name.isascii():
        return name if name in known else None
    composed = compose_name(name)
    return min((candidate for candidate in known if compose_name(candidate) == composed), default=None)


def compose_name(name: str) -> str:
    """Return a name in NFC, so that names that look the same are equal."""
    return unicodedata.normalize("NFC", name)


INPUT = "$input"


def fill_arguments(arguments: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments with each reference replaced by its text. Raises KeyError for a name not in `inputs`."""
    reads = input_references(arguments)
    return {name: inputs[reads[name]] if name in reads else value for name, value in arguments.items()}


def input_references(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the referenced input names by argument name."""
    return {name: value[INPUT] for name, value in arguments.items() if _is_reference(value)}


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {INPUT} and isinstance(value[INPUT], str)
