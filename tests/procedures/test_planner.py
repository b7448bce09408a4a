"""Requests to maintain the installation: matched by their words, or chosen by a model under a grammar."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import EngineDied
from orchestrator.errors import Problem
from orchestrator.pool.pool import Pool
from orchestrator.procedures.choice import choice_schema, choose_procedure, managed_task
from orchestrator.procedures.forms import Procedure
from orchestrator.procedures.library import Library
from orchestrator.procedures.planner import ProcedurePlanner, asks_for_procedure, offers_procedures
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.job import FRONTDOOR_PLANNER, Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart
from orchestrator.task.events import Usage
from orchestrator.task.taskir.models import Step, TaskIR
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.model_calls import ModelCalls, count_characters
from tests.orchestrator.run_jobs import RECORDS, execute, report_of

TINY = Path(__file__).parents[2] / "registry" / "tiny"
SHIPPED = Library()
OWN_STEP = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s"]}


def registry_of(folder: Path, prompts: str = "general") -> Registry:
    """Return a registry whose frontdoor gets these prompts, as if its model were one of any make."""
    path = folder / "registry.yaml"
    model = {"file": str(TINY / "large.gguf"), "threads": 1, "context": 2048, "slots": 1, "prompts": prompts}
    small = {"file": str(TINY / "small.gguf"), "threads": 1, "context": 2048}
    roles = {"frontdoor": {"model": "large", "tier": "A"}, "worker": {"model": "small", "tier": "C"}}
    path.write_text(json.dumps({"models": {"large": model, "small": small}, "roles": roles}))
    return load_registry(path)


def few(folder: Path) -> Library:
    """Return a library of three procedures, for which the context of an embedded model has room."""
    own = folder / "own"
    own.mkdir()
    for name in ("rotate-token", "set-residency", "verify-installation"):
        shutil.copy(SHIPPED.files()[name], own)
    return Library([own])


def manage(objective: str) -> TaskIR:
    return task_from({"task_type": "manage", "objective": objective, "plan": {"steps": [OWN_STEP]}})


class Script:
    """Models that give these answers, one after the other."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[Generation] = []

    async def generate(self, model: str, request: Generation, on_text: OnText | None) -> Completion:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer, "stop", Usage(prompt_tokens=5, output_tokens=len(answer)))


class Other:
    """The planner that plans what asks for no procedure: one step."""

    def why_not(self, registry: Registry) -> Problem | None:
        return None

    def planned_by(self, registry: Registry) -> PlannedBy:
        return PlannedBy("frontdoor", "large")

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        accept(PlannedPart((Step.model_validate(OWN_STEP),)))
        return Planned("planned", "", Usage(prompt_tokens=1))

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        raise NotImplementedError


def choice(procedure: str, **inputs: Any) -> str:
    return json.dumps({"procedure": procedure, "inputs": inputs} if procedure != "none" else {"procedure": procedure})


async def planned(
    registry: Registry, request: str | TaskIR, *answers: str | Exception, files: tuple[str, ...] = ()
) -> tuple[Planned, list[Step], Script]:
    script, made = Script(*answers), list[PlannedPart]()
    task = None if isinstance(request, str) else request
    context = PlanContext(
        request=request if isinstance(request, str) else request.objective,
        task=task,
        files=files,
        registry=registry,
        models=ModelCalls(count_characters, script.generate),
        replans=0,
    )
    planner = ProcedurePlanner(Other(), lambda: SHIPPED)
    outcome = await planner.plan(context, made.append, lambda _piece: None)
    return outcome, [step for part in made for step in part.steps], script


def arguments_of(steps: list[Step]) -> Mapping[str, Any]:
    (step,) = steps
    assert (step.kind, step.tools) == ("tool", ("procedure",))
    return step.arguments or {}


async def test_a_request_that_is_explained_by_its_words_asks_no_model(tmp_path: Path) -> None:
    outcome, steps, script = await planned(registry_of(tmp_path), "set the residency of small to hot")
    assert (outcome.origin, script.asked) == ("procedure", [])
    assert arguments_of(steps) == {"name": "set-residency", "inputs": {"model": "small", "residency": "hot"}}


async def test_the_model_chooses_among_the_procedures_that_a_request_may_ask_for(tmp_path: Path) -> None:
    request = "Remove the model that is called small, since nobody likes it, but keep its file"
    answer = choice("remove-model", model="small", delete_file=False)
    outcome, steps, script = await planned(registry_of(tmp_path), request, answer)
    assert (outcome.origin, outcome.usage.output_tokens) == ("procedure", len(answer))
    assert arguments_of(steps) == {"name": "remove-model", "inputs": {"model": "small", "delete_file": False}}
    (asked,) = script.asked
    assert asked.schema == choice_schema([SHIPPED.procedure("remove-model")])
    assert "remove-model: Removes a model" in asked.messages[0].content
    assert "delete_file: Whether its file is deleted as well." in asked.messages[0].content
    assert "Models: large, small" in asked.messages[0].content
    assert asked.messages[1].content == f"Request: {request}"


@pytest.mark.parametrize("request_text", ["Summarize a, b and c.", "Write a script that removes a model", ""])
async def test_other_requests_are_not_asked_about(tmp_path: Path, request_text: str) -> None:
    outcome, steps, script = await planned(registry_of(tmp_path), request_text)
    assert (outcome.origin, script.asked, [step.id for step in steps]) == ("planned", [], ["S1"])


async def test_a_request_about_a_file_and_one_to_an_embedded_model_are_not_asked_about(tmp_path: Path) -> None:
    request = "Remove the model that nobody likes from notes.txt"
    assert (await planned(registry_of(tmp_path), request, files=("notes.txt",)))[2].asked == []
    assert (await planned(registry_of(tmp_path, "tiny"), request))[2].asked == []
    assert (await planned(registry_of(tmp_path), request))[2].asked == [], "the file is missing"


async def test_where_the_model_chooses_none_the_request_is_planned(tmp_path: Path) -> None:
    request = "Remove the model trains from the table in the living room"
    outcome, steps, script = await planned(registry_of(tmp_path), request, choice("none"))
    assert (outcome.origin, [step.tools for step in steps], len(script.asked)) == ("planned", [()], 1)
    assert outcome.usage.prompt_tokens == 6, "what both answers took"


async def test_inputs_that_cannot_be_used_are_told_once_and_then_it_is_none(tmp_path: Path) -> None:
    request = "Benchmark the model small for as long as it takes"
    bad, good = choice("benchmark-model", model="small", seconds=0), choice("benchmark-model", model="small")
    outcome, steps, script = await planned(registry_of(tmp_path), request, bad, good)
    assert arguments_of(steps)["inputs"] == {"model": "small"}
    assert "at least 0.1" in outcome.reason
    assert "The previous answer failed: " in script.asked[1].messages[1].content
    outcome, steps, _ = await planned(registry_of(tmp_path), request, bad, "no json")
    assert (outcome.origin, [step.tools for step in steps]) == ("planned", [()])


async def test_a_task_to_manage_may_be_any_procedure_and_else_has_its_own_steps(tmp_path: Path) -> None:
    task, registry = manage("Please see to it that the small one is there as soon as I begin"), registry_of(tmp_path)
    answer = choice("set-residency", model="small", residency="hot")
    outcome, steps, script = await planned(registry, task, answer)
    assert (outcome.origin, arguments_of(steps)["name"]) == ("procedure", "set-residency")
    offered = script.asked[0].schema
    assert isinstance(offered, dict)
    choices = offered["anyOf"]
    assert isinstance(choices, list)
    assert len(choices) == len(SHIPPED.files()) + 1
    for answers in ((choice("none"),), (EngineDied("it died"),)):
        outcome, steps, _ = await planned(registry, task, *answers, files=("a.txt",))
        assert (outcome.origin, steps) == ("taskir", list(task.plan.steps))


async def test_a_plan_that_was_made_before_a_restart_asks_no_model_again(tmp_path: Path) -> None:
    task, script = manage("Please see to it"), Script()
    context = PlanContext(
        request=task.objective,
        task=task,
        files=(),
        registry=registry_of(tmp_path),
        models=ModelCalls(count_characters, script.generate),
        replans=0,
        known=(PlannedPart(task.plan.steps),),
    )
    made = list[PlannedPart]()
    outcome = await ProcedurePlanner(Other(), lambda: SHIPPED).plan(context, made.append, lambda _piece: None)
    assert (outcome.origin, made, script.asked) == ("taskir", [], [])


def test_which_tasks_the_frontdoor_is_asked_about(tmp_path: Path) -> None:
    general, tiny = registry_of(tmp_path), registry_of(tmp_path, "tiny")
    task = manage("Please see to it")
    assert (offers_procedures(general), offers_procedures(tiny)) == (True, False)
    assert (asks_for_procedure(task, general), asks_for_procedure(task, tiny)) == (True, False)
    assert not asks_for_procedure(task.model_copy(update={"task_type": "doc"}), general)
    matched = managed_task(manage("Back up the state"), SHIPPED, general)
    assert matched.plan.steps[0].tools == ("procedure",)
    assert not asks_for_procedure(matched, general), "its step acts by itself"
    assert managed_task(task, SHIPPED, general) is task


def test_the_schema_of_a_choice_takes_what_the_procedure_takes() -> None:
    schema = choice_schema([one for one in SHIPPED.procedures() if isinstance(one, Procedure)])
    jsonschema.Draft202012Validator.check_schema(schema)
    for good in (
        {"procedure": "none"},
        {"procedure": "set-residency", "inputs": {"model": "a", "residency": "hot"}},
        {"procedure": "run-gates", "inputs": {"folder": "/x", "gates": ["lint"]}},
        {"procedure": "rotate-token", "inputs": {}},
    ):
        jsonschema.validate(good, schema)
    for bad in (
        {"procedure": "set-residency", "inputs": {"model": "a", "residency": "lukewarm"}},
        {"procedure": "set-residency", "inputs": {"residency": "hot"}},
        {"procedure": "rotate-token", "inputs": {"file": "x"}},
        {"procedure": "rotate-tokens", "inputs": {}},
        {"procedure": "rotate-token"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


async def test_a_real_model_can_only_choose_what_there_is(tmp_path: Path) -> None:
    registry = registry_of(tmp_path)
    offered = [one for one in few(tmp_path).procedures() if isinstance(one, Procedure)]
    async with Pool(registry, tmp_path) as pool:
        context = PlanContext(
            request="Please see to it that the small one is there as soon as I begin",
            files=(),
            registry=registry,
            models=ModelCalls(pool.count, pool.generate),
            replans=0,
        )
        chosen = await choose_procedure(offered, context)
    assert chosen.usage.output_tokens > 0
    assert "no choice of a procedure" not in chosen.reason
    if chosen.match is not None:
        assert chosen.match.procedure in {one.id for one in offered}


async def test_a_run_of_a_task_to_manage_is_planned_by_the_frontdoor(tmp_path: Path) -> None:
    kept: list[tuple[str, Mapping[str, Any]]] = []

    async def propose(_run: str, name: str, inputs: Mapping[str, Any]) -> str:
        kept.append((name, inputs))
        return "kept"

    library = few(tmp_path)
    planner = ProcedurePlanner(FRONTDOOR_PLANNER, lambda: library)
    ports = Ports(planner=planner, plans_task=asks_for_procedure, propose=propose)
    async with Orchestrator.open(tmp_path / "home", registry_of(tmp_path), ports) as orchestrator:
        run = await execute(orchestrator, Job(None, manage("Please see to it"), RECORDS, "as-planned"))
    report = report_of(tmp_path / "home", run)
    assert report.status == "done", report.error
    assert report.plan_origin == ("procedure" if kept else "taskir")
    assert report.plan_usage.output_tokens > 0, "the model was asked"
