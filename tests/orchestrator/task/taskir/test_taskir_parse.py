"""What a TaskIR document may say, and what is said of one that is wrong."""

import json
from typing import Any

import pytest

from orchestrator.run.gates.pipeline import BUILTIN_GATES
from orchestrator.task.taskir.fields import MAX_BYTES, MAX_STEPS
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import dump_task, parse_task, task_from
from orchestrator.task.taskir.problems import InvalidTask

STEP = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["a.txt"]}
MINIMAL = {"objective": "Do it.", "plan": {"steps": [STEP]}}
FULL = {
    "task_id": "t-1",
    "task_type": "code",
    "priority": "batch",
    "objective": "Write a report.",
    "inputs": [
        {"type": "path", "value": "data/a.txt"},
        {"type": "text", "value": "Some text.", "label": "note", "content_type": "text/plain"},
        {"type": "url", "value": "https://example.org/x"},
        {"type": "image", "value": "x.png", "label": "picture"},
        {"type": "audio", "value": "x.wav"},
    ],
    "constraints": ["short"],
    "assumptions": [],
    "agents": [
        {
            "tier": "C",
            "role": "worker",
            "model_hint": "tiny",
            "max_concurrency": 2,
            "persona_hint": "terse",
            "notes": "",
        }
    ],
    "plan": {
        "steps": [
            STEP,
            {
                "id": "S2",
                "actor": "worker",
                "action": "Go on.",
                "outputs": ["b.json", "notes/c.txt"],
                "inputs": ["a.txt", "note"],
                "context": "shared",
                "depends_on": ["S1"],
                "parallel_group": "one",
                "run_gates": False,
                "timeout_seconds": 60,
                "persona": "terse",
                "foreach": "a.txt",
                "kind": "tool",
                "tools": ["search"],
                "output_schema": {"type": "object", "properties": {"x": {"const": 1.0}}},
                "max_tokens": 100,
                "gates": ["schema"],
            },
            {**STEP, "id": "S3", "timeout_seconds": 0.5, "gates": None, "persona": None},
        ],
        "parallelism": {"max_concurrent_steps": 4, "max_concurrent_workers": 2},
        "context": "sources",
    },
    "gates": list(BUILTIN_GATES),
    "commands": {"build": ["make", "-s"], "bench": {"run": ["python", "a.py"], "max_seconds": 2}},
    "definition_of_done": ["It is there."],
    "escalation": {"max_level": "B2", "on_second_failure": True, "notes": "no more"},
    "created_at": "2026-01-31T12:00:00.10+01:00",
    "context": {
        "conversation_id": "c",
        "prior_task_ids": ["t-0"],
        "relevant_files": ["a.txt"],
        "notes": "é",
    },
    "formalization": {"forall": ["x", 1, 2.5, None, True, 10**30]},
}


def refused(raw: str | bytes) -> str:
    with pytest.raises(InvalidTask) as caught:
        parse_task(raw)
    return str(caught.value)


def with_step(**fields: Any) -> str:
    return json.dumps({**MINIMAL, "plan": {"steps": [{**STEP, **fields}]}})


def with_field(**fields: Any) -> str:
    return json.dumps({**MINIMAL, **fields})


@pytest.mark.parametrize("document", [MINIMAL, FULL])
def test_a_document_is_given_back_as_it_came(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    assert json.dumps(dump_task(parse_task(text)), sort_keys=True) == json.dumps(document, sort_keys=True)
    assert parse_task(text.encode()) == parse_task(text) == task_from(document)


def test_a_minimal_document_has_defaults() -> None:
    task = parse_task(json.dumps(MINIMAL))
    assert (task.task_type, task.priority, task.task_id, task.created_at) == ("chat", "interactive", None, None)
    assert (task.inputs, task.agents, task.gates, task.constraints) == ((), (), (), ())
    assert (task.escalation.max_level, task.escalation.on_second_failure) == ("B3", False)
    assert task.plan.parallelism.max_concurrent_steps is None
    step = task.plan.steps[0]
    assert (step.inputs, step.depends_on, step.tools, step.gates, step.foreach) == ((), (), (), None, None)
    assert (step.kind, step.run_gates, step.timeout_seconds, step.max_tokens) == ("generate", True, None, None)


def test_inputs_go_by_label_value_or_number() -> None:
    task = task_from(FULL)
    assert task.labels == ("data/a.txt", "note", "https://example.org/x", "picture", "input5")


def test_a_task_cannot_be_changed() -> None:
    task: Any = task_from(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        task.objective = "another"


@pytest.mark.parametrize(
    "stamp", ["2026-02-29", "2026-12-31T23:59:60Z", "2026-01-01 00:00", "2026-01-01T00:00:00,5+0100"]
)
def test_timestamps_keep_their_text(stamp: str) -> None:
    assert dump_task(parse_task(with_field(created_at=stamp)))["created_at"] == stamp


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (with_field(objectiv="x"), "/objectiv: unknown field \"objectiv\"; accepted: 'objective'?"),
        (with_step(depend_on=[]), "/plan/steps/0/depend_on: unknown field \"depend_on\"; accepted: 'depends_on'?"),
        (with_step(zzz=1), "accepted: action, actor, arguments, context, depends_on"),
        (with_field(agents=[{"tier": "B", "role": "x", "modelhint": 1}]), "/agents/0/modelhint: unknown field"),
        (
            with_field(agents=[{"tier": "E", "role": "x"}]),
            "/agents/0/tier: \"E\" is refused; accepted: 'A', 'B', 'C' or 'D'",
        ),
        (
            with_field(escalation={"max_level": "B4"}),
            "/escalation/max_level: \"B4\" is refused; accepted: 'B1', 'B2' or 'B3'",
        ),
        (with_field(inputs=[{"type": "path"}]), "/inputs/0/value: this field is required, but missing"),
        (with_field(created_at="yesterday"), '/created_at: "yesterday" is refused; accepted: an ISO 8601 date'),
        (with_field(created_at="2026-02-30"), "/created_at:"),
        (with_field(plan={"steps": []}), "/plan/steps: a list of 0 is refused; accepted: at least 1 item"),
        (with_field(plan=[]), "/plan: a list of 0 is refused; accepted: an object"),
        (with_field(constraints="short"), '/constraints: "short" is refused; accepted: a list'),
        (with_step(id="T1"), '/plan/steps/0/id: "T1" is refused; accepted: S1, S2, …'),
        (with_step(id="S1\n"), "/plan/steps/0/id:"),
        (with_step(id="S"), "/plan/steps/0/id:"),
        (with_step(outputs=["/etc/passwd"]), '/plan/steps/0/outputs/0: "/etc/passwd" is refused; accepted: a relative'),
        (with_step(outputs=["ok", "a/../b"]), "/plan/steps/0/outputs/1:"),
        (with_step(outputs=["."]), "/plan/steps/0/outputs/0:"),
        (with_step(outputs=["a//b"]), "/plan/steps/0/outputs/0:"),
        (with_step(outputs=["a/"]), "/plan/steps/0/outputs/0:"),
        (with_step(outputs=[""]), "/plan/steps/0/outputs/0:"),
        (with_step(outputs=["x" * 201]), "accepted: up to 200 characters"),
        (with_step(inputs=["a\nb"]), '/plan/steps/0/inputs/0: "a\\nb" is refused; accepted: text on one line'),
        (with_step(timeout_seconds=0), "/plan/steps/0/timeout_seconds: 0 is refused; accepted: a number of seconds"),
        (with_step(timeout_seconds=True), "/plan/steps/0/timeout_seconds: true is refused"),
        (with_step(timeout_seconds="60"), '/plan/steps/0/timeout_seconds: "60" is refused'),
        (with_step(max_tokens=1.0), "/plan/steps/0/max_tokens: 1.0 is refused; accepted: a whole number"),
        (with_step(max_tokens=10**200), "a whole number of more than 60 digits is refused; accepted: up to 1000000"),
        (with_step(run_gates=1), "/plan/steps/0/run_gates: 1 is refused; accepted: true or false"),
        (with_step(action=""), '/plan/steps/0/action: "" is refused; accepted: at least 1 character'),
        (with_step(persona=3), "/plan/steps/0/persona: 3 is refused; accepted: text"),
        (with_step(output_schema=[]), "/plan/steps/0/output_schema: a list of 0 is refused; accepted: an object"),
        (with_step(action="x" * 1_000_001), "/plan/steps/0/action: a text of 1000001 characters"),
        (with_field(formalization=float("nan")), "/formalization: NaN is not JSON; accepted: a finite number"),
        (with_step(output_schema={"a~b/c": [1, float("-inf")]}), "/plan/steps/0/output_schema/a~0b~1c/1: -Infinity"),
        (with_field(formalization="\ud800"), '/formalization: the text "\\ud800" has half a surrogate pair'),
        (with_field(formalization={"x": {"\udc00": 1}}), "/formalization/x: the text"),
        ('{"formalization": [1e999]}', '/formalization/0: the number "1e999" is too large'),
        ('{"formalization": 1' + "0" * 5000 + "}", "/formalization: a number of 5001 digits"),
        ('{"plan": {"steps": [{"id": "S1", "id": "S2"}]}}', '/plan/steps/0: the key "id" is there twice'),
        ('{"a": 1, "b": 2, "a": 3}', '/: the key "a" is there twice'),
        ('{"objective": }', "line 1, column 15: the document is not JSON"),
        (b'{"objective": "\xff"}', "byte 15: the document is not UTF-8"),
        (json.dumps(MINIMAL).encode("utf-16"), "byte 0: the document is not UTF-8"),
        (json.dumps(MINIMAL).encode("utf-32-le"), "is not JSON"),
        (b" " * (MAX_BYTES + 1), f"the document has {MAX_BYTES + 1} bytes; accepted: up to {MAX_BYTES} bytes"),
        ("é" * (MAX_BYTES // 2 + 1), f"the document has {MAX_BYTES + 2} bytes"),
    ],
)
def test_what_is_wrong_is_reported_with_where_and_what_is_accepted(raw: str | bytes, told: str) -> None:
    assert told in refused(raw)


@pytest.mark.parametrize("number", ["0", "01", "999999999"])
def test_steps_may_be_numbered_as_their_author_likes(number: str) -> None:
    assert parse_task(with_step(id=f"S{number}")).plan.steps[0].id == f"S{number}"


def test_a_byte_order_mark_is_no_matter() -> None:
    text = json.dumps(MINIMAL)
    assert parse_task("\ufeff" + text) == parse_task(text.encode("utf-8-sig")) == parse_task(text)


@pytest.mark.parametrize(
    ("head", "opening", "where"),
    [
        ("", "[", "/0/0/0"),
        ("", '{"":', "////"),
        ('{"formalization": {"a": [1, "[{", ', '{"k\\n": [2, ', "/formalization/a/2/k\n/1/k\n/1"),
        ('{"plan": {"steps": [{"output_schema": ', '{"properties": ', "/plan/steps/0/output_schema/properties"),
    ],
)
@pytest.mark.parametrize("times", [70, 100_000])
def test_depth_is_limited_with_the_place_reported(head: str, opening: str, where: str, times: int) -> None:
    text = head + opening * times
    closing = "".join({"[": "]", "{": "}"}[mark] for mark in reversed(_open(text))) if times < 1000 else ""
    told = refused(text + "1" + closing)
    assert told.startswith(where)
    assert told.endswith("nested too deep; accepted: up to 64 levels")


def _open(text: str) -> list[str]:
    """The brackets that are still open in a text whose only quoted bracket is `"[{"`."""
    return [mark for mark in text.replace('"[{"', '""') if mark in "[{"]


def test_depth_is_counted_from_the_document() -> None:
    def nested(levels: int) -> str:
        return with_field(formalization=json.loads("[" * levels + "]" * levels))

    parse_task(nested(63))
    assert "nested too deep" in refused(nested(64))


def test_python_values_that_loop_or_are_no_json_are_refused() -> None:
    loop: list[Any] = []
    loop.extend([loop, loop])
    for value, told in [
        (loop, "nested too deep"),
        ({1: 2}, "the key 1 is not text"),
        ((1,), "a Python tuple is not JSON"),
    ]:
        with pytest.raises(InvalidTask, match=told):
            task_from({**MINIMAL, "formalization": value})


def test_only_the_first_problems_are_reported() -> None:
    steps = [{"id": index, "actoin": ""} for index in range(20_000)]
    with pytest.raises(InvalidTask) as caught:
        task_from({"objective": "x", "plan": {"steps": steps}})
    assert len(caught.value.problems) == 51
    assert "there are more problems" in caught.value.problems[-1].what


def test_a_list_of_too_many_steps_is_refused() -> None:
    steps = [{**STEP, "id": f"S{index}"} for index in range(1, MAX_STEPS + 2)]
    with pytest.raises(InvalidTask, match="/plan/steps: too many values"):
        task_from({"objective": "x", "plan": {"steps": steps}})


# Work that is quadratic in the number of steps would take hours, and run into this timeout.
@pytest.mark.parametrize("count", [20_000, pytest.param(MAX_STEPS, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_document_of_up_to_the_largest_size_is_read_and_given_back(count: int) -> None:
    steps = [{**STEP, "id": f"S{index}", "inputs": [f"o{index}"]} for index in range(1, count + 1)]
    document = {"objective": "x" * 500_000, "plan": {"steps": steps}}
    raw = json.dumps(document, separators=(",", ":")).encode()
    assert MAX_BYTES * 0.8 * count / MAX_STEPS < len(raw) <= MAX_BYTES
    task = parse_task(raw)
    dumped = dump_task(task)
    assert dumped == document
    assert isinstance(task, TaskIR)
