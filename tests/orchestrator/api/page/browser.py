"""Visit the page of a daemon with a real browser: Debian's Chromium, driven by Playwright."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.orchestrator.api.daemon_process import Running

FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--renderer-process-limit=1", "--in-process-gpu"),  # fewer processes start
)
# Sets `ran` when a script of a hostile text runs, and lists in `moved` what has moved without an input of the user,
# which adds up to `shift` (https://web.dev/articles/cls). `unfocused` lists what had the focus when the document as a
# whole got it. An element that is removed, disabled or hidden loses the focus at the end of a frame, perhaps without
# an event: two frames are looked at after each change.
WATCH: Final = """
window.ran = 0;
window.moved = [];
window.shift = 0;
window.unfocused = [];
let focused = null;
let frames = 0;
const watchFocus = () => {
  const now = document.activeElement;
  if (focused && (!now || now === document.body)) window.unfocused.push(focused.outerHTML);
  focused = now && now !== document.body ? now : null;
  if (--frames) requestAnimationFrame(watchFocus);
};
const changed = () => {
  if (!frames) requestAnimationFrame(watchFocus);
  frames = 2;
};
new MutationObserver(changed).observe(document, { attributes: true, childList: true, subtree: true });
for (const name of ["focusin", "focusout"]) document.addEventListener(name, changed, true);
new PerformanceObserver((list) => {
  for (const entry of list.getEntries().filter((shift) => !shift.hadRecentInput)) {
    window.shift += entry.value;
    window.moved.push(...entry.sources.map((source) => source.node?.outerHTML ?? String(source.node)));
  }
}).observe({ type: "layout-shift", buffered: true });
"""
PATIENCE: Final = 60_000  # milliseconds until what a test waits for must have happened
QUIET: Final = ("Failed to load resource",)  # what Chromium itself says about an answer with an error
HARMLESS: Final = frozenset({"minor", "moderate"})
# A layout depends on the width and contrast on the scheme. `make test-slow` tries all pairs.
SIZES: Final = pytest.mark.parametrize(
    ("width", "scheme"),
    [(360, "dark"), (1440, "light")]
    + [
        pytest.param(*pair, marks=pytest.mark.slow)
        for pair in ((360, "light"), (800, "light"), (800, "dark"), (1440, "dark"))
    ],
)


@dataclass
class Visit:
    """A page of the daemon in the browser, and what went wrong in it so far."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)
    requests: set[tuple[str, str]] = field(default_factory=set)  # methods and paths

    def go(self, *parts: str) -> None:
        self.page.evaluate("hash => { location.hash = hash }", f"#/{'/'.join(parts)}")

    def ready(self, selector: str) -> None:
        self.page.wait_for_selector(selector)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with a fresh profile. Without Chromium, the tests of the page are skipped."""
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def link_of(client: httpx2.Client) -> str:
    """Return a link that logs a browser in with the rights of a client."""
    return str(client.post("/v1/session/links").raise_for_status().json()["url"])


@contextmanager
def visiting(browser: Browser, daemon: Running, link: str, **options: Any) -> Iterator[Visit]:
    """Open the page by a link, and check at the end what `opening` checks, and that it used the public API only."""
    with daemon.client() as client:
        public = client.get("/openapi.json").json()["paths"]
    with opening(browser, link, f"http://127.0.0.1:{daemon.port}/", **options) as visit:
        yield visit
        requests = {(method, path) for method, path in visit.requests if not path.startswith(("/page/", "/favicon"))}
        requests -= {("GET", "/")}
        assert not {request for request in requests if not is_public(public, *request)}


def is_public(paths: dict[str, Any], method: str, path: str) -> bool:
    """Return whether an API's description has an operation. Parts of its paths in braces stand for anything."""
    return any(
        method.lower() in operations and re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(name)), path)
        for name, operations in paths.items()
    )


@contextmanager
def opening(browser: Browser, address: str, base: str, **options: Any) -> Iterator[Visit]:
    """Open an address, and check at the end that the page had no error and ran no script of others."""
    options = {"viewport": {"width": 1440, "height": 900}, "locale": "en-US", **options}
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(WATCH)
    visit = Visit(context.new_page(), base)

    def log(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(QUIET):
            visit.errors.append(message.text)

    visit.page.on("console", log)
    visit.page.on("request", lambda request: visit.requests.add((request.method, urlsplit(request.url).path)))
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.on("dialog", lambda dialog: visit.errors.append(f"a dialog: {dialog.message}"))
    try:
        visit.page.goto(address)
        yield visit
        assert visit.errors == []
        assert visit.page.evaluate("window.ran") == 0
    finally:
        context.close()


def check_view(visit: Visit, width: int) -> None:
    """Check that a view is no wider than the window, and that axe has no serious findings."""
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    result = Axe().run(visit.page)
    serious = [rule for rule in result.response["violations"] if rule["impact"] not in HARMLESS]
    assert not serious, json.dumps([(rule["id"], [node["html"] for node in rule["nodes"]][:3]) for rule in serious])
