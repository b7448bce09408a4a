"""Tools go into the model's own chat template, and its calls are read in its own syntax, streamed and as a whole.

What the models write is known, see `write_chain`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import openai
import pytest
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata
from openai import OpenAI

from benchmarks.models import ModelShape, write_chain
from tests.orchestrator.api.daemon_process import Running, running_daemon

LISTED: Final = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
)
TURNS: Final = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "[CALL]{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant{{ '!' if messages[-1].role == 'tool' else ':' }}"
)
HERMES: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>",
)
LLAMA: Final = LISTED + TURNS.replace(
    "[CALL]", """{{ '{"name": "' + c.function.name + '", "parameters": ' }}{{ c.function.arguments | tojson }}}"""
)
MISTRAL: Final = LISTED + TURNS.replace(
    "[CALL]",
    "{{ raise_exception('nine letters') if c.id | length != 9 }}"
    "[TOOL_CALLS] [{{ {'name': c.function.name, 'arguments': c.function.arguments, 'id': c.id} | tojson }}]",
)
TEKKEN: Final = LISTED + TURNS.replace(
    "[CALL]", "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
)
DEEPSEEK: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name }}\n```json\n"
    "{{ c.function.arguments | tojson }}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)
GLM: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>",
)
QWEN_CODER: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
)
DSML: Final = LISTED + TURNS.replace(
    "[CALL]",
    """<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{{ c.function.name }}">\n"""
    "{% for k, v in c.function.arguments.items() %}"
    """<｜DSML｜parameter name="{{ k }}" string="true">{{ v }}</｜DSML｜parameter>\n"""
    "{% endfor %}</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
)
GEMMA: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<|tool_call>call:{{ c.function.name }}{{ '{' }}{% for k, v in c.function.arguments.items() %}"
    """{{ k }}:<|"|>{{ v }}<|"|>{% endfor %}}<tool_call|>""",
)
LFM: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<|tool_call_start|>[{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}='{{ v }}'"
    "{% endfor %})]<|tool_call_end|>",
)
HARMONY: Final = LISTED + TURNS.replace(
    "[CALL]",
    "<|start|>assistant to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>"
    "{{ c.function.arguments | tojson }}{# or analysis #}",
)
END: Final = "<|im_end|>"
ANSWER: Final = {"!": "Sunny", "Sunny": END}
"""What every model writes after the result of a tool."""
CITIES: Final = ["Oslo", "Paris"]
WEATHER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOSE: Final = {**WEATHER, "minProperties": 1}
"""A schema that no grammar expresses as a whole, so that arguments are only known to be right at their end."""
NOTHING: Final[Mapping[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
CHAINS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "hermes": (
        HERMES,
        (
            *("I look.\n", "<tool_call>", '\n{"name": "weather", "arguments": ', '{"city": "', "Paris", '"}'),
            *("}\n</tool_call>\n", "<tool_call>\n", '{"name": "clock", "arguments": {}}', "</tool_call>"),
        ),
    ),
    "llama": (LLAMA, ('{"name": "weather', '", "parameters": ', '{"city": "', "Paris", '"}', "}")),
    "mistral": (
        MISTRAL,
        ("[TOOL_CALLS]", ' [{"name": "weather", "arguments": ', '{"city": "', "Oslo", '"}', "}", "]"),
    ),
    "deepseek": (
        DEEPSEEK,
        (
            *(
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                "weather",
                "\n```json\n",
                '{"city": "',
            ),
            *("Oslo", '"}', "\n```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        ),
    ),
    "glm": (
        GLM,
        (
            *("<tool_call>", "weather\n", "<arg_key>", "city", "</arg_key>\n", "<arg_value>", "Oslo", "</arg_value>\n"),
            "</tool_call>",
        ),
    ),
    "qwen": (
        QWEN_CODER,
        (
            *(
                "<tool_call>\n",
                "<function=weather>\n",
                "<parameter=city>\n",
                "Oslo",
                "\n</parameter>\n",
                "</function>\n",
            ),
            "</tool_call>",
        ),
    ),
    "dsml": (
        DSML,
        (
            *("I look.\n\n", "<｜DSML｜tool_calls>", '\n<｜DSML｜invoke name="weather">\n'),
            *('<｜DSML｜parameter name="city" string="true">', "Oslo", "</｜DSML｜parameter>\n", "</｜DSML｜invoke>\n"),
            "</｜DSML｜tool_calls>",
        ),
    ),
    "gemma": (GEMMA, ("<|tool_call>", "call:weather{", 'city:<|"|>', "Oslo", '<|"|>}', "<tool_call|>")),
    "lfm": (LFM, ("<|tool_call_start|>", "[weather(", "city='", "Oslo", "')", "]", "<|tool_call_end|>")),
    "harmony": (
        HARMONY,
        ("<|channel|>", "commentary to=functions.weather json", "<|message|>", '{"city": "', "Paris", '"}'),
    ),
    "fenced": (HERMES, ("See:\n", "```json\n", '{"name": "weather", "arguments": {"city": "Oslo"}}', "\n```")),
    "wrong": (HERMES, ("<tool_call>\n", '{"name": "moon", "arguments": {"town": "Bergen"}}', "\n</tool_call>")),
    "after": (
        HERMES,
        ("<tool_call>", '\n{"name": "weather", "arguments": ', '{"city": "', "Oslo", '"}', "}\n</tool_call>", "\nDone"),
    ),
    "mention": (HERMES, ("In ", "[TOOL_CALLS]", " or ", "<tool_call>", " and ", '{"name": "clock", "arguments": {}}')),
    "stray": (LLAMA, ('{"name": "moon', '", "phase": 3', "}.")),
    "talker": (HERMES, ("It is", " {sunny}", " [1]", " <b>")),
}
"""Models: their templates, and the tokens that they write after a question, if nothing keeps them from it."""
TRAINED: Final = {"trained-hermes": HERMES, "trained-llama": LLAMA, "trained-mistral": MISTRAL}
"""Copies of an embedded model, whose weights and vocabulary are real, with other chat templates."""
TINY: Final = Path(__file__).parents[3] / "registry" / "tiny" / "medium.gguf"
REGISTRY: Final = "models:\n" + "".join(
    f"  {name}: {{file: {name}.gguf, context: 1024, slots: 2, threads: 1}}\n" for name in (*CHAINS, *TRAINED, "marks")
)
ROLES: Final = "roles:\n  worker: {model: talker, tier: C, system: Be brief., max_tokens: 64}\n"


def write_models(folder: Path) -> None:
    for name, (template, tokens) in CHAINS.items():
        ends = dict.fromkeys((*">}]", tokens[-1]), END)
        follows = {":": tokens[0], **ends, **dict(itertools.pairwise(tokens)), **ANSWER}
        marks = tuple(dict.fromkeys(token for token in (*tokens, "Sunny") if len(token) > 1))
        write_chain(folder / f"{name}.gguf", follows, ModelShape(weights="f32", chat_template=template, marks=marks))
    marks = ("[TOOL_CALLS]", "[ARGS]")
    follows = dict(itertools.pairwise((":", "[TOOL_CALLS]", "s", "u", "n", "[ARGS]", "{"))) | {"}": END}
    shape = ModelShape(weights="f32", chat_template=TEKKEN, marks=marks, control_marks=True)
    write_chain(folder / "marks.gguf", follows, shape)
    for name, template in TRAINED.items():
        writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama")
        changed = {"tokenizer.chat_template": MetadataDetails(gguf.GGUFValueType.STRING, template)}
        copy_with_new_metadata(gguf.GGUFReader(TINY), writer, changed, [])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tools")
    write_models(folder)
    (folder / "model_registry.yaml").write_text(REGISTRY + ROLES)
    with running_daemon(folder / "home", ORCHESTRATOR_REGISTRY=str(folder / "model_registry.yaml")) as running:
        yield running


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def tool(name: str, parameters: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": parameters}}


TOOLS: Final = [tool("weather", WEATHER), tool("clock")]
QUESTION: Final[list[Any]] = [{"role": "user", "content": "How is it?"}]


def ask(ai: OpenAI, model: str, **more: Any) -> Any:
    return ai.chat.completions.create(
        **{"model": model, "messages": QUESTION, "tools": TOOLS, "max_tokens": 256, **more}
    )


def streamed(ai: OpenAI, model: str, **more: Any) -> tuple[str, dict[int, list[str]], list[str], str]:
    """Return the text of a streamed answer, id, name and pieces of the arguments of each call, and the end's reason."""
    text, calls, ids, reason = "", dict[int, list[str]](), list[str](), ""
    for chunk in ask(ai, model, stream=True, **more):
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or ():
            if call.id:
                ids.append(call.id)
                calls[call.index] = [call.function.name]
            elif call.function.arguments:
                calls[call.index].append(call.function.arguments)
    return text, calls, ids, reason


def made(message: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]


EXPECTED: Final[Mapping[str, tuple[str | None, list[tuple[str, Any]]]]] = {
    "hermes": ("I look.", [("weather", {"city": "Paris"}), ("clock", {})]),
    "llama": (None, [("weather", {"city": "Paris"})]),
    "mistral": (None, [("weather", {"city": "Oslo"})]),
    "deepseek": (None, [("weather", {"city": "Oslo"})]),
    "glm": (None, [("weather", {"city": "Oslo"})]),
    "qwen": (None, [("weather", {"city": "Oslo"})]),
    "dsml": ("I look.", [("weather", {"city": "Oslo"})]),
    "gemma": (None, [("weather", {"city": "Oslo"})]),
    "lfm": (None, [("weather", {"city": "Oslo"})]),
    "harmony": (None, [("weather", {"city": "Paris"})]),
    "after": ("Done", [("weather", {"city": "Oslo"})]),
}


@pytest.mark.parametrize("model", EXPECTED)
def test_calls_are_read_in_the_model_s_own_syntax(ai: OpenAI, model: str) -> None:
    (choice,) = ask(ai, model).choices
    assert (choice.message.content, made(choice.message)) == EXPECTED[model]
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("parameters", [WEATHER, LOOSE])
@pytest.mark.parametrize("model", EXPECTED)
def test_a_stream_has_the_same_calls(ai: OpenAI, model: str, parameters: Mapping[str, Any]) -> None:
    text, calls, ids, reason = streamed(ai, model, tools=[tool("weather", parameters), tool("clock")])
    assert ((text or None), [(name, json.loads("".join(pieces))) for name, *pieces in calls.values()]) == EXPECTED[
        model
    ]
    assert len(set(ids)) == len(calls) == max(calls) + 1
    assert reason == "tool_calls"


@pytest.mark.parametrize(
    "model", ["hermes", "llama", "mistral", "deepseek", "glm", "qwen", "dsml", "gemma", "lfm", "harmony"]
)
def test_a_conversation_goes_on_with_the_results(ai: OpenAI, model: str) -> None:
    message = ask(ai, model).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in message.tool_calls]
    (choice,) = ask(ai, model, messages=[*QUESTION, message.model_dump(exclude_none=True), *results]).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Sunny", None, "stop")


@pytest.mark.parametrize("arguments", ["", None, "{broken", {"city": "Rome"}])
def test_one_odd_call_of_a_history_leaves_the_others_as_the_model_writes_them(ai: OpenAI, arguments: Any) -> None:
    talk: list[Any] = [*QUESTION]
    for name, given in (("clock", arguments), ("weather", {"city": "Oslo"})):
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": given}}
        talk += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        talk += [{"role": "tool", "tool_call_id": name, "content": "sun"}]
    body: Any = {"model": "qwen", "messages": talk, "tools": TOOLS}
    prompt: Any = ai.post(str(ai.base_url).replace("/v1/", "/apply-template"), body=body, cast_to=object)
    *_, first, first_result, second, second_result, _ = prompt["prompt"].split("<|im_start|>")
    assert first.startswith("assistant\n<tool_call>\n<function=clock>\n")
    assert second == (
        "assistant\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
        "<|im_end|>\n"
    )
    assert first_result == second_result == "tool\nsun<|im_end|>\n"


def test_ids_have_nine_letters_where_the_template_wants_them_so(ai: OpenAI) -> None:
    (call,) = ask(ai, "mistral").choices[0].message.tool_calls
    assert len(call.id) == 9
    assert call.id.isalnum()


def test_marks_that_are_control_tokens_are_read(ai: OpenAI) -> None:
    (choice,) = ask(ai, "marks", tools=[tool("sun", WEATHER)]).choices
    ((name, arguments),) = made(choice.message)
    assert name == "sun"
    assert arguments["city"] in CITIES
    _, calls, _, _ = streamed(ai, "marks", tools=[tool("sun", WEATHER)])
    assert json.loads("".join(calls[0][1:]))["city"] in CITIES


NAMED = {"type": "function", "function": {"name": "weather"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("model", "choice"),
    [
        *((model, "required") for model in (*EXPECTED, "talker", "wrong")),
        ("hermes", NAMED),
        ("harmony", ALLOWED),
        *(
            pytest.param(model, choice, marks=pytest.mark.slow)
            for model in (*EXPECTED, "talker", "wrong")
            for choice in (NAMED, ALLOWED)
        ),
    ],
)
def test_a_model_that_has_to_call_does_so(ai: OpenAI, model: str, choice: Any) -> None:
    tools = [tool("weather", WEATHER), tool("stamp", WEATHER)]
    more = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
    answer = ask(ai, model, **more).choices[0]
    calls = made(answer.message)
    assert calls
    assert answer.message.content is None
    assert {name for name, _ in calls} <= ({"weather", "stamp"} if choice == "required" else {"weather"})
    assert all(arguments["city"] in CITIES for _, arguments in calls)
    _, pieces, _, reason = streamed(ai, model, **more)
    assert [json.loads("".join(parts)) for _, *parts in pieces.values()] == [arguments for _, arguments in calls]
    assert reason == "tool_calls"


@pytest.mark.parametrize("model", TRAINED)
def test_a_trained_model_calls_under_the_grammar_of_its_template(ai: OpenAI, model: str) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        more = {"tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 120}
        message = ask(ai, model, **more).choices[0].message
        ((name, arguments),) = made(message)
        assert name in ("weather", "clock")
        assert arguments in ({}, {"city": "Oslo"}, {"city": "Paris"})
        _, calls, _, reason = streamed(ai, model, **more)
        assert [(one, json.loads("".join(pieces))) for one, *pieces in calls.values()] == [(name, arguments)]
        assert reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
    talk = [*QUESTION, message.model_dump(exclude_none=True), result]
    assert ask(ai, model, messages=talk, tool_choice="none", max_tokens=16).choices[0].message.content


def test_a_model_that_may_not_call_does_not(ai: OpenAI) -> None:
    answer = ask(ai, "talker", tool_choice="none").choices[0]
    assert answer.message.content == "It is {sunny} [1] <b>"
    assert answer.finish_reason == "stop"
    with_tools, without = (ask(ai, "talker", tool_choice=one).usage.prompt_tokens for one in ("auto", "none"))
    assert with_tools > without, "the tools stand in the prompt"


@pytest.mark.parametrize("model", ["talker", "mention", "fenced"])
def test_text_that_only_looks_like_a_call_is_text(ai: OpenAI, model: str) -> None:
    expected = "It is {sunny} [1] <b>" if model == "talker" else "".join(CHAINS[model][1])
    assert ask(ai, model).choices[0].message.content == expected
    text, calls, _, reason = streamed(ai, model)
    assert (text, calls, reason) == (expected, {}, "stop")


def test_what_a_grammar_does_not_allow_where_it_would_begin_is_text(ai: OpenAI) -> None:
    """The token in which the grammar would begin goes on in a way that is no call of a tool that is offered."""
    assert ask(ai, "stray").choices[0].message.content == '{"name": "moon", "phase": 3}.'
    text, calls, _, reason = streamed(ai, "stray")
    assert (text, calls, reason) == ('{"name": "moon", "phase": 3}.', {}, "stop")


def test_only_one_call_where_the_client_wants_no_more(ai: OpenAI) -> None:
    (choice,) = ask(ai, "hermes", parallel_tool_calls=False).choices
    assert made(choice.message) == [("weather", {"city": "Paris"})]
    _, calls, _, _ = streamed(ai, "hermes", parallel_tool_calls=False)
    assert len(calls) == 1


def test_a_call_that_stays_broken_is_an_error(ai: OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="there is no tool 'moon'"):
        ask(ai, "wrong")
    impossible = {**WEATHER, "minProperties": 2}
    with pytest.raises(openai.UnprocessableEntityError, match="the arguments of weather do not match"):
        ask(ai, "hermes", tools=[tool("weather", impossible)])


def test_an_answer_that_is_cut_off_loses_nothing(ai: OpenAI) -> None:
    (choice,) = ask(ai, "hermes", max_tokens=4).choices
    assert choice.finish_reason == "length"
    assert not choice.message.tool_calls
    assert "weather" in (choice.message.content or "")
    _, calls, _, reason = streamed(ai, "hermes", max_tokens=5)
    ((name, *pieces),) = calls.values()
    assert (name, "".join(pieces)) == ("weather", '{"city": "Paris')
    assert reason == "length"


@pytest.mark.parametrize("choice", ["nobody", {"type": "allowed_tools", "allowed_tools": {"mode": "some"}}])
def test_a_choice_that_is_unknown_is_refused(ai: OpenAI, choice: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        ask(ai, "hermes", tool_choice=choice)


def test_an_answer_may_be_a_call_or_match_a_schema(ai: OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", **NOTHING}}}
    assert made(ask(ai, "hermes", response_format=form).choices[0].message)
    (choice,) = ask(ai, "talker", response_format=form, tools=[tool("clock")]).choices
    assert made(choice.message) or json.loads(choice.message.content) == {}


def test_a_response_has_text_and_calls_as_items(ai: OpenAI) -> None:
    tools: Any = [{"type": "function", "name": one["function"]["name"], **one["function"]} for one in TOOLS]
    asked: dict[str, Any] = {"model": "hermes", "input": "How is it?", "tools": tools}
    items = ai.responses.create(**asked).output
    assert [item.type for item in items] == ["message", "function_call", "function_call"]
    with ai.responses.stream(**asked) as stream:
        events = list(stream)
        whole = stream.get_final_response()
    assert whole.output_text == "I look."
    calls: list[Any] = [item for item in whole.output if item.type == "function_call"]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == EXPECTED["hermes"][1]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == "".join(call.arguments for call in calls)
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "sun"} for call in calls]
    kept = [{"type": "function_call", "call_id": c.call_id, "name": c.name, "arguments": c.arguments} for c in calls]
    again = ai.responses.create(**asked | {"input": [{"role": "user", "content": "?"}, *kept, *results]})
    assert again.output_text == "Sunny"
