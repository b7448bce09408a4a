from typing import Any

import pytest

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.run.steps.tools.actions import (
    Allowed,
    BadAction,
    FinishStep,
    Prune,
    UseTool,
    action_schema,
    read_action,
)
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.validation import OutputSchema, SchemaMismatch

FREE = Allowed(tuple(TOOLS.values()), ["D1", "D2"], ["D1", "D2", "D3"])
FULL = Allowed((), ["D1", "D2"], ["D1", "D2", "D3"])


def step(*outputs: str, **more: Any) -> Step:
    return Step(id="S1", actor="worker", action="Go.", outputs=outputs or ("o.txt",), kind="tool", **more)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"tool": "read_file", "arguments": {"name": "a"}}', UseTool("read_file", {"name": "a"})),
        ('{"tool": "list_files"}', UseTool("list_files", {})),
        ('{"prune": ["D2", "D2"]}', Prune(("D2",))),
        ('{"finish": "done", "documents": ["D3"]}', FinishStep("done", ("D3",))),
        ('{"finish": {"a": 1}}', FinishStep({"a": 1})),
    ],
)
def test_actions_are_read(text: str, action: object) -> None:
    assert read_action(text, FREE) == action


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("read a.txt", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", '"tool", "prune" or "finish"'),
        ('{"prune": ["D3"]}', "there is no D3; accepted: D1, D2"),
        ('{"prune": "D1"}', "a list of ids"),
        ('{"finish": 1, "documents": ["D9"]}', "there is no D9; accepted: D1, D2, D3"),
    ],
)
def test_what_is_no_action_says_what_would_be(text: str, why: str) -> None:
    with pytest.raises(BadAction, match=why):
        read_action(text, FREE)


def test_past_the_hard_mark_only_pruning_and_finishing_are_left() -> None:
    with pytest.raises(BadAction, match="accepted: prune or finish"):
        read_action('{"tool": "list_files"}', FULL)
    form = OutputSchema(action_schema(step(), FULL))
    form.read('{"prune": ["D1"]}')
    form.read('{"finish": "x", "documents": ["D3"]}')
    with pytest.raises(SchemaMismatch):
        form.read('{"tool": "list_files", "arguments": {}}')


def test_the_answer_has_the_form_of_the_outputs() -> None:
    text, number = action_schema(step(), FREE), action_schema(step("n", output_schema={"type": "integer"}), FREE)
    OutputSchema(number).read('{"finish": 3}')
    OutputSchema(text).read('{"finish": "three"}')
    for schema, wrong in (
        (number, '{"finish": "three"}'),
        (text, '{"finish": 3}'),
        (number, '{"finish": 3, "documents": ["D1"]}'),
    ):
        with pytest.raises(SchemaMismatch):
            OutputSchema(schema).read(wrong)


@pytest.mark.parametrize("allowed", [FREE, FULL])
def test_every_answer_can_be_held_to_by_grammar(allowed: Allowed) -> None:
    assert "root" in schema_grammar(action_schema(step("a.json", "b"), allowed))
