"""Check a valid task for what this installation cannot do."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from orchestrator.errors import Problem
from orchestrator.task.taskir.models import KINDS, Agent, Step, TaskIR, input_references
from orchestrator.task.taskir.patterns import BadPattern, read_pattern
from orchestrator.task.taskir.problems import MAX_PROBLEMS, format_known_names, format_value, pointer
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, patterns_in, schema_mismatch

WRITE_ARTIFACT: Final = "write_artifact"  # the tool that writes outputs of its step, by name


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The names of what an installation has."""

    roles: frozenset[str]
    personas: frozenset[str]
    gates: frozenset[str]
    kinds: frozenset[str]  # of steps
    input_types: frozenset[str]  # of task inputs
    models: frozenset[str]
    tools: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # JSON Schema of each tool's arguments
    # Why some kinds of steps and tools do not work here, by name.
    unavailable: Mapping[str, str] = field(default_factory=dict)
    # Why some roles of the registry do not work, by name.
    unavailable_roles: Mapping[str, str] = field(default_factory=dict)


def check_task(task: TaskIR, capabilities: Capabilities) -> tuple[Problem, ...]:
    """Return a problem for each thing in the task that the installation lacks, up to about fifty."""
    problems: list[Problem] = []
    for problem in _problems(task, capabilities):
        problems.append(problem)
        if len(problems) > MAX_PROBLEMS:
            break
    return tuple(problems)


def check_hints(task: TaskIR, capabilities: Capabilities) -> tuple[Problem, ...]:
    """Return a problem for each hint of an agent that this installation cannot follow. Tasks run in spite of them."""
    problems: list[Problem] = []
    for index, agent in enumerate(task.agents):
        where = ("agents", index)
        problems += _check_known((*where, "model_hint"), "model", agent.model_hint, capabilities.models)
        problems += _check_known((*where, "persona_hint"), "persona", agent.persona_hint, capabilities.personas)
    return tuple(problems[:MAX_PROBLEMS])


def _problems(task: TaskIR, capabilities: Capabilities) -> Iterator[Problem]:
    yield from _inputs(task, capabilities)
    for index, agent in enumerate(task.agents):
        yield from _agent(index, agent, capabilities)
    yield from _check_all_known(("gates",), "gate", task.gates, capabilities.gates)
    for index, step in enumerate(task.plan.steps):
        yield from _step(index, step, capabilities)
    written = dict.fromkeys(name for step in task.plan.steps for name in step.outputs)
    yield from _check_all_known(("plan", "wanted"), "output", task.plan.wanted, written)
    yield from _output_schemas(task)


def _inputs(task: TaskIR, capabilities: Capabilities) -> Iterator[Problem]:
    for index, item in enumerate(task.inputs):
        where = ("inputs", index)
        yield from _check_known((*where, "type"), "type of input", item.type, capabilities.input_types)
        if item.type in ("path", "url") and not item.value:
            yield Problem(pointer((*where, "value")), '"" names nothing', f"a {item.type}")


def _agent(index: int, agent: Agent, capabilities: Capabilities) -> Iterator[Problem]:
    where = ("agents", index)
    yield from _check_available(
        (*where, "role"), "role", agent.role, capabilities.roles, capabilities.unavailable_roles
    )


def _step(index: int, step: Step, capabilities: Capabilities) -> Iterator[Problem]:
    where = ("plan", "steps", index)
    yield from _check_available(
        (*where, "actor"), "role", step.actor, capabilities.roles, capabilities.unavailable_roles
    )
    yield from _check_known((*where, "persona"), "persona", step.persona, capabilities.personas)
    yield from _check_available(
        (*where, "kind"), "kind of step", step.kind, capabilities.kinds, capabilities.unavailable
    )
    yield from _check_all_known((*where, "gates"), "gate", step.gates or (), capabilities.gates)
    yield from _tools(where, step, capabilities)
    if not KINDS[step.kind].acts and not step.outputs:
        yield Problem(pointer((*where, "outputs")), "a step that generates must write something", "a name at least")


def _tools(where: tuple[str | int, ...], step: Step, capabilities: Capabilities) -> Iterator[Problem]:
    if step.tools and not any(row.acts and name in capabilities.kinds for name, row in KINDS.items()):
        yield Problem(
            pointer((*where, "tools")), f"{format_value(step.tools[0])}: steps have no tools here", "no tools"
        )
        return
    for index, name in enumerate(step.tools):
        yield from _check_available(
            (*where, "tools", index), "tool", name, capabilities.tools, capabilities.unavailable
        )
    if KINDS[step.kind].calls_tools and not step.tools:
        flaw = f"a step of kind {step.kind} must have some"
        yield Problem(pointer((*where, "tools")), flaw, ", ".join(capabilities.tools))
    if step.arguments is not None:
        yield from _arguments((*where, "arguments"), step, step.arguments, capabilities)


def _arguments(
    path: tuple[str | int, ...], step: Step, arguments: Mapping[str, object], capabilities: Capabilities
) -> Iterator[Problem]:
    if not step.is_call or len(step.tools) != 1:
        yield Problem(pointer(path), "these are of one call, and the step is none", "kind tool, and one tool")
        return
    if step.tools[0] == WRITE_ARTIFACT:
        yield from _written_name(path, step, arguments)
    reads, readable = input_references(arguments), {*step.inputs, *filter(None, [step.foreach])}
    for name, read in reads.items():
        yield from _check_known((*path, name), "input", read, readable)
    # The text of an input is only known when the step runs, so until then it is not checked.
    literals = {name: "" if name in reads else value for name, value in arguments.items()}
    accepted = f"what {step.tools[0]} takes"
    try:
        wrong = OutputSchema(capabilities.tools.get(step.tools[0], {})).mismatches(literals)
    except BadSchema as error:
        flaw = f"they cannot be checked by the schema of {step.tools[0]}: {error}"
        yield Problem(pointer(path), flaw, "a tool with another schema")
        return
    for place, message in wrong:
        if not (place and place[0] in reads):
            yield Problem(pointer((*path, *place)), message, accepted)


def _written_name(path: tuple[str | int, ...], step: Step, arguments: Mapping[str, object]) -> Iterator[Problem]:
    # Such a call would fail.
    name, outputs = arguments.get("name"), ", ".join(step.outputs) or "none"
    if step.foreach is not None:
        own = f"such as {step.outputs[0]}[0]" if step.outputs else "named by its number"
        message = f"each child of a foreach writes an output of its own, {own}, which the same arguments cannot name"
        yield Problem(
            pointer(path), message, f"no foreach, or a tool whose result is the output instead of {WRITE_ARTIFACT}"
        )
    elif isinstance(name, str) and name not in step.outputs:
        yield Problem(pointer((*path, "name")), f"{format_value(name)} is no output of the step", outputs)


def _check_available(
    path: tuple[str | int, ...], noun: str, name: str, names: Collection[str], unavailable: Mapping[str, str]
) -> Iterator[Problem]:
    if name in unavailable:
        yield Problem(
            pointer(path), f"{noun} {format_value(name)} is not available here: {unavailable[name]}", ", ".join(names)
        )
    else:
        yield from _check_known(path, noun, name, names)


def _check_known(path: tuple[str | int, ...], noun: str, name: str | None, names: Collection[str]) -> Iterator[Problem]:
    if name is not None and name not in names:
        yield Problem(pointer(path), f"unknown {noun} {format_value(name)}", format_known_names(names, name))


def _check_all_known(
    path: tuple[str | int, ...], noun: str, names: Collection[str], accepted: Collection[str]
) -> Iterator[Problem]:
    for index, name in enumerate(names):
        yield from _check_known((*path, index), noun, name, accepted)


def _output_schemas(task: TaskIR) -> Iterator[Problem]:
    # Check each schema once: many steps may share one, and a check takes most of a millisecond.
    judged: set[str] = set()
    for index, step in enumerate(task.plan.steps):
        if step.output_schema is None:
            continue
        text = json.dumps(step.output_schema)
        if text not in judged:
            judged.add(text)
            yield from _output_schema(("plan", "steps", index, "output_schema"), step.output_schema)


def _output_schema(path: tuple[str | int, ...], schema: dict[str, object]) -> Iterator[Problem]:
    if (wrong := schema_mismatch(schema)) is not None:
        at = pointer((*path, *wrong.path))
        yield Problem(at, f"not a JSON Schema: {wrong.message}", "JSON Schema (2020-12)")
        return
    for where, pattern in patterns_in(schema, path):
        try:
            read_pattern(pattern)
        except BadPattern as error:
            yield Problem(pointer(where), str(error), "a regular expression")
    for where, reference in _references(path, schema):
        if not _leads_somewhere(schema, reference):
            yield Problem(
                pointer(where), f"{format_value(reference)} is not in this schema", "references such as #/$defs/name"
            )


def _references(path: tuple[str | int, ...], schema: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    # Recursion is bounded: a parsed document is at most MAX_DEPTH deep.
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield (*path, key), value
            yield from _references((*path, key), value)
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _references((*path, index), value)


def _anchors(schema: object) -> Iterator[object]:
    if isinstance(schema, dict):
        if "$anchor" in schema:
            yield schema["$anchor"]
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _anchors(part)


def _leads_somewhere(schema: object, reference: str) -> bool:
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return reference.startswith("#") and unquote(reference[1:]) in _anchors(schema)
    at = schema
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isascii() and key.isdecimal() and len(key) < 9 and int(key) < len(at):
            at = at[int(key)]
        else:
            return False
    return True
