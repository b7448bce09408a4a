"""The fixtures of the command line, the API and the rules that tests of the memory share with theirs."""

from tests.orchestrator.api.conftest import client
from tests.orchestrator.cli.conftest import command, home
from tests.orchestrator.run.routing.conftest import registry

__all__ = ["client", "command", "home", "registry"]
