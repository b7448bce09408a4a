"""The page of fields, settings and routes in the documentation is what the code says of them."""

import re
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.cluster.listening import ADDRESS
from orchestrator.service.configuration import Configuration, variable
from orchestrator.service.permissions import ROUTES, by_name
from tools.reference.fields import page
from tools.reference.tables import anchor

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("orchestrator", "registry", "memrl", "procedures")
INTERNAL = {ADDRESS}  # set by one process of ours for another


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def test_the_page_is_up_to_date(text: str) -> None:
    committed = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert committed == text, "run `python -m tools.reference fields > docs/reference.md`"


def test_every_key_and_route_has_a_meaning(text: str) -> None:
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 250
    assert [row for row in rows if not row[-1].strip() or row[-1].startswith("| ")] == []


def test_links_lead_to_one_heading_of_the_page(text: str) -> None:
    anchors = Counter(map(anchor, re.findall(r"^#+ (.*)$", text, re.MULTILINE)))
    assert {name for name, count in anchors.items() if count > 1} == set()
    assert {*re.findall(r"\]\(#([^)]*)\)", text)} <= anchors.keys()


def test_every_route_is_on_the_page_with_its_permission(text: str) -> None:
    for route, need in by_name(ROUTES).items():
        long = re.sub(" /", " /v1/", route, count=1)
        if long not in by_name(ROUTES) or route == "GET /health":
            assert f"| `{route.replace(':path', '')}` | `{need}` |" in text, route


def test_every_environment_variable_is_on_the_page(text: str) -> None:
    sections = Configuration.model_fields.items()
    settings = {variable(name, key) for name, field in sections for key in field.annotation.model_fields}  # type: ignore[union-attr]
    named = {
        name
        for package in PRODUCT
        for file in (ROOT / package).rglob("*.py")
        for name in re.findall(r'"(ORCHESTRATOR_[A-Z_]*[A-Z])"', file.read_text(encoding="utf-8"))
    }
    assert {"ORCHESTRATOR_HOME", "ORCHESTRATOR_REGISTRY"} <= named
    assert {name for name in named - settings - INTERNAL if f"| `{name}` |" not in text} == set()
