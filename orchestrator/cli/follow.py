"""Show a run of the daemon until it has ended, and print its report."""

from orchestrator.cli.daemon import NoDaemon, answers
from orchestrator.cli.foreground import RunClient
from orchestrator.cli.run import report_run, run_and_report
from orchestrator.cli.settings import Settings
from orchestrator.run.journal.reader import JournalReader


def follow(options: Settings, run: str, *, full: bool, as_json: bool) -> None:
    with JournalReader.open_to_read(options.home) as journal:
        ended = journal.run(run).finished is not None
    # A run that has ended needs no daemon.
    if ended:
        report_run(options, run, full=full, as_json=as_json)
    if not answers(options.home):
        raise NoDaemon(options.home)

    async def existing_run(_: RunClient) -> str:
        return run

    run_and_report(options, [existing_run], None, full=full, as_json=as_json)
