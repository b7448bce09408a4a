import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.frontdoor.builder import PlanBuilder, PlannedStep
from orchestrator.frontdoor.compact import CompactStep
from orchestrator.frontdoor.errors import PlanFlaw
from orchestrator.frontdoor.naming import FileNames, default_output
from orchestrator.taskir import Step

FILES = ("a.txt", "b.md", "sub/c.csv", "both.txt", "both.md", "s4.txt")


def step(action: str = "Go.", *inputs: str, role: str = "worker", **more: object) -> CompactStep:
    return CompactStep.model_validate({"role": role, "action": action, "inputs": inputs, **more})


def built(*steps: CompactStep) -> list[Step]:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    return [builder.add(one) for one in steps]


def test_code_fills_in_what_the_compact_form_leaves_out() -> None:
    first, second = built(
        step("Summarize a.", "a"), step("Write f.", "S1", "b.md", "request", role="coder", output="f.py")
    )
    assert first == Step(id="S1", actor="worker", action="Summarize a.", inputs=("a.txt",), outputs=("s1.txt",))
    assert second == Step(
        id="S2", actor="coder", action="Write f.", inputs=("s1.txt", "b.md", "request"), outputs=("f.py",)
    )


def test_references_follow_the_names_of_outputs() -> None:
    _, second, third = built(
        step(output="names.json"),
        step("Sum up the item of S1, not S2 or xS1.", foreach="S1", inputs=("a.txt",)),
        step("Compare S1 and S2.", "S1", "S2", "S1", after=["S1", "s2.json"]),
    )
    assert second.foreach == "names.json"
    assert second.inputs == ("a.txt",)
    assert second.action == "Sum up the item of names.json, not S2 or xS1."
    assert second.outputs == ("s2.json",)
    assert third.inputs == ("names.json", "s2.json")
    assert third.action == "Compare names.json and s2.json."
    assert third.depends_on == ("S1", "S2")


def test_outputs_can_be_read_by_their_own_names() -> None:
    assert built(step(output="report.md"), step("Go.", "report.md"))[1].inputs == ("report.md",)


def test_default_names_make_way_for_files() -> None:
    assert built(*[step()] * 4)[3].outputs == ("s4-output.txt",)


@pytest.mark.parametrize(
    ("steps", "flaw"),
    [
        ([step(role="wroker")], "step 1: there is no role 'wroker', perhaps 'worker'; roles: worker, coder"),
        ([step("Go.", "S1")], "step 1: S1 is no earlier step"),
        ([step(), step("Go.", "S3")], "step 2: S3 is no earlier step; earlier steps: S1 to S1"),
        ([step("Go.", "none.txt")], "step 1: 'none.txt' is no earlier step, no file and not 'request'"),
        ([step("Go.", "both")], "step 1: 'both' is no earlier step"),
        ([step(foreach="request")], "step 1: foreach needs a list"),
        ([step(), step(after=["a.txt"])], "step 2: it cannot come after 'a.txt', which is no earlier step"),
        ([step(), step(after=["S2"])], "step 2: S2 is no earlier step"),
        ([step(output="o"), step(output="o")], "step 2: the output 'o' is written by an earlier step already"),
        ([step(output="request")], "step 1: "),
        ([step(output="../up")], "step 1: outputs/0: "),
        ([step(output="o"), step(output="o/p")], "step 2: "),
    ],
)
def test_flaws_name_the_step_and_leave_the_plan_as_it_was(steps: list[CompactStep], flaw: str) -> None:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    for one in steps[:-1]:
        builder.add(one)
    with pytest.raises(PlanFlaw) as caught:
        builder.add(steps[-1])
    assert str(caught.value).startswith(flaw)
    assert len(builder.steps) == len(builder.accepted) == len(steps) - 1
    assert builder.add(step()).id == f"S{len(steps)}"


NAMES = st.sampled_from(["S1", "S2", "S3", "S4", "a", "a.txt", "both", "request", "s1.txt", "o.md", "x"])


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.builds(
            CompactStep,
            role=st.sampled_from(["worker", "coder", "judge"]),
            action=st.just("Do S1."),
            inputs=st.lists(NAMES, max_size=2).map(tuple),
            foreach=st.none() | NAMES,
            output=st.none() | st.sampled_from(["o.md", "a.txt", "o.md/x", "s2.txt"]),
            after=st.lists(NAMES, max_size=1).map(tuple),
        ),
        max_size=5,
    )
)
def test_accepted_steps_name_only_what_is_there(steps: list[CompactStep]) -> None:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    for one in steps:
        before = list(builder.steps)
        try:
            builder.add(one)
        except PlanFlaw:
            assert builder.steps == before
            continue
        assert builder.steps[:-1] == before
    there = {"request", *FILES}
    for number, found in enumerate(builder.steps, 1):
        assert found.id == f"S{number}"
        assert there.issuperset(found.inputs)
        assert found.foreach is None or found.foreach in there
        assert set(found.depends_on) <= {f"S{earlier}" for earlier in range(1, number)}
        there.update(found.outputs)


@pytest.mark.parametrize(
    ("name", "file"),
    [("a.txt", "a.txt"), ("a", "a.txt"), ("c", "sub/c.csv"), ("sub/c", "sub/c.csv"), ("both", None), ("A", None)],
)
def test_files_are_found_by_name_or_unambiguous_stem(name: str, file: str | None) -> None:
    assert FileNames(FILES).find(name) == file


@pytest.mark.parametrize(
    ("request_text", "mentioned"),
    [
        ("Summarize a.txt and b.md.", ("a.txt", "b.md")),
        ("Summarize a, b and c, then compare them", ("a.txt", "b.md", "sub/c.csv")),
        ("Write a function that reads both files", ()),
        ("Summarize b and a.", ("a.txt", "b.md")),
        ("Summarize both.md", ("both.md",)),
        ("Look at data.txt or ab.md", ()),
        ("Read ./a.txt", ()),
    ],
)
def test_mentioned_files(request_text: str, mentioned: tuple[str, ...]) -> None:
    assert FileNames(FILES).mentioned(request_text) == mentioned


def test_fallback_is_one_step_that_does_the_request() -> None:
    builder = PlanBuilder(FILES, ("worker",))
    assert builder.fall_back("worker", "Sum up a.txt") == Step(
        id="S1", actor="worker", action="Sum up a.txt", inputs=("a.txt",), outputs=("s1.txt",)
    )
    assert builder.fall_back("worker", "Say hello").inputs == ("request",)


def test_default_output_is_always_free() -> None:
    assert default_output(1, False, []) == "s1.txt"
    assert default_output(1, True, ["s1.json", "s1-output.json"]) == "s1-output-output.json"


def known(*steps: CompactStep) -> list[PlannedStep]:
    return [PlannedStep(made, one.written) for made, one in zip(built(*steps), steps, strict=True)]


def test_nothing_follows_a_step_after_which_the_plan_goes_on() -> None:
    builder = PlanBuilder(FILES, ("worker",))
    builder.add(step())
    assert builder.goes_on_after is None
    builder.add(step("Sum up the item.", foreach="S1", replan=True))
    assert builder.goes_on_after == "S2"
    with pytest.raises(PlanFlaw, match="step 3: nothing may follow S2, whose replan ends the plan for now"):
        builder.add(step())


def test_the_rest_of_a_plan_is_numbered_on_and_waits_for_what_it_hangs_on() -> None:
    builder = PlanBuilder(FILES, ("worker",), known(step("Look.", "a"), step("List.", "b.md", replan=True)), done=2)
    assert builder.goes_on_after is None
    third = builder.add(step("Go.", "a.txt"))
    fourth = builder.add(step("Go.", "S3"))
    fifth = builder.add(step("Go on from S2.", "S1", "S2", replan=True))
    assert (third.id, third.inputs, third.depends_on) == ("S3", ("a.txt",), ("S2",))
    assert (fourth.inputs, fourth.depends_on) == (("s3.txt",), ())
    assert (fifth.inputs, fifth.depends_on, fifth.action) == (("s1.txt", "s2.txt"), (), "Go on from s2.txt.")
    assert builder.goes_on_after == "S5"
    with pytest.raises(PlanFlaw, match="step 6: nothing may follow S5"):
        builder.add(step())


def test_a_step_that_only_reads_earlier_outputs_waits_too() -> None:
    builder = PlanBuilder(FILES, ("worker",), known(step("Look.", "a"), step("List.", "b.md", replan=True)), done=2)
    assert builder.add(step("Go.", "S1", after=["S1"])).depends_on == ("S1", "S2")


def test_a_plan_that_is_taken_up_again_goes_on_as_if_nothing_had_happened() -> None:
    steps = (step("Look.", "a"), step("Write.", "S1", output="a.md"), step("Go.", "S2", "a.txt", after=["S1"]))
    again = PlanBuilder(FILES, ("worker",), known(*steps[:2]))
    assert again.accepted == list(steps[:2])
    again.add(steps[2])
    assert again.steps == built(*steps)


def test_steps_of_an_older_journal_are_taken_as_they_are() -> None:
    first, second = built(step("Look.", "a"), step("Sum up S1.", "S1", output="o.md"))
    builder = PlanBuilder(FILES, ("worker",), [PlannedStep(first), PlannedStep(second)])
    assert builder.accepted[1] == step("Sum up s1.txt.", "s1.txt", output="o.md")
    assert builder.add(step("Go.", "S2")).inputs == ("o.md",)
