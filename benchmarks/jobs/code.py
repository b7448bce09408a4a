"""The jobs with code and tests. Every second one is held out; the two halves are equally hard."""

from typing import Final

from benchmarks.jobs.job import Job

JOBS: Final[tuple[Job, ...]] = ()
