"""The program as `pipx install .` and `uv tool install .` install it: a wheel whose command finds all it needs."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.cli.cli_command import FANOUT, RECORDS, ROOT

LOCK = ROOT / "requirements.lock"
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


def run(command: Sequence[str | Path], home: Path, *arguments: str | Path, **environ: str) -> Any:
    """Run the installed command from another folder, and return the JSON that it prints."""
    done = subprocess.run(
        [*map(str, command), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands `uv` and `pipx`, in an environment of their own. Without them, tests are skipped."""
    folder = tmp_path_factory.mktemp("installers")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "-q", "uv", "pipx"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"uv and pipx cannot be fetched: {done.stderr.splitlines()[-1:]}")
    return folder / "bin"


@pytest.fixture(scope="module")
def engine_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of llama-cpp-python. pip has kept it since set-up, so nothing is compiled again."""
    folder = tmp_path_factory.mktemp("engine")
    wanted = next(
        line
        for line in LOCK.read_text().splitlines()
        if line.lower().replace("_", "-").startswith("llama-cpp-python==")
    )
    made = pip("wheel", "--no-deps", "--wheel-dir", folder, wanted)
    assert made.returncode == 0, made.stderr
    return folder


def test_the_wheel_carries_what_the_program_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "model_registry.yaml",
        "registry/personas.yaml",
        "registry/catalogue.yaml",
        "registry/prompts/general.yaml",
        "registry/adapters/smollm2-135m-frontdoor.gguf",
        "registry/tiny/large.gguf",
        "registry/tiny/draft.gguf",
    } <= names


def test_the_installed_command_works_with_the_models_that_come_with_it(installed: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, installed / "bin" / "orchestrator"]
    listed = run(command, tmp_path, "models", "--json", PYTHONPATH=str(installed))
    assert listed["registry"] == str(installed / "model_registry.yaml")
    assert all(model["usable"] for model in listed["models"])
    report = run(command, tmp_path, "run", FANOUT, "--dir", RECORDS, "--json", PYTHONPATH=str(installed))
    assert report["status"] == "done"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("installer", ["uv", "pipx"])
def test_it_can_be_installed_as_a_tool(installer: str, installers: Path, engine_wheel: Path, tmp_path: Path) -> None:
    commands: dict[str, list[str | Path]] = {
        "uv": ["uv", "tool", "install", "--constraints", LOCK, "--find-links", engine_wheel, ROOT],
        "pipx": ["pipx", "install", "--pip-args", f"--constraint {LOCK} --find-links {engine_wheel}", ROOT],
    }
    places = {f"UV_TOOL{kind}_DIR": str(tmp_path / f"uv{kind}") for kind in ("", "_BIN")}
    places |= {f"PIPX_{kind}": str(tmp_path / f"pipx-{kind}") for kind in ("HOME", "BIN_DIR", "MAN_DIR")}
    program, *arguments = commands[installer]
    done = subprocess.run(
        [installers / program, *arguments], capture_output=True, text=True, check=False, env=os.environ | places
    )
    assert done.returncode == 0, done.stderr
    (command,) = (found for found in tmp_path.glob("*/orchestrator") if found.is_file())
    report = run([command], tmp_path, "run", FANOUT, "--dir", RECORDS, "--json")
    assert report["status"] == "done"
