"""The lines that a run without a terminal writes on stderr: events at once, progress and signs of life now and then."""

import io

from orchestrator.cli.live import PROGRESS_PAUSE, PlainDisplay, progress_line
from orchestrator.cli.terminal import make_console
from orchestrator.run.updates import Progress
from orchestrator.task.events import AttemptGenerated, AttemptStarted, RunAccepted, StepExpanded, Usage


def test_long_answers_are_not_silent() -> None:
    written, now = io.StringIO(), [100.0]
    display = PlainDisplay(make_console(written), lambda: now[0])
    display.event(RunAccepted(at=100.0, run="r", mode="as-planned", request="Go"))
    display.event(AttemptStarted(at=100.0, step="S1", number=1, role="worker", persona=None, model="m", reason="r"))
    display.progress(Progress("S1", 1, 3, 4.0, "abc"))
    lines = written.getvalue().splitlines()
    assert len(lines) == 2, "what has just begun needs no line"
    now[0] += PROGRESS_PAUSE
    display.progress(Progress("S1", 1, 12, 4.0, "abc"))
    display.progress(Progress("S1", 1, 13, 4.0, "abcd"))
    assert written.getvalue().splitlines()[2:] == ["    2.00 s  S1 is being written: 12 tokens so far, 4 tok/s"]


def test_one_of_a_kind_is_singular() -> None:
    expanded = progress_line(StepExpanded(at=1.0, step="S2", count=1))
    assert expanded == "S2 expanded into 1 item"
    usage = Usage(output_tokens=1, decode_seconds=1.0)
    assert progress_line(AttemptGenerated(at=1.0, step="S1", number=1, usage=usage)) == "S1 generated: 1 token, 1 tok/s"


def test_the_line_of_an_answer_names_its_nodes() -> None:
    for nodes, shown in (((), ""), (("east",), ", node east"), (("east", "west"), ", node east, west")):
        usage = Usage(output_tokens=12, decode_seconds=3.0, nodes=nodes)
        event = AttemptGenerated(at=1.0, step="S1", number=1, usage=usage)
        assert progress_line(event) == f"S1 generated: 12 tokens, 4 tok/s{shown}"


def test_what_a_step_waits_for_is_not_silent() -> None:
    written, now = io.StringIO(), [0.0]
    display = PlainDisplay(make_console(written), lambda: now[0])
    for progress in (
        Progress("S1", 1, 0, 0.0, "", read_tokens=300, prompt_tokens=660),
        Progress("S1", 1, 40, 0.0, "", gates=("typecheck",), waits_for_core=True),
        Progress("", 0, 0, 0.0, "", ahead=2),
    ):
        now[0] += PROGRESS_PAUSE
        display.progress(progress)
    assert written.getvalue().splitlines() == [
        "S1: read 300 of 660 tokens",
        "S1: checking: typecheck, waiting for a core",
        "plan: in the queue, 2 ahead",
    ]


def test_the_plan_is_shown_while_it_is_written() -> None:
    written, now = io.StringIO(), [0.0]
    display = PlainDisplay(make_console(written), lambda: now[0])
    now[0] += PROGRESS_PAUSE
    display.progress(Progress("", 0, 5, 0.0, "{"))
    assert written.getvalue() == "plan is being written: 5 tokens so far\n"
