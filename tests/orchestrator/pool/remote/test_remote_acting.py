"""A run whose steps act, end to end: orchestrator, journal, sandbox; what the model says comes over HTTP."""

import json
from pathlib import Path

import pytest

from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import load_report
from orchestrator.task.events import NoteChanged, ToolCalled, decode_event, encode_event
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.pool.remote.conftest import RemoteRegistry
from tests.orchestrator.pool.remote.server_answers import ok
from tests.orchestrator.pool.remote.server_play import Remote

STEPS = [
    {
        "id": "S1",
        "actor": "worker",
        "action": "List the files.",
        "kind": "tool",
        "tools": ["list_files"],
        "arguments": {"pattern": "*.txt"},
        "outputs": ["names"],
    },
    {
        "id": "S2",
        "actor": "worker",
        "action": "Gather what is said of the Koldin.",
        "kind": "tool",
        "tools": ["read_file", "notes"],
        "inputs": ["names"],
        "outputs": ["found"],
    },
    {
        "id": "S3",
        "actor": "worker",
        "action": "Ask about it.",
        "kind": "repl",
        "tools": ["notes"],
        "inputs": ["found"],
        "outputs": ["told"],
    },
]
CODE = """\
answers = llm_batch(['one', 'two'])
noted = tool('notes', change='list')
print('x' * 5000)
final({'answers': answers, 'noted': noted[0]['text'], 'read': 'Koldin' in inputs['found']})
"""
ANSWERS = [
    json.dumps({"tool": "read_file", "arguments": {"name": "ship.txt"}}),
    json.dumps({"tool": "shell", "arguments": {"command": "id"}}),
    json.dumps({"tool": "notes", "arguments": {"change": "add", "text": "it is a ship"}}),
    json.dumps({"finish": "Found.", "documents": ["D1"]}),
    CODE,
    "Yes.",
    "Yes.",
]


@pytest.mark.usefixtures("sandbox")
async def test_steps_that_act(remote: Remote, remote_registry: RemoteRegistry, tmp_path: Path) -> None:
    folder, home = tmp_path / "files", tmp_path / "home"
    folder.mkdir()
    (folder / "ship.txt").write_text("The Koldin is a ship of 12 t. " * 5)
    remote.plays(*map(ok, ANSWERS))
    task = task_from({"objective": "a test", "plan": {"steps": STEPS}})
    async with Orchestrator.open(home, remote_registry(remote.url)) as orchestrator:
        run = await orchestrator.submit(Job(None, task, folder, "as-planned"))
        async for _ in orchestrator.watch(run):
            pass
    with JournalReader.open_to_read(home) as journal:
        report, events = load_report(journal, run), [event for _, event in journal.events(run)]
        texts = {name: journal.get(digest).decode() for name, digest in report.artifacts.items()}
    assert report.status == "done", report.error
    assert texts["names"] == "ship.txt"
    assert texts["found"].startswith("Found.\n\n[ship.txt]\nThe Koldin")
    assert json.loads(texts["told"]) == {"answers": ["Yes.", "Yes."], "noted": "it is a ship", "read": True}
    calls = {step.id: [(call.tool, call.outcome) for call in step.attempts[-1].calls] for step in report.steps}
    assert calls == {
        "S1": [("list_files", "done")],
        "S2": [("read_file", "done"), ("shell", "refused"), ("notes", "done")],
        "S3": [("llm_batch", "done"), ("notes", "done")],
    }
    refused = report.to_json()["steps"][1]["attempts"][0]["calls"][1]
    assert refused["message"].startswith("this step has no tool 'shell'")
    told = [event for event in events if isinstance(event, ToolCalled | NoteChanged)]
    assert [decode_event(encode_event(event)) for event in told] == told
    assert [event.note for event in told if isinstance(event, NoteChanged)] == ["N1"]
    assert (home / "runs" / run / "repl" / "S3-1" / "out1.txt").read_text() == "x" * 5000
    asked = remote.seen()
    assert len(asked) == len(ANSWERS)
    assert {request["body"]["messages"][-1]["content"] for request in asked[-2:]} == {"Task: one", "Task: two"}
