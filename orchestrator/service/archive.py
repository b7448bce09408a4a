"""Write a run into one archive: its report, its events and its artifacts."""

import io
import json
import tarfile
from collections.abc import Iterator
from typing import IO, Any

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from orchestrator.task.events import encode_event


def write_archive(journal: JournalReader, run: str, target: IO[bytes]) -> None:
    """Write a run as a tar.gz: `RUN/report.json`, `RUN/events.jsonl`, `RUN/artifacts/NAME`. Blocks on the disk.

    Raises JournalError.
    """
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=6) as archive:
        for name, data, at in _members(journal, run):
            entry = tarfile.TarInfo(f"{run}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(at), 0o600
            archive.addfile(entry, io.BytesIO(data))


def _members(journal: JournalReader, run: str) -> Iterator[tuple[str, bytes, float]]:
    events = [event for _, event in journal.events(run)]
    report, at = build_report(RunView.of(events), journal.get), events[-1].at
    yield "report.json", _json(report.to_json()), at
    yield "events.jsonl", "".join(f"{encode_event(event)}\n" for event in events).encode(), at
    for name, digest in report.artifacts.items():
        yield f"artifacts/{name}", journal.get(digest), at


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, indent=2).encode()
