"""The checks of held-out jobs accept right answers in different words, and refuse wrong ones for what is wrong."""

from collections import ChainMap

import pytest

from benchmarks.jobs.job import BenchJob
from benchmarks.jobs.measure import JOBS
from tests.benchmarks import (
    test_jobs_later,
    test_jobs_later_code,
    test_jobs_simple,
    test_jobs_simple_code,
    test_jobs_unseen,
    test_jobs_unseen_code,
    test_jobs_unseen_parts,
)
from tests.benchmarks.chat_answers import assert_refused, chat_answer
from tests.benchmarks.test_jobs import worthless

MODULES = (
    test_jobs_later,
    test_jobs_later_code,
    test_jobs_simple,
    test_jobs_simple_code,
    test_jobs_unseen,
    test_jobs_unseen_code,
    test_jobs_unseen_parts,
)
RIGHT = ChainMap(*(module.RIGHT for module in MODULES))
OTHER_WORDS = ChainMap(*(module.OTHER_WORDS for module in MODULES))
WRONG = ChainMap(*(module.WRONG for module in MODULES))


@pytest.fixture(
    params=[pytest.param(job, marks=pytest.mark.slow if job.group == "code" else ()) for job in JOBS if job.held_out],
    ids=lambda job: job.name,
)
def job(request: pytest.FixtureRequest) -> BenchJob:
    job: BenchJob = request.param
    return job


def test_right_answers_in_different_words_are_accepted(job: BenchJob) -> None:
    assert job.check(chat_answer(job, RIGHT[job.name])) == []
    assert job.check(chat_answer(job, OTHER_WORDS[job.name])) == []


def test_wrong_answers_are_refused_for_what_is_wrong(job: BenchJob) -> None:
    assert len(WRONG[job.name]) >= (2 if job.name in test_jobs_simple.WRONG else 3)
    assert_refused(job, RIGHT[job.name], WRONG[job.name])


def test_answers_without_content_are_refused(job: BenchJob) -> None:
    for answer in worthless(job):
        assert job.check(answer), answer
