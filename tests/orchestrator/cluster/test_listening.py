"""The library that has a process listen at one address, in processes that bind sockets. Nothing here needs Ray."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster.listening import ADDRESS, NoLibrary, listen_at, listening

ROOT = Path(__file__).parents[3]
FOUR, SIX = socket.AF_INET, socket.AF_INET6
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
ALL = {FOUR: "0.0.0.0", SIX: "::"}  # noqa: S104

# Binds a socket for each [family, kind, only_six, host, port], and prints the hosts, or the errors by number.
PROGRAM = """
import json, socket, sys

def bound(family, kind, only_six, host, port):
    with socket.socket(family, kind) as opened:
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_six)
        try:
            opened.bind((host, port))
        except OSError as error:
            return error.errno
        return opened.getsockname()[0]

if len(sys.argv) > 2:
    from orchestrator.cluster.listening import listen_at
    listen_at(sys.argv[2])
print(json.dumps([bound(*wanted) for wanted in json.loads(sys.argv[1])]))
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that may compile the library."""
    if shutil.which("cc") is None:
        pytest.skip("the library needs a C compiler")
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", ADDRESS)}
    return {**environment, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}


def bound(environ: dict[str, str], *wanted: tuple[int, int, bool, str, int], then: str = "") -> Any:
    """Return the results of the program. It calls `listen_at` with `then`, if that is not empty."""
    # By a shell, which is the process that loads the library first.
    command = [
        "sh",
        "-c",
        '"$@"; exit $?',
        "sh",
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps(wanted),
        *filter(None, [then]),
    ]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    return json.loads(process.stdout)


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.2", ["127.0.0.2", "::ffff:127.0.0.2", "::1"]),
        ("::1", ["127.0.0.1", "::1", "::1"]),
        ("no address", ["0.0.0.0", "::", "::"]),  # noqa: S104 - what a process without the library has
    ],
)
def test_sockets_for_all_addresses_are_bound_to_one(address: str, hosts: list[str], environ: dict[str, str]) -> None:
    families = ((FOUR, False), (SIX, False), (SIX, True))
    wanted = [(family, STREAM, only_six, ALL[family], 0) for family, only_six in families]
    assert bound(listening(environ, address), *wanted) == hosts
    if address != "no address":
        assert bound(listening(environ), *wanted, then=address) == hosts


def test_other_sockets_are_bound_as_asked(environ: dict[str, str]) -> None:
    wanted = [
        (FOUR, STREAM, False, "127.0.0.3", 0),
        (SIX, STREAM, False, "::1", 0),
        (FOUR, DATAGRAM, False, ALL[FOUR], 0),
    ]
    assert bound(listening(environ, "127.0.0.2"), *wanted) == ["127.0.0.3", "::1", ALL[FOUR]]


def test_a_port_is_kept_and_its_errors_are_those_of_the_address(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        wanted = (FOUR, STREAM, False, ALL[FOUR], server.getsockname()[1])
        assert bound(listening(environ, "127.0.0.2"), wanted) == [errno.EADDRINUSE]
        assert bound(listening(environ, "127.0.0.3"), wanted) == ["127.0.0.3"]
    assert bound(listening(environ, "192.0.2.77"), wanted) == [errno.EADDRNOTAVAIL]


def test_what_was_preloaded_before_stays_so(environ: dict[str, str]) -> None:
    first = listening(environ, "127.0.0.2")
    again = listening({**first, "LD_PRELOAD": f"{first['LD_PRELOAD']} /usr/lib/other.so:/usr/lib/third.so"})
    assert again["LD_PRELOAD"].split(":") == [first["LD_PRELOAD"], "/usr/lib/other.so", "/usr/lib/third.so"]
    assert ADDRESS not in again


def test_the_library_is_compiled_once(environ: dict[str, str]) -> None:
    library = listening(environ)["LD_PRELOAD"]
    assert Path(library).is_relative_to(environ["XDG_STATE_HOME"])
    assert listening({**environ, "PATH": "/none"})["LD_PRELOAD"] == library


def test_without_a_compiler_what_to_install_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoLibrary, match=r"no C compiler `cc`.*; accepted: one in PATH \(`apt install gcc libc6-dev`"):
        listening({"PATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho arpa/inet.h: No such file >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(
        NoLibrary, match=r"bind\.c: arpa/inet\.h: No such file; accepted: a C compiler with the headers"
    ):
        listening({"PATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})


def test_a_library_that_cannot_be_loaded_is_refused_and_compiled_again(environ: dict[str, str], tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no library > $5\n")  # after -O2 -shared -fPIC -o
    compiler.chmod(0o755)
    with pytest.raises(NoLibrary, match="accepted: XDG_STATE_HOME on a disk from which programs may be run"):
        listening({**environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert listening(environ)["LD_PRELOAD"]


@pytest.mark.parametrize("name", ["two words", "a:b"])
def test_a_folder_that_cannot_be_preloaded_from_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(NoLibrary, match="accepted: XDG_STATE_HOME without space and ':'"):
        listening({"XDG_STATE_HOME": str(tmp_path / name)})


def test_a_process_without_the_library_says_so() -> None:
    with pytest.raises(NoLibrary, match=r"this process has no bind\.so"):
        listen_at("127.0.0.2")
