"""Write a run as one HTML file: the page's views of a run and of a step, with all that they would request of a daemon.

The file needs neither a daemon nor a network. Texts of the run are data, in a block that no browser executes, and the
policy of the file lets only its own script and style run.
"""

import base64
import hashlib
import html
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

import msgspec

from orchestrator.api.page.bundle import bundle, static_text
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.attempt_prompts import SharedPrompts
from orchestrator.run.record.diffs import result_diff
from orchestrator.run.record.documents import attempt_document, picture_document
from orchestrator.run.record.picture import picture, picture_json
from orchestrator.run.record.report import Report, build_report, step_json
from orchestrator.run.record.view import RunView
from orchestrator.task.events import Event, encode_event

ENTRY: Final = files("orchestrator.api.page") / "exported.js"
# Of all artifacts in the file together, with the results first; those beyond are only listed.
MAX_FILE_BYTES: Final = 16 << 20
_TITLE_LENGTH: Final = 80
# Characters of strings that are written as escapes: "<", so that no text ends the block, and those that hide or reorder
# others for whoever reads the file.
_UNSAFE: Final = re.compile(
    "[<\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def exported_page(journal: JournalReader, run: str, now: float | None) -> str:
    """Return the HTML file of a run, as it was at `now` (seconds since the epoch), or at its latest event.

    Blocks on the disk. Raises JournalError.
    """
    events = [event for _, event in journal.events(run)]
    view = RunView.of(events)
    report = build_report(view, journal.get)
    elapsed = (events[-1].at if now is None else now) - view.accepted.at
    data = _data(journal, view, report, events, max(0.0, elapsed))
    script, style = bundle(ENTRY.read_text(encoding="utf-8")), static_text("style.css")
    assert "</script" not in script, "it would end early"
    policy = {
        "default-src": "'none'",
        "script-src": _source(script),
        "style-src": _source(style),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    title = html.escape(_title(report.request) or run)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(map(" ".join, policy.items()))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
<noscript>This file needs JavaScript.</noscript>
<!-- Licences of Preact, htm and signals, which the script contains:

{_licences()}
-->
</body>
</html>
"""


def _licences() -> str:
    texts = (static_text(f"vendor/LICENSE.{name}") for name in ("preact", "htm", "signals"))
    return "\n\n".join(text.replace("--", "- -") for text in texts)  # "-->" would end the comment


def _title(request: str) -> str:
    # Until the script shows it as the page does, characters that hide or reorder others are left out.
    return "".join(sign for sign in " ".join(request.split()) if sign.isprintable())[:_TITLE_LENGTH]


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(journal: JournalReader, view: RunView, report: Report, events: list[Event], now: float) -> str:
    texts = _Texts()
    data = {
        "run": report.run_id,
        "exported_at": time.time(),
        "answers": dict(_answers(journal, view, report, now, texts)),
        "texts": list(texts.numbers),
        "files": dict(_files(journal, report)),
        "events": [msgspec.Raw(encode_event(event).encode()) for event in events],
    }
    return _UNSAFE.sub(lambda match: _escaped(match[0]), msgspec.json.encode(data).decode())


def _escaped(sign: str) -> str:
    # beyond the BMP, as a pair of surrogates
    return f"\\u{ord(sign):04x}" if sign <= "\uffff" else json.dumps(sign)[1:-1]


class _Texts:
    """The texts of prompts and answers, each once: many steps may read the same long document."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def _answers(
    journal: JournalReader, view: RunView, report: Report, now: float, texts: _Texts
) -> Iterator[tuple[str, object]]:
    # By the path of a request, what the API answers, as far as the page uses it.
    place = f"/v1/runs/{report.run_id}"
    drawn = picture_json(picture(view, report, now))
    yield f"{place}/picture", msgspec.Raw(picture_document(report, drawn, now))
    size = journal.objects.size
    lines = [{"name": name, "sha256": digest, "bytes": size(digest)} for name, digest in report.artifacts.items()]
    yield f"{place}/artifacts", {"artifacts": lines}
    yield f"{place}/diff", "".join(result_diff(journal, result) for result in report.results)
    before, after = defaultdict[str, list[object]](list), defaultdict[str, list[object]](list)
    for edge in report.graph.edges:
        after[edge.before].append(asdict(edge))
        before[edge.after].append(asdict(edge))
    shared = SharedPrompts(view)
    for row in report.steps:
        planned = row.parent or row.id
        yield (
            f"{place}/steps/{row.id}",
            {
                "step": step_json(row),
                "waited_for": before[planned],
                "needed_by": after[planned],
                "warnings": report.warnings_of(row),
                "doubts": report.doubts_of(row),
            },
        )
        for attempt in row.attempts:
            document = attempt_document(journal, view, row, attempt.number, shared)
            prompt: list[dict[str, Any]] = document["prompt"]
            parts = [part | {"text": texts.number(part["text"])} for part in prompt]
            outputs = {name: texts.number(text) for name, text in document["outputs"].items()}
            numbered = {"prompt": parts, "answer": texts.number(document["answer"]), "outputs": outputs}
            yield f"{place}/steps/{row.id}/attempts/{attempt.number}", document | numbered


def _files(journal: JournalReader, report: Report) -> Iterator[tuple[str, str]]:
    results = {result.name for result in report.results}
    remaining = MAX_FILE_BYTES
    for name, digest in sorted(report.artifacts.items(), key=lambda item: item[0] not in results):
        size = journal.objects.size(digest)
        if size <= remaining:
            remaining -= size
            yield name, base64.b64encode(journal.get(digest)).decode()
