"""The page of the command line in the documentation is what the commands say of themselves."""

import re

from orchestrator.service.permissions import COMMANDS, undeclared
from tests.orchestrator.cli.cli_command import ROOT
from tools.reference.commands import page


def test_the_page_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert committed == page(), "run `python -m tools.reference cli > docs/cli.md`"


def test_every_command_and_option_has_help() -> None:
    for line in page().splitlines():
        words = line.split()
        assert not (line.startswith("  --") and len(words) == 1), f"{line!r} has no help"


def test_every_command_declares_its_permission() -> None:
    titles = re.findall(r"^## (.*)$", page(), re.MULTILINE)
    groups = {title.rpartition(" ")[0] for title in titles}
    assert undeclared([title for title in titles if title not in groups], COMMANDS) == []
