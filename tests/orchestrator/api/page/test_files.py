"""The files of the page: what is served with them, their size, their origin, and their words."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Final, get_args

import httpx2
import pytest

from orchestrator.api.page.files import page_files, security_headers
from orchestrator.task.events import Event
from orchestrator.task.modes import RunStatus
from orchestrator.task.states import State
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
)  # starts of keys whose rest the daemon names
KEY: Final = re.compile(r'"((?:\\.|[^"\\])+)": \[')


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
    assert {row["file"] for row in VERSIONS.values()} == {path.name for path in VENDOR.glob("*.js")}
    for name, row in VERSIONS.items():
        digest = hashlib.sha384((VENDOR / row["file"]).read_bytes()).digest()
        assert row["integrity"] == f"sha384-{base64.b64encode(digest).decode()}", name
        assert (VENDOR / row["licence_file"]).stat().st_size > 500


def test_the_browser_refuses_changed_foreign_files() -> None:
    places = {name: f"/page/vendor/{row['file']}" for name, row in VERSIONS.items()}
    assert import_map() == {
        "imports": places,
        "integrity": {places[name]: row["integrity"] for name, row in VERSIONS.items()},
    }


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


def test_every_state_and_event_has_words() -> None:
    keys = set(KEY.findall(SCRIPTS["texts.js"]))
    kinds = {field.default for member in get_args(Event) for field in fields(member) if field.name == "kind"}
    assert {f"event_{kind}" for kind in kinds} == {key for key in keys if key.startswith("event_")}
    assert {f"state_{state}" for state in (*State, *get_args(RunStatus))} <= keys
