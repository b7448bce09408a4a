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
def test_the_best_plan_is_one(family: FamilyName, width: int) -> None:
    request = make_request(family, width, "test")
    builder, stream = PlanBuilder([*request.files], ROLES), PlanStream()
    for part in stream.feed(request.plan):
        builder.add(part)
    stream.finish()
    named = len(request.files) if family in ("independent", "mixed") else request.width
    assert request.width == named
    assert len(builder.steps) >= (1 if family in ("chained", "traps", HELD_OUT) else request.width)
    assert request.check([]) == 0


def test_equal_seeds_give_equal_requests() -> None:
    first, second = training_request("7/0/1"), training_request("7/0/1")
    assert (first.text, first.files, first.plan) == (second.text, second.files, second.plan)
    assert training_request("7/0/2").text != first.text


def test_a_right_answer_may_have_the_records_in_one_text_or_in_several() -> None:
    request = make_request("independent", 3, "check")
    mine = make_request("traps", 3, "merge-or-compare")
    assert request.check(["nothing of it"]) == 0
    assert 0 <= mine.check(["\n".join(mine.files.values())]) <= 1


def test_held_out_requests_share_no_file_names_with_training() -> None:
    held_out = held_out_requests(24, "0")
    trained = [training_request(f"0/{number}") for number in range(50)]
    assert {request.family for request in trained} == set(TRAINED)
    assert {request.family for request in held_out} == {*TRAINED, HELD_OUT}
    assert max(request.width for request in held_out) == HELD_OUT_WIDTH
    assert all(is_held_out(name.removesuffix(".txt")) for request in held_out for name in request.files)
    assert not any(is_held_out(name.removesuffix(".txt")) for request in trained for name in request.files)
