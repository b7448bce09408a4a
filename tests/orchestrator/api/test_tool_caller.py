"""A model that thinks aloud and calls tools, trained to do both, does so behind the API, with the real engine."""

import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest
from openai import OpenAI

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from tests.orchestrator.api.daemon_process import Running, executed
from tests.orchestrator.api.tool_calling import REQUEST, RESULT, SYNTAXES, add, get_price, tool_calling_daemon

FACTS: Final = "The weight of Dramol is 314. The price of Dramol is 28."
QUESTION: Final = f"{FACTS}\nWhat is the price of Dramol?"
ANSWER: Final = "The price of Dramol is 28."


class Talk(NamedTuple):
    """What came of a request that tools were needed for."""

    answer: str
    calls: list[tuple[str, dict[str, Any]]]
    thoughts: list[str | None]


def tool(name: str, description: str, **parameters: str) -> Any:
    properties = {parameter: {"type": kind} for parameter, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: Final = [
    tool("get_price", "Return the price of an item.", item="string"),
    tool("add", "Add two numbers.", a="integer", b="integer"),
]
DOES: Final[dict[str, Callable[..., int]]] = {"get_price": get_price, "add": add}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with tool_calling_daemon(tmp_path_factory.mktemp("tool_caller")) as running:
        yield running


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(ai: OpenAI, said: str, model: str = "hermes", **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": said}]
    return ai.chat.completions.create(model=model, messages=messages, **more)


def work(ai: OpenAI, request: str, model: str, **options: Any) -> Talk:
    """Do what any agent does: call the tools that the model asks for, until it answers."""
    messages: list[Any] = [{"role": "user", "content": request}]
    talk = Talk("", [], [])
    for _ in range(6):
        message: Any = (
            ai.chat.completions.create(model=model, messages=messages, tools=TOOLS, **options).choices[0].message
        )
        talk.thoughts.append(message.reasoning_content)
        if not message.tool_calls:
            return talk._replace(answer=message.content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            talk.calls.append((call.function.name, arguments))
            result = str(DOES[call.function.name](**arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise AssertionError(f"no answer after {talk.calls}")


# Thoughts


@pytest.mark.parametrize("model", SYNTAXES)
def test_a_thought_comes_apart_from_the_answer_and_is_counted_apart(ai: OpenAI, model: str) -> None:
    done = ask(ai, QUESTION, model)
    message, usage = done.choices[0].message, done.usage
    assert (message.reasoning_content, message.content) == (ANSWER, ANSWER)
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


@pytest.mark.parametrize("model", SYNTAXES)
def test_without_a_thought_the_answer_is_the_same(ai: OpenAI, model: str) -> None:
    done = ask(ai, QUESTION, model, reasoning_effort="none")
    message = done.choices[0].message
    assert (message.reasoning_content, message.content) == (None, ANSWER)
    assert done.usage.completion_tokens_details.reasoning_tokens == 0


def test_a_thought_ends_with_its_budget_and_the_answer_follows(ai: OpenAI) -> None:
    message = ask(ai, QUESTION, extra_body={"thinking": 4}).choices[0].message
    assert message.content == ANSWER
    assert message.reasoning_content
    assert ANSWER.startswith(message.reasoning_content)
    assert message.reasoning_content != ANSWER


def test_a_grammar_begins_after_the_thought(ai: OpenAI) -> None:
    schema = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "price", "schema": schema}}
    message = ask(ai, f"{FACTS}\nGive the price of Dramol as JSON.", response_format=form).choices[0].message
    assert (message.reasoning_content, json.loads(message.content)) == (ANSWER, {"price": 28})


def test_the_thoughts_of_a_step_stay_out_of_its_artifact(daemon: Running) -> None:
    step = {"id": "S1", "actor": "worker", "action": "What is the price of Dramol?", "outputs": ["price.txt"]}
    inputs = [{"type": "text", "label": "facts", "value": FACTS}]
    task = {"objective": "a test", "inputs": inputs, "plan": {"steps": [{**step, "inputs": ["facts"]}]}}
    with daemon.client() as client:
        run = str(executed(client, {"task": task})["run_id"])
    with JournalReader.open_to_read(daemon.home) as journal:
        (found,) = build_report(RunView.of(event for _, event in journal.events(run)), journal.get).steps
        assert journal.get(found.outputs["price.txt"]) == ANSWER.encode()
        assert journal.get(found.attempts[0].reasoning) == ANSWER.encode()
    assert 0 < found.reasoning_tokens < found.output_tokens


# Tools


@pytest.mark.parametrize(("model", "thinks"), [(model, thinks) for model in SYNTAXES for thinks in (True, False)])
def test_two_tools_are_called_one_after_the_other(ai: OpenAI, model: str, thinks: bool) -> None:
    options: dict[str, Any] = {} if thinks else {"reasoning_effort": "none"}
    talk = work(ai, REQUEST, model, **options)
    assert talk.calls == [("get_price", {"item": "quartz"}), ("add", {"a": 214, "b": 12})]
    assert talk.answer == RESULT
    assert [thought is not None for thought in talk.thoughts] == [thinks] * 3


@pytest.mark.parametrize("streams", [False, True])
def test_the_loop_of_tools_of_anthropics_client_goes_on_with_a_thread(daemon: Running, streams: bool) -> None:
    anthropic: Any = importlib.import_module("anthropic")
    called: list[tuple[str, Any]] = []

    def get_price_of(item: str) -> str:
        called.append(("get_price", item))
        return str(get_price(item))

    def added(a: int, b: int) -> str:
        called.append(("add", (a, b)))
        return str(add(a, b))

    tools = [
        anthropic.beta_tool(get_price_of, name="get_price", description="Return the price of an item."),
        anthropic.beta_tool(added, name="add", description="Add two numbers."),
    ]
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{daemon.port}", api_key=daemon.token, max_retries=0) as ai:
        messages = [{"role": "user", "content": REQUEST}]
        runner = ai.beta.messages.tool_runner(
            model="hermes", max_tokens=256, messages=messages, tools=tools, stream=streams
        )
        last = runner.until_done()
        assert [block.text for block in last.content] == [RESULT]
        assert runner._thread.previous_message_id == last.id, "the client has not fallen back on whole conversations"
    assert called == [("get_price", "quartz"), ("add", (214, 12))]


def test_a_question_that_needs_no_tool_is_answered(ai: OpenAI) -> None:
    assert work(ai, "Hello!", "hermes") == Talk("Hello! How can I help?", [], ["I greet back."])
