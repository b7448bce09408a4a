"""A training batch is a function of its step: training that was interrupted goes on with the same ones."""

from dataclasses import replace

import numpy as np
import psutil
import pytest

from benchmarks.tiny.batches import LONG_EVERY, batches_from, training_batch
from benchmarks.tiny.sizes import CONTEXT, ROW, SIZES, TOKENIZER_FILE
from benchmarks.tiny.tokenizer import BEGIN, Tokenizer

TOKENIZER = Tokenizer.load(TOKENIZER_FILE)
DRAFT = SIZES["draft"]
FEW_ROWS = replace(DRAFT, rows=16)


@pytest.mark.slow
def test_batches_made_ahead_are_those_of_their_steps_up_to_the_last() -> None:
    first = DRAFT.steps - 2
    ahead = list(batches_from(DRAFT, first))
    assert len(ahead) == 2
    for step, batch in enumerate(ahead, first):
        again = training_batch(TOKENIZER, DRAFT, step)
        assert np.array_equal(batch.ids, again.ids)
        assert np.array_equal(batch.weights, again.weights)


@pytest.mark.slow
def test_who_takes_no_more_batches_leaves_no_process() -> None:
    children = psutil.Process().children()
    ahead = batches_from(DRAFT, 0)
    next(ahead)
    assert len(psutil.Process().children()) == len(children) + 1
    ahead.close()
    assert psutil.Process().children() == children


@pytest.mark.slow
def test_nothing_is_made_after_the_last_step() -> None:
    assert not list(batches_from(DRAFT, DRAFT.steps))


def test_some_rows_are_as_long_as_the_context() -> None:
    lengths = [training_batch(TOKENIZER, FEW_ROWS, step).weights.shape for step in (LONG_EVERY - 1, LONG_EVERY)]
    assert lengths == [(FEW_ROWS.rows * ROW // CONTEXT, CONTEXT), (FEW_ROWS.rows, ROW)]


def test_rows_are_filled_with_whole_examples_whose_answers_count_most() -> None:
    batch = training_batch(TOKENIZER, FEW_ROWS, FEW_ROWS.steps - 1)
    assert (batch.ids[:, 0] == BEGIN).all()
    used = (batch.weights > 0).mean()
    answers = (batch.weights == 1).mean()
    assert used > 0.8
    assert 0.1 < answers < used
