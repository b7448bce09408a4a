"""A plan is edited on the page before it runs: each change is checked and priced; what cannot be done is refused."""

import json
from typing import Any

import httpx2
from playwright.sync_api import Locator, Page, Route, expect

from tests.orchestrator.api.daemon_process import RECORDS, finished
from tests.orchestrator.api.page.browser import PATIENCE, Visit

expect.set_options(timeout=PATIENCE)

REQUEST = "Summarize a, b and c, then compare them"


def planned(visit: Visit) -> Locator:
    """Have a request planned and its plan opened for editing; return the plan's region."""
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill(REQUEST)
    for name in "abc":
        page.get_by_label("Files: drop them here").set_input_files(str(RECORDS / f"{name}.txt"))
        expect(page.locator(".drop li", has_text=f"{name}.txt")).to_be_visible()
    page.get_by_role("button", name="Show the plan").click()
    plan = page.get_by_role("region", name="The plan")
    expect(steps_of(plan)).to_have_count(4)
    page.get_by_role("button", name="Edit the plan").click()
    return plan


def steps_of(plan: Locator) -> Locator:
    return plan.get_by_role("listbox").get_by_role("option")


def step_form(page: Page, step: str) -> Locator:
    return page.locator(".editor fieldset", has_text=f"{step}: ")


def change(field: Locator, value: str) -> None:
    field.fill(value)
    field.press("Tab")


def run_plan(visit: Visit, client: httpx2.Client) -> dict[str, Any]:
    """Run the plan, wait until it has ended, and return the document that it was submitted as."""
    page = visit.page
    button = page.get_by_role("button", name="Run this plan")
    expect(button).to_be_enabled()
    button.click()
    page.wait_for_function("() => location.hash.startsWith('#/runs/')")
    run = page.url.rpartition("/")[2]
    assert finished(client, run)["status"] == "done"
    events = client.get(f"/v1/runs/{run}/events").text.splitlines()
    accepted = next(json.loads(line.removeprefix("data: ")) for line in events if '"run_accepted"' in line)
    task = accepted["task"]
    assert isinstance(task, dict)
    return task


def test_a_step_is_removed_and_the_rest_is_checked_and_priced(visit: Visit, client: httpx2.Client) -> None:
    page, plan = visit.page, planned(visit)
    before = plan.locator(".figures").inner_text()
    page.get_by_role("button", name="Remove S3").click()
    expect(page.get_by_role("alert")).to_contain_text("/plan/steps/2/inputs/2")
    expect(step_form(page, "S4").locator(".cause")).to_contain_text("no artifact, input or file is called")
    expect(page.get_by_role("button", name="Run this plan")).to_be_disabled()
    inputs = step_form(page, "S4").get_by_label("Input", exact=True)
    change(inputs, ", ".join(inputs.input_value().split(", ")[:2]))
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(steps_of(plan)).to_have_count(3)
    assert plan.locator(".figures").inner_text() != before
    task = run_plan(visit, client)
    assert [step["id"] for step in task["plan"]["steps"]] == ["S1", "S2", "S4"]


def test_role_persona_order_and_width_are_changed(visit: Visit, client: httpx2.Client) -> None:
    page, plan = visit.page, planned(visit)
    second = step_form(page, "S2")
    change(second.get_by_label("After", exact=True), "S1")
    expect(plan.locator("svg.graph path.line")).to_have_count(4)
    change(second.get_by_label("Role", exact=True), "coder")
    expect(plan.get_by_text("The picture as a table")).to_be_visible()
    change(page.get_by_label("Steps at once"), "2")
    task = run_plan(visit, client)
    assert task["plan"]["parallelism"] == {"max_concurrent_steps": 2}
    step = next(step for step in task["plan"]["steps"] if step["id"] == "S2")
    assert (step["actor"], step["depends_on"]) == ("coder", ["S1"])


def test_what_cannot_be_done_is_refused_as_for_a_document(visit: Visit) -> None:
    page = visit.page
    planned(visit)
    wrong = {
        "Role": ("nobody", "/plan/steps/0/actor"),
        "Persona": ("nobody", "/plan/steps/0/persona"),
        "After": ("S4", "/plan/steps"),
        "Once for each item of": ("nothing", "/plan/steps/0/foreach"),
    }
    for label, (value, place) in wrong.items():
        field = step_form(page, "S1").get_by_label(label, exact=True)
        before = field.input_value()
        change(field, value)
        expect(page.get_by_role("alert")).to_contain_text(place)
        expect(page.get_by_role("button", name="Run this plan")).to_be_disabled()
        change(field, before)
        expect(page.get_by_role("alert")).to_have_count(0)
    change(page.get_by_label("Steps at once"), "0")
    expect(page.get_by_role("alert")).to_contain_text("/plan/parallelism/max_concurrent_steps")


def test_a_plan_that_is_made_again_is_as_it_was(visit: Visit) -> None:
    page, plan = visit.page, planned(visit)
    page.get_by_role("button", name="Remove S4").click()
    expect(steps_of(plan)).to_have_count(3)
    page.get_by_role("button", name="Show the plan").click()
    expect(steps_of(plan)).to_have_count(4)


def test_a_document_is_edited_in_both_ways(visit: Visit) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("A TaskIR document").check()
    steps = [
        {"id": "S1", "actor": "worker", "action": "List numbers.", "outputs": ["list"]},
        {"id": "S2", "actor": "worker", "action": "Double it.", "foreach": "list", "outputs": ["doubles"]},
    ]
    document = page.get_by_label("TaskIR, as JSON")
    document.fill(json.dumps({"objective": "numbers", "plan": {"steps": steps}}))
    expect(page.locator("#document-state")).to_have_text("valid")
    page.get_by_role("button", name="Edit the plan").click()
    change(step_form(page, "S2").get_by_label("Items at once"), "3")
    expect(page.locator("#document-state")).to_have_text("valid")
    task = json.loads(document.input_value())
    assert task["agents"] == [{"role": "worker", "tier": "C", "max_concurrency": 3}]
    page.get_by_role("button", name="Remove S1").click()
    expect(page.get_by_role("alert")).to_contain_text("/plan/steps/0/foreach")
    expect(page.locator("#document-state")).to_have_text("")
    assert [step["id"] for step in json.loads(document.input_value())["plan"]["steps"]] == ["S2"]


def test_what_may_do_more_than_write_is_allowed_first(visit: Visit, client: httpx2.Client) -> None:
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill("Back up the state")
    page.get_by_role("button", name="Show the plan").click()
    run = page.get_by_role("button", name="Run this plan")
    expect(run).to_be_disabled()
    page.get_by_label("They may do more than write: S1 (procedure)").check()
    task = run_plan(visit, client)
    assert task["plan"]["steps"][0]["tools"] == ["procedure"]


def planned_procedure(visit: Visit) -> Page:
    """Have a request planned whose step may do more than write."""
    page = visit.page
    visit.ready("h1")
    visit.go("new")
    page.get_by_label("What should be done?").fill("Back up the state")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("region", name="The plan")).to_be_visible()
    return page


def test_another_plan_of_the_same_request_is_allowed_again(visit: Visit) -> None:
    page = planned_procedure(visit)
    tick = page.get_by_label("They may do more than write: S1 (procedure)")
    tick.check()
    expect(page.get_by_role("button", name="Run this plan")).to_be_enabled()
    page.get_by_role("button", name="Show the plan").click()
    expect(tick).not_to_be_checked()
    expect(page.get_by_role("button", name="Run this plan")).to_be_disabled()


def test_nobody_allows_a_plan_that_is_still_to_be_made(visit: Visit) -> None:
    def continued(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "goes_on_after": "S1"})

    visit.page.route("**/v1/forecasts", continued)
    page = planned_procedure(visit)
    expect(page.get_by_label("They may do more than write")).to_have_count(0)
    expect(page.get_by_role("button", name="Run this plan")).to_have_count(0)
    expect(page.get_by_role("button", name="Plan again and run")).to_be_enabled()


def test_a_plan_without_a_price_does_not_run(visit: Visit) -> None:
    page = visit.page
    planned(visit)
    run = page.get_by_role("button", name="Run this plan")
    expect(run).to_be_enabled()
    expect(page.get_by_role("button", name="Remove S1")).to_be_visible()
    with page.expect_request("**/v1/forecasts"):
        page.route("**/v1/forecasts", lambda route: route.abort())
        assert page.evaluate(
            """async () => {
              document.querySelector(".editor button").click();
              await new Promise(requestAnimationFrame);
              return document.querySelector(".plan .actions .main").ariaDisabled === "true";
            }"""
        ), "before the check is sent"
    expect(page.get_by_role("alert")).to_be_visible()
    expect(run).to_be_disabled()
