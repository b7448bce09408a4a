"""What the model says is the input of these tests, so it is scripted; real engines answer in `test_real_steps`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Finish, Generation, Message, Priority
from orchestrator.engine.errors import (
    BadGrammar,
    BadPrompt,
    BrokenModel,
    EngineDied,
    EngineError,
    EngineHung,
    ModelLoadFailed,
    PromptTooLong,
)
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolError
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.attempt import MIN_ANSWER_TOKENS, Attempt, AttemptError, Models
from orchestrator.run.steps.gating import Checks, pass_gates
from orchestrator.run.steps.generate import AFTER_CUT_OFF, GenerateRunner
from orchestrator.run.steps.role import StepInput, with_evidence
from orchestrator.task.events import Failure, FailureKind, Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import ModelCalls, attempt_of, count_characters


@dataclass
class Script:
    """Answers in turn, or raises; remembers what it was asked."""

    answers: list[str | Exception]
    finish: Finish = "stop"
    prompt_tokens: int = 100
    counted: int = 0
    asked: list[Generation] = field(default_factory=list)

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        self.counted += 1
        return self.prompt_tokens

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if on_text:
            on_text(answer)
        return Completion(answer, self.finish, Usage(prompt_tokens=self.prompt_tokens, output_tokens=5))

    @property
    def models(self) -> Models:
        return self


def attempt(*outputs: str, step: dict[str, Any] | None = None, **more: Any) -> Attempt:
    made = Step(id="S1", actor="worker", action="Sum up a.", outputs=outputs or ("o.txt",), **(step or {}))
    return attempt_of(made, **more)


async def failure(script: Script, work: Attempt) -> Failure:
    with pytest.raises(AttemptError) as caught:
        await GenerateRunner().run(work, script.models)
    return caught.value.failure


async def test_prompt_is_laid_out_and_the_answer_becomes_the_artifact() -> None:
    script, seen, told = Script(["Fine."]), list[Usage](), list[str]()
    work = attempt(persona="Be terse.", inputs=(StepInput("a", "text"),), temperature=0.5, top_p=0.9, seed=3, slack=2.5)
    produced = await GenerateRunner().run(work, script.models, seen.append, told.append)
    assert produced.outputs == {"o.txt": b"Fine."}
    assert seen == [produced.usage]
    assert told == ["Fine."]
    assert script.asked == [
        Generation(
            messages=(Message("system", "Do the task.\nBe terse."), Message("user", "[a]\ntext\n\nTask: Sum up a.")),
            max_tokens=64,
            temperature=0.5,
            top_p=0.9,
            seed=3,
            slack=2.5,
            fit=MIN_ANSWER_TOKENS,
        )
    ]


async def test_retry_tells_the_model_what_was_wrong() -> None:
    failures = (
        Failure(FailureKind.SCHEMA, "no match", "/a: 1 is not of type 'string'"),
        Failure(FailureKind.INFRASTRUCTURE, "the engine died"),
        Failure(FailureKind.LOGIC, "judged wrong", "The price is missing."),
    )
    script = Script(["Fine."])
    await GenerateRunner().run(attempt(failures=failures), script.models)
    assert script.asked[0].messages[1][1] == (
        "Task: Sum up a.\nThe previous answer failed: /a: 1 is not of type 'string'\n"
        "The previous answer failed: The price is missing."
    )


async def test_an_answer_that_repeats_the_prompt_of_the_retry_is_none() -> None:
    failures = (Failure(FailureKind.SCHEMA, "no match", "the answer is  too\nlong"),)
    echo = "Sum up a. The previous answer failed: the answer is too long"
    found = await failure(Script([echo]), attempt(failures=failures))
    assert (found.kind, found.final) == (FailureKind.FORMAT, False)
    assert found.message == "the answer repeats what was said of the answer before it"
    fine = await GenerateRunner().run(attempt(), Script([echo]).models)
    assert fine.outputs == {"o.txt": echo.encode()}, "without a failure before it, it is an answer like any other"


async def test_an_answer_that_only_repeats_the_task_is_none() -> None:
    found = await failure(Script(["Task: Sum  up a.\n"]), attempt())
    assert (found.kind, found.message) == (FailureKind.FORMAT, "the answer only repeats the task")
    fine = await GenerateRunner().run(attempt(), Script(["Task: Sum up a. It is 3."]).models)
    assert fine.outputs == {"o.txt": b"Task: Sum up a. It is 3."}


async def test_an_answer_that_repeats_the_wish_for_a_shorter_one_is_none() -> None:
    failures = (Failure(FailureKind.FORMAT, "cut", "cut", cut_at=512),)
    work = attempt(failures=failures, prompts=prompt_set("general"))
    for text in ("Answer in at most 128 words.", "Task: Sum up a.\nAnswer in at  most 128 words."):
        assert (await failure(Script([text]), work)).kind is FailureKind.FORMAT
    fine = await GenerateRunner().run(attempt(), Script(["Answer in at most 128 words."]).models)
    assert fine.outputs == {"o.txt": b"Answer in at most 128 words."}, "without a failure before it, it is no echo"


@pytest.mark.parametrize(("own", "cut", "expected"), [(None, 0, 64), (None, 1, 128), (None, 3, 128), (7, 1, 7)])
async def test_an_answer_that_was_cut_off_is_retried_with_more_room(own: int | None, cut: int, expected: int) -> None:
    failures = (Failure(FailureKind.LOGIC, "no", "Wrong."), *[Failure(FailureKind.FORMAT, "cut", cut_at=64)] * cut)
    script = Script(["Fine."])
    await GenerateRunner().run(attempt(step={"max_tokens": own}, failures=failures), script.models)
    assert script.asked[0].max_tokens == expected, "a step's own limit stays"


async def test_after_an_answer_that_was_cut_off_a_shorter_one_is_asked_for_each_time() -> None:
    cut = await failure(Script(["and so on"], "length"), attempt())
    assert (cut.kind, cut.cut_at) == (FailureKind.FORMAT, 5)
    long, wrong = Failure(FailureKind.FORMAT, "cut", "cut", cut_at=512), Failure(FailureKind.LOGIC, "no", "Wrong.")
    general, tiny = prompt_set("general"), prompt_set("tiny")
    assert with_evidence("Go.", [long], general) == "Go.\nAnswer in at most 128 words."
    again = with_evidence("Go.", [long, wrong, long], general)
    assert again == "Go.\nThe previous answer failed: Wrong.\nAnswer in at most 64 words."
    assert with_evidence("Go.", [long], tiny) == "Go.\nThe previous answer failed: cut"


async def test_after_an_answer_without_an_end_one_that_ends_is_asked_for() -> None:
    endless = await failure(Script(["and so on and so on"], "repetition"), attempt())
    assert (endless.kind, endless.message) == (FailureKind.LOGIC, "the answer repeats itself without end")
    prompt = with_evidence("Go.", [endless], prompt_set("general"), "and so on and so on")
    assert prompt == "Go.\nWrite everything once only, and end there."


def test_a_demand_takes_the_place_of_what_was_wrong() -> None:
    general, tiny = prompt_set("general"), prompt_set("tiny")
    lengthy = Failure(FailureKind.LOGIC, "", "You asked for 1 sentence; it has 2.", demand="Use 1 sentence.")
    assert with_evidence("Go.", [lengthy, lengthy], general, "One. Two.") == "Go.\nUse 1 sentence."
    wrong = Failure(FailureKind.LOGIC, "no", "Wrong.")
    assert with_evidence("Go.", [wrong, lengthy], general) == "Go.\nThe previous answer failed: Wrong.\nUse 1 sentence."
    evidence = "Go.\nThe previous answer failed: You asked for 1 sentence; it has 2."
    assert with_evidence("Go.", [lengthy], tiny, "One. Two.") == evidence, "embedded models know this form"


@pytest.mark.parametrize(
    ("cut_at", "own", "prompts", "expected"),
    [
        (64, 0.0, "general", AFTER_CUT_OFF),
        (None, 0.0, "general", 0.0),
        (64, 0.2, "general", 0.2),
        (64, 0.0, "tiny", 0.0),
    ],
)
async def test_after_an_answer_that_was_cut_off_it_is_asked_with_some_randomness(
    cut_at: int | None, own: float, prompts: str, expected: float
) -> None:
    script = Script(["Fine."])
    work = attempt(failures=(Failure(FailureKind.FORMAT, "it failed", cut_at=cut_at),))
    role = replace(work.role, temperature=own, prompts=prompt_set(prompts))
    await GenerateRunner().run(replace(work, role=role), script.models)
    assert script.asked[0].temperature == expected, "what a role says itself stays"


@pytest.mark.parametrize(
    ("prompts", "output", "action", "only"),
    [
        ("general", "a.csv", "Put the names into a.csv.", True),
        ("general", "a.csv", "List the names.", False),
        ("general", "a.txt", "Put the names into a.txt.", False),
        ("general", "a.json", "Put the names into a.json.", False),
        ("tiny", "a.csv", "Put the names into a.csv.", False),
    ],
)
async def test_a_file_of_data_is_asked_for_without_words_around_it(
    prompts: str, output: str, action: str, only: bool
) -> None:
    script = Script(['["Ada"]'])
    work = attempt(output)
    step, role = work.step.model_copy(update={"action": action}), replace(work.role, prompts=prompt_set(prompts))
    await GenerateRunner().run(replace(work, step=step, role=role), script.models)
    order = script.asked[0].messages[1].content
    assert order == f"Task: {action}" + (f"\nWrite only the content of {output}." if only else "")


def test_long_evidence_keeps_its_ends() -> None:
    told = with_evidence("Go.", [Failure(FailureKind.CODE, "", "begin" + "x" * 100_000 + "end")], prompt_set("general"))
    assert len(told) < 700
    assert "begin" in told
    assert told.endswith("end")


@pytest.mark.parametrize(("own", "expected"), [(None, 64), (7, 7)])
async def test_limit_of_the_answer_may_be_cut_to_what_is_left(own: int | None, expected: int) -> None:
    script = Script(["Fine."])
    await GenerateRunner().run(attempt(step={"max_tokens": own}, context=110), script.models)
    assert (script.asked[0].max_tokens, script.asked[0].fit) == (expected, MIN_ANSWER_TOKENS)
    assert script.counted == 0, "the engine counts, when it has the prompt anyway"


async def test_prompt_that_leaves_no_room_fails_the_step_with_the_counts() -> None:
    found = await failure(Script([PromptTooLong(100, 110, 64)]), attempt(context=110))
    assert found.kind is FailureKind.RESOURCE
    assert found.final
    assert "100 tokens" in found.message
    assert "110 tokens" in found.message


async def test_schema_is_enforced_while_it_is_written_and_checked_afterwards() -> None:
    schema = {"type": "integer"}
    script = Script(["7", '"seven"'])
    work = attempt("o.json", step={"output_schema": schema})
    assert (await GenerateRunner().run(work, script.models)).outputs == {"o.json": b"7"}
    found = await failure(script, work)
    assert found == Failure(
        FailureKind.SCHEMA,
        "the answer does not match: /: 'seven' is not of type 'integer'",
        "/: 'seven' is not of type 'integer'",
    )
    assert [request.schema for request in script.asked] == [schema, schema]


async def test_schema_that_no_grammar_can_follow_is_left_to_the_validator() -> None:
    script = Script([BadGrammar("no grammar for if", "if"), "7"])
    work = attempt("o", step={"output_schema": {"if": {}, "type": "integer"}})
    assert (await GenerateRunner().run(work, script.models)).outputs == {"o": b"7"}
    assert script.asked[1].schema == {}


async def test_gates_look_at_what_was_made() -> None:
    script, work = Script(["[1]"]), attempt("o.json")
    produced = await GenerateRunner().run(work, script.models)
    checks = Checks(step=work.step, gates=("schema", "lint"))
    outputs, gates = await pass_gates(checks, produced.outputs, script.models)
    assert outputs == {"o.json": b"[1]"}
    assert [(result.gate, result.status) for result in gates] == [("schema", "passed"), ("lint", "not run")]
    with pytest.raises(AttemptError) as caught:
        await pass_gates(checks, {"o.json": b"[1"}, script.models)
    assert caught.value.answer == "[1", "what failed is shown to the next attempt"


WRONG = Failure(FailureKind.CODE, "gate unit failed", "assert slug('Ä b') == 'a-b': got 'Ä-b'")


async def test_a_retry_shows_the_model_its_answer_and_what_was_wrong_with_it() -> None:
    script = Script(["Fine."])
    failures = (Failure(FailureKind.LOGIC, "no", "The price is missing."), WRONG)
    work = attempt(failures=failures, previous="def slug(text): ...", prompts=prompt_set("general"))
    await GenerateRunner().run(work, script.models)
    assert script.asked[0].messages[1].content == (
        "Task: Sum up a.\nThe previous answer failed: The price is missing.\n\n"
        "Your previous answer:\n```\ndef slug(text): ...\n```\n"
        "It failed: assert slug('Ä b') == 'a-b': got 'Ä-b'\n"
        "Write the complete answer again, without this fault."
    )


async def test_the_embedded_models_are_not_shown_their_answer() -> None:
    script = Script(["Fine."])
    await GenerateRunner().run(attempt(failures=(WRONG,), previous="x"), script.models)
    assert script.asked[0].messages[1].content == f"Task: Sum up a.\nThe previous answer failed: {WRONG.evidence}"
    assert script.counted == 0


@pytest.mark.parametrize(("context", "shown"), [(None, 3900), (9000, 3900), (3000, 1000), (300, 0)])
async def test_the_previous_answer_is_shortened_to_what_fits(context: int | None, shown: int) -> None:
    script = Script(["Fine."])
    work = attempt(failures=(WRONG,), previous="x" * 3900, prompts=prompt_set("general"), context=context)
    await GenerateRunner().run(work, ModelCalls(count_characters, lambda m, r, t: script.generate(m, r, t)))
    text = script.asked[0].messages[1].content
    assert abs(text.count("x") - shown) <= 1
    assert WRONG.evidence in text


@pytest.mark.parametrize(("text", "finish"), [("Done.", "stop"), ("and so on", "length")])
async def test_a_failed_attempt_says_what_the_model_wrote(text: str, finish: Finish) -> None:
    with pytest.raises(AttemptError) as caught:
        await GenerateRunner().run(attempt(), Script([text], finish).models)
    assert caught.value.answer == text


async def test_usage_is_reported_also_when_the_answer_is_worth_nothing() -> None:
    seen: list[Usage] = []
    with pytest.raises(AttemptError):
        await GenerateRunner().run(attempt(), Script(["cut of"], finish="length").models, seen.append)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("error", "kind", "final"),
    [
        (PromptTooLong(300, 256, 64), FailureKind.RESOURCE, True),
        (BadPrompt("no such role"), FailureKind.INFRASTRUCTURE, True),
        (BrokenModel("NaN"), FailureKind.INFRASTRUCTURE, True),
        (EngineDied("killed", signal="SIGKILL"), FailureKind.INFRASTRUCTURE, False),
        (EngineHung("silent"), FailureKind.INFRASTRUCTURE, False),
        (ModelLoadFailed("m.gguf", "corrupt", "torn"), FailureKind.INFRASTRUCTURE, True),
        (ModelLoadFailed("m.gguf", "died", "killed"), FailureKind.INFRASTRUCTURE, False),
        (ModelLoadFailed("m.gguf", "memory", "too little"), FailureKind.RESOURCE, False),
        (ModelUnavailable("m", "cold"), FailureKind.INFRASTRUCTURE, True),
        (ModelTooLarge("m", "never fits", wanted=3, budget=2, pinned=1), FailureKind.RESOURCE, True),
        (ModelBroken("m", "again and again", retry_seconds=9.0), FailureKind.INFRASTRUCTURE, False),
        (ModelBroken("m", "each time", retry_seconds=9.0, lasting=True), FailureKind.INFRASTRUCTURE, True),
    ],
)
async def test_engine_errors_are_not_the_models_fault(
    error: EngineError | PoolError, kind: FailureKind, final: bool
) -> None:
    found = await failure(Script([error]), attempt())
    assert found == Failure(kind, str(error), final=final)


async def test_what_an_answer_took_that_came_to_no_end_in_time_is_reported() -> None:
    async def write_on(model: str, request: Generation, on_text: OnText | None) -> Completion:
        assert request.deadline_seconds is not None
        await asyncio.sleep(request.deadline_seconds)
        return Completion("half of it", "deadline", Usage(prompt_tokens=9, output_tokens=5))

    seen: list[Usage] = []
    work = attempt(step={"timeout_seconds": 0.05})
    with pytest.raises(AttemptError) as caught:
        await GenerateRunner().run(work, ModelCalls(Script([]).count, write_on), seen.append)
    assert caught.value.failure == Failure(FailureKind.TIMEOUT, "no answer in time: 5 tokens were written by then")
    assert seen == [Usage(prompt_tokens=9, output_tokens=5)]


async def test_a_second_question_has_the_time_that_the_first_has_left() -> None:
    asked: list[float | None] = []

    async def refuse(model: str, request: Generation, on_text: OnText | None) -> Completion:
        asked.append(request.deadline_seconds)
        if len(asked) == 1:
            await asyncio.sleep(0.05)
            raise BadGrammar("no grammar for if", "if")
        return Completion("7", "stop", Usage())

    step = {"output_schema": {"if": {}, "type": "integer"}, "timeout_seconds": 60}
    await GenerateRunner().run(attempt("o", step=step), ModelCalls(Script([]).count, refuse))
    first, second = asked
    assert first is not None
    assert second is not None
    assert second < first - 0.04


async def test_attempt_whose_model_does_not_keep_its_deadline_is_stopped() -> None:
    stopped = asyncio.Event()

    async def stall(model: str, request: Generation, on_text: OnText | None) -> Completion:
        assert request.deadline_seconds is not None
        assert 0 < request.deadline_seconds <= 0.5
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    with pytest.raises(AttemptError) as caught:
        await GenerateRunner().run(attempt(step={"timeout_seconds": 0.5}), ModelCalls(Script([]).count, stall))
    assert caught.value.failure == Failure(FailureKind.TIMEOUT, "not done within 0.5 s")
    assert stopped.is_set()


async def test_cancelled_attempt_is_no_failure() -> None:
    asked = asyncio.Event()

    async def stall(model: str, request: Generation, on_text: OnText | None) -> Completion:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    work = attempt(step={"timeout_seconds": 60})
    task = asyncio.ensure_future(GenerateRunner().run(work, ModelCalls(Script([]).count, stall)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
