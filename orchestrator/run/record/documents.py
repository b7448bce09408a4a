"""What the API and an exported page say of a run: its picture, its steps, attempts and forecast, as JSON objects."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.attempt_answers import attempt_answer
from orchestrator.run.record.attempt_prompts import SharedPrompts, attempt_prompt
from orchestrator.run.record.picture import picture_json, planned_picture
from orchestrator.run.record.report import Report, StepRow
from orchestrator.run.record.view import RunView
from orchestrator.task.taskir.parse import dump_task

if TYPE_CHECKING:  # commands that show runs do not import what plans them
    from orchestrator.run.record.forecast import JobForecast


def picture_document(
    report: Report, drawn: bytes, now: float, position: int | None = None, *, may_change: bool = False
) -> bytes:
    """Return a run as rows to draw, with its summary, as a JSON object.

    `drawn` is its picture as `picture_json` has it, `now` in seconds since it was accepted, `position` of a queued run.
    `may_change`: whether who asks may change this run, apart from the permission that each change needs.
    """
    ended = report.status in ("done", "failed", "cancelled")
    summary = {
        "run_id": report.run_id,
        "status": report.status,
        "mode": report.mode,
        "request": report.request,
        "accepted_at": report.accepted_at,
        "position": position,
        "may_change": may_change,
        "events": report.events,
        "answer": report.answer,
        "error": report.error,
        "doubt": report.doubt,
        "corrections": [correction.text for correction in report.corrections],
        "missing": report.missing,
        "warnings": report.warnings,
        "plan_reason": report.plan_reason or report.why_direct,
        "results": [output.name for output in report.results],
        "ratings": report.ratings,
        "concurrency": report.critical_path.concurrency,
        "path_seconds": report.critical_path.seconds,
        "predicted_seconds": report.critical_path.predicted_seconds,
        "seconds": report.wall_seconds if ended else max(report.wall_seconds, now),
    }
    return _joined(summary, drawn)


def forecast_document(expected: "JobForecast") -> bytes:
    """Return a job before it runs as rows to draw, with its price, as a JSON object.

    `report` has steps, edges, waves and critical path as in the report of a run.
    """
    plan, direct = expected.forecast, expected.direct
    summary = {
        "task": dump_task(plan.task),
        "mode": plan.mode,
        "reason": plan.reason,
        "goes_on_after": plan.goes_on_after,
        "warnings": expected.warnings,
        "has_data": plan.has_data,
        "run_seconds": plan.run_seconds,
        "range_seconds": plan.run_range,
        "serial_seconds": plan.serial_seconds,
        "direct_seconds": None if direct is None else direct.seconds,
        "direct_has_data": None if direct is None else direct.generations > 0,
        "prompt_tokens": round(sum(step.prompt_tokens for step in plan.predicted.values())),
        "output_tokens": round(sum(step.output_tokens for step in plan.predicted.values())),
        "bytes_to_load": dict(expected.bytes_to_load),
        "memory_bytes": expected.memory_bytes,
        "memory_budget": expected.memory_budget,
        "report": plan.to_json(),
    }
    drawn = planned_picture(plan, expected.models)
    return _joined({**summary, "seconds": drawn.seconds}, picture_json(drawn))


def _joined(summary: Mapping[str, Any], drawn: bytes) -> bytes:
    # One JSON object of two. A picture may have 10,000 rows, so it stays as it was encoded.
    return msgspec.json.encode(summary)[:-1] + b"," + drawn[1:]


def attempt_document(
    journal: JournalReader, view: RunView, row: StepRow, number: int, shared: SharedPrompts
) -> dict[str, Any]:
    """Return an attempt at a step: its prompt, its answer, and how it ended. Blocks on the disk.

    Raises `InputError` for an attempt that was not made, and `JournalError`.
    """
    answer = attempt_answer(journal, row, number)
    attempt = next(attempt for attempt in row.attempts if attempt.number == number)
    digest = attempt.reasoning
    return {
        **asdict(answer),
        "reasoning": journal.get(digest).decode(errors="replace") if digest else "",
        "prompt": [asdict(part) for part in attempt_prompt(journal, view, row.id, number, shared)],
        **({"nodes": attempt.usage.nodes} if attempt.usage.nodes else {}),
    }
