"""A page whose connection breaks: it continues after the last event that it has seen, and says what happened."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import httpx2
from playwright.sync_api import Browser, Page, expect

from tests.orchestrator.api.daemon_process import Running, executed, finished, lasting, submitted, summary
from tests.orchestrator.api.page.browser import PATIENCE, link_of, visiting

PIECE: Final = 1 << 16
LAST_SEEN: Final = re.compile(rb"last-event-id: (\d+)", re.IGNORECASE)

expect.set_options(timeout=PATIENCE)


class Relay:
    """Forwards connections to a port, until it is cut off; keeps what browsers have sent."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = True
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.sent = b""
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break all connections, and each new one at once, until `restore`."""
        with self._lock:
            self._open = False
            for end in self._pairs:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        with self._lock:
            self._open = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._open:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._pairs |= {near, far}
            ends = [threading.Thread(target=self._copy, args=pair) for pair in ((near, far, True), (far, near, False))]
            self._threads += ends
            for thread in ends:
                thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bool) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                if kept:
                    self.sent += data
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._pairs.discard(source)
        source.close()


@contextmanager
def relayed(daemon: Running) -> Iterator[Relay]:
    relay = Relay(daemon.port)
    try:
        yield relay
    finally:
        relay.close()


def through(relay: Relay, link: str) -> str:
    return re.sub(r":\d+/", f":{relay.port}/", link, count=1)


def test_a_lost_connection_misses_and_repeats_no_event(
    browser: Browser, daemon: Running, client: httpx2.Client
) -> None:
    run = submitted(client, lasting())
    with relayed(daemon) as relay, visiting(browser, daemon, through(relay, link_of(client))) as visit:
        page = visit.page
        visit.ready("h1")
        visit.go("runs", run)
        page.get_by_text("What happened").click()
        expect(page.locator(".events li[data-number='3']")).to_be_visible()
        relay.cut()
        expect(page.locator(".connection")).to_have_text("Connection lost, it is tried again")
        seen = [int(number or 0) for number in _numbers(page.locator(".events li"))]
        client.post(f"/v1/runs/{run}/cancel")  # while nobody hears of it
        finished(client, run)
        relay.sent = b""
        relay.restore()
        expect(page.locator(".head .state").first).to_have_text("cancelled")
        count = sum(line.startswith("id: ") for line in client.get(f"/v1/runs/{run}/events").text.splitlines())
        expect(page.locator(".events li")).to_have_count(count)
        assert _numbers(page.locator(".events li")) == [str(number) for number in range(1, count + 1)]
        assert count > len(seen)
        assert LAST_SEEN.search(relay.sent) is not None, "the page says which event it has seen last"
        assert int(LAST_SEEN.findall(relay.sent)[0]) == seen[-1]


def _numbers(lines: object) -> list[str]:
    return list(lines.evaluate_all("items => items.map((item) => item.dataset.number)"))  # type: ignore[attr-defined]


def test_a_daemon_that_has_gone_is_said_to_have(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    with relayed(daemon) as relay, visiting(browser, daemon, through(relay, link_of(client))) as visit:
        page = visit.page
        visit.ready("h1")
        relay.cut()
        with page.expect_event("requestfailed", lambda request: "anything" in request.url):
            page.get_by_label("Search").fill("anything")
        expect(page.get_by_role("alert")).to_contain_text("orchestrator serve")
        with page.expect_event("requestfailed", lambda request: "anything" in request.url):
            page.get_by_role("button", name="Try again").click()
        relay.restore()
        expect(page.get_by_role("alert")).to_have_count(0)  # the page tries again by itself


def test_a_session_that_has_ended_asks_for_a_login(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    with visiting(browser, daemon, link_of(client)) as visit:
        visit.ready("h1:has-text('Runs')")
        visit.page.context.clear_cookies()  # the page looks for new runs by itself
        expect(visit.page.get_by_role("heading", name="You are not logged in")).to_be_visible()


def test_a_page_that_nobody_sees_holds_no_connection(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    with visiting(browser, daemon, link_of(client)) as visit:
        page = visit.page
        visit.ready("h1")
        visit.go("runs", run)
        page.get_by_text("What happened").click()
        expect(page.locator(".events li[data-number='3']")).to_be_visible()
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
            hide(page, True)
        count_before = len(_numbers(page.locator(".events li")))
        client.post(f"/v1/runs/{run}/cancel")  # while nobody looks
        finished(client, run)
        with page.expect_request(lambda request: request.url.endswith("/events")) as again:
            hide(page, False)
        assert int(again.value.headers["last-event-id"]) >= count_before
        count = sum(line.startswith("id: ") for line in client.get(f"/v1/runs/{run}/events").text.splitlines())
        expect(page.locator(".events li")).to_have_count(count)
        assert _numbers(page.locator(".events li")) == [str(number) for number in range(1, count + 1)]


def test_a_stream_that_is_refused_is_not_live(browser: Browser, daemon: Running, client: httpx2.Client) -> None:
    run = submitted(client, lasting())
    with visiting(browser, daemon, link_of(client)) as visit:
        page, refusal = visit.page, {"error": {"message": "no more streams"}}
        visit.ready("h1")
        page.route("**/events", lambda route: route.fulfill(status=403, json=refusal))
        visit.go("runs", run)
        expect(page.get_by_role("alert")).to_contain_text("no more streams")
        expect(page.locator(".connection")).to_have_text("No longer live")
        page.unroute("**/events")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".connection")).to_have_text("Live")
        expect(page.get_by_role("alert")).to_have_count(0)
        client.post(f"/v1/runs/{run}/cancel")
        finished(client, run)


def test_the_list_gets_new_runs_while_somebody_sees_it(
    browser: Browser, daemon: Running, client: httpx2.Client
) -> None:
    first = executed(client, summary())["run_id"]
    with visiting(browser, daemon, link_of(client)) as visit:
        page = visit.page
        expect(page.locator(f"a[href='#/runs/{first}']")).to_be_visible()  # all runs have ended
        second = executed(client, summary())["run_id"]
        expect(page.locator(f"a[href='#/runs/{second}']")).to_be_visible()
        hide(page, True)
        third = executed(client, summary())["run_id"]
        hide(page, False)
        expect(page.locator(f"a[href='#/runs/{third}']")).to_be_visible()


def hide(page: Page, hidden: bool) -> None:
    """Have the page believe that nobody sees it, or that somebody does again; windows without a screen never say so."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )
