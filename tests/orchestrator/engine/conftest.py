"""Engines for the tests: random weights, so that they are there at once. One thread: test machines are busy."""

from pathlib import Path

import pytest

from benchmarks.models import Shape, write_llama


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `quantised.gguf`, `float.gguf` and `plain.gguf` (without a chat template)."""
    folder = tmp_path_factory.mktemp("models")
    write_llama(folder / "quantised.gguf", Shape(weights="q8_0"))
    write_llama(folder / "float.gguf", Shape(weights="f32"))
    write_llama(folder / "plain.gguf", Shape(chat_template=None))
    return folder
