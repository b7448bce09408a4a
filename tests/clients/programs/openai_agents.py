"""OpenAI's Agents SDK, which uses /v1/responses."""

from typing import Any

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, Case
from .case import TOOL_REQUEST as REQUEST
from .case import TOOL_SYSTEM as SYSTEM
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("openai-agents", "openai")
LACKS = {"embeddings": "it is for agents"}
INSTRUCTIONS = "Answer the question."
"""With them the answer ends by itself. With its own system prompt SmolLM2 repeats itself until it is cut off, and the
client takes that for an error."""
set_tracing_disabled(True)


def _agent(case: Case, max_tokens: int = 256, **more: Any) -> Any:
    client = AsyncOpenAI(base_url=case.api, api_key=case.token, max_retries=0)
    settings = ModelSettings(temperature=0, max_tokens=max_tokens)
    return Agent(name="agent", model=OpenAIResponsesModel(case.model, client), model_settings=settings, **more)


def _is_text(event: Any) -> bool:
    return bool(event.type == "raw_response_event" and event.data.type == "response.output_text.delta")


async def chat(case: Case) -> object:
    return (await Runner.run(_agent(case, ANSWER_TOKENS, instructions=INSTRUCTIONS), QUESTION)).final_output


async def stream(case: Case) -> object:
    answer = Runner.run_streamed(_agent(case, ANSWER_TOKENS, instructions=INSTRUCTIONS), QUESTION)
    return [event.data.delta async for event in answer.stream_events() if _is_text(event)]


async def structured(case: Case) -> object:
    return (await Runner.run(_agent(case, output_type=Person), PERSON_REQUEST)).final_output.model_dump()


async def tools(case: Case) -> object:
    offered = [function_tool(does) for does in FUNCTIONS.values()]
    return (await Runner.run(_agent(case, instructions=SYSTEM, tools=offered), REQUEST)).final_output


async def cancel(case: Case) -> object:
    read, answer = 0, Runner.run_streamed(_agent(case, LONG_TOKENS), LONG_REQUEST)
    async for event in answer.stream_events():
        read += _is_text(event)
        if read == READ_PIECES:
            answer.cancel()
    return read
