"""How much a command imports, counted in modules, and what the list of commands says of commands it did not import."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from orchestrator.app import command_line
from orchestrator.cli.models import app as models_app
from orchestrator.cli.on_demand import GroupOnDemand
from orchestrator.cli.root import CommandPlace
from orchestrator.memrl.commands import app as memory_app
from tests.orchestrator.cli.cli_command import RECORDS

ATTACHED = ("orchestrator.memrl", "orchestrator.procedures")
HEAVY = (
    "numpy",
    "faiss",
    "fastapi",
    "llama_cpp",
    "huggingface_hub",
    "mcp",
    "kuzu",
    "ladybug",
    "opentelemetry",
    "requests",
)


def imported(home: Path, *arguments: str) -> list[str]:
    """Return the modules that a process of the command line imports."""
    command = [sys.executable, "-X", "importtime", "-m", "orchestrator", "--home", str(home), *arguments]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    return [line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")]


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (("--help",), 240),
        (("--version",), 345),
        (("no-such-command",), 345),
        (("pool",), 460),
        (("runs",), 380),
        (("show", "last"), 420),
        (("submit", "Do it."), 465),
        (("rate", "last", "good"), 465),
    ],
)
def test_a_command_imports_little(tmp_path: Path, arguments: tuple[str, ...], most: int) -> None:
    modules = imported(tmp_path, *arguments)
    assert "orchestrator.cli.on_demand" in modules, "the modules were counted"
    assert len(modules) <= most
    assert not {module.partition(".")[0] for module in modules} & {*HEAVY}
    assert not [module for module in modules if module.startswith(ATTACHED)]


@pytest.mark.parametrize("arguments", [("runs",), ("show", "last"), ("result", "last")])
def test_a_command_that_only_reads_imports_nothing_of_what_runs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    modules = {module.partition(".")[0] for module in imported(tmp_path, *arguments)}
    assert not modules & {"asyncio", "structlog", "jsonschema", "psutil", "yaml"}


def test_a_request_about_something_else_imports_nothing_of_what_executes_procedures(tmp_path: Path) -> None:
    modules = imported(tmp_path, "run", "Summarize a", "--dir", str(RECORDS))
    parts = {module.removeprefix("orchestrator.procedures.") for module in modules if module.startswith(ATTACHED[1])}
    assert "planner" in parts, "the request was planned"
    assert parts <= {ATTACHED[1], "attachment", "errors", "library", "planner"}


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def _group(application: typer.Typer) -> tuple[GroupOnDemand, dict[str, CommandPlace]]:
    group = typer.main.get_group(application)
    assert isinstance(group, GroupOnDemand)
    return group, dict(group.places)


@pytest.mark.parametrize("application", [command_line(), models_app, memory_app])
def test_the_list_of_commands_says_what_the_commands_say(application: typer.Typer) -> None:
    group, places = _group(application)
    assert places
    for name, place in places.items():
        command = group.commands[name]
        assert _first_sentence(command.help) == place.help, name


def test_the_help_lists_all_commands_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line()(["--help"])
    listed = [
        line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line[:3].strip()
    ]
    assert listed == [*_group(command_line())[1]]
    assert listed[listed.index("personas") + 1] == "memory"
    assert listed[listed.index("vacuum") + 1] == "procedures"
