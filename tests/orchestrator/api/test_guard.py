"""Which requests are accepted, over TCP and over the socket: by token, host, origin and size."""

import stat
from pathlib import Path

import httpx2
import pytest

from orchestrator.api.auth import given_token, load_or_create_token, load_tokens
from orchestrator.api.guard import accepts_origin
from orchestrator.api.runs import RunBody, job_from
from orchestrator.app import attached
from orchestrator.errors import InputError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home
from orchestrator.service.callers import Access
from orchestrator.service.configuration import Configuration, RunSettings, ServerSettings
from tests.orchestrator.api.daemon_process import Running, executed, finished, summary


def test_tcp_needs_the_token(daemon: Running) -> None:
    right = {"Authorization": f"Bearer {daemon.token}"}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {daemon.token}"}):
        with daemon.tcp(**headers) as client:
            answer = client.get("/v1/runs")
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] == "authentication_error"
    with daemon.tcp(**right) as client:
        assert client.get("/v1/runs").status_code == 200
    with daemon.tcp() as client:
        assert client.get("/health/live").status_code == 200


def test_a_request_for_another_host_or_from_a_foreign_page_is_refused(daemon: Running) -> None:
    token = {"Authorization": f"Bearer {daemon.token}"}
    with daemon.tcp(**token) as client:
        assert client.get("/v1/runs", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/v1/runs", headers={"Origin": "https://evil.example"}).status_code == 403
    with daemon.client() as client:
        assert client.get("/v1/runs", headers={"Host": "evil.example"}).status_code == 421


def test_pages_of_any_origin_are_accepted_where_the_setting_says_so() -> None:
    page = "https://page.example"
    assert not accepts_origin(page, ServerSettings())
    assert accepts_origin(page, ServerSettings(origins=(page,)))
    assert accepts_origin(page, ServerSettings(origins=("*",)))


def test_a_run_submitted_over_tcp_may_not_name_a_folder(daemon: Running) -> None:
    with daemon.tcp(Authorization=f"Bearer {daemon.token}") as client:
        answer = client.post("/v1/runs", json={"request": "List the files.", "directory": "/etc"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "directory"


def test_a_run_retried_over_tcp_may_not_keep_its_folder(daemon: Running) -> None:
    with daemon.client() as local, daemon.tcp(Authorization=f"Bearer {daemon.token}") as remote:
        run = executed(local, summary())["run_id"]
        answer = remote.post(f"/v1/runs/{run}/retry")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "directory"
        again = local.post(f"/v1/runs/{run}/retry")
        assert again.status_code == 201
        assert finished(local, again.json()["run_id"])["status"] == "done"


def test_the_links_of_a_folder_named_over_tcp_are_resolved_when_it_is_checked(tmp_path: Path) -> None:
    (tmp_path / "allowed" / "real").mkdir(parents=True)
    (tmp_path / "allowed" / "link").symlink_to("real")
    (tmp_path / "allowed" / "out").symlink_to("/etc")
    registry = load_registry(find_registry(environment={}))
    configuration = Configuration(runs=RunSettings(folders=(str(tmp_path / "allowed"),)))
    service = attached().service(tmp_path / "home", registry, configuration)

    def folder(name: str, *, local: bool, words: tuple[str, ...] = ("owner",)) -> Path | None:
        body = RunBody(request="List the files.", directory=str(tmp_path / "allowed" / name))
        return job_from(body, service, Access("user:ann", words=words, local=local), None).directory

    assert folder("link", local=False) == tmp_path.resolve() / "allowed" / "real"
    assert folder("link", local=True) == tmp_path / "allowed" / "link"
    for local, words in ((False, ("owner",)), (True, ("operator",))):
        with pytest.raises(InputError, match="may not be used by this caller"):
            folder("out", local=local, words=words)


def test_a_body_that_is_too_large_is_refused_with_and_without_a_content_length(client: httpx2.Client) -> None:
    large = b'{"request": "' + b"x" * (17 << 20) + b'"}'
    assert client.post("/v1/runs", content=large).status_code == 413
    pieces = (large[at : at + (1 << 20)] for at in range(0, len(large), 1 << 20))
    try:
        assert client.post("/v1/runs", content=pieces).status_code == 413
    except httpx2.WriteError:
        pass  # the daemon has closed the connection before all of it was sent
    assert client.get("/health/live").is_success


def test_only_the_owner_can_use_the_socket_and_read_the_token(daemon: Running) -> None:
    for path in (Home(daemon.home).socket, daemon.home / "api.token"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_is_made_once_and_others_must_not_read_it(tmp_path: Path) -> None:
    token = load_or_create_token(tmp_path)
    assert load_or_create_token(tmp_path) == token
    (tmp_path / "api.token").chmod(0o644)
    with pytest.raises(JournalError, match="0600"):
        load_or_create_token(tmp_path)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer tok", "bearer token2", "token", "Basic token", "Bearer tök\xff"]
)
def test_only_a_bearer_header_with_the_token_is_authorized(header: str | None) -> None:
    tokens = {"": "token", "ann": "another token"}
    assert given_token("Bearer token", tokens) == ""
    assert given_token("Bearer another token", tokens) == "ann"
    assert given_token(header, tokens, "token") == "", "Anthropic's clients send the token as x-api-key"
    assert given_token(header, tokens, "other") is None
    assert given_token(header, tokens) is None


def test_named_tokens_are_read_from_their_files(tmp_path: Path) -> None:
    file = tmp_path / "ann.token"
    with pytest.raises(JournalError, match="the token ann cannot be read"):
        load_tokens(tmp_path, {"ann": str(file)})
    file.write_text("a-token-of-more-than-twenty-characters\n")
    file.chmod(0o644)
    with pytest.raises(JournalError, match="0600"):
        load_tokens(tmp_path, {"ann": str(file)})
    file.chmod(0o600)
    assert load_tokens(tmp_path, {"ann": str(file)})["ann"] == "a-token-of-more-than-twenty-characters"
