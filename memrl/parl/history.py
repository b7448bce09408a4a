"""Find requests in the journal that can be learned from: planned by the frontdoor, and rated good."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.memrl.parl.requests import Check, PlannedRequest
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import Report, load_report
from orchestrator.task.events import RunAccepted, StepsPlanned

GOOD: Final = 0.75
"""The rating of a run, from 0 to 1, from which on its answer and its plan are an example."""
MAX_RUNS: Final = 500  # the newest
MAX_BYTES: Final = 64 << 10  # of a request's files together


def rated_requests(journal: JournalReader) -> list[PlannedRequest]:
    """Return the requests whose last rating is good, and whose files are still there as they were, newest first.

    What such a run has answered is the answer to check others by, and its plan is the best one that is known. Raises
    JournalError.
    """
    rows = journal.runs(MAX_RUNS)
    return [request for row in rows if (request := _request(journal, row.run)) is not None]


def _request(journal: JournalReader, run: str) -> PlannedRequest | None:
    accepted = journal.first_event(run)
    if not isinstance(accepted, RunAccepted) or accepted.request is None or accepted.prior:
        return None
    report = load_report(journal, run)
    if report.status != "done" or not report.ratings or report.ratings[-1].score < GOOD:
        return None
    plan, files = _plan(journal, run, report), _files(accepted)
    if plan is None or files is None:
        return None
    try:
        texts = [journal.get(result.digest).decode(errors="replace") for result in report.results]
    except JournalError:  # retention has removed them
        return None
    if not any(map(str.strip, texts)):
        return None
    return PlannedRequest(
        name=run,
        family="own",
        text=accepted.request,
        files=files,
        plans=(plan,),
        check=answers_like(texts),
    )


def _plan(journal: JournalReader, run: str, report: Report) -> str | None:
    # None if the frontdoor has not written all of it at once
    if report.replans or report.answered_by is not None:
        return None
    planned = [event for _, event in journal.events(run) if isinstance(event, StepsPlanned)]
    if not planned or not all(event.written for event in planned):
        return None
    return f'{{"plan":[{",".join(event.written for event in planned)}]}}'


def _files(accepted: RunAccepted) -> dict[str, str] | None:
    # None if one has another size than it had, is no text, or is in a folder of its own
    if accepted.directory is None:
        return {} if not accepted.files else None
    texts, room = dict[str, str](), MAX_BYTES
    for name in accepted.files:
        try:
            content = (Path(accepted.directory) / name).read_bytes()
            texts[name] = content.decode()
        except (OSError, UnicodeDecodeError):
            return None
        room -= len(content)
        if room < 0 or len(content) != accepted.sizes.get(name, len(content)) or "/" in name:
            return None
    return texts


def answers_like(good: Sequence[str]) -> Check:
    """Return a check that gives the share of the lines of a good answer that are in another one."""
    expected = set(_lines(good))

    return lambda answers: len(expected & set(_lines(answers))) / len(expected)


def _lines(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield from (line.strip() for line in text.splitlines() if line.strip())
