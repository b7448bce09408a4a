"""Judge answers to jobs that are written as a chat writes them, with their files in the text."""

import re
from collections.abc import Sequence

from benchmarks.jobs.chat_files import files_in
from benchmarks.jobs.job import BenchJob, JobAnswer

Mistake = tuple[str, str, str]  # the pattern that is replaced in a right answer, by what, and part of the fault then


def chat_answer(job: BenchJob, text: str) -> JobAnswer:
    """Return the answer that has the files in its text."""
    return JobAnswer(text, files_in(text, job.outputs))


def assert_refused(job: BenchJob, right: str, mistakes: Sequence[Mistake]) -> None:
    """Assert that a right answer with each of these mistakes is refused for what is wrong with it."""
    for old, new, fault in mistakes:
        wrong = re.sub(old, new, right, flags=re.MULTILINE)
        assert wrong != right, old
        faults = job.check(chat_answer(job, wrong))
        assert any(fault in it for it in faults), (new, faults)
