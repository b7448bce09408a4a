"""What an installation refuses of steps that act."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.gates.pipeline import BUILTIN_GATES
from orchestrator.run.job import capabilities
from orchestrator.task.taskir.check import Capabilities, check_task
from orchestrator.task.taskir.parse import dump_task, task_from

READ = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "length": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
WRITE = {"type": "object", "properties": {"name": {"type": "string"}, "text": {"type": "string"}}}
CAN = Capabilities(
    roles=frozenset({"worker"}),
    personas=frozenset(),
    gates=frozenset(BUILTIN_GATES),
    kinds=frozenset({"generate", "tool"}),
    input_types=frozenset({"text"}),
    models=frozenset(),
    tools={"read_file": READ, "list_files": {"type": "object"}, "write_artifact": WRITE},
    unavailable={"repl": "bubblewrap is missing", "shell": "bubblewrap is missing"},
)
STEP = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["a.txt"]}


def document(step: dict[str, Any]) -> dict[str, Any]:
    return {"objective": "x", "plan": {"steps": [{**STEP, **step}]}}


@pytest.mark.parametrize(
    "step",
    [
        {"kind": "tool", "tools": ["read_file"], "arguments": {"name": "a", "length": 3}},
        {"kind": "tool", "tools": ["read_file"], "inputs": ["n"], "arguments": {"name": {"$input": "n"}}},
        {"kind": "tool", "tools": ["read_file"], "foreach": "l.json", "arguments": {"name": {"$input": "l.json"}}},
        {"kind": "tool", "tools": ["write_artifact"], "arguments": {"name": "a.txt", "text": "x"}},
        {"kind": "tool", "tools": ["write_artifact"], "foreach": "l.json"},
        {"kind": "tool", "tools": ["read_file", "list_files"]},
        {"tools": ["list_files"]},
    ],
)
def test_what_can_be_done_is_accepted_and_given_back(step: dict[str, Any]) -> None:
    task = task_from(document(step))
    assert check_task(task, CAN) == ()
    assert dump_task(task) == document(step)


@pytest.mark.parametrize(
    ("step", "where", "what", "accepted"),
    [
        ({"kind": "repl"}, "/kind", 'kind of step "repl" is not available here: bubblewrap is missing', "generate"),
        ({"tools": ["shell"]}, "/tools/0", 'tool "shell" is not available here: bubblewrap is missing', "read_file"),
        ({"tools": ["read_fil"]}, "/tools/0", 'unknown tool "read_fil"', "'read_file'?"),
        ({"kind": "tool"}, "/tools", "a step of kind tool must have some", "read_file, list_files"),
        (
            {
                "kind": "tool",
                "tools": ["write_artifact"],
                "foreach": "l.json",
                "arguments": {"name": "a.txt", "text": {"$input": "l.json"}},
            },
            "/arguments",
            "each child of a foreach writes an output of its own, such as a.txt[0]",
            "no foreach, or a tool whose result is the output",
        ),
        (
            {"kind": "tool", "tools": ["write_artifact"], "arguments": {"name": "b.txt", "text": "x"}},
            "/arguments/name",
            '"b.txt" is no output of the step',
            "a.txt",
        ),
        ({"arguments": {}}, "/arguments", "the step is none", "kind tool, and one tool"),
        ({"kind": "tool", "tools": ["read_file", "list_files"], "arguments": {}}, "/arguments", "is none", "one tool"),
        ({"kind": "tool", "tools": ["read_file"], "arguments": {}}, "/arguments", "'name' is a required", "read_file"),
        (
            {"kind": "tool", "tools": ["read_file"], "arguments": {"name": "a", "length": "all"}},
            "/arguments/length",
            "'all' is not of type 'integer'",
            "what read_file takes",
        ),
        (
            {"kind": "tool", "tools": ["read_file"], "arguments": {"name": {"$input": "n"}}, "inputs": ["m"]},
            "/arguments/name",
            'unknown input "n"',
            "m",
        ),
    ],
)
def test_what_cannot_be_done_says_why(step: dict[str, Any], where: str, what: str, accepted: str) -> None:
    (problem,) = check_task(task_from(document(step)), CAN)
    assert problem.where == f"/plan/steps/0{where}"
    assert what in problem.what
    assert accepted in problem.accepted


def test_this_installation_acts_as_far_as_there_is_a_sandbox() -> None:
    registry = load_registry(find_registry(None))
    with_one, without = capabilities(registry), capabilities(registry, "bubblewrap is missing")
    assert with_one.kinds == {"generate", "tool", "repl"}
    assert without.kinds == {"generate", "tool"}
    assert set(with_one.tools) - set(without.tools) == {"grep", "run_tests", "shell"}
    assert set(without.unavailable) == {"repl", "grep", "run_tests", "shell"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/theirs.json"}}}, "refers to something that is not in it"),
        ({"properties": {"a": {"pattern": r"^(\w+\s?)*$"}}}, "does not match"),
        ({"properties": {"a": {"pattern": r"^(a)\1b$"}}}, "does not match"),
        ({"properties": {"a": {"pattern": "("}}}, "is no regular expression"),
    ],
)
def test_arguments_are_checked_without_fetching_and_in_linear_time(schema: dict[str, Any], told: str) -> None:
    tools = {"mcp:far/tool": {"type": "object", **schema}}
    step = {"kind": "tool", "tools": ["mcp:far/tool"], "arguments": {"a": "a" * 100_000 + "!"}}
    (problem,) = check_task(task_from(document(step)), replace(CAN, tools=tools))
    assert told in problem.what
