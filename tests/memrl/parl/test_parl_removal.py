"""A plan without one of its steps is a plan without what it made."""

from orchestrator.memrl.parl.removal import without_a_step
from orchestrator.run.frontdoor.compact import Part, PlanStream, plan_text


def parts(plan: str) -> list[Part]:
    stream = PlanStream()
    found = stream.feed(plan)
    stream.finish()
    return found


def test_one_name_of_several_is_left_out() -> None:
    each = Part(role="worker", action="Summarize {each}.", each=("a.txt", "b.txt"))
    join = Part(role="worker", action="Compare them.", inputs=("P1", "c.txt"))
    shorter = [parts(plan) for plan in without_a_step(plan_text([each, join]))]
    assert [plan[0].each for plan in shorter] == [("b.txt",), ("a.txt",), ("a.txt", "b.txt")]
    assert [len(plan) for plan in shorter] == [2, 2, 1]


def test_later_parts_are_numbered_again_and_name_nothing_that_is_gone() -> None:
    first = Part(role="worker", action="List the names.", inputs=("a.txt",))
    second = Part(role="worker", action="Count them.", inputs=("P1",), after=("P1",))
    third = Part(role="worker", action="Look at each.", foreach="P1", inputs=("P2", "a.txt"))
    without_first, without_second, _ = [parts(plan) for plan in without_a_step(plan_text([first, second, third]))]
    assert (without_first[0].inputs, without_first[0].after) == ((), ())
    assert (without_first[1].foreach, without_first[1].inputs) == (None, ("P1", "a.txt"))
    assert (without_second[1].foreach, without_second[1].inputs) == ("P1", ("a.txt",))


def test_a_single_step_cannot_be_left_out() -> None:
    assert without_a_step(plan_text([Part(role="worker", action="Merge them.", inputs=("a.txt", "b.txt"))])) == []
