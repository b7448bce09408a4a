"""A request whose plan hangs on what a step finds, planned and run by the embedded models."""

from pathlib import Path

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from tests.orchestrator.run_jobs import RECORDS, execute, report_of

REQUEST = "Summarize the files that index.txt names, then compare the summaries"


async def test_files_that_a_file_names_are_planned_when_it_has_been_read(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "index.txt").write_text("- a.txt\n- c.txt\n")
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text((RECORDS / name).read_text())
    async with Orchestrator.open(tmp_path / "home", load_registry(find_registry(environment={}))) as orchestrator:
        run = await execute(orchestrator, Job(REQUEST, None, folder, "as-planned"))
    report = report_of(tmp_path / "home", run)
    assert report.status == "done"
    assert [(row.after, row.outcome) for row in report.replans] == [("S1", "planned")]
    read = {source for step in report.graph.steps.values() for source in step.inputs}
    assert {"index.txt", "a.txt", "c.txt"} <= read
    assert "b.txt" not in read
    assert report.critical_path.replan_seconds > 0
