import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from orchestrator.pool.remote.breaker import CLOSED, Breaker
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import ModelEntry, Registry
from tests.orchestrator.pool.remote.server_answers import KEY, VARIABLE
from tests.orchestrator.pool.remote.server_play import Remote

EntryOf = Callable[..., ModelEntry]
Opened = Callable[..., AbstractAsyncContextManager[RemoteModel]]
RemoteRegistry = Callable[..., Registry]
SERVER = Path(__file__).parent / "openai_server.py"


@pytest.fixture(scope="module")
def server_port() -> Iterator[int]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(SERVER)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture
def remote(server_port: int, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setenv(VARIABLE, KEY)
    return Remote(server_port)


@pytest.fixture
def remote_registry(tmp_path: Path) -> RemoteRegistry:
    """Load a registry with one remote model, `far`, and a worker and a frontdoor that use it."""

    def load(url: str, **options: object) -> Registry:
        server = {} if "servers" in options else {"base_url": url, "model": "served-name", "api_key_env": VARIABLE}
        entry = {"backend": "openai", **server, **options}
        path = tmp_path / "model_registry.yaml"
        roles = {"worker": {"model": "far", "tier": "C"}, "frontdoor": {"model": "far", "tier": "A"}}
        path.write_text(json.dumps({"models": {"far": entry}, "roles": roles}))
        return load_registry(path)

    return load


@pytest.fixture
def entry_of(remote_registry: RemoteRegistry) -> EntryOf:
    """Return the registry's entry of a remote model."""
    return lambda url, **options: remote_registry(url, **options).models["far"]


@pytest.fixture
def opened(remote: Remote, entry_of: EntryOf) -> Opened:
    """Open the remote model, with no pause between tries; it is closed at the end of the block."""

    @asynccontextmanager
    async def open_it(
        *, url: str | None = None, breaker: Breaker = CLOSED, **options: object
    ) -> AsyncIterator[RemoteModel]:
        entry = entry_of(url or remote.url, **options)
        model = RemoteModel(entry, entry.servers[0], breaker=breaker, chance=lambda: 0.0)
        try:
            yield model
        finally:
            await model.close()

    return open_it
