"""The benchmark of critical paths: workloads, where time went, how it goes on, its page and its commands."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.critical_path.compare import changes
from orchestrator.bench.critical_path.measure import PathTime, StepBar, TaskMeasurement, Way, summaries
from orchestrator.bench.critical_path.page import history_page, page
from orchestrator.bench.critical_path.run import rounds_of
from orchestrator.bench.critical_path.sessions import MeasuringSession, Sessions, read_session
from orchestrator.bench.critical_path.workloads import JOINED, choose, workloads
from orchestrator.errors import InputError
from orchestrator.task.analysis import analyze_task
from tests.orchestrator.cli.cli_command import make_command

STAMP: Mapping[str, object] = {"workloads": {"wide-4": "abc"}, "models": {"m": 1}, "rounds": 2}


def row(
    wall: float, number: int, way: Way = "as-planned", task: str = "wide-4", status: str = "done"
) -> TaskMeasurement:
    """Return the measurement of a run of two steps."""
    return TaskMeasurement(
        workload=task,
        task=task,
        way=way,
        number=number,
        run=f"run-{way}-{number}",
        status=status,
        wall=wall,
        predicted=0.8 * wall,
        path=0.9 * wall,
        path_steps=("S1", "S2"),
        critical_steps=2,
        serial_estimate=1.5 * wall,
        best=0.5 * wall,
        bound=3.0,
        concurrency=1.2,
        steps=2,
        done=2,
        retried=0,
        tokens_on_path=100,
        tokens_off_path=50,
        cached_tokens=10,
        width=2,
        mean_width=1.5,
        peak_bytes=1 << 26,
        where=PathTime(0.1 * wall, 0.1 * wall, 0.6 * wall, 0.0, 0.0, 0.1 * wall, 0.1 * wall),
        widths=((0.0, 1), (0.5 * wall, 2)),
        bars=(StepBar("S1", 0.0, wall, True, 0.1 * wall, 1), StepBar("S2<b>", 0.0, 0.5 * wall, False, 0.0, 2)),
    )


def session(*rows: TaskMeasurement, name: str = "20260101-000000", complete: bool = True) -> MeasuringSession:
    """Return a session with these measurements."""
    return MeasuringSession(
        name, 1_800_000_000.0, complete, "a command", {"processor": "p", "cores": 2}, {}, STAMP, rows
    )


def test_the_workloads_have_the_shapes_that_their_names_promise() -> None:
    known = workloads()
    widths = {name: max(map(len, analyze_task(one.tasks[name]).waves)) for name, one in known.items() if one.paired}
    assert [widths[f"wide-{width}"] for width in (4, 16, 64, 100)] == [4, 16, 64, 100]
    assert (widths["deep"], widths["diamond"], widths["shared"], widths["code"]) == (1, 4, 16, 4)
    assert [len(analyze_task(known[f"wide-{width}"].tasks[f"wide-{width}"]).waves) for width in (16, 64)] == [2, 3]
    assert all(
        len(step.inputs) <= JOINED for one in known.values() for task in one.tasks.values() for step in task.plan.steps
    )
    assert len(analyze_task(known["deep"].tasks["deep"]).waves) == 20
    calls = [step for step in known["tools"].tasks["tools"].plan.steps if step.kind == "tool"]
    assert len(calls) == 1500
    assert {task.priority for task in known["mixed"].tasks.values()} == {"interactive", "batch"}
    assert workloads() == known, "they are the same each time"


def test_a_name_means_a_workload_or_a_family() -> None:
    known = workloads()
    assert choose(["wide", "deep", "wide-4"], known) == ["wide-4", "wide-16", "wide-64", "wide-100", "deep"]
    with pytest.raises(KeyError, match="wider"):
        choose(["wider"], known)


def test_every_other_pair_begins_with_the_serial_run() -> None:
    known = workloads()
    rounds = [(one.way, one.number) for one in rounds_of(known["deep"], 2, serial=True)]
    assert rounds == [("as-planned", 0), ("as-planned", 1), ("serial", 1), ("serial", 2), ("as-planned", 2)]
    assert {one.way for one in rounds_of(known["mixed"], 2, serial=True)} == {"as-planned"}


def test_a_speedup_comes_from_pairs_in_which_both_runs_are_done() -> None:
    rows = [row(9.0, 0), row(1.0, 1), row(2.0, 1, "serial"), row(1.0, 2), row(4.0, 2, "serial", status="failed")]
    (one,) = summaries(rows)
    assert (one.cold, one.wall, one.rounds) == (9.0, 1.0, 2)
    assert one.speedup is not None
    assert (one.speedup.median, one.speedup.low, one.speedup.rounds) == (2.0, None, 1)
    (unpaired,) = summaries([row(1.0, 1), row(2.0, 2, "serial")])
    assert unpaired.speedup is None


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6))
def test_the_parts_of_the_time_come_to_the_wall_time(walls: list[float]) -> None:
    (found,) = summaries([row(wall, number) for number, wall in enumerate(walls, start=1)])
    assert sum(asdict(found.where).values()) == pytest.approx(found.wall)


def test_a_prediction_is_judged_only_when_the_task_has_run_twice_before() -> None:
    assert summaries([row(1.0, 0), row(1.0, 1)])[0].prediction_error is None
    error = summaries([row(1.0, 0), row(1.0, 1), row(1.0, 2)])[0].prediction_error
    assert error == pytest.approx(0.8 / 0.9 - 1)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
def test_a_session_against_itself_has_not_changed(walls: list[float]) -> None:
    one = session(*(row(wall, number) for number, wall in enumerate(walls, start=1)))
    (change,) = changes(one, one)
    assert change.ratio == pytest.approx(1.0)
    assert change.verdict == "no change that is certain"


def test_a_workload_that_became_slower_is_called_so_and_another_one_is_not_compared() -> None:
    before = session(row(1.0, 1), row(1.01, 2), row(0.99, 3))
    after = session(row(2.0, 1), row(2.01, 2), row(1.99, 3))
    assert [one.verdict for one in changes(before, after)] == ["slower"]
    assert [one.verdict for one in changes(after, before)] == ["faster"]
    other = replace(after, stamp={"workloads": {"wide-4": "changed"}})
    assert [one.verdict for one in changes(before, other)] == ["not comparable"]


def test_an_interrupted_session_goes_on_and_a_complete_one_does_not(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    begun = sessions.begin("a command", STAMP).add([row(1.0, 0)])
    file = sessions.write(begun)
    assert read_session(file) == begun
    assert sessions.unfinished(STAMP) == begun
    assert sessions.unfinished({**STAMP, "rounds": 3}) is None
    assert begun.find("wide-4", "wide-4", "as-planned", 0) is not None
    assert begun.find("wide-4", "wide-4", "serial", 1) is None
    sessions.write(begun.completed())
    assert sessions.unfinished(STAMP) is None
    assert sessions.find("last") == begun.completed()


def test_a_file_that_is_no_session_is_left_out_of_the_list_and_refused_by_name(tmp_path: Path) -> None:
    torn = tmp_path / "torn.json"
    torn.write_text('{"id": "x"', encoding="utf-8")
    assert Sessions(tmp_path).all() == []
    with pytest.raises(InputError, match="no session"):
        Sessions(tmp_path).find(str(torn))
    with pytest.raises(InputError, match="critical-path"):
        Sessions(tmp_path).find("last")


class Page(HTMLParser):
    """Collects the tags and the addresses of a page, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the tag is the one that was opened last."""
        assert self._open.pop() == tag


def test_the_page_needs_nothing_but_itself() -> None:
    one = session(row(9.0, 0), row(1.0, 1), row(2.0, 1, "serial"))
    for text in (page(one), history_page([one, replace(one, id="later")]), history_page([]), page(session())):
        found = Page(text)
        assert not found.tags & {"script", "link", "img", "iframe"}
        assert all(address.startswith("#") for address in found.addresses)
        assert "prefers-color-scheme: dark" in text
        assert "http" not in text.replace("http-equiv", "")
    assert "S2&lt;b&gt;" in page(one), "what a document says is no markup"


def test_the_command_measures_a_workload_a_document_and_a_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cli = make_command(home)
    task = tmp_path / "own.json"
    steps = workloads()["diamond"].tasks["diamond"].model_dump(mode="json", exclude_defaults=True)
    task.write_text(json.dumps(steps), encoding="utf-8")
    html = tmp_path / "page.html"
    told = cli("bench", "critical-path", str(task), "--rounds", "1", "--html", str(html), "--json")
    assert told.code == 0, told.err
    (one,) = told.json["summaries"]
    assert one["task"] == "own"
    assert one["statuses"] == {"done": 1}
    assert one["speedup"]["rounds"] == 1
    assert 0 < one["efficiency"] <= 1
    assert sum(one["where"].values()) == pytest.approx(one["wall"], rel=0.05)
    assert one["peak_bytes"] > 1 << 20
    Page(html.read_text(encoding="utf-8"))
    listed = cli("bench", "history", "--json").json["sessions"]
    assert [past["complete"] for past in listed] == [True]
    (change,) = cli("bench", "compare", "last", told.json["id"], "--json").json["changes"]
    assert change["ratio"] == pytest.approx(1.0)


def test_the_command_says_what_it_would_accept(tmp_path: Path) -> None:
    cli = make_command(tmp_path / "home")
    for words, reason in (
        (("wider",), "is no workload"),
        (("--replay", "last"), "there are no runs"),
        (("deep", "--model", "nobody"), "has no such model"),
        (("missing.json",), "missing.json"),
    ):
        told = cli("bench", "critical-path", *words)
        assert told.code == 2
        assert reason in told.err
    assert cli("bench", "compare", "one", "two").code == 2
