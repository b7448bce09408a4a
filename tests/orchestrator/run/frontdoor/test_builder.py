import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.builder import MAX_EACH, PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw
from orchestrator.run.frontdoor.references import FileNames, default_output, with_folders
from orchestrator.run.planning import PlannedPart
from orchestrator.task.taskir.models import Step

FILES = ("a.txt", "b.md", "sub/c.csv", "both.txt", "both.md", "s4.txt")


def part(action: str = "Go.", *inputs: str, role: str = "worker", **more: object) -> Part:
    return Part.model_validate({"role": role, "action": action, "inputs": inputs, **more})


def built(*parts: Part) -> list[Step]:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    return [step for one in parts for step in builder.add(one).steps]


def test_code_fills_in_what_the_compact_form_leaves_out() -> None:
    first, second = built(
        part("Summarize a.", "a"), part("Write f.", "P1", "b.md", "request", role="coder", output="f.py")
    )
    assert first == Step(id="S1", actor="worker", action="Summarize a.", inputs=("a.txt",), outputs=("s1.txt",))
    gates = ("format", "lint", "build", "smoke")
    inputs = ("s1.txt", "b.md", "request")
    assert second == Step(id="S2", actor="coder", action="Write f.", inputs=inputs, outputs=("f.py",), gates=gates)


def test_gates_follow_from_what_a_step_writes() -> None:
    steps = built(
        part(output="go.sh"), part(output="told.json"), part(foreach="P2"), part(foreach="P2", output="all.py")
    )
    assert [step.gates for step in steps[:3]] == [("shellcheck",), ("schema",), None]
    assert steps[3].gates == ("format", "lint", "build", "smoke"), "each item is Python, and the list of them JSON"


def test_references_follow_the_names_of_outputs() -> None:
    _, second, third = built(
        part(output="names.json"),
        part("Sum up the item of P1, not P2 or xP1.", foreach="P1", inputs=("a.txt",)),
        part("Compare P1 and P2.", "P1", "P2", "P1", after=["P1", "s2.json"]),
    )
    assert second.foreach == "names.json"
    assert second.inputs == ("a.txt",)
    assert second.action == "Sum up the item of names.json, not P2 or xP1."
    assert second.outputs == ("s2.json",)
    assert third.inputs == ("names.json", "s2.json")
    assert third.action == "Compare names.json and s2.json."
    assert third.depends_on == ("S1", "S2")


def test_outputs_can_be_read_by_their_own_names() -> None:
    assert built(part(output="report.md"), part("Go.", "report.md"))[1].inputs == ("report.md",)


def test_default_names_make_way_for_files() -> None:
    assert built(*[part()] * 4)[3].outputs == ("s4-output.txt",)
    taken = with_folders(["s1.txt/in/a.txt", "s1-output.txt"])
    assert default_output(1, foreach=False, taken=taken) == "s1-output-output.txt"


def test_a_part_over_as_many_files_as_it_may_name_makes_a_step_for_each() -> None:
    files = [f"{number}.txt" for number in range(MAX_EACH)]
    steps = PlanBuilder(files, ("worker",)).add(part("Sum up {each}.", each=["*"])).steps
    assert sorted(step.inputs for step in steps) == sorted((file,) for file in files)
    assert all(step.action == f"Sum up {step.inputs[0]}." for step in steps)
    assert len({step.outputs for step in steps}) == MAX_EACH


@pytest.mark.parametrize(
    ("steps", "flaw"),
    [
        ([part(role="wroker")], "P1: there is no role 'wroker', perhaps 'worker'; roles: worker, coder"),
        ([part("Go.", "P1")], "P1: P1 is no earlier part"),
        ([part(), part("Go.", "P3")], "P2: P3 is no earlier part; earlier parts: P1 to P1"),
        ([part("Go.", "none.txt")], "P1: 'none.txt' is no earlier part, no file and not 'request'"),
        ([part("Go.", "both")], "P1: 'both' is no earlier part"),
        ([part(foreach="request")], "P1: foreach needs a list"),
        ([part(), part(after=["a.txt"])], "P2: it cannot come after 'a.txt', which is no earlier part"),
        ([part(), part(after=["P2"])], "P2: P2 is no earlier part"),
        ([part(output="o"), part(output="o")], "P2: the output 'o' is written by an earlier step already"),
        ([part("Read {each}.")], "P1: its action speaks of {each}, and `each` names nothing"),
        ([part("Read {each}.", each=["*.pdf"])], "P1: '*.pdf' is no earlier part, no file"),
        ([part(each=["a", "b"], output="o")], "P1: the output 'o' needs a part of one step, and `each` stands for 2"),
        ([part(each=["*.md"], replan=True)], "P1: replan needs a part of one step, and `each` stands for 2"),
        ([part(), part(each=["a"], foreach="P1")], "P2: it has `each`, for what is known now, and `foreach`"),
        ([part(each=["a", "b"]), part(foreach="P1")], "P2: foreach needs a list, and 'P1' stands for 2 outputs"),
        ([part(output="request")], "P1: the output 'request' is the name of the request"),
        (
            [part("Go.", "a.txt"), part(output="a.txt")],
            "P2: the output 'a.txt' is the name of a file",
        ),
        ([part(output="../up")], "P1: outputs/0: "),
        ([part(output="o"), part(output="o/p")], "P2: "),
    ],
)
def test_flaws_name_the_step_and_leave_the_plan_as_it_was(steps: list[Part], flaw: str) -> None:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    for one in steps[:-1]:
        builder.add(one)
    with pytest.raises(PlanFlaw) as caught:
        builder.add(steps[-1])
    assert str(caught.value).startswith(flaw)
    assert len(builder.parts) == len(builder.accepted) == len(steps) - 1
    assert builder.add(part()).steps[0].id == f"S{len(builder.steps)}"


NAMES = st.sampled_from(["P1", "P2", "P3", "P4", "a", "a.txt", "*.md", "both", "request", "s1.txt", "o.md", "x"])


@given(
    steps=st.lists(
        st.builds(
            Part,
            role=st.sampled_from(["worker", "coder", "judge"]),
            action=st.sampled_from(["Do P1.", "Do {each}."]),
            each=st.lists(NAMES, max_size=2).map(tuple),
            inputs=st.lists(NAMES, max_size=2).map(tuple),
            foreach=st.none() | NAMES,
            output=st.none() | st.sampled_from(["o.md", "a.txt", "o.md/x", "s2.txt"]),
            after=st.lists(NAMES, max_size=1).map(tuple),
        ),
        max_size=5,
    )
)
def test_accepted_steps_name_only_what_is_there(steps: list[Part]) -> None:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    for one in steps:
        before = list(builder.steps)
        try:
            builder.add(one)
        except PlanFlaw:
            assert builder.steps == before
            continue
        assert builder.steps[: len(before)] == before
        assert len(builder.steps) > len(before)
    there = {"request", *FILES}
    for number, found in enumerate(builder.steps, 1):
        assert found.id == f"S{number}"
        assert there.issuperset(found.inputs)
        assert found.foreach is None or found.foreach in there
        assert set(found.depends_on) <= {f"S{earlier}" for earlier in range(1, number)}
        there.update(found.outputs)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.txt", "a.txt"),
        ("a", "a.txt"),
        ("c", "sub/c.csv"),
        ("sub/c", "sub/c.csv"),
        ("both", None),
        ("A", None),
        ("*.pdf", None),
    ],
)
def test_files_are_found_by_name_or_unambiguous_stem(name: str, file: str | None) -> None:
    assert FileNames(FILES).find(name) == (() if file is None else (file,))


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


@pytest.mark.parametrize("action", ["a.txt", "`a.txt`", "{each}", "a.txt, b.md", "P1", "other.md.", " *.txt "])
def test_an_action_that_is_only_a_name_is_refused(action: str) -> None:
    builder = PlanBuilder(FILES, ("worker",))
    builder.add(Part(role="worker", action="Sum up a.txt", inputs=("a.txt",)))
    with pytest.raises(PlanFlaw, match=r"P2: its action .* is only a name: an action says what to do, in a sentence"):
        builder.add(Part(role="worker", action=action, each=("a.txt",)))


@pytest.mark.parametrize("action", ["Read a.txt", "Translate {each}", "Summarize", "Merge P1"])
def test_an_action_that_says_what_to_do_is_not(action: str) -> None:
    builder = PlanBuilder(FILES, ("worker",))
    builder.add(Part(role="worker", action="Sum up a.txt", inputs=("a.txt",)))
    assert builder.add(Part(role="worker", action=action, each=("a.txt",))).steps


def test_default_output_is_always_free() -> None:
    assert default_output(1, False, []) == "s1.txt"
    assert default_output(1, True, ["s1.json", "s1-output.json"]) == "s1-output-output.json"


def known(*parts: Part) -> list[PlannedPart]:
    builder = PlanBuilder(FILES, ("worker", "coder"))
    return [builder.add(one) for one in parts]


def test_a_part_is_a_step_for_each_thing_that_it_names() -> None:
    first, second, third = built(part("Sum up {each}.", "request", each=["c", "*.md"]))
    assert [step.id for step in (first, second, third)] == ["S1", "S2", "S3"]
    assert [step.action for step in (first, second, third)] == ["Sum up sub/c.csv.", "Sum up b.md.", "Sum up both.md."]
    assert first.inputs == ("sub/c.csv", "request")
    assert third.outputs == ("s3.txt",)


def test_what_several_steps_put_out_is_read_as_one_or_one_by_one() -> None:
    steps = built(
        part("Sum up {each}.", each=["a", "b"]),
        part("Find the price in {each}.", each=["P1"]),
        part("Compare P2.", "P2", after=["P1"]),
    )
    assert [step.inputs for step in steps[2:4]] == [("s1.txt",), ("s2.txt",)]
    assert steps[3].action == "Find the price in s2.txt."
    assert steps[4].inputs == ("s3.txt", "s4-output.txt")
    assert steps[4].action == "Compare s3.txt, s4-output.txt."
    assert steps[4].depends_on == ("S1", "S2")


def test_a_part_is_taken_whole_or_not_at_all() -> None:
    builder = PlanBuilder([f"{number}.txt" for number in range(MAX_EACH + 1)], ("worker",))
    with pytest.raises(PlanFlaw, match="P1: `each` stands for 1,001 steps; at most 1,000"):
        builder.add(part("Sum up {each}.", each=["*"]))
    assert builder.steps == []
    assert len(builder.add(part("Sum up {each}.", each=["1*.txt"])).steps) > 100


def test_nothing_follows_a_step_after_which_the_plan_goes_on() -> None:
    builder = PlanBuilder(FILES, ("worker",))
    builder.add(part())
    assert builder.goes_on_after is None
    builder.add(part("Sum up the item.", foreach="P1", replan=True))
    assert builder.goes_on_after == "S2"
    with pytest.raises(PlanFlaw, match="P3: nothing may follow S2, whose replan ends the plan for now"):
        builder.add(part())


def test_the_rest_of_a_plan_is_numbered_on_and_waits_for_what_it_hangs_on() -> None:
    before = known(part("Look at {each}.", each=["a", "b"]), part("List.", "b.md", replan=True))
    builder = PlanBuilder(FILES, ("worker",), before, done=2)
    assert builder.goes_on_after is None
    (fourth, fifth) = builder.add(part("Go.", each=["a.txt", "b"])).steps
    (sixth,) = builder.add(part("Go.", "P3")).steps
    (seventh,) = builder.add(part("Go on from P2.", "P1", "P2", replan=True)).steps
    assert (fourth.id, fourth.inputs, fourth.depends_on) == ("S4", ("a.txt",), ("S3",))
    assert fifth.depends_on == ("S3",)
    assert (sixth.inputs, sixth.depends_on) == (("s4-output.txt", "s5.txt"), ())
    assert (seventh.inputs, seventh.depends_on) == (("s1.txt", "s2.txt", "s3.txt"), ())
    assert seventh.action == "Go on from s3.txt."
    assert builder.goes_on_after == "S7"
    with pytest.raises(PlanFlaw, match="P6: nothing may follow S7"):
        builder.add(part())


def test_a_step_that_only_reads_earlier_outputs_waits_too() -> None:
    builder = PlanBuilder(FILES, ("worker",), known(part("Look.", "a"), part("List.", "b.md", replan=True)), done=2)
    assert builder.add(part("Go.", "P1", after=["P1"])).steps[0].depends_on == ("S1", "S2")


def test_a_plan_that_is_taken_up_again_goes_on_as_if_nothing_had_happened() -> None:
    parts = (part("Look.", each=["a", "b"]), part("Write.", "P1", output="a.md"), part("Go.", "P2", after=["P1"]))
    again = PlanBuilder(FILES, ("worker",), known(*parts[:2]))
    assert again.accepted == list(parts[:2])
    again.add(parts[2])
    assert again.steps == built(*parts)


def test_a_step_that_stood_in_for_a_plan_is_taken_up_as_it_is() -> None:
    step = Step(id="S1", actor="worker", action="Sum up a.txt", inputs=("a.txt",), outputs=("s1.txt",))
    builder = PlanBuilder(FILES, ("worker",), [PlannedPart((step,))])
    assert builder.accepted == [part("Sum up a.txt", "a.txt", output="s1.txt")]
    assert builder.add(part("Go.", "P1")).steps[0].inputs == ("s1.txt",)
