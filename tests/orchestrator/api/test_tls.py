"""TCP is encrypted with the configured certificate, which can be renewed; one that no client accepts is refused."""

import os
import shutil
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from orchestrator.api.serve import serve
from orchestrator.api.tls import tls_context
from orchestrator.app import attached
from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.service.configuration import ServerSettings, load_configuration
from tests.orchestrator.api.certificates import TOMORROW, YESTERDAY, Pair, encrypted, self_signed
from tests.orchestrator.api.daemon_process import Running, free_port, running_daemon
from tests.orchestrator.api.forked_daemons import fork_daemon


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Certificates by name, each with its key."""
    folder = tmp_path_factory.mktemp("certificates")
    return {
        "good": self_signed(folder, "good"),
        "other": self_signed(folder, "other", subject="renewed"),
        "past": self_signed(folder, "past", YESTERDAY),
        "future": self_signed(folder, "future", TOMORROW),
        "client": self_signed(folder, "client", extensions="for_clients"),
    }


def settings(certificate: Path, key: Path) -> ServerSettings:
    """Return settings with the files of a pair."""
    return ServerSettings(tls_certificate=str(certificate), tls_key=str(key))


def trusting(pair: Pair) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts this certificate and no other."""
    return ssl.create_default_context(cafile=str(pair.certificate))


@pytest.mark.parametrize(
    ("name", "why"),
    [("past", "has expired"), ("future", "is not yet valid"), ("client", "unsuitable certificate purpose")],
)
def test_a_certificate_that_no_client_would_accept_is_refused(pairs: dict[str, Pair], name: str, why: str) -> None:
    pair = pairs[name]
    with pytest.raises(InputError, match=rf"tls_certificate of \[server\]: .*{name}\.pem: .*{why}"):
        tls_context(settings(pair.certificate, pair.key))


def test_files_that_cannot_be_used_are_named_with_the_reason(pairs: dict[str, Pair], tmp_path: Path) -> None:
    good, junk, missing = pairs["good"], tmp_path / "junk", tmp_path / "missing"
    junk.write_text("neither certificate nor key")
    tls_context(settings(good.certificate, good.key))
    for certificate, key, why in [
        (missing, good.key, r"tls_certificate of \[server\]: .*missing: cannot be read: No such file"),
        (junk, good.key, r"tls_certificate of \[server\]: .*junk: holds no certificate"),
        (good.key, good.certificate, r"tls_certificate of \[server\]: .*good\.key: holds no certificate"),
        (good.certificate, missing, r"tls_key of \[server\]: .*missing: cannot be read: No such file"),
        (good.certificate, tmp_path, r"tls_key of \[server\]: .*cannot be read: Is a directory"),
        (good.certificate, junk, r"tls_key of \[server\]: .*junk: cannot be used: it holds no key"),
        (good.certificate, pairs["other"].key, r"tls_key of \[server\]: .*other\.key: is not the key of .*good\.pem"),
        (good.certificate, encrypted(good.key), r"tls_key of \[server\]: .*good\.secret: is encrypted"),
    ]:
        with pytest.raises(InputError, match=why):
            tls_context(settings(certificate, key))


def test_the_daemon_serves_https_and_adopts_a_renewed_certificate(pairs: dict[str, Pair], tmp_path: Path) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    put(pairs["good"], used)
    files = {"ORCHESTRATOR_SERVER_TLS_CERTIFICATE": str(used.certificate), "ORCHESTRATOR_SERVER_TLS_KEY": str(used.key)}
    with running_daemon(tmp_path / "home", **files) as daemon:
        https, bearer = f"https://localhost:{daemon.port}", {"Authorization": f"Bearer {daemon.token}"}
        with httpx2.Client(base_url=https, headers=bearer, verify=trusting(pairs["good"])) as client:
            assert client.get("/v1/runs").json() == {"runs": [], "before": None}
            assert client.get("/v1/runs", headers={"Authorization": ""}).status_code == 401
        with httpx2.Client(base_url=https) as stranger, pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY"):
            stranger.get("/health/live")
        with daemon.tcp() as plain, pytest.raises(httpx2.TransportError):
            plain.get("/health/live")
        asks(daemon, trusting(pairs["good"]))

        put(pairs["other"], used)
        hang_up(daemon, "was read again")
        assert subject(daemon.port, pairs["other"]) == "renewed"
        put(pairs["past"], used)
        hang_up(daemon, "has expired")
        assert subject(daemon.port, pairs["other"]) == "renewed", "a certificate that cannot be used is not adopted"


def asks(daemon: Running, trust: ssl.SSLContext) -> None:
    """Send a request over TLS with the official client."""
    address = f"https://127.0.0.1:{daemon.port}/v1"
    with OpenAI(base_url=address, api_key=daemon.token, http_client=httpx2.Client(verify=trust)) as ai:
        answer = ai.chat.completions.create(model="worker", messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def put(pair: Pair, place: Pair) -> None:
    """Replace the files of one pair by copies of another's."""
    shutil.copy(pair.certificate, place.certificate)
    shutil.copy(pair.key, place.key)


def subject(port: int, trusted: Pair) -> str:
    """Return the subject of the daemon's certificate, which has to be trusted."""
    context = trusting(trusted)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as connection:
            certificate: Any = connection.getpeercert()
    name: str = dict(field for part in certificate["subject"] for field in part)["commonName"]
    return name


def hang_up(daemon: Running, awaited: str) -> None:
    """Send SIGHUP, and return when the log has this text."""
    os.kill(daemon.process.pid, signal.SIGHUP)
    end = time.monotonic() + 60
    while awaited not in (daemon.home / "logs" / "daemon.log").read_text():
        assert time.monotonic() < end, f"the log never says {awaited!r}"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, "can be reached by others, who could read the token; accepted: 127.0.0.1, TLS"),
        ({"TLS_CERTIFICATE": "no.pem"}, "only one of them is given"),
        ({"TLS_CERTIFICATE": "no.pem", "TLS_KEY": "no.key"}, "no.pem: cannot be read: No such file or directory"),
    ],
)
async def test_beyond_loopback_nothing_is_served_without_tls(
    tmp_path: Path, variables: dict[str, str], why: str
) -> None:
    stated = {f"ORCHESTRATOR_SERVER_{name}": text for name, text in variables.items()}
    where = {"ORCHESTRATOR_SERVER_TCP": f"0.0.0.0:{free_port()}", "HOME": str(tmp_path)}
    registry = load_registry(find_registry(environment={}))
    with pytest.raises(InputError, match=why):
        await serve(tmp_path / "home", registry, load_configuration({**where, **stated}), attached())
    assert not (tmp_path / "home").exists()


def test_a_daemon_that_may_not_be_served_ends_with_the_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = {"ORCHESTRATOR_SERVER_TCP": f"0.0.0.0:{free_port()}", "ORCHESTRATOR_HOME": str(home), "HOME": str(home)}
    with open(tmp_path / "log", "wb") as log:
        assert fork_daemon({"PATH": os.environ["PATH"], **where}, log).wait(100) == 2
    said = (tmp_path / "log").read_text()
    assert "can be reached by others, who could read the token; accepted: 127.0.0.1, TLS" in said
    assert "Traceback" not in said
    assert not home.exists()


def test_a_session_of_the_web_page_is_for_encrypted_connections_only(pairs: dict[str, Pair], tmp_path: Path) -> None:
    good = pairs["good"]
    files = {"ORCHESTRATOR_SERVER_TLS_CERTIFICATE": str(good.certificate), "ORCHESTRATOR_SERVER_TLS_KEY": str(good.key)}
    with running_daemon(tmp_path / "home", **files) as daemon, daemon.client() as local:
        link = local.post("/v1/session/links").json()["url"]
        assert link.startswith(f"https://127.0.0.1:{daemon.port}/#login=")
        origin = f"https://localhost:{daemon.port}"
        own = {"Origin": origin}
        with httpx2.Client(base_url=origin, verify=trusting(good)) as browser:
            answer = browser.post("/v1/login", json={"code": link.partition("=")[2]}, headers=own)
            assert answer.status_code == 204
            assert "secure" in answer.headers["set-cookie"].lower()
            assert browser.get("/v1/session").status_code == 200
            assert browser.delete("/v1/session", headers={"Origin": origin.replace("https", "http")}).status_code == 403
            assert browser.delete("/v1/session", headers=own).status_code == 204
