"""Agents of other projects finish a task of two tools with a model that calls tools in its own syntax."""

from collections.abc import Iterator

import pytest
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.tool_calling import REQUEST, RESULT, SYNTAXES, add, get_price, tool_calling_daemon

pytestmark = [
    pytest.mark.clients,
    pytest.mark.parametrize("model", SYNTAXES),
    pytest.mark.filterwarnings("ignore"),  # what the clients warn of is not ours to mend
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with tool_calling_daemon(tmp_path_factory.mktemp("agents")) as running:
        yield running


@pytest.fixture
def url(daemon: Running) -> str:
    return f"http://127.0.0.1:{daemon.port}/v1"


def test_langgraph(daemon: Running, url: str, model: str) -> None:
    agent = create_react_agent(ChatOpenAI(model=model, base_url=url, api_key=daemon.token), [get_price, add])
    messages = agent.invoke({"messages": [("user", REQUEST)]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert messages[-1].content == RESULT


def test_pydantic_ai(daemon: Running, url: str, model: str) -> None:
    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key=daemon.token))
    assert Agent(chat, tools=[get_price, add]).run_sync(REQUEST).output == RESULT
