"""Print what went wrong on the way, also where all ended well: who failed, why, and who tried next."""

from itertools import pairwise

from rich.console import Console
from rich.text import Text

from orchestrator.cli.terminal import Glyphs, one_line
from orchestrator.history.report import Report, StepRow
from orchestrator.history.view import AttemptRow

SHOWN = 40
_UNTROUBLED = ("running", "checking", "done", "cancelled")


def troubled(report: Report) -> list[StepRow]:
    """Return the steps that have needed more than one attempt."""
    return [step for step in report.steps if len(step.attempts) > 1]


def print_trouble(console: Console, steps: list[StepRow], signs: Glyphs, *, full: bool) -> None:
    """Print for each step every attempt that came to nothing, and what followed."""
    shown = steps if full else steps[:SHOWN]
    for step in shown:
        for failed, after in pairwise(step.attempts):
            line = Text(f"{step.id}  ", style="bold")
            line.append(_failed(failed), style="not bold")
            line.append(f" {signs.arrow} {_followed(failed, after)}", style="not bold yellow")
            console.print(line)
        if (last := step.attempts[-1]).outcome not in _UNTROUBLED:
            console.print(Text(f"{step.id}  {_failed(last)}", style="red"))
    if len(steps) > len(shown):
        console.print(Text(f"{len(steps) - len(shown)} more steps", style="dim"))


def _failed(attempt: AttemptRow) -> str:
    why = f": {one_line(attempt.message)}" if attempt.message else ""
    return f"{attempt.role} on {attempt.model}: {attempt.outcome}{why}"


def _followed(failed: AttemptRow, after: AttemptRow) -> str:
    if after.role != failed.role:
        return f"{after.role} on {after.model} takes over"
    return "run again" if failed.outcome == "interrupted" else f"{after.role} tries again"
