"""Read prompts with the outcomes of a weak and a strong model, and embed and compare them once.

The format is that of RouteLLM's evaluation data (lm-sys/RouteLLM, Apache-2.0), a CSV file with the columns
subject, prompt, weak_correct, strong_correct. The data are no part of this project.
"""

import csv
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Situation
from orchestrator.task import lexical

COLUMNS = ("subject", "prompt", "weak_correct", "strong_correct")


class DataError(ValueError):
    """A file of outcomes is missing or is not one."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Prompts, whether each model answered them correctly, and how similar they are to each other."""

    name: str
    digest: str  # a hash of the file
    subjects: tuple[str, ...]
    situations: tuple[Situation, ...]
    correct: NDArray[np.float64]  # 1 for a right answer, shape (prompts, 2): the weak model's, the strong model's
    vectors: NDArray[np.float32]
    # The cosine of each two prompts' vectors, shape (prompts, prompts); mapped from a file.
    similarities: NDArray[np.float16]


def read_outcomes(file: Path, cache: Path, dimensions: int = lexical.LEARNING_DIMENSIONS) -> Outcomes:
    """Return the outcomes of a file. Embeddings (of `dimensions` numbers) and similarities are kept in `cache`.

    Raises DataError if the file is missing or has other columns or values, and OSError if the cache cannot be written.
    """
    try:
        data = file.read_bytes()
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}; give the folder of gsm8k.csv and mmlu.csv with --data") from error
    if not rows or set(COLUMNS) - set(rows[0]):
        raise DataError(f"{file}: it should be a CSV file with the columns {', '.join(COLUMNS)}")
    try:
        correct = np.array([[float(row["weak_correct"]), float(row["strong_correct"])] for row in rows])
    except (TypeError, ValueError) as error:
        raise DataError(f"{file}: weak_correct and strong_correct should be 0 or 1: {error}") from error
    situations = tuple(
        Situation(task_type=None, kind="chat", role="frontdoor", text=row["prompt"], interactive=False) for row in rows
    )
    digest = hashlib.sha256(data).hexdigest()[:16]
    stem = f"{file.stem}-{digest}-{lexical.NAME}-{dimensions}"
    vectors = _cached(cache / f"{stem}.npy", [row["prompt"] for row in rows], dimensions)
    similarities = _similarities(cache / f"{stem}-similar.npy", vectors)
    return Outcomes(
        file.stem, digest, tuple(row["subject"] for row in rows), situations, correct, vectors, similarities
    )


def _cached(file: Path, texts: list[str], dimensions: int) -> NDArray[np.float32]:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        _save(file, lexical.embed(texts, dimensions))
    vectors: NDArray[np.float32] = np.load(file)
    return vectors


def _similarities(file: Path, vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    if not file.exists():
        _save(file, np.vstack([(block @ vectors.T).astype(np.float16) for block in np.array_split(vectors, 16)]))
    similarities: NDArray[np.float16] = np.load(file, mmap_mode="r")
    return similarities


def _save(file: Path, array: NDArray[np.floating]) -> None:
    """Write an array so that a run that was killed leaves no half of it."""
    part = file.with_suffix(".part.npy")
    np.save(part, array)
    part.replace(file)
