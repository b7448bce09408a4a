"""The servers of a model in the view of the machine, in Chromium."""

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.orchestrator.api.daemon_process import running_daemon
from tests.orchestrator.api.page.browser import link_of, visiting

NOBODY = ("127.0.0.1:1", "[::1]:1")  # no server listens there


def test_the_servers_of_a_model_are_listed_with_their_state(browser: Browser, tmp_path: Path) -> None:
    servers = [{"base_url": f"http://{name}/v1", "model": "there"} for name in NOBODY]
    models = {"far": {"backend": "openai", "servers": servers}}
    roles = {"worker": {"model": "far", "tier": "C"}, "frontdoor": {"model": "far", "tier": "A"}}
    registry = tmp_path / "model_registry.yaml"
    registry.write_text(json.dumps({"models": models, "roles": roles}))
    settings = {"ORCHESTRATOR_REGISTRY": str(registry), "ORCHESTRATOR_MEMORY_USE": "shadow"}
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
