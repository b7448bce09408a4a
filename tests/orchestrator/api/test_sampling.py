"""Options that shape an answer are honoured or refused by name, through the official OpenAI client."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from orchestrator.api.openai.sampling import REFUSED, SamplingBody, merged_sampling, refuse_options, sampling_options
from orchestrator.errors import InputError
from orchestrator.registry.options import SamplingOptions
from tests.orchestrator.api.daemon_process import Running

QUESTION: list[Any] = [{"role": "user", "content": "Summarize the text: Zilthir is a ship. Its owner is Renzer."}]
COLOURS: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
}


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(ai: OpenAI, **more: Any) -> Any:
    """Return a chat completion of the role `worker`. Options that the client has no name for go into the body."""
    options = ("stream", "logprobs", "top_logprobs", "logit_bias", "n", "seed", "stop", "temperature")
    named = ("model", "messages", *options)
    asked: dict[str, Any] = {"model": "worker", "messages": QUESTION, "max_tokens": 48}
    asked |= {name: value for name, value in more.items() if name in named}
    body = {name: value for name, value in more.items() if name not in named}
    return ai.chat.completions.create(**asked, extra_body=body)


def said(ai: OpenAI, **more: Any) -> str:
    content = ask(ai, **more).choices[0].message.content
    assert isinstance(content, str)
    return content


def test_logprobs_come_in_the_form_of_chats_streamed_too(ai: OpenAI) -> None:
    (choice,) = ask(ai, logprobs=True, top_logprobs=2).choices
    tokens = choice.logprobs.content
    assert b"".join(bytes(one.bytes) for one in tokens).decode() == choice.message.content
    for one in tokens:
        assert one.logprob <= 0
        assert len(one.top_logprobs) == 2
        assert one.top_logprobs[0].logprob >= one.top_logprobs[1].logprob
        assert one.logprob == one.top_logprobs[0].logprob, "at temperature 0 the most likely token is taken"
    streamed: list[Any] = []
    for chunk in ask(ai, logprobs=True, top_logprobs=2, stream=True):
        (part,) = chunk.choices
        listed = part.logprobs.content if part.logprobs else []
        streamed += listed
        assert "".join(one.token for one in listed) == (part.delta.content or "")
    assert [one.token for one in streamed] == [one.token for one in tokens]
    assert ask(ai).choices[0].logprobs is None
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        ask(ai, top_logprobs=2)


def test_a_tool_that_is_not_called_holds_no_logprobs_back(ai: OpenAI) -> None:
    (choice,) = ask(ai, logprobs=True, response_format={"type": "json_object"}).choices
    chunks = list(ask(ai, logprobs=True, response_format={"type": "json_object"}, stream=True))
    listed = [one.token for chunk in chunks if (sent := chunk.choices[0].logprobs) for one in sent.content]
    assert "".join(listed) == choice.message.content


def test_tokens_are_biased_by_id_and_by_text(ai: OpenAI) -> None:
    usual = said(ai)
    letter = usual[0]
    assert said(ai, logit_bias={letter: -100}) != usual
    assert said(ai, logit_bias=[[letter, False]]) == said(ai, logit_bias={letter: False})
    assert said(ai, logit_bias={"5": 0}) == usual
    for wrong in ({"5": 101}, {"5": True}, [[[], 1]], {"12345678": 1}):
        with pytest.raises(openai.BadRequestError, match="logit_bias"):
            ask(ai, logit_bias=wrong)


def test_truncation_keeps_the_most_likely_token(ai: OpenAI) -> None:
    usual = said(ai)
    for options in ({"top_k": 1}, {"min_p": 1.0}, {"top_k": 1, "typical": 1.0, "min_p": 0.5}):
        assert said(ai, temperature=1.5, seed=3, **options) == usual
    assert said(ai, temperature=2.0, seed=-1, top_k=-1, mirostat=2, mirostat_tau=2.0)
    with pytest.raises(openai.BadRequestError, match=r"min_p is 7\.0; accepted: 0 to 1"):
        ask(ai, min_p=7)
    with pytest.raises(openai.BadRequestError, match="mirostat"):
        ask(ai, mirostat=2, top_k=5)
    assert said(ai, temperature=1.0, seed=3, xtc_probability=1.0, xtc_threshold=0.9) == said(
        ai, temperature=1.0, seed=3
    )
    assert said(ai, temperature=0.5, seed=3, xtc_probability=1.0, xtc_threshold=0.001) != usual
    with pytest.raises(openai.BadRequestError, match=r"xtc_threshold is 2\.0; accepted: 0 to 1"):
        ask(ai, xtc_threshold=2)


@pytest.mark.parametrize("seed", [-2, -(2**63), 2**63 - 1])
def test_every_seed_of_64_bits_gives_its_text_again(ai: OpenAI, seed: int) -> None:
    answers = [ask(ai, n=2, temperature=1.5, seed=seed) for _ in range(2)]
    first, second = ([choice.message.content for choice in answer.choices] for answer in answers)
    assert first == second


def test_the_seed_of_minus_one_is_random(ai: OpenAI) -> None:
    assert len({said(ai, temperature=2.0, seed=-1) for _ in range(4)}) > 1
    with pytest.raises(openai.BadRequestError, match="seed"):
        ask(ai, seed=2**63)


def test_the_limit_of_minus_one_is_what_the_context_has_left(ai: OpenAI) -> None:
    long = [{"role": "user", "content": "The ship carries tea. " * 130}]
    done = ask(ai, model="tiny-small", messages=long, max_tokens=-1, ignore_eos=True)
    assert done.choices[0].finish_reason == "length"
    assert done.usage.total_tokens == 2048
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        ask(ai, max_tokens=0)


def test_an_answer_has_at_least_as_many_tokens_as_were_asked_for(ai: OpenAI) -> None:
    usual = ask(ai, max_tokens=100).usage.completion_tokens
    assert ask(ai, max_tokens=100, min_tokens=usual + 9).usage.completion_tokens >= usual + 9


def test_every_stop_string_ends_the_answer_and_none_is_shown(ai: OpenAI) -> None:
    usual = said(ai)
    stops = [usual[8:12], usual[4:7], *(f"never {n}" for n in range(14))]
    first = min(usual.index(one) for one in stops[:2])
    assert said(ai, stop=stops) == usual[:first]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(ai, stop=stops, stream=True))
    assert text == usual[:first]


def test_the_prompt_of_several_answers_counts_once(ai: OpenAI) -> None:
    one, three = (ask(ai, n=n, temperature=1.0, seed=5) for n in (1, 3))
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert three.choices[0].message.content == one.choices[0].message.content
    texts = {0: "", 1: "", 2: ""}
    for chunk in ask(ai, n=3, temperature=1.0, seed=5, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert [*texts.values()] == [choice.message.content for choice in three.choices]


def test_an_answer_goes_on_with_the_last_message_of_the_assistant(ai: OpenAI) -> None:
    usual = said(ai)
    begun: Any = {"role": "assistant", "content": usual[: usual.index(" ", 6)]}
    assert begun["content"] + said(ai, messages=[*QUESTION, begun]) == usual
    continued = said(ai, messages=[*QUESTION, begun], continue_final_message=True, add_generation_prompt=False)
    assert begun["content"] + continued == usual
    form = {"type": "json_object"}
    assert said(ai, messages=[*QUESTION, begun], response_format=form).lstrip().startswith("{"), "a new message"
    for options in (
        {"continue_final_message": True},
        {"messages": [*QUESTION, begun], "continue_final_message": True, "response_format": form},
    ):
        with pytest.raises(openai.BadRequestError, match="continue_final_message"):
            ask(ai, **options)
    with pytest.raises(openai.BadRequestError, match="add_generation_prompt"):
        ask(ai, messages=[*QUESTION, begun], continue_final_message=True, add_generation_prompt=True)


@pytest.mark.parametrize(
    "options",
    [
        {"guided_json": COLOURS},
        {"guided_json": json.dumps(COLOURS)},
        {"json_schema": COLOURS},
        {"structured_outputs": {"json": COLOURS}},
    ],
)
def test_a_schema_may_come_under_any_of_its_names(ai: OpenAI, options: dict[str, Any]) -> None:
    assert json.loads(said(ai, **options))["colour"] in ("red", "green")


def test_a_grammar_is_followed(ai: OpenAI) -> None:
    for options in (
        {"grammar": 'root ::= "red " [0-9]'},
        {"guided_grammar": 'root ::= "red " [0-9]'},
        {"guided_choice": ['red "1"', "red 2"]},
        {"structured_outputs": {"choice": ["red 3"]}},
        {"guided_regex": r"^red \d{2}$"},
        {"regex": "red (a|b[0-9]*)"},
        {"structured_outputs": {"regex": "red .+"}, "max_tokens": 5},
    ):
        assert said(ai, **options).startswith("red ")
    assert re.fullmatch(r'red "\d{2}\n', said(ai, guided_regex=r'red "\d{2}\n'))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"grammar": 'root ::= ("a"'}, "grammar"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "cannot be combined"),
        (
            {"guided_regex": "(a+)+"},
            "guided_regex: the pattern has no grammar: a quantifier inside of what is repeated",
        ),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs/regex"),
        ({"regex": "a", "guided_choice": ["a"]}, "cannot be combined"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structural_tag"),
    ]
    for wrong, match in refused:
        with pytest.raises(openai.BadRequestError, match=match):
            ask(ai, **wrong)


def test_responses_take_the_same_options(ai: OpenAI) -> None:
    def respond(**options: Any) -> str:
        text: str = ai.responses.create(model="worker", input=QUESTION[0]["content"], extra_body=options).output_text
        return text

    assert respond(guided_choice=["red 3"]) == "red 3"
    assert respond(temperature=1.9, top_k=1, seed=2) == respond(temperature=0)
    with pytest.raises(openai.BadRequestError, match="best_of"):
        respond(best_of=4)


def test_what_one_endpoint_calls_otherwise_is_never_dropped(ai: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "worker", "input": QUESTION[0]["content"]}
    assert ai.responses.create(**asked, extra_body={"max_tokens": 3}).status == "incomplete"
    refused: list[dict[str, Any]] = [{"n": 2}, {"text": {"verbosity": "low"}}]
    for body in refused:
        with pytest.raises(openai.BadRequestError, match=r"n: is 2|verbosity"):
            ai.responses.create(**asked, extra_body=body)
    with pytest.raises(openai.BadRequestError, match="stop_sequences"):
        ask(ai, stop_sequences=["a"])
    with pytest.raises(openai.BadRequestError, match="verbosity"):
        ask(ai, verbosity="low")
    text: dict[str, Any] = {"model": "worker", "prompt": "{", "max_tokens": 40}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOURS}}
    completed: Any = ai.completions.create(**text, extra_body={"response_format": form})
    assert json.loads(completed.choices[0].text)["colour"] in ("red", "green")
    with pytest.raises(openai.BadRequestError, match="tools"):
        ai.completions.create(**text, extra_body={"tools": [{}]})


def test_a_run_refuses_what_only_a_model_can_do(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="top_k"):
        ai.chat.completions.create(model="orchestrate", messages=QUESTION, extra_body={"top_k": 5})


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_supported_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InputError, match=name):
        refuse_options({}, {name: {"any": "value"}})
    refuse_options({}, {name: None})


def test_neutral_values_are_no_reason_to_refuse() -> None:
    refuse_options({}, {"top_a": 0.0, "best_of": 1, "echo": False, "suffix": "", "unknown": 7, "tfs_z": 1.0})
    with pytest.raises(InputError, match="echo"):
        refuse_options({}, {"echo": True})
    with pytest.raises(InputError, match="best_of"):
        refuse_options({}, {"best_of": True})


options = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.integers(-1, 50),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0.1, 1),
        "mirostat": st.sampled_from([0, 1, 2]),
        "xtc_probability": st.floats(0, 1),
        "repeat_last_n": st.integers(-1, 50).filter(bool),
        "repetition_penalty": st.floats(0.5, 2),
    },
)


@given(options)
def test_what_a_client_gives_goes_before_what_a_role_has(given: dict[str, Any]) -> None:
    found = sampling_options(SamplingBody.model_validate(given))
    for own in (SamplingOptions(top_k=9, min_p=0.2), SamplingOptions(mirostat=1, repeat_penalty=1.5)):
        merged = merged_sampling(own, found)
        assert all(getattr(merged, name) == value for name, value in found.items())
        truncates = any(found.get(name) not in (None, 0, 0.0, 1.0) for name in ("top_k", "min_p", "typical_p"))
        truncates = truncates or bool(found.get("xtc_probability"))
        if not (found.get("mirostat") and truncates):
            assert merged.problem() is None
