"""What a plan may name where its names are listed, and what its actions name."""

import json
from typing import Any

import jsonschema
import pytest

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, plan_schema
from orchestrator.run.frontdoor.listed import FIRST_PARTS, MAX_LISTED, Listed
from orchestrator.run.frontdoor.references import in_place_of_list, names_file

ROLES = ("worker", "coder")
FILES = ("cv-adams.txt", "cv-brown.txt", "notes.md", "old/a.md", "old/b.md")


def fits(request: str, files: tuple[str, ...], *parts: dict[str, Any], **how: Any) -> bool:
    listed = Listed.of(request, files)
    assert listed is not None
    schema = plan_schema(ROLES, listed=listed, **how)
    written = [{"role": "worker", "action": "Do it well."} | part for part in parts]
    return bool(jsonschema.Draft202012Validator(schema).is_valid({"plan": written}))


def test_patterns_stand_for_several_files() -> None:
    listed = Listed.of("Look at notes.md", FILES)
    assert listed is not None
    assert listed.files == FILES
    assert listed.patterns == ("*", "*.txt", "*.md", "old/*", "cv*")
    assert listed.outputs == ()
    alone = Listed.of("Look at it", ("notes.md",))
    assert alone is not None
    assert alone.patterns == ()


def test_files_that_the_request_lists_are_done_as_a_whole() -> None:
    asked = "Sum up cv-adams, cv-brown.txt and notes.md, and compare old/a.md with old/b.md"
    listed = Listed.of(asked, FILES)
    assert listed is not None
    assert listed.lists == (("cv-adams.txt", "cv-brown.txt", "notes.md"), ("old/a.md", "old/b.md"))
    assert fits(asked, FILES, {"each": ["cv-adams.txt", "cv-brown.txt", "notes.md"]})
    assert fits(asked, FILES, {"each": ["*.txt"]})
    assert not fits(asked, FILES, {"each": ["cv-adams.txt", "notes.md"]})
    assert fits("Sum up the two best", FILES, {"each": ["cv-adams.txt", "notes.md"]})
    assert fits(asked, FILES, {"inputs": ["cv-adams.txt", "old/b.md"]}), "one step may read any of them"


def test_only_a_part_of_one_step_ends_the_plan_for_now() -> None:
    assert fits("Do it", FILES, {"inputs": ["notes.md"], "replan": True}, replan=True)
    assert not fits("Do it", FILES, {"inputs": ["notes.md"], "replan": True})
    assert not fits("Do it", FILES, {"each": ["*"], "replan": True}, replan=True)


def test_an_action_speaks_of_each_file_only_where_files_are_named_one_by_one() -> None:
    assert fits("Do it", FILES, {"each": ["*"], "action": "Sum up {each}."})
    assert not fits("Do it", FILES, {"inputs": ["*"], "action": "Sum up {each}."})
    assert not fits("Do it", FILES, {"inputs": ["*"], "action": "Sum up {0}."})
    assert fits("Print {x}", FILES, {"inputs": ["*"], "action": "Print {x}."}), "the request itself has braces"
    assert not fits("Print {x}", FILES, {"inputs": ["*"], "action": "Print {each}."})


def test_outputs_are_those_that_the_request_names() -> None:
    listed = Listed.of("Merge notes.md and a.md into all.md, e.g. as 3.5 pages, see old/a.md.", FILES)
    assert listed is not None
    assert listed.outputs == ("all.md",)
    assert fits("Write all.md", FILES, {"inputs": ["*"], "output": "all.md"})
    assert not fits("Write all.md", FILES, {"inputs": ["*"], "output": "notes.md"})
    assert not fits("Write it", FILES, {"inputs": ["*"], "output": "all.md"})


def test_code_has_a_name_where_the_request_gives_none() -> None:
    assert fits("Write f", (), {"role": "coder", "output": "part1.py"})
    assert not fits("Write f", (), {"output": "part1.py"})
    assert fits("Write f.py with tests", (), {"role": "coder", "output": "f.py"}, {"inputs": ["P1"]})
    tests = {"role": "coder", "inputs": ["P1"], "output": "test_f.py"}
    assert fits("Write f.py with tests", (), {"role": "coder", "output": "f.py"}, tests)


def test_parts_name_files_and_earlier_parts_only() -> None:
    asked = "Sum them up, then compare"
    assert fits(asked, FILES, {"each": ["*"]}, {"inputs": ["P1"]}, {"foreach": "P2"}, {"inputs": ["request"]})
    assert not fits(asked, FILES, {"each": ["P1"]})
    assert not fits(asked, FILES, {"inputs": ["P1"]})
    assert not fits(asked, FILES, {"inputs": ["*"]}, {"inputs": ["P2"]})
    assert not fits(asked, FILES, {"inputs": ["new.md"]})
    assert fits(asked, FILES, {"each": ["old/*"], "inputs": ["notes.md"]}), "each of them with the notes"
    assert not fits(asked, FILES, {"each": ["*"], "inputs": ["*"]}), "what all of them read is named"
    assert not fits(asked, FILES, {"inputs": ["*"], "foreach": "P1"})
    assert fits(asked, FILES, {"inputs": ["P1"]}, done=1), "that part is not in this plan"


def test_a_part_says_what_it_reads_as_soon_as_it_could_read_anything() -> None:
    assert fits("What is a volcano?", (), {})
    assert not fits("What is a volcano?", (), {}, {})
    assert not fits("What is a volcano?", FILES, {})
    assert not fits("What?", (), {"action": "Go."}), "an action is a sentence"


def test_parts_far_down_name_the_first_ones() -> None:
    parts = [{"inputs": ["request"]}] * (FIRST_PARTS + 3)
    last = {"inputs": [f"P{FIRST_PARTS}"]}
    assert fits("Much", ("a.txt",), *parts, last)
    assert not fits("Much", ("a.txt",), *parts, {"inputs": [f"P{FIRST_PARTS + 2}"]})


def test_grammars_stay_small_and_names_of_many_files_are_not_listed() -> None:
    files = tuple(f"file{number:03}.txt" for number in range(MAX_LISTED))
    listed = Listed.of("Sum them up", files)
    assert len(schema_grammar(plan_schema(ROLES, listed=listed, replan=True))) < 150_000
    assert Listed.of("Sum them up", (*files, "more.txt")) is None


def part(action: str, **more: Any) -> Part:
    return Part.model_validate({"role": "worker", "action": action, **more})


def test_a_step_reads_what_its_action_names() -> None:
    builder = PlanBuilder(FILES, ROLES, reads_named=True)
    (first,) = builder.add(part("Compare cv-adams.txt with cv-brown.txt, not cv-adams.txt.bak.")).steps
    assert first.inputs == ("cv-adams.txt", "cv-brown.txt")
    (second,) = builder.add(part("Shorten P1 by the notes of P7.")).steps
    assert second.inputs == first.outputs
    assert second.action == f"Shorten {first.outputs[0]} by the notes of P7."
    (third,) = builder.add(part("Save it as notes.md.", inputs=["P2", "notes.md"])).steps
    assert third.inputs == (*second.outputs, "notes.md")


def test_a_step_for_each_file_names_only_its_own() -> None:
    builder = PlanBuilder(FILES, ROLES, reads_named=True)
    files = ["cv-adams.txt", "cv-brown.txt", "notes.md"]
    made = builder.add(part("Sum up cv-brown.txt, notes.md and cv-adams.txt in two lines.", each=files)).steps
    assert [step.inputs for step in made] == [(file,) for file in files]
    assert [step.action for step in made] == [f"Sum up {file} in two lines." for file in files]
    made = builder.add(part("Look at cv-adams.txt first.", each=["cv-adams.txt", "notes.md"])).steps
    assert [step.inputs for step in made] == [("cv-adams.txt",), ("notes.md",)]


def test_what_a_repair_begins_with_is_what_was_accepted() -> None:
    builder = PlanBuilder(FILES, ROLES, reads_named=True)
    planned = builder.add(part("Sum up notes.md."))
    assert json.loads(planned.written)["inputs"] == ["notes.md"]
    assert builder.fresh[0].written == planned.written
    again = PlanBuilder(FILES, ROLES, [planned], reads_named=True)
    assert again.accepted == builder.accepted


def test_names_are_whole_names() -> None:
    assert names_file("See a.txt.", "a.txt")
    assert names_file("See (old/a.md)", "old/a.md")
    assert not names_file("See old/a.md", "a.md")
    assert not names_file("See a.txt.gz", "a.txt")
    assert not names_file("Read the README", "README"), "it may be any word"


@pytest.mark.parametrize("text", ["a.b, c.d", "a.b und c.d", "c.d & a.b", "a.b, and c.d"])
def test_lists_of_files_in_any_language(text: str) -> None:
    assert in_place_of_list(f"Take {text} now.", ("a.b", "c.d"), "X") == "Take X now."


@pytest.mark.parametrize("text", ["a.b", "a.b with the help of c.d", "a.b, e.f"])
def test_what_is_no_list_of_all_files_is_left(text: str) -> None:
    assert in_place_of_list(text, ("a.b", "c.d"), "X") == text


def test_a_part_repeats_another_if_it_does_the_same_with_the_same() -> None:
    builder = PlanBuilder(FILES, ROLES, reads_named=True)
    builder.add(part("Sum up notes.md."))
    assert builder.repeats(part("Sum up notes.md.", inputs=["notes.md"], output="b.md"))
    assert not builder.repeats(part("Sum up notes.md.", inputs=["P1"]))
    assert not builder.repeats(part("Sum them up.", inputs=["notes.md"]))
