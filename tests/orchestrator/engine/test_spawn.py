"""An engine's log, and how its silence is taken."""

import asyncio
from pathlib import Path

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.silence import SilenceWatch
from orchestrator.engine.spawn import launch


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


async def test_a_shorter_patience_counts_at_once() -> None:
    silent: list[float] = []
    watch = SilenceWatch(60.0, lambda: True, silent.append)
    watch.watch()
    watch.allow(0.05)
    await asyncio.sleep(0.5)
    assert len(silent) == 1
    watch.rest()
