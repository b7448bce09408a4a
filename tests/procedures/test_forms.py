"""Reading procedures: what is refused, at which line, and what would be accepted."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orchestrator.procedures.errors import ProcedureInvalid
from orchestrator.procedures.forms import MAX_STEPS, procedure_from, procedure_schema
from orchestrator.procedures.library import SHIPPED

GOOD = """\
id: example
version: 1.2.3
category: test
description: Writes a file.
inputs:
  path: {type: path, description: The file.}
  count: {type: integer, description: How often., default: 3, minimum: 1, maximum: 9}
steps:
  - id: first
    file_write: {path: "{{ inputs.path }}", content: "{{ inputs.count + 1 }}"}
  - id: second
    depends_on: [first]
    when: steps.first.digest != "absent"
    wait: {seconds: 0}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ProcedureInvalid) as refused:
        procedure_from(text.encode(), Path("example.yaml"))
    return [str(problem) for problem in refused.value.problems]


def test_a_procedure_is_read_and_its_steps_are_ordered() -> None:
    procedure = procedure_from(GOOD.encode(), Path("example.yaml"))
    assert procedure.order == ("first", "second")
    assert procedure.form.permissions.requires_approval


def test_the_published_schema_accepts_what_is_read_and_refuses_two_actions_in_a_step() -> None:
    schema = procedure_schema()
    jsonschema.validate(yaml.safe_load(GOOD), schema)
    both = yaml.safe_load(GOOD)
    both["steps"][1]["checkpoint"] = {"paths": []}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(both, schema)


def test_every_procedure_that_ships_is_valid_by_the_published_schema_and_says_the_types_of_its_outputs() -> None:
    validator = jsonschema.Draft202012Validator(procedure_schema())
    for path in sorted(SHIPPED.glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        validator.validate(document)
        assert all("type" in output for output in document.get("outputs", {}).values()), path.name


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("    wait: {seconds: 0}", "    wiat: {seconds: 0}", 14, "wait? (one of"),
        ("category: test", "kategory: test", 3, "category?"),
        ("version: 1.2.3", "version: 1.2", 2, "version"),
        ("depends_on: [first]", "depends_on: [frist]", 12, "no step is called frist"),
        ("inputs.count + 1", "inputs.cuont + 1", 10, "there is no input 'cuont'"),
        ("inputs.count + 1", "inputs.count.__class__", 10, "__class__"),
        ("inputs.count + 1", "open(inputs.path)", 10, "calls what is no function here"),
        ("steps.first.digest", "steps.secnod.digest", 13, "'secnod' is no step"),
        ("default: 3", "default: 30", 7, "at most 9"),
        ("version: 1.2.3", "version: 1.2", 2, "three numbers with dots between them, such as 1.0.0"),
        ("id: example", "id: Example", 1, "accepted: a text that matches ^[a-z]"),
        ("inputs.count + 1", "places.personas", 10, "there is no place 'personas'"),
        ("    wait: {seconds: 0}", "    wait: {seconds: 0}\n    checkpoint: {}", 11, "has checkpoint and wait"),
        ('content: "{{ inputs.count + 1 }}"', "content: a, remove: true", 10, "has content and remove"),
        ("    wait: {seconds: 0}", "    shell: {command: [ls], sandbox: false}", 14, "nothing says how"),
        ("    wait: {seconds: 0}", "    wait: {seconds: 0}\n    irreversible: so", 15, "not destructive"),
        (
            "  path: {type: path, description: The file.}",
            "  path: {type: secret, description: X, default: env:A}",
            6,
            "",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, told: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new))
    assert any(text.startswith(f"example.yaml:{line}: ") and told in text for text in found), found


def test_a_cycle_is_told_with_its_path() -> None:
    text = GOOD.replace("  - id: first\n", "  - id: first\n    depends_on: [second]\n")
    assert any("first → second → first" in one or "second → first → second" in one for one in problems(text))


def steps_waiting(**depends_on: list[str]) -> str:
    steps = [{"id": name, "depends_on": before, "wait": {"seconds": 0}} for name, before in depends_on.items()]
    return yaml.safe_dump({**yaml.safe_load(GOOD), "steps": steps})


def test_each_of_several_cycles_is_reported() -> None:
    text = steps_waiting(a=["c"], b=["a"], c=["b"], d=["e"], e=["d"], f=["f"], g=["a"])
    rings = [one.rpartition("each other: ")[2].partition(";")[0] for one in problems(text)]
    assert sorted(rings) == ["a → b → c → a", "d → e → d", "f → f"]


def test_steps_keep_the_order_of_the_file_unless_they_wait() -> None:
    text = steps_waiting(a=["d"], b=[], c=["b"], d=[], e=["a", "c"])
    assert procedure_from(text.encode(), Path("example.yaml")).order == ("b", "c", "d", "a", "e")


def test_as_many_steps_as_are_allowed_may_wait_for_the_next_one() -> None:
    names = [f"s{number}" for number in range(MAX_STEPS)]
    text = steps_waiting(**{name: [later] for name, later in pairwise(names)}, **{names[-1]: []})
    assert procedure_from(text.encode(), Path("example.yaml")).order == tuple(reversed(names))


def test_a_step_may_use_only_outputs_of_steps_that_it_depends_on() -> None:
    text = GOOD.replace("    depends_on: [first]\n", "")
    assert any("is not among the steps that this one depends on" in one for one in problems(text))


@pytest.mark.parametrize("text", ["", "- a list", "id: [", "id: a\nid: b", "id: &x a", "steps: 1"])
def test_what_is_no_procedure_is_refused(text: str) -> None:
    assert problems(text)


def test_every_template_of_every_kind_is_checked() -> None:
    actions: dict[str, Any] = {
        "registry_update": {"set_model": {"id": "{{ inputs.no }}", "values": {"a": "{{ inputs.no }}"}}},
        "shell": {"command": ["ls", "{{ inputs.no }}"]},
        "call": {"operation": "x", "arguments": {"a": ["{{ inputs.no }}"]}},
        "gate": {"folder": "{{ inputs.no }}", "gates": ["lint"]},
        "benchmark": {"model": "{{ inputs.no }}"},
        "checkpoint": {"paths": ["{{ inputs.no }}"]},
    }
    for kind, action in actions.items():
        document = {**yaml.safe_load(GOOD), "steps": [{"id": "one", kind: action}]}
        assert all("no input 'no'" in one for one in problems(yaml.safe_dump(document))), kind


def test_an_unknown_key_of_the_only_step_is_the_one_problem() -> None:
    text = GOOD.partition("  - id: second")[0].replace("file_write:", "file_wirte:")
    (problem,) = problems(text)
    assert "steps.0.file_wirte: unknown key; accepted: file_write?" in problem
