"""These tests need further clients, which the extra `clients` installs (`make test-clients`)."""

from importlib.util import find_spec

collect_ignore = [] if all(map(find_spec, ("langgraph", "pydantic_ai"))) else ["test_agents.py"]
