"""The fixtures of the command line and the API that tests of procedures share with theirs."""

from tests.orchestrator.api.conftest import client
from tests.orchestrator.cli.conftest import command, home

__all__ = ["client", "command", "home"]
