"""Carry out tasks with LangGraph, as a program of its own: a line of JSON in for each task, a line out with its time.

It runs in a virtual environment with the packages of the extra `bench`, and imports nothing of ours.
"""

import asyncio
import json
import operator
import sys
import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph


class GraphState(TypedDict):
    """What the nodes have answered so far."""

    answers: Annotated[dict[str, AIMessage], operator.or_]


def graph_of(model: ChatOpenAI, calls: list[dict[str, Any]], sampling: dict[str, Any]) -> Any:
    """Return the compiled graph: a node for each call, which runs when all nodes that it waits for have run."""
    graph = StateGraph(GraphState)
    extra = {"ignore_eos": True, "samplers": sampling["samplers"], "top_k": sampling["top_k"]}
    for call in calls:
        bound = model.bind(max_tokens=call["tokens"], extra_body={**extra, "n_predict": call["tokens"]})
        graph.add_node(call["id"], _node(bound, call))
        if call["after"]:
            graph.add_edge(call["after"], call["id"])
        else:
            graph.add_edge(START, call["id"])
    for name in {call["id"] for call in calls} - {name for call in calls for name in call["after"]}:
        graph.add_edge(name, END)
    return graph.compile()


def _node(model: Any, call: dict[str, Any]) -> Any:
    async def node(state: GraphState) -> dict[str, dict[str, AIMessage]]:
        answer = await model.ainvoke([SystemMessage(call["system"]), HumanMessage(call["user"])])
        return {"answers": {call["id"]: answer}}

    return node


async def carry_out(model: ChatOpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    """Return how long the task took, from its plan to the last answer, and the tokens of answers and prompts."""
    calls = asked["calls"]
    started = time.perf_counter()
    graph = graph_of(model, calls, asked["sampling"])
    state = await graph.ainvoke({"answers": {}}, {"recursion_limit": len(calls) + 10})
    seconds = time.perf_counter() - started
    usages = [answer.usage_metadata for answer in state["answers"].values()]
    return {
        "seconds": seconds,
        "tokens": sum(usage["output_tokens"] for usage in usages),
        "prompt_tokens": sum(usage["input_tokens"] for usage in usages),
    }


async def main() -> None:
    """Carry out the tasks that come on stdin, on the server that the command line names."""
    model = ChatOpenAI(base_url=sys.argv[1], api_key="none", model="chat", temperature=0.0, max_retries=0, timeout=None)
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await carry_out(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
