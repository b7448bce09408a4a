"""Engines for the tests: random weights, so that they are there at once. One thread: test machines are busy."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.models import (
    ModelShape,
    write_jamba,
    write_lfm2,
    write_llama,
    write_mamba,
    write_qwen35,
    write_windowed,
)

WINDOW = 32  # tokens


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `quantised.gguf`, `float.gguf` and `plain.gguf` (without a chat template)."""
    folder = tmp_path_factory.mktemp("models")
    write_llama(folder / "quantised.gguf", ModelShape(weights="q8_0"))
    write_llama(folder / "float.gguf", ModelShape(weights="f32"))
    write_llama(folder / "plain.gguf", ModelShape(chat_template=None))
    return folder


@pytest.fixture(scope="session")
def recurrent_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `mamba.gguf`, and with the hybrids `jamba.gguf`, `lfm2.gguf` and `qwen35.gguf`, these also with
    experts as `moe.gguf`, `lfm2-moe.gguf` and `qwen35-moe.gguf`, and `lfm2-windowed.gguf`; all of F32 weights. Those
    called `qwen35` have MTP heads. llama.cpp has no architecture with experts and recurrent layers only."""
    folder, shape = tmp_path_factory.mktemp("recurrent"), ModelShape(weights="f32", layers=4, context=1024)
    write_mamba(folder / "mamba.gguf", shape)
    write_jamba(folder / "jamba.gguf", shape)
    write_jamba(folder / "moe.gguf", shape, experts=4)
    write_lfm2(folder / "lfm2.gguf", shape)
    write_lfm2(folder / "lfm2-moe.gguf", shape, experts=4)
    write_lfm2(folder / "lfm2-windowed.gguf", shape, window=WINDOW)
    write_qwen35(folder / "qwen35.gguf", shape, mtp=True)
    write_qwen35(folder / "qwen35-moe.gguf", shape, experts=4, mtp=True)
    return folder


@pytest.fixture(scope="session")
def windowed_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `windowed.gguf` and, with experts, `windowed-moe.gguf`, both of F32 weights."""
    folder, shape = tmp_path_factory.mktemp("windowed"), ModelShape(weights="f32", layers=4, context=1024)
    write_windowed(folder / "windowed.gguf", shape, window=WINDOW)
    write_windowed(folder / "windowed-moe.gguf", shape, window=WINDOW, experts=4)
    return folder


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Replace functions in the engine processes that are started from now on: sabotage("module:name", code) for each.

    The `code` defines the function `replaced`. Python runs it in the new process before anything else.
    """

    def make(where: str, code: str) -> None:
        module, _, name = where.partition(":")
        owner, _, attribute = f"module.{name}".rpartition(".")
        body = f"import {module} as module\n{code}\nsetattr({owner}, {attribute!r}, replaced)\n"
        guard = "import sys\nif 'orchestrator.engine.worker.process' in sys.orig_argv:\n"
        with (tmp_path / "sitecustomize.py").open("a") as file:
            file.write(guard + textwrap.indent(body, "    "))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    return make
