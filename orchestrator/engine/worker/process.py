"""The main function of an engine's process.

It is started by `orchestrator.engine.client.spawn`, as `python -m orchestrator.engine.worker.process SOCKET_FD NICE`.
"""

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import time

from orchestrator.engine.contract import EngineSpec, ModelInfo
from orchestrator.engine.llama import CannotLoad, Embedder, Llama
from orchestrator.engine.protocol import VERSION, Heartbeat, Load, LoadFailed, Ready
from orchestrator.engine.speculation.speculator import make_speculator
from orchestrator.engine.step_cost.attention_trial import apply_stored_attention
from orchestrator.engine.worker.embedding import EmbeddingLoop
from orchestrator.engine.worker.link import Link
from orchestrator.engine.worker.loop import Loop

_PR_SET_PDEATHSIG = 1
_LOAD_HEARTBEAT_SECONDS = 1.0


def main(descriptor: int, niceness: int) -> int:
    """Serve the parent on an inherited socket until it stops us or is gone. Returns the exit code."""
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core as large as the model helps nobody
    os.nice(niceness)
    link = Link(socket.socket(fileno=descriptor))
    commands = link.receive(None)
    if not commands or not isinstance(commands[0], Load):
        return 2
    load = commands[0]
    if load.version != VERSION:
        link.send([LoadFailed("settings", f"the engine speaks protocol {VERSION}, not {load.version}")])
        return 2
    try:
        _bind(load.spec.cpus)
        loop, info = _set_up(load.spec, link)
    except CannotLoad as error:
        link.send([LoadFailed(error.kind, str(error))])
        link.receive(None)  # until the parent has read it and lets go
        return 1
    link.send([Ready(info)])
    gc.freeze()  # what is there now stays: to look through it again and again takes milliseconds
    loop.run()
    os._exit(0)  # the parent does not wait for gigabytes to be freed one by one


def _set_up(spec: EngineSpec, link: Link) -> tuple[Loop | EmbeddingLoop, ModelInfo]:
    """Load the model for what it is to do. Raises CannotLoad."""
    if spec.embeds:
        embedder = Embedder(spec, _progress(link))
        return EmbeddingLoop(embedder, link), embedder.info
    llama = Llama(spec, _progress(link))
    apply_stored_attention(llama, spec)
    return Loop(llama, spec, link, make_speculator(llama, spec, link.heartbeat)), llama.info


def _bind(cpus: tuple[int, ...]) -> None:
    """Run on these logical CPUs only, as do all threads that are started from here on. None means all."""
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
    except OSError as error:
        listed = ", ".join(map(str, cpus))
        raise CannotLoad("settings", f"the process cannot be bound to CPUs {listed}: {error.strerror}") from error


def _progress(link: Link):  # type: ignore[no-untyped-def]
    last = time.monotonic()

    def report(_: float) -> None:
        nonlocal last
        if time.monotonic() - last > _LOAD_HEARTBEAT_SECONDS:
            last = time.monotonic()
            link.send([Heartbeat(0.0)])
            if link.closed:
                os._exit(1)

    return report


def _die_with_parent() -> None:
    """Ask Linux to kill us when the thread that started us ends; the closed socket says so too, but only to a loop."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
