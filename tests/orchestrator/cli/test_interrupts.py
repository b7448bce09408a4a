"""Ctrl-C, signals and kills while a run is going on, and the live view in a real terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.orchestrator.cli.cli_command import COMMAND, RECORDS, Cli, environment

STEPS = 400
SECONDS = 100
ROWS, COLUMNS = 24, 80


@pytest.fixture
def long_task(tmp_path: Path) -> Path:
    """A task that takes far longer than any test waits for it."""
    steps = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": "Summarize a.txt.",
            "inputs": ["a.txt"],
            "outputs": [f"s{number}.txt"],
        }
        for number in range(1, STEPS + 1)
    ]
    file = tmp_path / "long.json"
    file.write_text(json.dumps({"objective": "Take long", "plan": {"steps": steps}}))
    return file


def _start(home: Path, task: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "run", str(task), "--dir", str(RECORDS), "--mode", "serial", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home))


def _wait_for(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never written")


def _engines(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_cancels_the_run_in_order(command: Cli, home: Path, long_task: Path, number: signal.Signals) -> None:
    process = _start(home, long_task)
    _wait_for(process, b"S3 done")
    engines = _engines(process)
    assert engines
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert b"cancelling" in err
    assert b"Traceback" not in err
    assert b"cancelled by the user" in out
    assert psutil.wait_procs(engines, timeout=SECONDS)[1] == []
    rows = command("runs", "--json").json["runs"]
    assert [row["status"] for row in rows] == ["cancelled"]
    told = command("show", "last", "--json").json
    states = [step["state"] for step in told["steps"]]
    assert states[:3] == ["done"] * 3
    assert set(states[-3:]) == {"cancelled"}
    assert "free" in command("doctor").out
    again = command("resume", "last")
    assert again.code == 2
    assert "has ended: cancelled" in again.err


def test_a_run_going_on_can_be_read_but_not_joined_and_cancelled_as_one_json_object(
    command: Cli, home: Path, long_task: Path
) -> None:
    process = _start(home, long_task, "--json", "--compare-serial")
    deadline = time.monotonic() + SECONDS
    while not list(home.glob("runs/*/artifacts/s2.txt")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    assert command("show", "last", "--json").json["status"] == "running"
    second = command("run", long_task, "--dir", RECORDS, "--json")
    assert second.code == 1
    assert f"process {process.pid} owns this state folder" in second.json["error"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (130, b"")
    told = json.loads(out)
    assert told["status"] == "cancelled"
    assert told["error"] == "cancelled by the user"
    assert len(told["steps"]) == STEPS
    assert told["speedup"] is None, "the other one of the pair never ran"


def test_a_killed_run_can_be_resumed(command: Cli, home: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    names = [f"{letter}.txt" for letter in "abcdabcdab"]
    steps = [
        {"id": f"S{n}", "actor": "worker", "action": f"Summarize {name}.", "inputs": [name], "outputs": [f"s{n}.txt"]}
        for n, name in enumerate(names, start=1)
    ]
    task.write_text(json.dumps({"objective": "Ten", "plan": {"steps": steps}}))
    process = _start(home, task)
    _wait_for(process, b"S2 done")
    engines = _engines(process)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert psutil.wait_procs(engines, timeout=SECONDS)[1] == [], "engines end with their parent"
    before = command("show", "last", "--json").json
    done = [step["id"] for step in before["steps"] if step["state"] == "done"]
    assert "S2" in done
    told = command("resume", "last", "--json")
    assert told.code == 0, told
    attempts = {step["id"]: len(step["attempts"]) for step in told.json["steps"]}
    assert all(attempts[step] == 1 for step in done), "what is done does not run again"
    assert told.json["status"] == "done"


def test_a_reader_that_goes_away_does_not_end_the_run(command: Cli, home: Path, long_task: Path) -> None:
    task = json.loads(long_task.read_text())
    task["plan"]["steps"] = task["plan"]["steps"][:3]
    long_task.write_text(json.dumps(task))
    line = f"{' '.join(COMMAND)} run {long_task} --dir {RECORDS} 2>&1 | head -n 2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, env=environment(home), timeout=SECONDS, check=False, text=True
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
    assert [row["status"] for row in command("runs", "--json").json["runs"]] == ["done"]


class Terminal:
    """A command in a terminal of its own, which is read until something shows up."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment(home, TERM="xterm-256color"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Read until `pattern` has been written since the last call."""
        seen = ""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, seen):
            ready, _, _ = select.select([self.leader], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} was never shown, but:\n{self.text[-2000:]}"
            piece = self._read()
            assert piece, f"{pattern!r} was never shown, but:\n{self.text[-2000:]}"
            seen += piece
            self.text += piece

    def _read(self) -> str:
        try:
            return os.read(self.leader, 1 << 16).decode(errors="replace")
        except OSError:  # the other end is closed
            return ""

    def press(self, keys: bytes) -> None:
        """Type, as a person would."""
        os.write(self.leader, keys)

    def end(self) -> int:
        """Read all that is left and return the exit code."""
        while piece := self._read():
            self.text += piece
        return self.process.wait(SECONDS)


@pytest.fixture
def terminal(home: Path, long_task: Path) -> Iterator[Terminal]:
    """A long run in a terminal."""
    shown = Terminal(home, "run", str(long_task), "--dir", str(RECORDS), "--mode", "serial")
    yield shown
    if shown.process.poll() is None:
        os.killpg(shown.process.pid, signal.SIGKILL)
    shown.process.wait()
    os.close(shown.leader)


def test_the_live_view_moves_and_ctrl_c_ends_it_tidily(terminal: Terminal) -> None:
    terminal.read_until(r"[1-9]\d* of 400 done")
    terminal.read_until(r"running.*worker")
    terminal.press(b"\x03")
    terminal.read_until("cancelling; ctrl-C again ends at once")
    assert terminal.end() == 130
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l"), "the cursor is back"
    final = terminal.text[terminal.text.rindex("\x1b[?25h") :]
    assert "cancelled by the user" in final
    assert "Timeline" in final
    assert "more steps" in final


def test_ctrl_c_twice_ends_at_once(terminal: Terminal) -> None:
    terminal.read_until(r"[1-9]\d* of 400 done")
    engines = _engines(terminal.process)
    assert engines
    for engine in engines:
        engine.suspend()  # what it is asked to cancel never ends
    terminal.press(b"\x03")
    terminal.read_until("cancelling; ctrl-C again ends at once")
    assert terminal.process.poll() is None
    terminal.press(b"\x03")
    assert terminal.end() == 130
    assert "ended at once" in terminal.text
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l"), "the cursor is back"
    for engine in engines:
        engine.resume()
    assert psutil.wait_procs(engines, timeout=SECONDS)[1] == [], "engines end with their parent"
