"""Plans of models that are asked with general prompts: they are repaired while they come, and asked for again once."""

from dataclasses import replace

from orchestrator.registry.prompts import prompt_set
from orchestrator.run.frontdoor.compact import Part
from tests.orchestrator.run.frontdoor.test_plan import REQUEST, Script, plan

FILES = ("a.txt", "b.txt", "c.txt")
READ = {"role": "worker", "action": "Read a.txt.", "inputs": ["a.txt"]}
EACH = {"role": "worker", "action": "Summarize {each}.", "each": ["a.txt", "b.txt"]}
OPEN = {"role": "worker", "action": "List what is still open.", "inputs": ["P2"]}
SHORT = {"role": "worker", "action": "List what is still open.", "inputs": ["a.txt", "b.txt"]}
C = {"role": "worker", "action": "Summarize c.txt.", "inputs": ["c.txt"]}


def asked(text: str) -> Script:
    role = replace(REQUEST.role, prompts=prompt_set("general"))
    direct = replace(REQUEST.direct, request=text, files=FILES, inputs=())
    return Script([], request=replace(REQUEST, text=text, files=FILES, role=role, direct=direct))


async def test_repaired_parts_are_what_is_handed_on() -> None:
    script = asked("Summarize a.txt and b.txt. List what is still open.")
    script.answers = [(plan(READ, EACH, OPEN), "stop")]
    planned = await script.plan()
    assert planned.origin == "planned"
    assert planned.wanted == ("s1.txt", "s2.txt", "s3.txt")
    assert [step.inputs for step in script.accepted] == [("a.txt",), ("b.txt",), ("a.txt", "b.txt")]
    written = [Part.model_validate_json(made.written) for made in script.made]
    assert written == [Part.model_validate(EACH), Part.model_validate(SHORT)]


async def test_steps_begin_when_the_next_part_begins() -> None:
    script = asked("Summarize a.txt and b.txt. List what is still open.")
    script.answers = [(plan(READ, EACH, OPEN), "stop")]
    await script.plan()
    first = next(index for index, count in script.progress if count)
    begun = plan(READ, EACH, OPEN).index('{"role": "worker", "action": "List')
    assert begun - 7 <= first <= begun + 7


async def test_what_code_cannot_repair_is_asked_for_once_more() -> None:
    script = asked("Summarize a.txt, b.txt and c.txt, then compare the summaries.")
    join = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P1"]}
    whole = {**join, "inputs": ["P1", "P2"]}
    script.answers = [(plan(EACH, join), "stop"), (plan(EACH, C, whole), "stop")]
    planned = await script.plan()
    assert (planned.origin, planned.reason) == ("repaired", "no part reads c.txt")
    assert "The previous plan failed: no part reads c.txt" in script.asked[1].messages[1][1]
    assert script.actions == ["Summarize a.txt.", "Summarize b.txt.", "Summarize c.txt.", "Compare the summaries."]


async def test_plan_that_stays_flawed_gives_way_to_one_step() -> None:
    script = asked("Write one.txt and two.txt about whales.")
    flawed = plan({"role": "worker", "action": "Write about whales.", "inputs": ["a.txt"]})
    script.answers = [(flawed, "stop"), (flawed, "stop")]
    planned = await script.plan()
    assert planned.origin == "fallback"
    assert script.actions == ["Write one.txt and two.txt about whales."]
    assert planned.wanted == script.accepted[0].outputs


async def test_interrupted_plan_goes_on_from_its_repaired_parts() -> None:
    text = "Summarize a.txt and b.txt. List what is still open."
    whole = asked(text)
    whole.answers = [(plan(READ, EACH, OPEN), "stop")]
    await whole.plan()
    again = asked(text)
    again.known = whole.made[:1]
    again.answers = [(plan(EACH, {**OPEN, "inputs": ["P1"]}), "stop")]
    await again.plan()
    assert again.made == whole.made[1:]
