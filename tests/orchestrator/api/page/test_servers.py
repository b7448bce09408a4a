"""The servers of a model in the view of the machine, in Chromium."""

import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, expect

from tests.orchestrator.api.daemon_process import lasting, running_daemon, submitted
from tests.orchestrator.api.page.browser import PATIENCE, link_of, visiting

expect.set_options(timeout=PATIENCE)

NOBODY = ("127.0.0.1:1", "[::1]:1")  # no server listens there


def settings_for(folder: Path, servers: list[dict[str, Any]]) -> dict[str, str]:
    """Return the settings of a daemon whose model these servers run."""
    models = {"far": {"backend": "openai", "servers": servers}}
    roles = {"worker": {"model": "far", "tier": "C"}, "frontdoor": {"model": "far", "tier": "A"}}
    registry = folder / "model_registry.yaml"
    registry.write_text(json.dumps({"models": models, "roles": roles}))
    return {"ORCHESTRATOR_REGISTRY": str(registry), "ORCHESTRATOR_MEMORY_USE": "shadow"}


def wait_for_text(client: httpx2.Client, run: str) -> None:
    """Wait until a model has written something for a run."""
    with client.stream("GET", f"/v1/runs/{run}/events") as stream:
        assert any(re.search(r'"text_tail": ?"[^"]', line) for line in stream.iter_lines())


def test_the_servers_of_a_model_are_listed_with_their_state(browser: Browser, tmp_path: Path) -> None:
    servers = [{"base_url": f"http://{name}/v1", "model": "there"} for name in NOBODY]
    settings = settings_for(tmp_path, servers)
    with running_daemon(tmp_path / "home", **settings) as daemon, daemon.client() as client:
        with visiting(browser, daemon, link_of(client)) as visit:
            visit.page.get_by_role("link", name="Machine").click()
            table = visit.page.get_by_role("region", name="Models")
            rows = [table.get_by_role("row", name=re.compile(f"^{re.escape(name)}")) for name in NOBODY]
            for row in rows:
                expect(row).to_contain_text("ready")
            chat = {"model": "far", "messages": [{"role": "user", "content": "Hello?"}]}
            assert client.post("/v1/chat/completions", json=chat).status_code >= 500
            expect(rows[0]).to_contain_text("left out for a while")


def test_an_attempt_names_its_server_while_it_runs(browser: Browser, tmp_path: Path) -> None:
    with running_daemon(tmp_path / "far", ORCHESTRATOR_MEMORY_USE="shadow") as far, ExitStack() as stack:
        server = {"base_url": f"http://127.0.0.1:{far.port}/v1", "model": "tiny-large", "api_key_env": "FAR_KEY"}
        settings = {**settings_for(tmp_path, [server]), "FAR_KEY": far.token}
        with running_daemon(tmp_path / "home", **settings) as daemon, daemon.client() as client:
            run = submitted(client, lasting())
            wait_for_text(client, run)
            far.process.send_signal(signal.SIGSTOP)  # so that the attempt cannot end
            stack.callback(far.process.send_signal, signal.SIGCONT)
            with visiting(browser, daemon, link_of(client)) as visit:
                visit.ready("h1")
                visit.go("runs", run, "steps", "S1")
                attempt = visit.page.get_by_role("article", name="Attempt 1")
                expect(attempt.locator(".facts")).to_contain_text(f"node 127.0.0.1:{far.port}")
                expect(attempt.locator(".state")).to_have_text("running")
                client.post(f"/v1/runs/{run}/cancel").raise_for_status()
                expect(attempt.locator(".state")).to_have_text("cancelled")
                expect(attempt.locator(".facts")).to_contain_text(f"node 127.0.0.1:{far.port}")
