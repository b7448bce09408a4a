"""The counts are fixed and the answers written down: what is tested is what the context then looks like."""

import json
from collections.abc import Sequence

import pytest

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.engine.errors import PromptTooLong
from orchestrator.engine.worker.loop import clamp_max_tokens
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.context.conversation import ENDS, Conversation
from orchestrator.run.steps.context.summary import SUMMARY
from orchestrator.run.steps.context.window import CallResult, Turn
from orchestrator.task.events import FailureKind, Usage
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import attempt_of

OPENING = (Message("system", "s" * 10), Message("user", "u" * 10))
FOUND = {"plan_state": "half done", "findings": ["Koldin weighs 12 t"], "open_points": ["speed"]}


class Counted:
    """A model with one token a character, that gives its answers in turn. JSON that does not end was cut off.

    A prompt that is too long is refused, as by an engine. A "%" is three tokens.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[Generation] = []
        self.counts = 0
        self.context: int | None = None

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        self.counts += 1
        return tokens_of(messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        if self.context is not None:
            clamp_max_tokens(request, tokens_of(request.messages), self.context)
        self.asked.append(request)
        answer = self.answers.pop(0)
        usage = Usage(prompt_tokens=tokens_of(request.messages), output_tokens=1)
        return Completion(answer, "stop" if answer.endswith("}") else "length", usage)

    def talk(
        self, context: int | None, *, prunes: bool = False, countable: bool = True, max_tokens: int = 200
    ) -> Conversation:
        step = Step(id="S1", actor="worker", action="Find all weights.", outputs=("o",))
        self.context = context
        known = context if countable else None
        attempt = attempt_of(step, system="", context=known, max_tokens=max_tokens)
        return Conversation(attempt, self, OPENING, context, prunes=prunes)


def tokens_of(messages: Sequence[Message]) -> int:
    return sum(len(message.content) + 2 * message.content.count("%") for message in messages)


async def test_the_budget_is_shown_and_pruning_asked_for_by_id() -> None:
    talk = Counted().talk(1200, prunes=True)
    await talk.add(Turn("x", document=CallResult("D1", "a.txt", "t" * 400)))
    assert talk.pressure == "free"
    assert talk.window.messages[-1][1].endswith("Context: 432 of 1000 tokens.")
    await talk.add(Turn("x", document=CallResult("D2", "b.txt", "t" * 200)))
    assert talk.pressure == "soft"
    assert talk.window.messages[-1][1].endswith("Prune what is not needed, by id.")
    await talk.add(Turn("x", document=CallResult("D3", "c.txt", "t" * 50)))
    assert talk.pressure == "soft"
    assert talk.window.messages[-1][1].endswith(" tokens."), (
        "what has come since it was asked is not worth asking again"
    )
    await talk.prune("drop", ("D1", "D2"))
    assert talk.pressure == "free"
    assert [one.id for one in talk.window.shown] == ["D3"]
    assert talk.window.messages[-1] == Message("user", "Pruned: a.txt, b.txt.\nContext: 136 of 1000 tokens.")


async def test_past_the_hard_mark_what_nobody_has_judged_is_to_be_pruned() -> None:
    talk = Counted().talk(1200, prunes=True)
    await talk.add(Turn("x", document=CallResult("D1", "a.txt", "t" * 400)))
    await talk.add(Turn("x", document=CallResult("D2", "b.txt", "t" * 430)))
    assert talk.pressure == "hard"
    assert talk.window.messages[-1][1].endswith("It is full: prune by id or finish.")
    await talk.prune("drop", ("D2",))
    assert talk.pressure == "free"


async def test_pruning_that_would_compute_more_than_it_frees_waits() -> None:
    talk = Counted().talk(1200, prunes=True)
    await talk.add(Turn("x", document=CallResult("D1", "a.txt", "t" * 30)))
    await talk.add(Turn("x", document=CallResult("D2", "b.txt", "t" * 300)))
    before = talk.window.messages
    await talk.prune("drop", ("D1",))
    assert talk.window.messages[: len(before)] == before
    assert [one.id for one in talk.window.shown] == ["D2"]
    await talk.prune("drop", ("D2",))
    assert "t" * 30 not in "".join(message.content for message in talk.window.messages)


async def test_what_cannot_be_shown_at_all_is_reported_and_nothing_breaks() -> None:
    talk = Counted().talk(1200, prunes=True)
    await talk.add(Turn("x", document=CallResult("D1", "big.txt", "t" * 5000)))
    assert talk.window.shown == ()
    assert "big.txt: 5000 characters are too long to be shown" in talk.window.messages[-1][1]


async def test_a_text_that_is_longer_than_the_context_is_shown_by_its_ends() -> None:
    talk = Counted().talk(1200)
    await talk.add(Turn("x", "a" * 1000 + "t" * 3000 + "z" * 1000, rest="peek('out1', start, length)"))
    told = "… 4600 characters are too long to be shown: peek('out1', start, length) …"
    assert talk.window.messages[-1][1].startswith(f"{'a' * ENDS}\n{told}\n{'z' * ENDS}\nContext: ")
    assert talk.pressure == "free"


async def test_a_text_that_may_not_fit_behind_the_summary_is_shown_by_its_ends() -> None:
    talk = Counted(json.dumps(FOUND)).talk(1600)
    await talk.add(Turn("x", "t" * 900))
    await talk.add(Turn("y", "u" * 900))
    assert talk.window.messages[-1][1].startswith("u" * ENDS + "\n… 500 characters are too long to be shown …\n")
    assert talk.window.condensations == 1


async def test_a_text_that_can_be_summed_up_with_the_rest_is_not_cut_for_that() -> None:
    model = Counted(json.dumps(FOUND))
    talk = model.talk(3000, max_tokens=1000)
    await talk.add(Turn("x", "t" * 1000))
    await talk.add(Turn("y", "u" * 1300))
    assert model.asked[0].messages[-1][1].startswith("u" * 1300)


async def test_a_document_for_which_room_can_be_made_is_shown_behind_the_summary() -> None:
    talk = Counted(json.dumps(FOUND)).talk(3000, prunes=True)
    await talk.add(Turn("x", "t" * 1700))
    await talk.add(Turn("y", document=CallResult("D1", "big.txt", "b" * 1500)))
    assert talk.window.condensations == 1
    assert [one.id for one in talk.window.shown] == ["D1"]
    assert "D1" not in talk.window.messages[3][1], "it is not in the list of what was kept, but shown"


async def test_a_full_history_is_condensed_and_goes_on_from_the_same_head() -> None:
    model = Counted(json.dumps(FOUND))
    talk = model.talk(3000)
    await talk.add(Turn("x", "t" * 1500))
    before = talk.window.messages
    await talk.add(Turn("y", "t" * 900))
    (asked,) = model.asked
    assert asked.messages[: len(before)] == before, "the KV cache of all that went before is used to condense it"
    assert asked.schema == SUMMARY
    assert talk.window.messages[:2] == before[:2]
    summary = json.loads(talk.window.messages[2][1])
    assert summary == {"task": "Find all weights.", "condensations": 1, **FOUND}
    assert talk.window.turns == ()
    assert talk.usage == Usage(prompt_tokens=tokens_of(asked.messages), output_tokens=1)


async def test_condensed_again_the_count_goes_up() -> None:
    talk = Counted(json.dumps(FOUND), json.dumps(FOUND)).talk(3000)
    for number in range(3):
        await talk.add(Turn("x", f"{number}" * 1700))
    assert json.loads(talk.window.summary)["condensations"] == 2
    assert talk.window.messages[-1][1].startswith("2" * 1700), "what left no room to sum it up follows the summary"


async def test_a_history_that_pruning_could_not_shorten_is_condensed_and_its_documents_stay_kept() -> None:
    talk = Counted(json.dumps(FOUND)).talk(1200, prunes=True)
    await talk.add(Turn("x", document=CallResult("D1", "a.txt", "t" * 200)))
    await talk.add(Turn("y" * 300, "t" * 300))
    assert talk.window.condensations == 1
    assert talk.window.shown == ()
    assert [one.id for one in talk.window.kept] == ["D1"]
    assert "D1 a.txt" in talk.window.messages[3][1]


async def test_what_there_is_of_a_summary_that_was_cut_off_counts() -> None:
    talk = Counted('{"plan_state": "half done", "findings": ["Koldin weighs 12 t", "Hak').talk(1200)
    await talk.add(Turn("x", "t" * 900))
    said = json.loads(talk.window.summary)
    assert (said["findings"], said["open_points"]) == (["Koldin weighs 12 t", "Hak"], [])


@pytest.mark.parametrize("answer", ["", "{", '{"plan_state": "half done", "fin', '{"findings": [], '])
async def test_a_summary_that_was_cut_off_too_soon_fails_the_attempt(answer: str) -> None:
    talk = Counted(answer).talk(1200)
    with pytest.raises(AttemptError, match=r"could not be condensed \(length\)"):
        await talk.add(Turn("x", "t" * 900))


async def test_a_summary_out_of_form_fails_the_attempt() -> None:
    talk = Counted('{"findings": 3}').talk(1200)
    with pytest.raises(AttemptError, match="could not be condensed") as caught:
        await talk.add(Turn("x", "t" * 900))
    assert caught.value.failure.kind is FailureKind.SCHEMA


async def test_a_head_that_leaves_no_room_is_refused() -> None:
    model = Counted("{}")
    with pytest.raises(PromptTooLong):
        await model.talk(20).ask()
    assert (model.counts, model.asked) == (0, [])


async def test_a_prompt_is_counted_only_where_something_would_be_lost() -> None:
    model = Counted("{}", "{}", json.dumps(FOUND), "{}")
    talk = model.talk(3000)
    await talk.ask()
    await talk.add(Turn("{}", "t" * 1000))
    await talk.ask()
    assert model.counts == 0
    assert talk.window.messages[-1][1].endswith("Context: 1022 of 2800 tokens."), "as the last prompt has shown"
    await talk.add(Turn("{}", "u" * 1500))
    assert model.counts > 0
    assert talk.window.condensations == 1
    counted = model.counts
    await talk.ask()
    assert model.counts == counted


async def test_what_has_more_tokens_than_estimated_is_condensed_or_cut_when_the_engine_refuses_it() -> None:
    model = Counted("{}", json.dumps(FOUND), "{}", json.dumps(FOUND), "{}")
    talk = model.talk(3000)
    await talk.ask()
    await talk.add(Turn("{}", "t" * 1000))
    await talk.add(Turn("{}", "%" * 600))
    assert talk.window.condensations == 0, "it seems to fit"
    await talk.ask()
    assert talk.window.condensations == 1
    await talk.add(Turn("{}", "%" * 1500))
    await talk.ask()
    assert "characters are too long to be shown" in talk.window.messages[-1][1]


async def test_without_a_known_context_nothing_is_ever_full() -> None:
    talk = Counted().talk(None, prunes=True)
    await talk.add(Turn("x", "t" * 100_000))
    assert (talk.pressure, talk.window.messages[-1][1]) == ("free", "t" * 100_000)


async def test_what_only_a_server_can_count_is_estimated() -> None:
    talk = Counted().talk(1200, countable=False)
    await talk.add(Turn("x", "t" * 2000))
    assert talk.window.messages[-1][1].endswith("Context: 506 of 1000 tokens.")
