"""Name the clients of other projects that are tried against the daemon, and what is tried with each."""

from dataclasses import dataclass
from typing import Final, Literal

Language = Literal["Python", "Node"]


@dataclass(frozen=True, slots=True)
class Client:
    """A client, which has a program of its own and, if it is one for Python, an environment of its own."""

    name: str
    """As its users call it."""
    program: str
    """The name of the program: a module of `programs`, or a file of `node`."""
    packages: tuple[str, ...] = ()
    """The packages of its environment, with the least versions; the lock file has the exact ones. Empty for Node, whose
    packages are those of `node/package.json`."""

    @property
    def language(self) -> Language:
        """The language that it is for."""
        return "Python" if self.packages else "Node"


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that is tried with every client that can do it."""

    name: str
    """As the table has it."""
    function: str
    """The function of a program that does it."""
    model: str
    """The model that it is tried with."""


CHAT_MODEL: Final = "smollm2"
CLIENTS: Final = (
    Client("openai", "openai_python", ("openai>=3.54",)),
    Client("openai for Node", "openai_node"),
    Client("anthropic", "anthropic_python", ("anthropic>=2.14",)),
    Client("anthropic for Node", "anthropic_node"),
    Client("LangChain, LangGraph", "langgraph", ("langchain>=1.3", "langchain-openai>=1.7", "langgraph>=1.2")),
    Client("LiteLLM", "litellm", ("litellm>=1.110",)),
    Client("llm", "llm", ("llm>=0.36",)),
    Client("Pydantic AI", "pydantic_ai", ("pydantic-ai-slim[openai]>=2.68",)),
    Client("Instructor", "instructor", ("instructor>=1.17",)),
    Client(
        "LlamaIndex",
        "llama_index",
        ("llama-index-core>=0.14", "llama-index-embeddings-openai-like>=0.4", "llama-index-llms-openai-like>=0.8"),
    ),
    Client("smolagents", "smolagents", ("smolagents[openai]>=1.26",)),
    Client("OpenAI Agents", "openai_agents", ("openai-agents>=0.24",)),
    Client("DSPy", "dspy", ("dspy[numpy]>=3.4",)),
    Client("Haystack", "haystack", ("haystack-ai>=3.4",)),
    Client("CrewAI", "crewai", ("crewai>=1.15",)),
    Client("Vercel AI SDK", "vercel_ai"),
)
"""No environment can have all that are for Python: Instructor 1.17, for one, wants another jiter than openai 3.54."""
ABILITIES: Final = (
    Ability("chat", "chat", CHAT_MODEL),
    Ability("streaming", "stream", CHAT_MODEL),
    Ability("structured", "structured", CHAT_MODEL),
    Ability("embeddings", "embeddings", "embedder"),
    Ability("two tools, Hermes", "tools", "hermes"),
    Ability("two tools, Llama 3", "tools", "llama3"),
    Ability("cancelling", "cancel", CHAT_MODEL),
)


def find(names: list[str]) -> tuple[Client, ...]:
    """Return the clients with these programs, or all where there are no names. Raises KeyError for an unknown name."""
    known = {client.program: client for client in CLIENTS}
    return tuple(known[name] for name in names) if names else CLIENTS
