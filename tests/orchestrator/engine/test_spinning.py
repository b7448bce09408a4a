"""How long threads spin: measured with the real libgomp, and read by the processes that come later."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.client.spinning import SPIN_SECONDS
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.processor import cpu_model

_SHORTEST, _LONGEST = 1e-10, 2e-6


def environment(folder: Path | None, **variables: str) -> dict[str, str]:
    """What a new process makes of a folder."""
    code = (
        "import json, pathlib, sys\nfrom orchestrator.engine.client.spinning import spin_environment\n"
        "print(json.dumps(spin_environment(pathlib.Path(sys.argv[1]) if sys.argv[1:] else None)))"
    )
    inherited = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", code, *([] if folder is None else [str(folder)])]
    done = subprocess.run(command, env={**inherited, **variables}, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def spins(found: dict[str, str]) -> int:
    (name,) = found
    assert name == "GOMP_SPINCOUNT"
    return int(found[name])


def kept_spins(folder: Path) -> int:
    """How many spins make the time that a thread spins, by what is kept in the folder."""
    (file,) = folder.glob("*.spin")
    return round(SPIN_SECONDS / float(json.loads(file.read_text())["seconds"]))


@pytest.fixture(scope="module")
def file_name(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the file in which what was measured is kept."""
    folder = tmp_path_factory.mktemp("costs")
    environment(folder)
    (file,) = folder.iterdir()
    return file.name


def test_what_a_spin_takes_is_measured_once_and_then_read(tmp_path: Path) -> None:
    folder = tmp_path / "costs"
    measured = spins(environment(folder))
    assert SPIN_SECONDS / _LONGEST <= measured <= SPIN_SECONDS / _SHORTEST
    (file,) = folder.iterdir()
    stored = json.loads(file.read_text())
    assert measured == round(SPIN_SECONDS / stored["seconds"])
    assert stored["cpu"] == cpu_model()
    file.write_text(json.dumps({**stored, "seconds": 1e-6}))
    assert spins(environment(folder)) == 50, "it was read, not measured"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"cpu": "CPU", "seconds": "soon"}',
        '{"cpu": "CPU", "seconds": 1e-6, "more": 1}',
        '{"cpu": "CPU", "seconds": 1.0}',
        '{"cpu": "CPU", "seconds": 0}',
        '{"cpu": "CPU", "seconds": -1e-8}',
        '{"cpu": "another one", "seconds": 1.9e-6}',
    ],
)
def test_a_file_that_cannot_be_believed_is_measured_anew_and_replaced(
    tmp_path: Path, file_name: str, content: str
) -> None:
    file = tmp_path / file_name
    file.write_text(content.replace("CPU", cpu_model()))
    found = spins(environment(tmp_path))
    assert found == round(SPIN_SECONDS / json.loads(file.read_text())["seconds"])
    assert list(tmp_path.iterdir()) == [file], "nothing unfinished is left"


async def test_an_engine_is_given_what_was_measured(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    spec = EngineSpec(file=str(models / "quantised.gguf"), context=64, slots=1, threads=1, step_costs=str(tmp_path))
    async with await Engine.start(spec) as engine:
        given = psutil.Process(engine.info.pid).environ()["GOMP_SPINCOUNT"]
    assert int(given) == kept_spins(tmp_path)


def test_without_a_folder_or_where_none_can_be_made_it_is_measured_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert spins(environment(None)) >= SPIN_SECONDS / _LONGEST
    assert spins(environment(tmp_path / "file" / "costs")) >= SPIN_SECONDS / _LONGEST


@pytest.mark.parametrize("chosen", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_a_choice_of_the_user_stays(tmp_path: Path, chosen: dict[str, str]) -> None:
    assert environment(tmp_path, **chosen) == {}
    assert not list(tmp_path.iterdir())
