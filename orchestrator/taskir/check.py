"""Say what of a valid task this installation cannot do."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from orchestrator.errors import Problem
from orchestrator.taskir.arguments import references
from orchestrator.taskir.models import Agent, Step, TaskIR
from orchestrator.taskir.patterns import BadPattern, check_pattern, patterns_in
from orchestrator.taskir.problems import MAX_PROBLEMS, known_names, pointer, shown


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The names of what an installation has. `kinds` are kinds of step, `input_types` types of input.

    `tools` maps each tool to the JSON Schema of its arguments. `why_not` says why kinds and tools that there are cannot
    be had here.
    """

    roles: frozenset[str]
    personas: frozenset[str]
    gates: frozenset[str]
    kinds: frozenset[str]
    input_types: frozenset[str]
    models: frozenset[str]
    tools: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)


def check_task(task: TaskIR, can: Capabilities) -> tuple[Problem, ...]:
    """Return a problem for each thing that `can` does not allow: its pointer, the value, and what is accepted.

    Past the first fifty problems it stops looking.
    """
    problems: list[Problem] = []
    for problem in _problems(task, can):
        problems.append(problem)
        if len(problems) > MAX_PROBLEMS:
            break
    return tuple(problems)


def _problems(task: TaskIR, can: Capabilities) -> Iterator[Problem]:
    yield from _inputs(task, can)
    for index, agent in enumerate(task.agents):
        yield from _agent(index, agent, can)
    yield from _unknown(("gates",), "gate", task.gates, can.gates)
    for index, step in enumerate(task.plan.steps):
        yield from _step(index, step, can)
    yield from _output_schemas(task)


def _inputs(task: TaskIR, can: Capabilities) -> Iterator[Problem]:
    for index, item in enumerate(task.inputs):
        where = ("inputs", index)
        yield from _known((*where, "type"), "type of input", item.type, can.input_types)
        if item.type in ("path", "url") and not item.value:
            yield Problem(pointer((*where, "value")), '"" names nothing', f"a {item.type}")


def _agent(index: int, agent: Agent, can: Capabilities) -> Iterator[Problem]:
    where = ("agents", index)
    yield from _known((*where, "role"), "role", agent.role, can.roles)
    yield from _known((*where, "model_hint"), "model", agent.model_hint, can.models)
    yield from _known((*where, "persona_hint"), "persona", agent.persona_hint, can.personas)


def _step(index: int, step: Step, can: Capabilities) -> Iterator[Problem]:
    where = ("plan", "steps", index)
    yield from _known((*where, "actor"), "role", step.actor, can.roles)
    yield from _known((*where, "persona"), "persona", step.persona, can.personas)
    yield from _had((*where, "kind"), "kind of step", step.kind, can.kinds, can.why_not)
    yield from _unknown((*where, "gates"), "gate", step.gates or (), can.gates)
    yield from _tools(where, step, can)
    if step.kind == "generate" and not step.outputs:
        yield Problem(pointer((*where, "outputs")), "a step that generates must write something", "a name at least")


def _tools(where: tuple[str | int, ...], step: Step, can: Capabilities) -> Iterator[Problem]:
    if step.tools and not can.kinds & {"tool", "repl"}:
        yield Problem(pointer((*where, "tools")), f"{shown(step.tools[0])}: steps have no tools here", "no tools")
        return
    for index, name in enumerate(step.tools):
        yield from _had((*where, "tools", index), "tool", name, can.tools, can.why_not)
    if step.kind == "tool" and not step.tools:
        yield Problem(pointer((*where, "tools")), "a step of kind tool must have some", ", ".join(can.tools))
    if step.arguments is not None:
        yield from _arguments((*where, "arguments"), step, step.arguments, can)


def _arguments(
    path: tuple[str | int, ...], step: Step, arguments: Mapping[str, object], can: Capabilities
) -> Iterator[Problem]:
    if step.kind != "tool" or len(step.tools) != 1:
        yield Problem(pointer(path), "these are of one call, and the step is none", "kind tool, and one tool")
        return
    reads, readable = references(arguments), {*step.inputs, *filter(None, [step.foreach])}
    for name, read in reads.items():
        yield from _known((*path, name), "input", read, readable)
    # What an input holds is only known when it is there; until then any text will do.
    told = {name: "" if name in reads else value for name, value in arguments.items()}
    for error in Draft202012Validator(can.tools.get(step.tools[0], {})).iter_errors(told):
        if not (error.absolute_path and error.absolute_path[0] in reads):
            yield Problem(pointer((*path, *error.absolute_path)), error.message[:200], f"what {step.tools[0]} takes")


def _had(
    path: tuple[str | int, ...], what: str, name: str, known: Collection[str], why_not: Mapping[str, str]
) -> Iterator[Problem]:
    """Tell what there is, but not here, from what there is not at all."""
    if name in why_not:
        yield Problem(pointer(path), f"{what} {shown(name)} cannot be had here: {why_not[name]}", ", ".join(known))
    else:
        yield from _known(path, what, name, known)


def _known(path: tuple[str | int, ...], what: str, name: str | None, known: Collection[str]) -> Iterator[Problem]:
    if name is not None and name not in known:
        yield Problem(pointer(path), f"unknown {what} {shown(name)}", known_names(known, name))


def _unknown(
    path: tuple[str | int, ...], what: str, names: Collection[str], known: Collection[str]
) -> Iterator[Problem]:
    for index, name in enumerate(names):
        yield from _known((*path, index), what, name, known)


def _output_schemas(task: TaskIR) -> Iterator[Problem]:
    """Judge each schema once, since many steps may share one and judging takes most of a millisecond."""
    judged: set[str] = set()
    for index, step in enumerate(task.plan.steps):
        if step.output_schema is None:
            continue
        text = json.dumps(step.output_schema)
        if text not in judged:
            judged.add(text)
            yield from _output_schema(("plan", "steps", index, "output_schema"), step.output_schema)


def _output_schema(path: tuple[str | int, ...], schema: dict[str, object]) -> Iterator[Problem]:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        at = pointer((*path, *error.absolute_path))
        yield Problem(at, f"not a JSON Schema: {error.message[:200]}", "JSON Schema (2020-12)")
        return
    for where, pattern in patterns_in(schema, path):
        try:
            check_pattern(pattern)
        except BadPattern as error:
            yield Problem(pointer(where), str(error), "a pattern that Rust's regular expressions can match")
    for where, reference in _references(path, schema):
        if not _leads_somewhere(schema, reference):
            yield Problem(
                pointer(where), f"{shown(reference)} is not in this schema", "references such as #/$defs/name"
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


def _leads_somewhere(schema: object, reference: str) -> bool:
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return False
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
