"""What belongs to one caller is unknown to others: two tokens with the same rights, for each kind of object."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from orchestrator.service.callers import user_key
from tests.orchestrator.api.callers import client_of, daemon_with, token_of
from tests.orchestrator.api.daemon_process import Running, executed, finished, lasting, submitted
from tests.orchestrator.api.test_mcp import asked, over_tcp, refused, sdk, small, taking_tasks

USUAL = "read:own submit teach"
CHAT = {"model": "auto", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
UNKNOWN = "0" * 24


@dataclass(frozen=True)
class Clients:
    """Clients of callers with the same rights, of one who sees everything, and of one who may change it as well."""

    ann: httpx2.Client
    ben: httpx2.Client
    auditor: httpx2.Client
    operator: httpx2.Client


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    callers = {"ann": USUAL, "ben": USUAL, "auditor": "read:all submit", "operator": "operator"}
    with daemon_with(tmp_path_factory.mktemp("own"), callers, ORCHESTRATOR_MEMORY_USE="shadow") as running:
        yield running


@pytest.fixture(scope="module")
def clients(daemon: Running) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(*(stack.enter_context(client_of(daemon, name)) for name in Clients.__dataclass_fields__))


@pytest.fixture(scope="module")
def run(clients: Clients) -> str:
    """A run of ann's that has ended."""
    return str(executed(clients.ann, small())["run_id"])


def assert_unknown(client: httpx2.Client, method: str, path: str, name: str, unknown: str, **more: Any) -> None:
    """Assert that a request about an object of another caller is answered as one about an object that is not there."""
    answers = [client.request(method, path.format(one), **more) for one in (name, unknown)]
    assert answers[0].status_code == 404, answers[0].text
    assert answers[0].status_code == answers[1].status_code
    assert answers[0].text.replace(name, "ID") == answers[1].text.replace(unknown, "ID")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs/{}"),
        ("GET", "/v1/runs/{}/result"),
        ("GET", "/v1/runs/{}/artifacts"),
        ("GET", "/v1/runs/{}/artifacts/s"),
        ("GET", "/v1/runs/{}/diff"),
        ("GET", "/v1/runs/{}/export"),
        ("GET", "/v1/runs/{}/trace"),
        ("GET", "/v1/runs/{}/events"),
        ("GET", "/v1/memory/runs/{}"),
        ("GET", "/v1/runs?before={}"),
        ("POST", "/v1/runs/{}/cancel"),
        ("POST", "/v1/runs/{}/resume"),
        ("POST", "/v1/runs/{}/retry"),
        ("POST", "/v1/runs/{}/ratings"),
        ("DELETE", "/v1/runs/{}"),
    ],
)
def test_the_run_of_another_caller_is_unknown(clients: Clients, run: str, method: str, path: str) -> None:
    more: dict[str, Any] = {"json": {"score": 1}} if path.endswith("ratings") else {}
    assert_unknown(clients.ben, method, path, run, "19700101-000000-00000000", **more)
    seen = clients.auditor.request(method, path.format(run), **more)
    if method == "GET":
        assert seen.is_success
    else:
        assert seen.status_code == 403
        assert "to what belongs to others" in seen.text or "permission teach" in seen.text


def test_the_picture_of_a_run_says_who_may_change_it(clients: Clients, run: str) -> None:
    def may_change(client: httpx2.Client) -> bool:
        return bool(client.get(f"/v1/runs/{run}/picture").raise_for_status().json()["may_change"])

    assert [may_change(client) for client in (clients.ann, clients.operator, clients.auditor)] == [True, True, False]


def test_each_caller_lists_its_own_runs(clients: Clients, run: str, daemon: Running) -> None:
    def listed(client: httpx2.Client) -> dict[str, str]:
        return {one["run_id"]: one["owner"] for one in client.get("/v1/runs").json()["runs"]}

    own = submitted(clients.ben, small())
    finished(clients.ben, own)
    with daemon.client() as socket:
        here = submitted(socket, small())
        assert {run: "token:ann", own: "token:ben", here: user_key()}.items() <= listed(socket).items()
    assert set(listed(clients.ben).values()) == {"token:ben"}
    assert run in listed(clients.ann)
    assert {run, own, here} <= listed(clients.auditor).keys()


def test_an_idempotency_key_is_of_its_caller(clients: Clients) -> None:
    key = {"Idempotency-Key": "the same"}
    first = clients.ann.post("/v1/runs", json=small(), headers=key)
    assert clients.ann.post("/v1/runs", json=small(), headers=key).json()["run_id"] == first.json()["run_id"]
    assert clients.ann.post("/v1/runs", json=lasting(), headers=key).status_code == 409
    for body in (small(), lasting()):
        other = clients.ben.post("/v1/runs", json=body, headers=key)
        assert other.status_code == (201 if body == small() else 409)
        assert other.json().get("run_id") != first.json()["run_id"]
        assert first.json()["run_id"] not in other.text


def test_the_artifacts_of_another_caller_are_no_inputs(clients: Clients, run: str) -> None:
    task = {**small()["task"], "task_id": "the-task-of-ann"}
    executed(clients.ann, {"task": task})
    for name in (run, "the-task-of-ann", "19700101-000000-00000000"):
        for body in ({**small(), "prior_task_ids": [name]}, {"task": {**task, "context": {"prior_task_ids": [name]}}}):
            answer = clients.ben.post("/v1/runs", json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["problems"][0]["what"] == f"there is no run {name!r}"
    assert clients.ann.post("/v1/runs", json={**small(), "prior_task_ids": [run]}).status_code == 201
    assert clients.auditor.post("/v1/runs", json={**small(), "prior_task_ids": ["the-task-of-ann"]}).status_code == 201


def test_whoever_repeats_a_run_owns_the_repetition(clients: Clients, run: str) -> None:
    again = clients.operator.post(f"/v1/runs/{run}/retry").json()
    assert again["owner"] == "token:operator"
    assert_unknown(clients.ann, "GET", "/v1/runs/{}", again["run_id"], "19700101-000000-00000000")


def test_operators_change_what_belongs_to_others(clients: Clients) -> None:
    run = submitted(clients.ann, lasting())
    done = clients.operator.post(f"/v1/runs/{run}/cancel").json()
    assert (done["had_ended"], done["owner"]) == (None, "token:ann")
    finished(clients.operator, run)
    rated = clients.operator.post(f"/v1/runs/{run}/ratings", json={"score": 0})
    assert rated.json()["by"] == "token:operator"
    assert clients.operator.delete(f"/v1/runs/{run}").status_code == 204


def test_the_chat_of_another_caller_is_unknown(clients: Clients) -> None:
    chat = clients.ann.post("/v1/chat/completions", json=CHAT).raise_for_status().json()["id"]
    rated = clients.ann.post(f"/v1/chats/{chat}/ratings", json={"score": 1})
    assert (rated.status_code, rated.json()["by"]) == (201, "token:ann")
    for method, path, more in (("GET", "/v1/chats/{}", {}), ("POST", "/v1/chats/{}/ratings", {"json": {"score": 1}})):
        assert_unknown(clients.ben, method, path, chat, f"chatcmpl-{UNKNOWN}", **more)

    def listed(client: httpx2.Client) -> list[str]:
        return [one["routed"]["chat"] for one in client.get("/v1/chats").json()["chats"]]

    assert chat in listed(clients.ann)
    assert chat in listed(clients.auditor)
    assert chat not in listed(clients.ben)
    assert clients.auditor.get(f"/v1/chats/{chat}").json()["routed"]["owner"] == "token:ann"


def test_the_response_of_another_caller_is_unknown(clients: Clients) -> None:
    body = {"model": "worker", "input": "Say hello.", "max_output_tokens": 4}
    response = clients.ann.post("/v1/responses", json=body).raise_for_status().json()["id"]
    for prefix in ("/v1", ""):
        for method, path in (("GET", ""), ("GET", "/input_items"), ("DELETE", "")):
            assert_unknown(clients.ben, method, f"{prefix}/responses/{{}}{path}", response, f"resp_{UNKNOWN}")
    texts = []
    for name in (response, f"resp_{UNKNOWN}"):
        answer = clients.ben.post("/v1/responses", json={**body, "previous_response_id": name})
        assert answer.status_code == 404
        texts.append(answer.text.replace(name, "ID"))
    assert texts[0] == texts[1]
    assert clients.ann.post("/v1/responses", json={**body, "previous_response_id": response}).is_success
    assert clients.auditor.get(f"/v1/responses/{response}").is_success
    assert clients.auditor.delete(f"/v1/responses/{response}").status_code == 403
    assert clients.ann.delete(f"/v1/responses/{response}").is_success


def test_the_thread_of_another_caller_is_unknown(clients: Clients) -> None:
    body = {"model": "worker", "max_tokens": 4, "messages": [{"role": "user", "content": "Say hello."}]}
    first = (
        clients.ann.post("/v1/messages", json={**body, "thread": {"type": "create"}}).raise_for_status().json()["id"]
    )
    texts = []
    for name in (first, f"msg_{UNKNOWN}"):
        thread = {"type": "continue", "previous_message_id": name}
        answer = clients.ben.post("/v1/messages", json={**body, "thread": thread})
        assert answer.status_code == 404
        texts.append(answer.text.replace(name, "ID"))
    assert texts[0] == texts[1]
    thread = {"type": "continue", "previous_message_id": first}
    assert clients.ann.post("/v1/messages", json={**body, "thread": thread}).is_success


def test_the_file_of_another_caller_is_unknown(clients: Clients) -> None:
    content, purpose = {"file": ("secret.txt", b"a secret")}, {"purpose": "user_data"}
    file = clients.ann.post("/v1/files", files=content, data=purpose).raise_for_status().json()["id"]
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert_unknown(clients.ben, method, f"/v1/files/{{}}{path}", file, f"file-{UNKNOWN}")
    assert_unknown(clients.ben, "GET", "/v1/files?after={}", file, f"file-{UNKNOWN}")
    assert clients.ben.get("/v1/files").json()["data"] == []
    assert [one["id"] for one in clients.ann.get("/v1/files").json()["data"]] == [file]
    part = {"type": "file", "file": {"file_id": file}}
    chat = {"model": "orchestrate", "messages": [{"role": "user", "content": [part, {"type": "text", "text": "Go."}]}]}
    refused_chat = clients.ben.post("/v1/chat/completions", json=chat)
    assert refused_chat.status_code == 400
    assert f"there is no file {file!r}" in refused_chat.text
    assert clients.auditor.get(f"/v1/files/{file}/content").content == b"a secret"
    assert clients.auditor.delete(f"/v1/files/{file}").status_code == 403
    assert clients.ann.delete(f"/v1/files/{file}").is_success


def test_a_request_that_is_sent_again_does_not_join_the_run_of_another_caller(clients: Clients) -> None:
    chat = {"model": "orchestrate", "messages": [{"role": "user", "content": "Summarize: a dog ran home."}]}

    def run_of(client: httpx2.Client, **headers: str) -> str:
        with client.stream("POST", "/v1/chat/completions", json={**chat, "stream": True}, headers=headers) as answer:
            return str(answer.headers["X-Run-Id"])

    again = {"X-Stainless-Retry-Count": "1"}
    run = run_of(clients.ann)
    assert run_of(clients.ann, **again) == run
    assert run_of(clients.ben, **again) != run


def test_the_run_that_a_procedure_makes_belongs_to_whoever_asked_for_it(clients: Clients) -> None:
    begun = {"inputs": {"request": "Summarize: a dog ran home."}}
    execution = clients.operator.post("/v1/procedures/run-task/executions", json=begun).raise_for_status().json()["id"]
    clients.operator.get(f"/v1/procedures/executions/{execution}/events").raise_for_status()
    run = clients.operator.get(f"/v1/procedures/executions/{execution}").json()["outputs"]["run"]
    owners = {one["run_id"]: one["owner"] for one in clients.operator.get("/v1/runs").json()["runs"]}
    assert owners[run] == "token:operator"
    assert clients.ann.post("/v1/procedures/run-task/executions", json=begun).status_code == 403


def test_who_made_a_persona_is_for_those_to_see_who_see_everything(clients: Clients) -> None:
    poet = {"name": "poet", "text": "Write in verse, and let every line rhyme."}
    assert clients.ann.post("/v1/personas", json=poet).status_code == 403
    assert clients.operator.post("/v1/personas", json=poet).status_code == 201
    shown = [client.get("/v1/personas/poet").json()["by"] for client in (clients.ann, clients.auditor)]
    assert shown == ["", "token:operator"]
    assert clients.operator.delete("/v1/personas/poet").is_success


async def test_the_run_of_another_caller_is_unknown_to_tools(daemon: Running, run: str) -> None:
    unknown = "19700101-000000-00000000"
    async with over_tcp(daemon, token=token_of("ben")) as client:
        for tool in ("watch", "result", "explain", "cancel"):
            texts = [await refused(client, tool, run_id=name) for name in (run, unknown)]
            assert texts[0].replace(run, "ID") == texts[1].replace(unknown, "ID")
        own = await asked(client, "submit", **small())
        assert own["owner"] == "token:ben"
        await asked(client, "watch", run_id=own["run_id"])
        cancelled = await asked(client, "cancel", run_id=own["run_id"])
        assert (cancelled["had_ended"], cancelled["cancelled"]) == ("done", [])
        assert cancelled["done"] == f"run {own['run_id']} had ended before: done"
    async with over_tcp(daemon, token=token_of("auditor")) as client:
        assert (await asked(client, "result", run_id=run))["run_id"] == run
        assert "to what belongs to others" in await refused(client, "cancel", run_id=run)


async def test_the_run_of_another_caller_is_no_task(daemon: Running, run: str) -> None:
    tasks, unknown = sdk("tests.orchestrator.api.mcp_tasks"), "19700101-000000-00000000"
    async with taking_tasks(daemon, token_of("ben")) as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            texts = []
            for name in (run, unknown):
                with pytest.raises(sdk().MCPError, match="taskId: ") as refused_task:
                    await tasks.tell(client.session, method, name)
                texts.append(str(refused_task.value).replace(name, "ID"))
            assert texts[0] == texts[1]
    async with taking_tasks(daemon, token_of("auditor")) as client:
        assert (await tasks.get(client.session, run)).status == "completed"
        with pytest.raises(sdk().MCPError, match="to what belongs to others"):
            await tasks.tell(client.session, "tasks/cancel", run)


def test_the_first_event_of_a_run_says_who_owns_it(clients: Clients, run: str) -> None:
    events = clients.auditor.get(f"/v1/runs/{run}/events").text
    accepted = json.loads(
        next(line for line in events.splitlines() if line.startswith("data: ")).removeprefix("data: ")
    )
    assert (accepted["kind"], accepted["owner"]) == ("run_accepted", "token:ann")
