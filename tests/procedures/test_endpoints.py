"""Procedures over HTTP: shown, planned, approved, followed and undone, by whoever has the right to."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.procedures.library import SHIPPED
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.migrations import VERSION
from tests.orchestrator.api.daemon_process import Running, executed, finished, running_daemon, submitted, summary
from tests.orchestrator.older_journal import downgrade, version_of
from tests.orchestrator.service.test_retention import journaled

HEAD = "version: 1.0.0\ncategory: test\n"
NOTE = f"""\
id: take-note
{HEAD}description: Writes a note.
permissions: {{roles: [owner]}}
inputs:
  text: {{type: string, description: What is written.}}
  fail: {{type: boolean, description: Whether it fails., default: false}}
steps:
  - id: note
    file_write: {{path: "{{{{ places.home }}}}/note.txt", content: "{{{{ inputs.text }}}}\\n"}}
verification:
  - {{that: not inputs.fail, otherwise: it was told to fail}}
"""
PAUSE = f"""\
id: pause
{HEAD}description: Waits.
permissions: {{roles: [owner, operator], requires_approval: false}}
inputs: {{seconds: {{type: number, description: How long., default: 0}}}}
steps:
  - id: wait
    wait: {{seconds: "{{{{ inputs.seconds }}}}"}}
"""


SIGNED_BY = "more-than-twenty-characters-of-"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with procedures of its own and a schedule. Its journal was one of the version before, with one run."""
    folder = tmp_path_factory.mktemp("daemon")
    with Journal.open(folder / "home") as journal:
        asyncio.run(journaled_before(journal))
    downgrade(folder / "home" / "journal.db")
    own = folder / "own"
    own.mkdir()
    (own / "take-note.yaml").write_text(NOTE)
    (own / "pause.yaml").write_text(PAUSE)
    for name in ("ann", "guest"):
        (folder / f"{name}.token").write_text(f"{SIGNED_BY}{name}\n")
        (folder / f"{name}.token").chmod(0o600)
    settings = {
        "ORCHESTRATOR_SERVER_TOKENS": f"ann={folder}/ann.token, guest={folder}/guest.token",
        "ORCHESTRATOR_PROCEDURES_CALLERS": "token:ann=owner approver, token:guest=visitor",
        "ORCHESTRATOR_PROCEDURES_FOLDER": str(own),
        "ORCHESTRATOR_PROCEDURES_SCHEDULES": "0 0 1 1 * backup; @yearly pause",
    }
    with running_daemon(folder / "home", **settings) as running:
        yield running


@pytest.fixture
def operator(daemon: Running) -> Iterator[httpx2.Client]:
    """A client on the TCP port that has the token."""
    with daemon.tcp(Authorization=f"Bearer {daemon.token}") as opened:
        yield opened


async def journaled_before(journal: Journal) -> None:
    await journaled(journal, "R1", b"old", ended=time.time())


def with_token_of(daemon: Running, name: str) -> httpx2.Client:
    """Return a client on the TCP port that has a named token."""
    return daemon.tcp(Authorization=f"Bearer {SIGNED_BY}{name}")


def planned(client: httpx2.Client, **inputs: Any) -> dict[str, Any]:
    answer = client.post("/v1/procedures/take-note/plan", json={"inputs": inputs})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def begun(client: httpx2.Client, name: str, digest: str | None = None, **inputs: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/procedures/{name}/executions", json={"inputs": inputs, "digest": digest})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def followed(client: httpx2.Client, execution: str, **query: Any) -> list[tuple[str, str]]:
    """Return the ids and the kinds of the entries of an execution until it is over."""
    found = []
    with client.stream("GET", f"/v1/procedures/executions/{execution}/events", params=query) as response:
        for event in httpx2.EventSource(response):
            if event.event == "entry":
                found.append((event.id, json.loads(event.data)["kind"]))
    return found


def shown(client: httpx2.Client, execution: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/procedures/executions/{execution}").json()
    return found


def test_procedures_are_listed_with_schedules_and_shown(client: httpx2.Client) -> None:
    told = client.get("/v1/procedures").json()
    assert {one["id"] for one in told["procedures"]} == {path.stem for path in SHIPPED.glob("*.yaml")} | {
        "take-note",
        "pause",
    }
    backup, pause = told["schedules"]
    assert (backup["procedure"], backup["why_not"], backup["missed"]) == ("backup", "", [])
    assert "may not be run by a schedule" in pause["why_not"]
    assert client.get("/v1/procedures/take-note").json()["text"] == NOTE
    missing = client.get("/v1/procedures/take-nite")
    assert missing.status_code == 404
    assert missing.json()["error"]["problems"][0]["accepted"].startswith("take-note?")


def test_a_plan_is_shown_approved_executed_followed_and_undone(client: httpx2.Client, daemon: Running) -> None:
    note = daemon.home / "note.txt"
    plan = planned(client, text="hello")
    assert "+hello" in plan["steps"][0]["shown"]
    waits = begun(client, "take-note", text="hello")
    assert (waits["state"], waits["plan"], note.exists()) == ("planned", plan["digest"], False)
    path = f"/v1/procedures/executions/{waits['id']}"
    assert client.post(f"{path}/approve", json={"digest": "0" * 16}).status_code == 409
    assert client.post(f"{path}/approve", json={"digest": plan["digest"][:16]}).status_code == 202
    entries = followed(client, waits["id"])
    kinds = ["planned", "approved", "queued", "begun", "step_begun", "acting", "step_done", "ended"]
    assert [kind for _, kind in entries] == kinds
    assert followed(client, waits["id"], after=entries[5][0]) == entries[6:]
    assert followed(client, waits["id"], follow=False) == entries
    done = shown(client, waits["id"])
    assert (done["state"], note.read_text()) == ("done", "hello\n")
    assert done["approved_by"].endswith(f"(user {note.stat().st_uid})")
    assert done["changed"] == [f"step note: {note}"]
    undone = client.post(f"{path}/rollback", json={}).json()
    assert (undone["state"], undone["undone"], note.exists()) == ("rolled back", [f"step note: {note}"], False)
    assert client.post(f"{path}/rollback").status_code == 409


def test_a_failed_one_tells_what_was_undone(client: httpx2.Client, daemon: Running) -> None:
    digest = planned(client, text="x", fail=True)["digest"]
    refused = client.post("/v1/procedures/take-note/executions", json={"inputs": {"text": "y"}, "digest": digest})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "changed_meanwhile")
    made = begun(client, "take-note", digest, text="x", fail=True)
    assert followed(client, made["id"])[-1][1] == "ended"
    failed = shown(client, made["id"])
    assert (failed["state"], failed["error"]) == ("rolled back", "verification: it was told to fail")
    assert (failed["changed"], failed["look_at"]) == ([], [])
    assert failed["undone"] == [f"step note: {daemon.home / 'note.txt'}"]


def test_the_token_may_do_what_is_for_operators_and_nothing_else(
    operator: httpx2.Client, client: httpx2.Client
) -> None:
    for path, body, code in (
        ("/v1/procedures/take-note/plan", {"inputs": {"text": "x"}}, "procedure_forbidden"),
        ("/v1/procedures/take-note/executions", {"inputs": {"text": "x"}}, "procedure_forbidden"),
        ("/v1/procedures/audit/new", None, "forbidden"),
    ):
        refused = operator.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, code)
    for path in ("/v1/procedures/run-gates/plan", "/v1/procedures/run-gates/executions"):
        refused = operator.post(path, json={"inputs": {"folder": "/etc"}})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "inputs/folder")
        assert "/etc may not be used by this caller" in refused.json()["error"]["message"]
    waits = begun(client, "take-note", text="x")
    for action, body in (("approve", {"digest": waits["plan"]}), ("withdraw", None), ("cancel", None)):
        path = f"/v1/procedures/executions/{waits['id']}/{action}"
        assert operator.post(path, json=body).status_code == 403
    assert client.post(f"/v1/procedures/executions/{waits['id']}/withdraw").json()["state"] == "withdrawn"
    made = begun(operator, "pause")
    assert (made["caller"], followed(operator, made["id"])[-1][1]) == ("the API's token from 127.0.0.1", "ended")


def test_one_under_way_is_cancelled_and_the_next_one_waits_its_turn(client: httpx2.Client) -> None:
    long, short = begun(client, "pause", seconds=3600), begun(client, "pause")
    assert client.post(f"/v1/procedures/executions/{long['id']}/cancel").status_code == 202
    assert followed(client, short["id"])[-1][1] == "ended"
    assert shown(client, long["id"])["state"] in ("rolled back", "withdrawn")
    assert shown(client, short["id"])["state"] == "done"


def test_a_backup_is_made_by_the_daemon_while_it_runs(client: httpx2.Client, tmp_path: Path) -> None:
    made = begun(client, "backup", folder=str(tmp_path / "copies"))
    followed(client, made["id"])
    done = shown(client, made["id"])
    assert done["state"] == "done", done
    name = done["outputs"]["name"]
    assert name in [one["name"] for one in client.get("/v1/backups").json()["backups"]]
    assert (tmp_path / "copies" / name / "journal.db").exists()


def test_a_named_token_approves_where_the_configuration_says_so_and_others_do_not(
    daemon: Running, client: httpx2.Client, operator: httpx2.Client
) -> None:
    with with_token_of(daemon, "ann") as ann, with_token_of(daemon, "guest") as guest:
        waits = begun(ann, "take-note", text="x")
        path, body = f"/v1/procedures/executions/{waits['id']}/approve", {"digest": waits["plan"]}
        for client_without in (operator, guest):
            refused = client_without.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
            assert "it lacks the permission approve" in refused.json()["error"]["message"]
        ann.post(path, json=body).raise_for_status()
        followed(ann, waits["id"])
        done = shown(ann, waits["id"])
        assert (done["state"], done["approved_by"]) == ("done", "the token ann from 127.0.0.1")
        assert guest.post("/v1/procedures/recover").status_code == 403
        assert guest.post("/v1/procedures/pause/executions", json={}).status_code == 403
        assert operator.post("/v1/procedures/recover").json() == {"recovered": []}
        assert ann.post(f"/v1/procedures/executions/{waits['id']}/rollback").json()["state"] == "rolled back"
    with with_token_of(daemon, "nobody") as nobody:
        assert nobody.get("/v1/procedures").status_code == 401


def test_a_new_token_is_accepted_at_once_and_the_old_one_again_where_that_is_undone(
    daemon: Running, client: httpx2.Client
) -> None:
    def accepted(token: str) -> bool:
        with daemon.tcp(Authorization=f"Bearer {token}") as caller:
            return caller.get("/v1/procedures").status_code == 200

    before = daemon.token
    plan = client.post("/v1/procedures/rotate-token/plan", json={}).json()
    made = begun(client, "rotate-token", plan["digest"])
    followed(client, made["id"])
    after = (daemon.home / "api.token").read_text().strip()
    assert before != after
    assert (accepted(before), accepted(after), accepted(f"{SIGNED_BY}ann")) == (False, True, True)
    undone = client.post(f"/v1/procedures/executions/{made['id']}/rollback").json()
    assert undone["state"] == "rolled back", undone
    assert (accepted(before), accepted(after)) == (True, False)


def test_the_memory_is_compacted_under_the_daemon_and_put_back(client: httpx2.Client) -> None:
    plan = client.post("/v1/procedures/compact-memory/plan", json={}).json()
    made = begun(client, "compact-memory", plan["digest"])
    followed(client, made["id"])
    done = shown(client, made["id"])
    assert (done["state"], done["outputs"].keys()) == ("done", {"merged", "dropped"}), done
    undone = client.post(f"/v1/procedures/executions/{made['id']}/rollback", json={"force": True}).json()
    assert undone["state"] == "rolled back", undone
    memory = client.get("/v1/memory").json()
    assert (memory["problem"], memory["stats"]["problems"]) == ("", [])


def test_a_backup_is_restored_under_the_daemon_which_goes_on_with_it_and_that_is_undone(
    client: httpx2.Client,
) -> None:
    made = begun(client, "backup")
    followed(client, made["id"])
    name = shown(client, made["id"])["outputs"]["name"]
    later = executed(client, summary())["run_id"]
    inputs = {"inputs": {"name": name}}
    plan = client.post("/v1/procedures/restore-backup/plan", json=inputs).json()
    body = {**inputs, "digest": plan["digest"]}
    restored = client.post("/v1/procedures/restore-backup/executions", json=body).json()
    followed(client, restored["id"])
    done = shown(client, restored["id"])
    assert done["state"] == "done", done
    assert client.get(f"/v1/runs/{later}").status_code == 404
    assert executed(client, summary())["status"] == "done"
    undone = client.post(f"/v1/procedures/executions/{restored['id']}/rollback", json={"force": True}).json()
    assert undone["state"] == "rolled back", undone
    assert client.get(f"/v1/runs/{later}").json()["status"] == "done"


def test_the_journal_of_an_earlier_version_is_upgraded_and_that_is_undone_under_the_daemon(
    client: httpx2.Client, daemon: Running
) -> None:
    plan = client.post("/v1/procedures/upgrade-journal/plan", json={}).json()
    made = begun(client, "upgrade-journal", plan["digest"])
    followed(client, made["id"])
    done = shown(client, made["id"])
    assert (done["state"], version_of(daemon.home / "journal.db")) == ("done", VERSION), done
    assert client.get("/v1/runs/R1").json()["status"] == "done"
    later = executed(client, summary())["run_id"]
    undone = client.post(f"/v1/procedures/executions/{made['id']}/rollback", json={"force": True}).json()
    assert undone["state"] == "rolled back", undone
    assert client.get("/v1/runs/R1").json()["status"] == "done"
    assert client.get(f"/v1/runs/{later}").status_code == 404


def test_a_backup_of_an_earlier_version_is_restored_and_upgraded_under_the_daemon(
    client: httpx2.Client, daemon: Running
) -> None:
    before = executed(client, summary())["run_id"]
    made = begun(client, "backup")
    followed(client, made["id"])
    name = shown(client, made["id"])["outputs"]["name"]
    downgrade(daemon.home / "backups" / name / "journal.db")
    inputs = {"inputs": {"name": name}}
    plan = client.post("/v1/procedures/restore-backup/plan", json=inputs).json()
    body = {**inputs, "digest": plan["digest"]}
    restored = client.post("/v1/procedures/restore-backup/executions", json=body).json()
    followed(client, restored["id"])
    done = shown(client, restored["id"])
    assert (done["state"], version_of(daemon.home / "journal.db")) == ("done", VERSION), done
    assert {client.get(f"/v1/runs/{run}").json()["status"] for run in ("R1", before)} == {"done"}
    assert executed(client, summary())["status"] == "done"


def test_a_request_in_words_becomes_a_plan_that_waits_for_a_person(client: httpx2.Client) -> None:
    run = executed(client, {"request": "remove the model tiny-large and its file"})
    assert run["status"] == "failed"  # the frontdoor and other roles need it
    run = executed(client, {"request": "deprecate model tiny-small"})
    assert run["status"] == "done", run
    assert "waits for the approval of a person" in run["answer"]
    made = client.get("/v1/procedures/executions").json()["executions"][0]
    assert (made["procedure"], made["state"]) == ("deprecate-model", "planned")
    assert made["caller"] == f"the plan of run {run['run_id']}"
    assert f"approve {made['id']} {made['plan'][:16]}" in run["answer"]
    assert shown(client, made["id"])["needs_approval"]


def test_a_task_to_manage_proposes_a_procedure_also_one_that_needs_no_approval_otherwise(
    client: httpx2.Client,
) -> None:
    step = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["done.txt"]}
    task = {"task_type": "manage", "objective": "Back up the state", "plan": {"steps": [step]}}
    run = finished(client, submitted(client, {"task": task}))
    assert run["status"] == "done", run
    made = client.get("/v1/procedures/executions").json()["executions"][0]
    assert (made["procedure"], made["state"]) == ("backup", "planned")
    assert shown(client, made["id"])["needs_approval"]
    client.post(f"/v1/procedures/executions/{made['id']}/approve", json={"digest": made["plan"]}).raise_for_status()
    followed(client, made["id"])
    assert shown(client, made["id"])["state"] == "done"


def test_bad_input_gets_a_clear_error(client: httpx2.Client) -> None:
    for method, path, body, status, told in (
        ("POST", "/v1/procedures/take-note/plan", {"inputs": {"txt": "x"}}, 400, "text?"),
        ("POST", "/v1/procedures/take-note/plan", {"inputs": {}}, 400, "is required"),
        ("POST", "/v1/procedures/take-note/plan", {"input": {}}, 400, "input"),
        ("POST", "/v1/procedures/take-note/executions", {"inputs": []}, 400, "object"),
        ("GET", "/v1/procedures/executions/nothing", None, 404, "no execution 'nothing'"),
        ("GET", "/v1/procedures/executions/nothing/events", None, 404, "no execution 'nothing'"),
        ("GET", "/v1/procedures/audit/verify?head=x", None, 400, "NUMBER:HASH"),
        ("POST", "/v1/procedures/audit/new", None, 409, "is whole"),
    ):
        answer = client.request(method, path, json=body)
        assert (answer.status_code, told in answer.json()["error"]["message"]) == (status, True), answer.text


def test_the_audit_log_is_read_and_checked(client: httpx2.Client) -> None:
    followed(client, begun(client, "pause")["id"])
    page = client.get("/v1/procedures/audit", params={"limit": 3}).json()
    assert f"{page['entries'][-1]['number']}:" in page["head"]
    checked = client.get("/v1/procedures/audit/verify", params={"head": page["head"]}).json()
    assert checked["verified"] >= page["entries"][-1]["number"]
    assert client.post("/v1/procedures/recover").json() == {"recovered": []}
