"""An engine's log, and how the end of its process is described."""

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.spawn import describe_exit, launch
from orchestrator.engine.contract import EngineSpec


def test_a_long_log_is_put_aside_when_an_engine_begins(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for size, aside in ((1000, False), (5 << 20, True)):
        log.write_bytes(b"x" * size)
        child = launch(EngineSpec(file="none.gguf", log_file=str(log)))
        child.socket.close()
        child.process.wait(60)
        child.release()
        assert (tmp_path / "a.log.1").exists() is aside
    assert (tmp_path / "a.log.1").stat().st_size == 5 << 20
    assert log.stat().st_size < 1 << 20


ASSERTION = "/home/me/llama.cpp/ggml/src/ggml.c:3100: GGML_ASSERT(ggml_can_mul_mat(a, b / 2)) failed"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "loop.py", line 7, in run\nRuntimeError: the queue does not move'
)
THROWN = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  out of range"


@pytest.mark.parametrize(
    ("code", "log", "described"),
    [
        (-signal.SIGSEGV, "llama_model_loader: - kv 0", "was killed by SIGSEGV"),
        (-signal.SIGKILL, "", "was killed by SIGKILL: the system may have run out of memory"),
        (-signal.SIGABRT, "llama_model_loader: - kv 0", "was killed by SIGABRT"),
        (
            -signal.SIGABRT,
            f"load: done\n{ASSERTION}\n",
            "was killed by SIGABRT: ggml.c:3100: GGML_ASSERT(ggml_can_mul_mat(a, b / 2)) failed",
        ),
        (-signal.SIGABRT, "a.cpp:1: fatal error", "was killed by SIGABRT: a.cpp:1: fatal error"),
        (
            -signal.SIGABRT,
            f"load: done\n{THROWN}",
            "was killed by SIGABRT: terminate called after throwing an instance of 'std::runtime_error' "
            "what(): out of range",
        ),
        (-signal.SIGTERM, ASSERTION, "was killed by SIGTERM"),
        (1, f"load: done\n{TRACEBACK}", "exited with code 1: RuntimeError: the queue does not move"),
        (3, "load: done", "exited with code 3"),
        (-64, "", "was killed by SIGRTMAX"),
    ],
)
def test_the_description_of_an_end_names_the_cause_that_the_log_holds(code: int, log: str, described: str) -> None:
    assert describe_exit(code, log) == described


@given(st.integers(-70, 255), st.text())
def test_how_a_process_ended_is_one_line(code: int, log: str) -> None:
    for text in (log, f"Traceback (most recent call last)\n{log}", f"a.c:1: {log}", f"terminate called {log}"):
        assert len(describe_exit(code, text).splitlines()) == 1
        assert len(describe_exit(code, text)) < 400
