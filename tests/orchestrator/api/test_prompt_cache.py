"""What the daemon's models have computed of prompts outlasts the daemon, however it ends."""

import signal
import time
from pathlib import Path

import httpx2

from tests.orchestrator.api.daemon_process import ENDING_SECONDS, Running, running_daemon

DOCUMENT = " ".join(
    f"Ship {number} carries {number * 7 % 13} barrels of oil to port {number % 5}." for number in range(40)
)
WRITING_SECONDS = 100


def ask(daemon: Running, question: str) -> tuple[str, int, int]:
    """Ask about the document; return the answer, and the tokens of the prompt and those that were cached."""
    with daemon.client() as client:
        messages = [{"role": "system", "content": DOCUMENT}, {"role": "user", "content": question}]
        body = {"model": "tiny-large", "messages": messages, "max_tokens": 16, "temperature": 0}
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    usage = answer["usage"]
    details = usage["prompt_tokens_details"] or {}
    return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], details.get("cached_tokens", 0)


def wait_stored(home: Path) -> None:
    end = time.monotonic() + WRITING_SECONDS
    while not list((home / "prefixes").glob("*.kv")):
        assert time.monotonic() < end, "nothing was stored"
        time.sleep(0.02)


def test_prompts_outlast_a_restart_and_a_kill_of_the_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_daemon(home) as daemon:
        text, tokens, cached = ask(daemon, "Where does the oil go?")
        assert cached < 64
    with running_daemon(home) as daemon:
        assert ask(daemon, "Where does the oil go?") == (text, tokens, tokens - 1)
        wait_stored(home)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait(ENDING_SECONDS)
    with running_daemon(home) as daemon:
        answer, tokens, cached = ask(daemon, "Which port is the last one?")
        assert cached > tokens - 100
    for path in (home / "prefixes").iterdir():
        path.unlink()  # which is safe at any time
    with running_daemon(home) as daemon:
        assert ask(daemon, "Which port is the last one?")[0] == answer


def test_backups_do_not_hold_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_daemon(home) as daemon:
        ask(daemon, "Where does the oil go?")
        wait_stored(home)
        with daemon.client() as client:
            client.post("/v1/backups", json={}, timeout=httpx2.Timeout(ENDING_SECONDS)).raise_for_status()
    assert list((home / "prefixes").glob("*.kv"))
    assert not list((home / "backups").rglob("*.kv"))
