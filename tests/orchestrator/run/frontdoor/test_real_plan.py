"""Plans by the model that ships as the frontdoor."""

from pathlib import Path

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation
from orchestrator.pool.pool import Pool
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.direct import direct_answer
from orchestrator.run.frontdoor.generation import PlanRequest
from orchestrator.run.frontdoor.planner import ReplanInput, extend_plan, make_plan
from orchestrator.run.planning import Planned, PlannedPart
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import ModelCalls


def asking(text: str, files: tuple[str, ...], replans: int = 0) -> PlanRequest:
    return PlanRequest(
        text=text,
        files=files,
        roles=("worker", "coder", "judge"),
        direct=direct_answer(text, files, {}, load_registry(find_registry(None))),
        role=ResolvedRole(
            model="tiny-large", system="Plan the request as steps.", context=2048, prompts=prompt_set("tiny")
        ),
        replans=replans,
    )


async def planned(folder: Path, text: str, files: tuple[str, ...]) -> tuple[Planned, list[Step], list[int]]:
    """Plan a request; return also how many steps had been handed on after each piece of text."""
    accepted: list[PlannedPart] = []
    handed_on: list[int] = []
    async with Pool(load_registry(find_registry(None)), folder) as pool:

        async def generate(model: str, request: Generation, on_text: OnText | None) -> Completion:
            def take(piece: str) -> None:
                assert on_text is not None
                on_text(piece)
                handed_on.append(sum(len(made.steps) for made in accepted))

            return await pool.generate(model, request, take)

        plan = await make_plan(asking(text, files), ModelCalls(pool.count, generate), accepted.append)
        return plan, [step for made in accepted for step in made.steps], handed_on


async def test_fan_out_and_join(tmp_path: Path) -> None:
    plan, steps, handed_on = await planned(tmp_path, "Summarize a and b, then compare them.", ("a.txt", "b.txt"))
    assert (plan.origin, plan.reason) == ("planned", "")
    assert [step.inputs for step in steps] == [("a.txt",), ("b.txt",), (steps[0].outputs[0], steps[1].outputs[0])]
    assert handed_on[-1] == 3
    assert plan.usage.output_tokens > 20


async def test_steps_are_handed_on_before_the_plan_is_written_to_its_end(tmp_path: Path) -> None:
    text = "Summarize a, b and c, then compare them. Extract the owner of d as JSON, then judge the record."
    plan, steps, handed_on = await planned(tmp_path, text, tuple(f"{name}.txt" for name in "abcd"))
    assert plan.origin == "planned"
    assert len(steps) == handed_on[-1] == 6
    first = next(number for number, count in enumerate(handed_on, start=1) if count)
    assert first <= 0.8 * len(handed_on), "text comes every 20 ms"


async def test_whatever_the_model_writes_only_real_names_are_planned(tmp_path: Path) -> None:
    request = "Summarize zorul.txt and compare it with brimol.md"
    plan, steps, _ = await planned(tmp_path, request, ("unrelated.csv",))
    known = {REQUEST_LABEL, "unrelated.csv"}
    for step in steps:
        assert known.issuperset(step.inputs)
        known.update(step.outputs)
    assert plan.origin in ("repaired", "fallback")
    assert "zorul" in plan.reason
    if plan.origin == "fallback":
        assert steps[-1].action == request


async def test_the_rest_of_a_plan_is_numbered_on_and_names_only_what_is_there(tmp_path: Path) -> None:
    files = ("a.txt", "b.txt", "index.txt")
    action = "List each file in index.txt."
    written = '{"role":"worker","action":"List each file in {each}.","each":["index.txt"],"replan":true}'
    first = Step(id="S1", actor="worker", action=action, inputs=("index.txt",), outputs=("s1.txt",))
    finding = ReplanInput("S1", '["a.txt","b.txt"]', [PlannedPart((first,), written)])
    accepted: list[PlannedPart] = []
    async with Pool(load_registry(find_registry(None)), tmp_path) as pool:
        models = pool
        request = asking("Summarize each file that index.txt names, then compare the summaries.", files, replans=1)
        made = await extend_plan(request, finding, models, accepted.append)
    assert made.outcome in ("planned", "repaired", "stopped")
    assert bool(made.reason) == (made.outcome != "planned")
    assert made.usage.prompt_tokens > 60
    assert made.asked == 2 - (made.outcome == "planned")
    known = {REQUEST_LABEL, *files, "s1.txt"}
    for number, step in enumerate((step for made in accepted for step in made.steps), start=2):
        assert step.id == f"S{number}"
        assert known.issuperset(step.inputs)
        known.update(step.outputs)
