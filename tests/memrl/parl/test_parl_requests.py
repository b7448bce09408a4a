"""Requests of the training: their best plans are plans, and held-out ones have words that training never sees."""

import pytest

from orchestrator.bench.families.words import is_held_out
from orchestrator.memrl.parl.requests import (
    HELD_OUT,
    HELD_OUT_WIDTH,
    TRAINED,
    TRAINED_WIDTHS,
    FamilyName,
    held_out_requests,
    make_request,
    training_request,
)
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanStream

ROLES = ("worker", "coder", "judge")


@pytest.mark.parametrize("family", [*TRAINED, HELD_OUT])
@pytest.mark.parametrize("width", [*TRAINED_WIDTHS, HELD_OUT_WIDTH])
def test_plans_are_plans(family: FamilyName, width: int) -> None:
    request = make_request(family, width, "test")
    counts = []
    for plan in request.plans:
        builder, stream = PlanBuilder([*request.files], ROLES), PlanStream()
        for part in stream.feed(plan):
            builder.add(part)
        stream.finish()
        counts.append(len(builder.steps))
    expected = {"independent": [width], "mixed": [width + 1], "traps": [1], "gathered": [1, width]}
    assert counts == expected.get(family, [2])
    assert request.check([]) == 0


def test_equal_seeds_give_equal_requests() -> None:
    first, second = training_request("7/0/1"), training_request("7/0/1")
    assert (first.text, first.files, first.plans) == (second.text, second.files, second.plans)
    assert training_request("7/0/2").text != first.text


def test_a_right_answer_may_have_the_records_in_one_text_or_in_several() -> None:
    request = make_request("independent", 3, "check")
    gathered = make_request("gathered", 3, "check")
    assert request.check(["nothing of it"]) == 0
    assert gathered.check(["\n".join(gathered.files.values())]) == gathered.check([*gathered.files.values()]) == 1
    assert gathered.check([*gathered.files.values()][:1]) == pytest.approx(1 / 3)


def test_held_out_requests_share_no_file_names_with_training() -> None:
    held_out = held_out_requests(36, "0")
    trained = [training_request(f"0/{number}") for number in range(50)]
    assert {request.family for request in trained} == set(TRAINED)
    assert {request.family for request in held_out} == {*TRAINED, HELD_OUT}
    assert max(len(request.files) for request in held_out) == HELD_OUT_WIDTH
    assert all(is_held_out(name.removesuffix(".txt")) for request in held_out for name in request.files)
    assert not any(is_held_out(name.removesuffix(".txt")) for request in trained for name in request.files)
