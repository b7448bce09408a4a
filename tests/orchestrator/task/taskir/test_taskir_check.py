"""What an installation refuses of a task that is well formed."""

from typing import Any

import pytest

from orchestrator.run.gates.pipeline import BUILTIN_GATES
from orchestrator.task.taskir.check import Capabilities, check_hints, check_task
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from

CAN = Capabilities(
    roles=frozenset({"frontdoor", "worker", "coder"}),
    personas=frozenset({"terse", "table"}),
    gates=frozenset(BUILTIN_GATES),
    kinds=frozenset({"generate"}),
    input_types=frozenset({"path", "text"}),
    models=frozenset({"tiny-large"}),
)
STEP = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["a.txt"]}


def task(step: dict[str, Any] | None = None, **fields: Any) -> TaskIR:
    return task_from({"objective": "x", "plan": {"steps": [{**STEP, **(step or {})}]}, **fields})


def test_what_the_installation_has_is_accepted() -> None:
    schema = {"$defs": {"a/b": {"type": "string"}}, "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/anyOf/0"}]}
    step = {"persona": "terse", "gates": ["schema", "unit"], "output_schema": schema}
    agent = {"tier": "B", "role": "coder", "model_hint": "tiny-large", "persona_hint": "table"}
    inputs = [{"type": "path", "value": "a"}, {"type": "text", "value": ""}]
    assert check_task(task(step, agents=[agent], inputs=inputs, gates=["lint"]), CAN) == ()


def test_wanted_outputs_have_to_be_written() -> None:
    wanted = task_from({"objective": "x", "plan": {"steps": [STEP], "wanted": ["a.txt"]}})
    assert (check_task(wanted, CAN), wanted.plan.wanted) == ((), ("a.txt",))
    (problem,) = check_task(task_from({"objective": "x", "plan": {"steps": [STEP], "wanted": ["b.txt"]}}), CAN)
    assert str(problem).startswith('/plan/wanted/0: unknown output "b.txt"; accepted:')


@pytest.mark.parametrize(
    ("step", "fields", "where", "what", "accepted"),
    [
        ({"actor": "wroker"}, {}, "/plan/steps/0/actor", 'unknown role "wroker"', "'worker'? (coder, frontdoor)"),
        ({"actor": "zzz"}, {}, "/plan/steps/0/actor", 'unknown role "zzz"', "coder, frontdoor, worker"),
        ({"persona": "ters"}, {}, "/plan/steps/0/persona", 'unknown persona "ters"', "'terse'? (table)"),
        ({"kind": "repl"}, {}, "/plan/steps/0/kind", 'unknown kind of step "repl"', "generate"),
        ({"gates": ["schema", "units"]}, {}, "/plan/steps/0/gates/1", 'unknown gate "units"', "'unit'?"),
        ({"tools": ["rm"]}, {}, "/plan/steps/0/tools", '"rm"', "no tools"),
        ({"outputs": []}, {}, "/plan/steps/0/outputs", "a step that generates must write something", "a name"),
        ({}, {"gates": ["lnt"]}, "/gates/0", 'unknown gate "lnt"', "'lint'?"),
        ({}, {"inputs": [{"type": "url", "value": "x"}]}, "/inputs/0/type", '"url"', "path, text"),
        ({}, {"inputs": [{"type": "path", "value": ""}]}, "/inputs/0/value", "names nothing", "a path"),
        ({}, {"agents": [{"tier": "B", "role": "x"}]}, "/agents/0/role", 'unknown role "x"', "coder"),
        (
            {"output_schema": {"properties": {"a": {"type": "strng"}}}},
            {},
            "/plan/steps/0/output_schema/properties/a/type",
            "not a JSON Schema",
            "JSON Schema",
        ),
        (
            {"output_schema": {"type": "array", "items": [{"const": 1}]}},
            {},
            "/plan/steps/0/output_schema/items",
            "items is a list, as draft-07 writes tuples; since 2020-12 that is prefixItems",
            "JSON Schema",
        ),
        (
            {"output_schema": {"items": {"pattern": "("}}},
            {},
            "/plan/steps/0/output_schema/items/pattern",
            "'(' is no regular expression: a group without its end",
            "a regular expression",
        ),
        (
            {"output_schema": {"patternProperties": {"*.txt": True}}},
            {},
            "/plan/steps/0/output_schema/patternProperties",
            "'*.txt' is no regular expression: * has nothing to repeat",
            "a regular expression",
        ),
        (
            {"output_schema": {"items": {"$ref": "https://example.org/x"}}},
            {},
            "/plan/steps/0/output_schema/items/$ref",
            '"https://example.org/x" is not in this schema',
            "#/$defs/name",
        ),
        ({"output_schema": {"$ref": "#/$defs/x"}}, {}, "/plan/steps/0/output_schema/$ref", "is not in this schema", ""),
    ],
)
def test_what_it_lacks_is_reported_with_pointer_value_and_what_is_accepted(
    step: dict[str, Any], fields: dict[str, Any], where: str, what: str, accepted: str
) -> None:
    (problem,) = check_task(task(step, **fields), CAN)
    assert problem.where == where
    assert what in problem.what
    assert accepted in problem.accepted


def test_hints_of_what_is_not_here_are_reported_and_keep_nothing_from_running() -> None:
    agent = {"tier": "B", "role": "coder", "model_hint": "tiny-larg", "persona_hint": "x"}
    hinted = task({}, agents=[agent])
    assert check_task(hinted, CAN) == ()
    model, persona = check_hints(hinted, CAN)
    assert (model.where, model.what) == ("/agents/0/model_hint", 'unknown model "tiny-larg"')
    assert model.accepted.startswith("'tiny-large'?")
    assert (persona.where, persona.what) == ("/agents/0/persona_hint", 'unknown persona "x"')
    assert persona.accepted == "table, terse"


def test_without_personas_none_is_accepted() -> None:
    none = Capabilities(CAN.roles, frozenset(), CAN.gates, CAN.kinds, CAN.input_types, CAN.models)
    (problem,) = check_task(task({"persona": "terse"}), none)
    assert problem.accepted == "none: there are none here"


def test_a_schema_shared_by_many_steps_is_accepted_and_problems_are_cut() -> None:
    shared = {"type": "object", "properties": {f"k{index}": {"type": "string"} for index in range(3)}}
    steps = [{**STEP, "id": f"S{index}", "output_schema": shared} for index in range(1, 20_001)]
    document = task_from({"objective": "x", "plan": {"steps": steps}})
    assert check_task(document, CAN) == ()
    none = frozenset[str]()
    nobody = Capabilities(none, none, none, none, none, none)
    assert len(check_task(document, nobody)) == 51
