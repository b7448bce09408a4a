"""What the programs of clients ask the daemon. Imports the standard library only: each client has its own packages."""

from dataclasses import dataclass
from typing import Final

QUESTION: Final = "What is the capital of France?"
ANSWER_TOKENS: Final = 160
"""How long the answer to `QUESTION` may be."""
PERSON_REQUEST: Final = "Ann is 34 years old. Give her name and age as JSON."
TEXTS: Final = ["the cat sleeps", "the cat sleeps", "income tax law"]
"""Texts to embed. The first two are the same."""
LONG_REQUEST: Final = "Write all numbers from 1 to 1000, one on each line, and nothing else."
LONG_TOKENS: Final = 1500
"""How long the answer to `LONG_REQUEST` may be. A client reads a little of it, then cancels the request."""
READ_PIECES: Final = 5
"""How many pieces of the long answer a client reads before it cancels."""
TOOL_REQUEST: Final = "Look up the price of quartz, then add 12."
"""A task that takes two tools, `get_price` and `add`, one after the other."""
TOOL_SYSTEM: Final = "Use the tools to answer."
"""The system prompt of agents, where they need one."""


@dataclass(frozen=True, slots=True)
class Case:
    """The server and the model that a client is to use."""

    address: str
    """The address without a path, such as `http://127.0.0.1:8000`."""
    token: str
    model: str

    @property
    def api(self) -> str:
        """The address of the API that is compatible with OpenAI's."""
        return f"{self.address}/v1"


def said(text: str) -> list[dict[str, str]]:
    """Return the conversation that begins with this message of the user, as OpenAI's API has it."""
    return [{"role": "user", "content": text}]
