"""Plans by the model that ships as the frontdoor."""

from pathlib import Path

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.frontdoor import REQUEST_LABEL, Planned, PlanRequest, make_plan
from orchestrator.frontdoor.plan import OnText
from orchestrator.pool import Pool
from orchestrator.taskir import Step
from registry import find_registry, load_registry


async def planned(folder: Path, text: str, files: tuple[str, ...]) -> tuple[Planned, list[Step], list[int]]:
    """Plan a request; return also how many steps had been handed on after each piece of text."""
    accepted: list[Step] = []
    handed_on: list[int] = []
    # One thread: on cores that others use too, two of them mostly wait for each other.
    async with Pool(load_registry(find_registry(None)), folder, cores=1) as pool:

        async def generate(model: str, request: Generation, on_text: OnText | None) -> Completion:
            def take(piece: str) -> None:
                assert on_text is not None
                on_text(piece)
                handed_on.append(len(accepted))

            return await pool.generate(model, request, take)

        request = PlanRequest(
            text=text,
            files=files,
            roles=("worker", "coder", "judge"),
            fallback_role="worker",
            model="tiny-large",
            system="Plan the request as steps.",
        )
        return await make_plan(request, generate, accepted.append), accepted, handed_on


async def test_fan_out_and_join(tmp_path: Path) -> None:
    plan, steps, handed_on = await planned(tmp_path, "Summarize a and b, then compare them.", ("a.txt", "b.txt"))
    assert (plan.origin, plan.reason) == ("planned", "")
    assert [step.inputs for step in steps] == [("a.txt",), ("b.txt",), (steps[0].outputs[0], steps[1].outputs[0])]
    assert handed_on[-1] == 3
    assert handed_on.index(1) < 0.6 * len(handed_on)  # long before the plan was written to its end
    assert plan.usage.output_tokens > 30


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
