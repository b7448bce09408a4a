"""The tools that the programs of clients hand to agents. Each call of them is recorded."""

import json
from collections.abc import Callable
from typing import Any, Final

from .case import TOOL_REQUEST

PRICES: Final = {"quartz": 214}
CALLS: Final[list[tuple[str, dict[str, Any]]]] = []
"""The calls since the list was cleared last: the name of the tool, and its arguments."""


def get_price(item: str) -> int:
    """Return the price of an item.

    Args:
        item: The item.
    """
    CALLS.append(("get_price", {"item": item}))
    return PRICES[item]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    CALLS.append(("add", {"a": a, "b": b}))
    return a + b


FUNCTIONS: Final[dict[str, Callable[..., int]]] = {"get_price": get_price, "add": add}
TELLS: Final = {"get_price": "Return the price of an item.", "add": "Add two numbers."}
"""What the tools do, for clients that would take the whole docstring."""


def _described(name: str, **parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    return {"type": "function", "function": {"name": name, "description": TELLS[name], "parameters": schema}}


DESCRIBED: Final = (_described("get_price", item="string"), _described("add", a="integer", b="integer"))
"""The tools as OpenAI's API has them, for clients that take no functions."""


def worked_off(ask: Callable[[list[Any]], Any]) -> str:
    """Call the tools that the model asks for until it answers, and return the answer.

    `ask` sends messages of OpenAI's API and returns the message that comes back. Raises RuntimeError where there is no
    answer after six requests.
    """
    messages: list[Any] = [{"role": "user", "content": TOOL_REQUEST}]
    for _ in range(6):
        message = ask(messages)
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
    raise RuntimeError("there is no answer after six requests")
