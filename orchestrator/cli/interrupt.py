"""Make of ctrl-C and of SIGTERM a request: the first asks for an orderly end, a second one ends at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from orchestrator.cli.errors import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, the two signals only set `asked`. `at_once` restores the terminal before a hard exit."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        self.asked = asyncio.Event()
        self._at_once = at_once

    def __enter__(self) -> "Interrupts":
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def _received(self) -> None:
        if not self.asked.is_set():
            self.asked.set()
            return
        self._at_once()
        sys.stderr.write("\nended at once; `orchestrator resume` goes on with the run\n")
        sys.stderr.flush()
        os._exit(ExitCode.CANCELLED)
