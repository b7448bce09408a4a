"""The measure of plans and answers: how structures are compared, what counts as right, and the command itself."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.real.measure import ModelResults, Result, as_measured, goals, measure, registry_for
from orchestrator.bench.real.requests import RealRequest, real_requests
from orchestrator.bench.real.structure import structure, width, without_originals
from orchestrator.bench.real.tasks import RealTask, label_in, numbers_in, real_tasks, same_values
from orchestrator.registry.load import PACKAGED, load_registry
from orchestrator.registry.measured import MeasuredShares
from orchestrator.registry.prompts import prompt_set
from orchestrator.task.taskir.models import Step
from tests.orchestrator.cli.cli_command import make_command

FILES = ("a.txt", "b.txt", "c.txt")


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    """Return steps each of which reads files and outputs of earlier steps, and waits for earlier steps."""
    steps: list[Step] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        earlier = [step.outputs[0] for step in steps]
        reads = draw(st.lists(st.sampled_from([*FILES, *earlier]), max_size=3, unique=True))
        waits = draw(st.lists(st.sampled_from([step.id for step in steps]), max_size=2, unique=True)) if steps else []
        over = draw(st.none() | st.sampled_from(earlier)) if earlier else None
        actor = draw(st.sampled_from(["worker", "coder", "judge"]))
        steps.append(
            Step(
                id=f"S{number}",
                actor=actor,
                action="Do it.",
                outputs=(f"s{number}.txt",),
                inputs=tuple(reads),
                depends_on=tuple(waits),
                foreach=over,
            )
        )
    return steps


def renamed(steps: list[Step], rng: random.Random) -> list[Step]:
    """Return the same plan in another order that is possible, with other ids, names, wordings and orders of reads."""
    left, order = list(steps), list[Step]()
    while left:
        written = {step.outputs[0] for step in left}
        waiting = {step.id for step in left}
        free = [
            step
            for step in left
            if written.isdisjoint([*step.inputs, step.foreach]) and waiting.isdisjoint(step.depends_on)
        ]
        order.append(rng.choice(free))
        left.remove(order[-1])
    names = {step.outputs[0]: f"new{number}.md" for number, step in enumerate(order)}
    ids = {step.id: f"S{number + 20}" for number, step in enumerate(order)}

    def shuffled(some: tuple[str, ...], known: dict[str, str]) -> tuple[str, ...]:
        return tuple(rng.sample([known.get(name, name) for name in some], len(some)))

    return [
        step.model_copy(
            update={
                "id": ids[step.id],
                "action": f"Do it in another way, {rng.random()}.",
                "outputs": (names[step.outputs[0]],),
                "inputs": (*shuffled(step.inputs, names), "request"),
                "depends_on": shuffled(step.depends_on, ids),
                "foreach": names.get(step.foreach or ""),
            }
        )
        for step in order
    ]


@given(plans(), st.randoms(use_true_random=False))
def test_order_names_and_wording_make_no_structure(steps: list[Step], rng: random.Random) -> None:
    assert structure(renamed(steps, rng)) == structure(steps)


@given(plans(), st.data())
def test_what_is_read_by_whom_makes_the_structure(steps: list[Step], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(steps) - 1))
    step = steps[position]

    def other(**changes: object) -> list[Step]:
        return [*steps[:position], step.model_copy(update=changes), *steps[position + 1 :]]

    same = structure(steps)
    assert structure(other(inputs=(*step.inputs, "d.txt"))) != same
    assert structure(other(actor="worker" if step.actor == "coder" else "coder")) != same
    assert structure(steps, goes_on_after=step.id) != same
    assert structure([*steps, step.model_copy(update={"id": "S9", "outputs": ("s9.txt",)})]) != same
    assert structure(steps, named=step.outputs) != same
    if step.inputs:
        assert structure(other(inputs=())) != same


@given(plans(), st.data())
def test_a_step_may_also_read_what_was_made_into_what_it_reads(steps: list[Step], data: st.DataObject) -> None:
    written = {step.outputs[0]: step for step in steps}
    at = data.draw(st.integers(0, len(steps) - 1))
    files = {
        name for made in steps[at].inputs if made in written for name in written[made].inputs if name not in written
    }
    more = steps[at].model_copy(update={"inputs": tuple(dict.fromkeys((*steps[at].inputs, *files)))})
    assert structure(without_originals([*steps[:at], more, *steps[at + 1 :]])) == structure(without_originals(steps))


def test_only_originals_are_left_out() -> None:
    first = Step(id="S1", actor="worker", action="Go.", inputs=("a.txt",), outputs=("o1",))
    then = Step(id="S2", actor="worker", action="Go.", inputs=("o1", "a.txt", "b.txt"), outputs=("o2",))
    last = Step(id="S3", actor="worker", action="Go.", inputs=("o2", "o1", "b.txt"), outputs=("o3",))
    trimmed = without_originals([first, then, last])
    assert [step.inputs for step in trimmed] == [("a.txt",), ("o1", "b.txt"), ("o2", "o1")]


def test_structures_of_chains_of_diamonds_are_found_at_once() -> None:
    steps = [Step(id="S1", actor="worker", action="Go.", outputs=("o1",))]
    for number in range(2, 64):
        reads = tuple(f"o{before}" for before in range(max(1, number - 3), number))
        steps.append(Step(id=f"S{number}", actor="worker", action="Go.", outputs=(f"o{number}",), inputs=reads))
    assert len(structure(steps)) == 63


def test_there_are_a_hundred_requests_that_can_be_planned_rightly() -> None:
    requests = real_requests("all")
    assert len(requests) == len({one.request for one in requests}) == 100
    for one in requests:
        assert one.alternatives(), one.request
        assert len({alternative.structure for alternative in one.alternatives()}) >= 1


def test_forty_requests_measure_width() -> None:
    requests = real_requests("wide")
    assert len(requests) == len({request.request for request in requests}) == 40
    assert sum(request.best_width > 1 for request in requests) == 24
    assert not {request.request for request in requests} & {request.request for request in real_requests("all")}


def planned(request: RealRequest, width: int, *, right: bool) -> Result:
    return Result(request.request, "plan", right, "", width=width)


def test_plans_that_are_too_narrow_or_too_wide_are_counted() -> None:
    by_width = {request.best_width: request for request in real_requests("wide")}
    made = [planned(by_width[3], 1, right=False), planned(by_width[1], 2, right=True)]
    counted = {goal["name"]: goal["value"] for goal in goals(made)}
    assert counted == {
        "wide and narrow requests whose plan has a right structure": 0.5,
        "wide requests whose plan is narrower than half": 1.0,
        "requests whose plan is wider than the right one": 0.5,
    }
    assert [goal["state"] for goal in goals(made)] == ["open", "missed", "missed"]
    assert goals([]) == []


def test_width_is_what_may_run_at_once() -> None:
    chain = [Step(id=f"S{n}", actor="worker", action="Go.", outputs=(f"o{n}",), inputs=(f"o{n - 1}",)) for n in (2, 3)]
    first = Step(id="S1", actor="worker", action="Go.", outputs=("o1",))
    parallel = Step(id="S4", actor="worker", action="Go.", outputs=("o4",), depends_on=("S1",))
    assert [width([]), width([first, *chain]), width([first, *chain, parallel])] == [0, 1, 2]


def test_a_step_waits_for_the_version_that_it_replaces() -> None:
    first = Step(id="S1", actor="coder", action="Go.", inputs=("a.py",), outputs=("a.py",))
    second = Step(id="S2", actor="coder", action="Go.", inputs=("a.py",), outputs=("a.py",))
    assert width([first, second]) == 1


def test_a_plan_is_right_if_it_has_one_of_the_right_structures() -> None:
    request = next(one for one in real_requests("tuning") if "Put them into changes.md" in one.request)
    first = Step(id="S1", actor="worker", action="Compare.", inputs=("new.md", "old.md"), outputs=("changes.md",))
    assert request.is_right((first,), None)
    assert not request.is_right((first.model_copy(update={"outputs": ("s1.txt",)}),), None)
    assert not request.is_right((first,), "S1")
    assert isinstance(request, RealRequest)


def test_there_are_forty_tasks_of_four_kinds() -> None:
    kinds = [task.kind for task in real_tasks()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"extract": 12, "count": 8, "classify": 10, "code": 10}
    assert len({task.name for task in real_tasks()}) == 40
    assert all(task.step.action == task.ask for task in real_tasks())


def right_answer(task: RealTask) -> str:

    if task.schema is not None:
        return json.dumps(task.expect)
    return ", ".join(task.expect) if isinstance(task.expect, list) else f"{task.expect}."


@pytest.mark.parametrize("task", [task for task in real_tasks() if task.kind != "code"], ids=lambda task: task.name)
def test_a_right_answer_is_right_and_a_wrong_one_is_not(task: RealTask) -> None:
    assert task.is_right(right_answer(task))
    wrong = {"extract": "I do not know.", "count": "99", "classify": "maybe"}[task.kind]
    assert not task.is_right("[]" if task.schema is not None else wrong)


SOLUTIONS = {
    "code-clamp": "def clamp(value, low, high):\n    return max(low, min(value, high))",
    "code-vowels": "def count_vowels(text):\n    return sum(letter in 'aeiou' for letter in text.lower())",
    "code-palindrome": "def is_palindrome(text):\n"
    "    kept = [letter for letter in text.lower() if letter.isalnum()]\n    return kept == kept[::-1]",
    "code-median": "def median(numbers):\n    numbers = sorted(numbers)\n    half = len(numbers) // 2\n"
    "    return numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2",
    "code-unique": "def unique(items):\n    return list(dict.fromkeys(items))",
    "code-fizz": "def fizz(number):\n    said = 'Fizz' * (number % 3 == 0) + 'Buzz' * (number % 5 == 0)\n"
    "    return said or str(number)",
    "code-words": "def word_counts(text):\n    words = text.lower().split()\n"
    "    return {word: words.count(word) for word in words}",
    "code-leap": "def is_leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
    "code-chunks": "def chunks(items, size):\n    return [items[at:at + size] for at in range(0, len(items), size)]",
    "code-caesar": "def caesar(text, shift):\n    return ''.join(chr((ord(one) - 97 + shift) % 26 + 97)"
    " if 'a' <= one <= 'z' else one for one in text)",
}


@pytest.mark.parametrize("task", [task for task in real_tasks() if task.kind == "code"], ids=lambda task: task.name)
def test_the_tests_of_code_pass_for_a_right_solution(task: RealTask) -> None:
    names: dict[str, object] = {}
    exec(SOLUTIONS[task.name], names)  # noqa: S102 - the text is our own
    first, *rest = task.tests.splitlines()
    assert first.startswith(f"from {task.output.removesuffix('.py')} import ")
    exec("\n".join(rest), names)  # noqa: S102 - the text is our own
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert callable(test)
        test()


def test_answers_are_compared_by_what_they_say() -> None:
    assert same_values({"a": "The  Anchor Inn.", "n": 3}, {"a": "anchor inn", "n": 3}, {})
    assert same_values(["cold butter"], ["butter"], {"0": ["cold butter"]})
    assert not same_values({"a": "x"}, {"a": "x", "b": "y"}, {})
    assert not same_values({"a": "x", "c": "y"}, {"a": "x", "b": "y"}, {})
    assert not same_values([], {"a": "x"}, {})
    assert numbers_in("There are 1,200, that is 1200, not v2.") == {1200.0}
    assert numbers_in("It is 4.") == {4.0}
    assert label_in(" **Yes**.\n", ("yes", "no")) == "yes"
    assert label_in("Yes, it is", ("yes", "no")) is None


def test_one_model_plays_all_roles_and_keeps_those_that_are_its_own() -> None:
    registry = load_registry(PACKAGED)
    small = registry_for(registry, "tiny-small")
    assert {role.model for role in small.roles.values()} == {"tiny-small"}
    assert small.step_roles == ("worker", "coder")
    assert small.roles["worker"].system == prompt_set("tiny").roles["worker"]
    assert registry_for(registry, "tiny-large").roles["worker"].description == registry.roles["worker"].description


async def test_a_plan_may_be_asked_for_once_and_in_few_tokens(tmp_path: Path) -> None:
    asked = real_requests("tuning")[:3]
    registry = load_registry(PACKAGED)
    measured = await measure(registry, "tiny-small", asked, (), tmp_path, lambda line: None, at_once=3, once=6)
    assert measured.count("plan") == (0, 3)
    for result in measured.results:
        assert "cut off" in result.problem
        assert "asked once only" in result.problem
        assert result.usage.output_tokens <= 6


def test_only_a_whole_measurement_counts_for_the_roles() -> None:
    plans = [Result(str(number), "plan", number < 40, "") for number in range(100)]
    done = [Result(task.name, task.kind, task.kind == "count", "") for task in real_tasks()]
    words = [one for one in done if one.kind != "code"]

    def shares(results: list[Result]) -> MeasuredShares | None:
        return as_measured(ModelResults("any", "", tuple(results), "", 1.0))

    counted = sum(one.right for one in words) / len(words)
    assert shares([*plans, *done]) == MeasuredShares(plans=0.4, answers=counted, code=0.0)
    assert shares([*plans, *words]) == MeasuredShares(plans=0.4, answers=counted), "there was no sandbox for code"
    for part in ([*plans[1:], *done], [*plans, *done[1:]], [*plans, *done[:-1]], plans, done):
        assert shares(part) is None


def test_the_command_measures_a_model(tmp_path: Path) -> None:
    result = make_command(tmp_path)(
        "bench", "model", "tiny-large", "--requests", "tuning", "--tasks", "--limit", "2", "--json"
    )
    assert result.code == 0, result.err

    told = json.loads(result.out)
    assert told["model"] == "tiny-large"
    assert told["prompts"] == prompt_set("tiny").stamp
    assert told["right"]["plan"]["of"] == told["right"]["extract"]["of"] == 2
    assert [one["kind"] for one in told["results"]] == ["plan", "plan", "extract", "extract"]
    assert "4 of 4" in result.err
    assert not (tmp_path / "journal.db").exists(), "a measurement is no run"


def test_the_command_says_what_it_cannot_measure(tmp_path: Path) -> None:
    command = make_command(tmp_path)
    result = command("bench", "model", "nobody")
    assert (result.code, result.out) == (2, "")
    assert "nobody" in result.err
    assert "tiny-large" in result.err


def test_a_summary_is_printed_for_people(tmp_path: Path) -> None:
    result = make_command(tmp_path)("bench", "model", "tiny-small", "--requests", "tuning", "--limit", "1")
    assert result.code == 0, result.err
    assert "plan structure right" in result.out
    assert "answers right" not in result.out
