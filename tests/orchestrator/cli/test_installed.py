"""The program as `pipx install .` and `uv tool install .` install it: a wheel whose command finds all it needs."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.orchestrator.cli.cli_command import FANOUT, RECORDS, ROOT

LOCK = ROOT / "requirements.lock"
pytestmark = pytest.mark.timeout(600)


def pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    built = pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and what it requires, without any extra.

    The packages are links to those of the environment of the tests, so that nothing is fetched or compiled.
    """
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in required(distribution("orchestrator")):
        link(distribution(name), packages)
    done = pip("--python", folder, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def required(package: Distribution) -> set[str]:
    """Return the names of all packages that a package needs without its extras."""
    names, queue = set[str](), [package]
    while queue:
        for line in queue.pop().requires or ():
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in names:
                names.add(requirement.name)
                queue.append(distribution(requirement.name))
    return names


def link(package: Distribution, folder: Path) -> None:
    """Make a package importable from a folder."""
    for name in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
        target = Path(str(package.locate_file(name)))
        if not (folder / name).exists():
            (folder / name).symlink_to(target)


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
        "orchestrator/cluster/bind.c",
        "orchestrator/model_registry.yaml",
        "orchestrator/procedures/library/vacuum.yaml",
        "orchestrator/api/page/static/app.js",
        "orchestrator/api/page/static/vendor/LICENSE.preact",
        "orchestrator/api/page/static/vendor/preact.js",
        "orchestrator/registry/personas.yaml",
        "orchestrator/registry/catalogue.yaml",
        "orchestrator/registry/server_options.yaml",
        "orchestrator/registry/prompts/general.yaml",
        "orchestrator/registry/adapters/smollm2-135m-frontdoor.gguf",
        "orchestrator/registry/adapters/tiny-large-frontdoor.gguf",
        "orchestrator/registry/tiny/large.gguf",
        "orchestrator/registry/tiny/draft.gguf",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"orchestrator"}


def test_the_installed_command_works_with_the_models_that_come_with_it(installed: Path, tmp_path: Path) -> None:
    command = [installed.with_name("orchestrator")]
    listed = run(command, tmp_path, "models", "--json")
    assert Path(listed["registry"]).is_relative_to(installed.parents[1])
    assert all(model["usable"] for model in listed["models"])
    report = run(command, tmp_path, "run", FANOUT, "--dir", RECORDS, "--json")
    assert report["status"] == "done"


@pytest.mark.parametrize("arguments", [("serve",), ("run", FANOUT, "--dir", RECORDS)])
def test_exports_without_their_extra_are_refused_with_its_name(
    installed: Path, tmp_path: Path, arguments: tuple[str | Path, ...]
) -> None:
    endpoint = {"ORCHESTRATOR_TELEMETRY_ENDPOINT": "http://127.0.0.1:4318"}
    done = subprocess.run(
        [installed.with_name("orchestrator"), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **endpoint},
        check=False,
    )
    assert done.returncode == 2
    assert "needs the extra `otel`; accepted: pip install 'orchestrator[otel]'" in done.stderr


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("hub", ["models", "get", "hf:owner/repo"]),
        ("learning", ["memory", "ask", "MATCH (a) RETURN a"]),
        ("mcp", ["mcp"]),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    extra: str, arguments: list[str], installed: Path, tmp_path: Path
) -> None:
    command = [str(installed.with_name("orchestrator")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(tmp_path)}, check=False)
    assert done.returncode != 0
    assert f"pip install 'orchestrator[{extra}]'" in done.stderr


def test_a_gate_names_the_extra_that_it_needs(installed: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    step = {"id": "S1", "actor": "coder", "action": "Write f.", "outputs": ["f.py"], "gates": ["lint"]}
    task.write_text(json.dumps({"objective": "Write f.py", "plan": {"steps": [step]}}))
    command = [str(installed.with_name("orchestrator")), "run", str(task)]
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode != 0
    assert "pip install 'orchestrator[gates]'" in done.stdout + done.stderr


@pytest.mark.slow
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
