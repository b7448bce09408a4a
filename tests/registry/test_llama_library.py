"""The build of llama.cpp that a registry names, and the default."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.registry.errors import RegistryError
from orchestrator.registry.llama_library import ENVIRONMENT, default_library, installed_library, why_no_library
from orchestrator.registry.load import empty_registry, load_registry
from orchestrator.registry.models import Registry
from orchestrator.registry.watch import Reloader, difference
from tests.registry.conftest import WriteGguf

Load = Callable[..., Registry]


@pytest.fixture
def load(tmp_path: Path, write_gguf: WriteGguf) -> Load:
    """Load a registry whose models have these libraries; `named` goes into the defaults."""
    write_gguf(tmp_path / "m.gguf")

    def make(named: str | None = None, **models: str | None) -> Registry:
        lines = [f"defaults: {{llama_library: {named}}}"] if named else []
        lines.append("models:")
        for name, library in models.items():
            lines.append(f"  {name}: {{file: m.gguf{f', llama_library: {library}' if library else ''}}}")
        lines.append(f"roles: {{worker: {{model: {next(iter(models))}}}}}")
        path = tmp_path / "registry.yaml"
        path.write_text("\n".join(lines) + "\n")
        return load_registry(path)

    return make


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A folder whose `libllama.so` is a shared library of this machine."""
    installed = installed_library()
    assert installed is not None, "llama-cpp-python is installed for tests"
    (tmp_path / "build").mkdir()
    shutil.copy2(installed, tmp_path / "build" / "libllama.so")
    return tmp_path / "build"


def test_a_model_names_a_file_or_a_folder_and_others_have_that_of_the_defaults(
    load: Load, build: Path, tmp_path: Path
) -> None:
    file = str(build / "libllama.so")
    registry = load(named="./build", a=None, b="build/libllama.so", c=str(build))
    assert {model.options.llama_library for model in registry.models.values()} == {file}
    assert registry.defaults.llama_library == file
    assert [model.why_not for model in registry.models.values()] == [None] * 3
    assert load(a=None, b="build").models["a"].options.llama_library is None


def test_a_library_that_cannot_be_loaded_makes_only_its_model_unusable(load: Load, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    registry = load(a="nowhere/libllama.so", b="text", c=None)
    accepted = "accepted: a build of llama.cpp, libllama.so or its folder"
    assert [model.why_not for model in registry.models.values()] == [
        f"model a: llama_library {tmp_path}/nowhere/libllama.so: there is no such file; {accepted}",
        f"model b: llama_library {tmp_path}/text: it is no shared library; {accepted}",
        None,
    ]
    assert registry.why_not("worker") is not None


def test_a_library_for_another_kind_of_machine_is_no_library(build: Path) -> None:
    file = build / "libllama.so"
    assert why_no_library(file) is None
    data = bytearray(file.read_bytes()[:64])
    data[18] ^= 0xFF
    file.write_bytes(data)
    assert why_no_library(file) == "it was built for another kind of machine"


def test_a_model_of_another_server_has_no_library(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    remote = "backend: openai, base_url: http://localhost:1/v1, model: x"
    text = "defaults: {{llama_library: nowhere}}\nmodels: {{far: {{{0}}}}}\nroles: {{worker: {{model: far}}}}\n"
    path.write_text(text.format(remote))
    far = load_registry(path).models["far"]
    assert (far.options.llama_library, far.why_not) == (None, None)
    path.write_text(text.format(f"{remote}, llama_library: nowhere"))
    with pytest.raises(RegistryError, match=r"models\.far\.llama_library: is for a model that llama\.cpp loads here"):
        load_registry(path)


def test_a_change_of_the_library_ends_the_engines_that_have_loaded_it(load: Load, build: Path) -> None:
    before = load(a=None, b="build")
    reloader = Reloader(before)
    reloader.poll()
    reloader.poll()
    assert difference(before, load(a="build", b="build")).retired == {"a"}
    load(a=None, b="build")
    file = build / "libllama.so"
    shutil.copyfile(file, build / "new")
    os.replace(build / "new", file)
    changes = [change for _ in range(3) if (change := reloader.poll())]
    assert [change.difference.retired for change in changes] == [{"b"}]


def test_the_default_is_that_of_the_environment_or_the_installed_one(build: Path) -> None:
    assert default_library({}) == installed_library()
    assert default_library({ENVIRONMENT: ""}) == installed_library()
    for named in (build, build / "libllama.so"):
        assert default_library({ENVIRONMENT: str(named)}) == build / "libllama.so"
    assert empty_registry(build / "registry.yaml").defaults.llama_library is None


def test_the_installed_library_is_looked_for_without_an_import() -> None:
    loaded = "llama_cpp" in sys.modules
    library = installed_library()
    assert library is not None
    assert library.is_file()
    assert ("llama_cpp" in sys.modules) is loaded
