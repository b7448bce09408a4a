"""The files of the page: what is served with them, their size, their origin, and their words."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_args

import httpx2
import pytest

from orchestrator.api.admin import CheckBody
from orchestrator.api.logs import LEVELS
from orchestrator.api.machine_history import ProcessorLine
from orchestrator.api.models import Verb
from orchestrator.api.page.files import page_files, security_headers
from orchestrator.api.runs import LimitsBody
from orchestrator.memrl.routers import ROUTERS
from orchestrator.pool.status import ModelState, ServerStatus
from orchestrator.procedures.execution import State as ExecutionState
from orchestrator.procedures.execution import StepState
from orchestrator.registry.forms import ResidencyTier
from orchestrator.registry.persona import Maker
from orchestrator.run.record.attempt_prompts import PromptPart
from orchestrator.run.record.picture import PartKind
from orchestrator.task.analysis import Reason
from orchestrator.task.events import CallOutcome, Event, FailureKind, GateResult, ReplanOutcome
from orchestrator.task.modes import Mode, Priority, RunStatus
from orchestrator.task.reuse import LossCause
from orchestrator.task.states import State
from orchestrator.task.taskir.models import StepKind, TaskIR
from tests.orchestrator.api.daemon_process import Running

MAX_BYTES: Final = 150_000  # compressed
STATIC: Final = Path(str(files("orchestrator.api.page") / "static"))
VENDOR: Final = STATIC / "vendor"
VERSIONS: Final = json.loads((VENDOR / "versions.json").read_text())
SCRIPTS: Final = {path.name: path.read_text() for path in (*STATIC.glob("*.js"), STATIC.parent / "exported.js")}
BUILT: Final = (
    "state_",
    "part_",
    "event_",
    "connection_",
    "class_",
    "owner_",
    "verb_",
    "edge_",
    "kind_",
    "level_",
    "loss_",
    "limit_",
    "maker_",
    "mode_",
    "residency_",
    "router_",
    "type_",
)  # starts of keys whose rest the daemon names
ENTRY: Final = re.compile(r'"((?:\\.|[^"\\])+)": \[\s*("(?:\\.|[^"\\])+"),\s*("(?:\\.|[^"\\])+"),?\s*\]')
KEY: Final = re.compile(r'"((?:\\.|[^"\\])+)": \[')


WORDS: Final = {
    key: (json.loads(english), json.loads(german)) for key, english, german in ENTRY.findall(SCRIPTS["texts.js"])
}


def import_map() -> dict[str, dict[str, str]]:
    found = re.search(r'<script type="importmap">(.*?)</script>', (STATIC / "index.html").read_text(), re.DOTALL)
    assert found is not None
    parsed: dict[str, dict[str, str]] = json.loads(found[1])
    return parsed


def test_the_page_needs_no_token_and_has_strict_headers(daemon: Running) -> None:
    with daemon.tcp() as browser:
        answer = browser.get("/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/=]{44}'", policy["script-src"])
        assert policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        script = browser.get("/page/app.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert dict(security_headers()).items() <= {**script.headers, **security_headers()}.items()
        unchanged = browser.get("/page/app.js", headers={"If-None-Match": script.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["missing.js", "../files.py", "%2e%2e/files.py", "vendor/versions.json", "vendor/", ""]
)
def test_nothing_else_is_served(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/page/{name}").status_code in (404, 401)


def test_all_files_of_the_page_are_small_together_as_they_are_sent(daemon: Running) -> None:
    sent = 0
    with daemon.tcp(**{"Accept-Encoding": "gzip"}) as browser:
        for name, file in page_files().items():
            with browser.stream("GET", f"/page/{name}") as answer:
                packed = b"".join(answer.iter_raw())
            assert gzip.decompress(packed) == file.content, name
            sent += len(packed)
    assert sent <= MAX_BYTES
    with daemon.tcp(**{"Accept-Encoding": "identity"}) as plain:
        assert plain.get("/page/app.js").content == page_files()["app.js"].content


def test_the_page_asks_no_other_server() -> None:
    for name, file in page_files().items():
        text = file.content.decode()
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        if not name.startswith("vendor/"):
            assert not addresses, name
        assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b", text) or name == (
            "vendor/preact.js"
        ), name
        assert "dangerouslySetInnerHTML" not in text or name == "vendor/preact.js", name


def test_foreign_files_are_the_published_ones() -> None:
    assert {row["file"] for row in VERSIONS.values()} == {
        path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")
    }
    for name, row in VERSIONS.items():
        digest = hashlib.sha384((VENDOR / row["file"]).read_bytes()).digest()
        assert row["integrity"] == f"sha384-{base64.b64encode(digest).decode()}", name
        assert (VENDOR / row["licence_file"]).stat().st_size > 500


def test_the_browser_refuses_changed_foreign_files() -> None:
    places = {name: f"/page/vendor/{row['file']}" for name, row in VERSIONS.items()}
    mapped = import_map()
    index = (STATIC / "index.html").read_text()
    elements = re.findall(r'<(?:script|link) [^>]*(?:src|href)="([^"]+)" integrity="([^"]+)"', index)
    assert mapped["imports"] == {name: place for name, place in places.items() if place in mapped["integrity"]}
    assert mapped["integrity"] | dict(elements) == {places[name]: row["integrity"] for name, row in VERSIONS.items()}


def test_every_import_is_there() -> None:
    for name, text in SCRIPTS.items():
        for target in re.findall(r'from "([^"]+)"', text):
            is_there = target in VERSIONS if not target.startswith("./") else target[2:] in SCRIPTS
            assert is_there, f"{name} imports {target}"


def test_every_word_is_in_the_table_in_both_languages_and_used() -> None:
    table = SCRIPTS["texts.js"].partition("const TEXTS = {")[2].partition("\n};")[0]
    keys = set(KEY.findall(table))
    pairs = re.findall(r'\[\s*"(?:\\.|[^"\\])+",\s*"(?:\\.|[^"\\])+",?\s*\]', table)
    assert len(pairs) == len(keys), "each key has two texts"
    others = {name: text for name, text in SCRIPTS.items() if name != "texts.js"}
    text = "\n".join(others.values())
    named = set(re.findall(r'(?<![\w.])t\(\s*"([a-z_ ]+)"', text))
    listed = set(re.findall(r'"([a-z_]+)"', text))
    assert named <= keys
    assert keys <= named | listed | {key for key in keys if key.startswith(BUILT)}


def test_every_event_has_words() -> None:
    kinds = {field.default for member in get_args(Event) for field in fields(member) if field.name == "kind"}
    assert {f"event_{kind}" for kind in kinds} == {key for key in WORDS if key.startswith("event_")}


def words_of(values: Any) -> set[str]:
    """Return the values of an enumeration of strings, or of a `Literal`."""
    return {str(value) for value in (get_args(values) or values)}


def log_kinds() -> set[str]:
    """Return the kinds of entries that procedures write to their audit log."""
    sources = (path.read_text() for path in Path(str(files("orchestrator.procedures"))).glob("*.py"))
    return {kind for text in sources for kind in re.findall(r'\bappend\(\s*"([a-z_]+)", ', text)}


ENUMERATIONS: Final[tuple[tuple[str, object], ...]] = (
    ("state", State),
    ("state", RunStatus),
    ("state", FailureKind),
    ("state", CallOutcome),
    ("state", ReplanOutcome),
    ("state", GateResult.__annotations__["status"]),
    ("state", ModelState),
    ("state", ServerStatus.__annotations__["state"]),
    ("state", ExecutionState),
    ("state", StepState.__annotations__["state"]),
    ("state", CheckBody.model_fields["state"].annotation),
    ("state", {kind.replace("step_", "").replace("_", " ") for kind in log_kinds()}),
    ("part", PartKind),
    ("edge", (*get_args(Reason), "item")),
    ("mode", Mode),
    ("class", Priority),
    ("kind", StepKind),
    ("level", LEVELS),
    ("limit", LimitsBody.model_fields),
    ("loss", LossCause),
    ("maker", Maker),
    ("residency", (*get_args(ResidencyTier), "remote")),
    ("router", ROUTERS),
    ("type", TaskIR.model_fields["task_type"].annotation),
    ("verb", Verb),
    ("owner", set(ProcessorLine.model_fields) - {"engines"}),
    ("prompt", PromptPart.__annotations__["kind"]),
)


@pytest.mark.parametrize(("kind", "values"), ENUMERATIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_value_that_the_daemon_names_has_words(kind: str, values: object) -> None:
    named = {f"{kind}_{value}" for value in words_of(values)}
    assert named
    assert named <= set(WORDS), "texts.js has a text for each in both languages"
    assert all(len(WORDS[key]) == 2 for key in named)


def test_a_new_run_may_have_every_limit_that_the_api_accepts() -> None:
    listed = re.search(r"const LIMITS = (\[.*?\]);", SCRIPTS["new.js"])
    assert listed is not None
    assert set(json.loads(listed[1])) == set(LimitsBody.model_fields)
