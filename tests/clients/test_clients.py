"""Trying clients: what is judged and written, and the real thing with the clients that the other tests have, too."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.clients import report
from tests.clients.environments import NODE, NotInstalled, command, lock_file
from tests.clients.suite import ABILITIES, CLIENTS, Ability, Client, find
from tests.clients.trial import CALLS, Cell, Row, Served, attempt, attempt_with, judged
from tests.orchestrator.api.daemon_process import Running
from tests.orchestrator.api.tool_calling import RESULT, SYNTAXES, tool_calling_daemon

PYTHON = [client for client in CLIENTS if client.language == "Python"]
TRIED = {
    "openai_python": ("chat", "structured", "embeddings", "tools"),
    "anthropic_python": ("chat", "stream", "structured", "embeddings"),
}
"""What the tool caller can be asked by a client: its answers are so short that they may come in one piece."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with tool_calling_daemon(tmp_path_factory.mktemp("clients")) as running:
        yield running


def abilities(program: str) -> list[Ability]:
    """Return the abilities of a client that can be tried with the tool caller alone."""
    models = {"smollm2": "hermes"}
    found = [Ability(one.name, one.function, models.get(one.model, one.model)) for one in ABILITIES]
    return [one for one in found if one.function in TRIED[program]]


@pytest.mark.parametrize(
    "program", [pytest.param(one, marks=[pytest.mark.slow] if one == "anthropic_python" else []) for one in TRIED]
)
async def test_a_client_does_what_it_can(daemon: Running, program: str) -> None:
    (client,) = find([program])
    at = Served(daemon, frozenset((*SYNTAXES, "embedder")), 0)
    told = [sys.executable, "-m", "programs.drive", program]
    row = await attempt_with(told, client, at, abilities(program))
    lacks = {"embeddings"} if program == "anthropic_python" else set()
    assert {name: cell.outcome for name, cell in row.cells.items()} == {
        one.name: "lacks" if one.function in lacks else "works" for one in abilities(program)
    }, row.cells
    assert row.versions.keys() == {client.name}


async def test_what_ends_or_is_not_there_is_told(daemon: Running, tmp_path: Path) -> None:
    at = Served(daemon, frozenset(SYNTAXES), 0)
    (client,) = find(["openai_python"])
    row = await attempt(client, at, tmp_path)
    assert {cell.outcome for cell in row.cells.values()} == {"absent"}
    assert all("is missing" in cell.detail for cell in row.cells.values())
    ended = await attempt_with([sys.executable, "-c", "raise SystemExit('no client')"], client, at, ABILITIES)
    assert {cell.detail for cell in ended.cells.values()} == {"its program does not start: no client"}
    stops = """print('{"versions": {"x": "1"}}', flush=True); input()"""
    stopped = await attempt_with([sys.executable, "-c", stops], client, at, ABILITIES)
    outcomes = {name: cell.outcome for name, cell in stopped.cells.items()}
    assert outcomes == {one.name: "fails" if one.model in SYNTAXES else "absent" for one in ABILITIES}


@pytest.mark.parametrize(
    ("function", "answer", "outcome"),
    [
        ("chat", {"value": "Paris."}, "works"),
        ("chat", {"value": " "}, "fails"),
        ("chat", {"value": None}, "fails"),
        ("stream", {"value": ["Par", "is."]}, "works"),
        ("stream", {"value": ["", "Paris."]}, "fails"),
        ("stream", {"value": ["Lon", "don."]}, "fails"),
        ("structured", {"value": {"name": "Ann", "age": 34}}, "works"),
        ("structured", {"value": {"name": "Ann", "age": 34, "more": 1}}, "fails"),
        ("structured", {"value": {"name": "Ann"}}, "fails"),
        ("embeddings", {"value": [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]}, "works"),
        ("embeddings", {"value": [[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]]}, "fails"),
        ("embeddings", {"value": [[1.0], [1.0], [1.0]]}, "fails"),
        ("tools", {"value": RESULT, "calls": CALLS}, "works"),
        ("tools", {"value": RESULT, "calls": CALLS[:1]}, "fails"),
        ("tools", {"value": "I do not know.", "calls": CALLS}, "fails"),
        ("tools", {"error": "KeyError: 'x'", "calls": CALLS}, "fails"),
        ("cancel", {"value": {"read": 5, "written": 9, "long": 100}}, "works"),
        ("cancel", {"value": {"read": 5, "written": 60, "long": 100}}, "fails"),
        ("cancel", {"value": {"read": 0, "written": 9, "long": 100}}, "fails"),
        ("cancel", {"lacks": "no"}, "lacks"),
        ("cancel", {"absent": "no model"}, "absent"),
    ],
)
def test_an_answer_is_judged(function: str, answer: dict[str, Any], outcome: str) -> None:
    found = judged(function, answer, "Paris.")
    assert found.outcome == outcome
    assert bool(found.detail) == (outcome != "works")


def test_every_client_has_a_program_and_exact_versions() -> None:
    folder = NODE.parent / "programs"
    shared = {"case", "drive", "person", "tools"}
    assert {one.program for one in PYTHON} | shared == {file.stem for file in folder.glob("*.py")}
    for client in PYTHON:
        pinned = dict(line.split("==") for line in lock_file(client).read_text().splitlines())
        wanted = [package.split(">=")[0].split("[")[0] for package in client.packages]
        assert pinned.keys() >= {*wanted}
    assert {lock_file(one) for one in PYTHON} == {*(NODE.parent / "locks").iterdir()}
    lock = json.loads((NODE / "package-lock.json").read_text())["packages"]
    wanted_for_node = json.loads((NODE / "package.json").read_text())["dependencies"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted_for_node} == wanted_for_node
    for client in CLIENTS:
        if client.language == "Node":
            assert (NODE / f"{client.program}.mjs").exists()


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="is missing"):
        command(PYTHON[0], tmp_path)
    with pytest.raises(KeyError):
        find(["nothing"])


def test_the_page_tells_what_fails_and_what_was_not_tried() -> None:
    absent = {ability.name: Cell("absent", "no network") for ability in ABILITIES}
    works = {ability.name: Cell("works") for ability in ABILITIES}
    rows = [
        Row("one", "Python", {"one": "1.2", "other": "3"}, {**works, "chat": Cell("fails", "it\nfails")}),
        Row("two", "Node", {}, absent),
        Row("three", "Node", {"three": "1"}, {**works, "embeddings": Cell("lacks", "it has none")}),
    ]
    found = report.document([asdict(row) for row in rows])
    text = report.page(json.loads(json.dumps(found)))
    assert "| one | 1.2 | **fails** | yes |" in text
    assert "- one, chat: it fails\n" in text
    assert f"- two, {', '.join(absent)}: no network\n" in text
    assert [goal["met"] for goal in found["goals"]] == [False, False]
    assert found["count"] == {"works": 12, "fails": 1, "lacks": 1, "absent": 7}


def test_the_page_is_that_of_the_results() -> None:
    found = report.read()
    assert report.page(found) == report.PAGE.read_text()
    assert [row["client"] for row in found["rows"]] == [client.name for client in CLIENTS]
    tried = {(row["client"], name) for row in found["rows"] for name in row["cells"]}
    assert tried == {*product([one.name for one in CLIENTS], [one.name for one in ABILITIES])}
    assert report.goal_lines(found)[0].split() == "met abilities that fail: 0 (goal: = 0)".split()


def test_programs_have_what_is_tried() -> None:
    functions = {ability.function for ability in ABILITIES}
    for client in CLIENTS:
        suffix, folder = (".py", "programs") if client.language == "Python" else (".mjs", "node")
        text = (NODE.parent / folder / f"{client.program}{suffix}").read_text()
        for function in functions:
            assert (
                f"def {function}(" in text or f"function {function}(" in text or f"{function}" in _lacks(client, text)
            )


def _lacks(client: Client, text: str) -> str:
    """Return the part of a program that says what the client does not have."""
    begin = text.index("LACKS")
    return text[begin : text.index("}", begin)]
