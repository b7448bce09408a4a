"""The page of the command line in the documentation is what the commands say of themselves."""

from orchestrator.cli.reference import reference
from tests.orchestrator.cli.cli_command import ROOT


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "run `python -m orchestrator.cli.reference > docs/cli.md`"


def test_every_command_and_option_has_help() -> None:
    for line in reference().splitlines():
        words = line.split()
        assert not (line.startswith("  --") and len(words) == 1), f"{line!r} has no help"
