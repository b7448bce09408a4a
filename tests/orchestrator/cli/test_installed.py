"""The program as `pipx install .` and `uv tool install .` install it: a wheel whose command finds all it needs."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.cli.cli_command import FANOUT, RECORDS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree. Without the build backend it is fetched, or the tests are skipped."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    built = pip("wheel", "--no-deps", *isolation, "--wheel-dir", folder, ROOT)
    if built.returncode and "hatchling" in built.stderr and not isolation:
        pytest.skip("hatchling, which builds the wheel, is not installed and cannot be fetched")
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel alone. What it depends on is taken from the environment of the tests."""
    target = tmp_path_factory.mktemp("installed")
    done = pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    assert done.returncode == 0, done.stderr
    return target


def run(installed: Path, home: Path, *arguments: str | Path) -> Any:
    """Run the installed command from another folder, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, installed / "bin" / "orchestrator", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "HOME": str(home)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_wheel_carries_what_the_program_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "model_registry.yaml",
        "registry/personas.yaml",
        "registry/catalogue.yaml",
        "registry/tiny/large.gguf",
        "registry/tiny/draft.gguf",
    } <= names


def test_the_installed_command_works_with_the_models_that_come_with_it(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, tmp_path, "models", "--json")
    assert listed["registry"] == str(installed / "model_registry.yaml")
    assert all(model["usable"] for model in listed["models"])
    report = run(installed, tmp_path, "run", FANOUT, "--dir", RECORDS, "--json")
    assert report["status"] == "done"
