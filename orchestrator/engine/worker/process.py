"""Run an engine's process.

`orchestrator.engine.client.spawn` starts it as `python -m orchestrator.engine.worker.process SOCKET_FD NICENESS`.
"""

import ctypes
import dataclasses
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable

from orchestrator.engine.contract import EngineSpec, ModelInfo
from orchestrator.engine.llama import CannotLoad, Embedder, Llama, SpinSwitch, open_library
from orchestrator.engine.protocol import VERSION, Heartbeat, Load, LoadFailed, Ready
from orchestrator.engine.speculation.speculator import make_speculator
from orchestrator.engine.step_cost.attention_trial import apply_stored_attention
from orchestrator.engine.worker.embedding import EmbeddingLoop
from orchestrator.engine.worker.link import Link
from orchestrator.engine.worker.loop import Loop
from orchestrator.engine.worker.spinning import Spinning

_PR_SET_PDEATHSIG = 1
_LOAD_HEARTBEAT_SECONDS = 1.0


def main(descriptor: int, niceness: int) -> int:
    """Serve the parent on an inherited socket until it sends Shutdown or is gone. Returns the exit code.

    `niceness` is added to that of the process.
    """
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would be as large as the model
    os.nice(niceness)
    link = Link(socket.socket(fileno=descriptor))
    commands = link.receive(None)
    if not commands or not isinstance(commands[0], Load):
        return 2
    load = commands[0]
    if load.version != VERSION:
        link.send([LoadFailed("settings", f"the engine's protocol is version {VERSION}, not {load.version}")])
        return 2
    try:
        _bind(load.spec.cpus)
        loop, info = _set_up(load.spec, link)
    except CannotLoad as error:
        link.send([LoadFailed(error.kind, str(error))])
        link.receive(None)  # until the parent has read it and closes the socket
        return 1
    link.send([Ready(info)])
    gc.freeze()  # these objects live as long as the process, and each scan of them would take milliseconds
    loop.run()
    os._exit(0)  # without freeing gigabytes bit by bit, for which the parent would have to wait


def _set_up(spec: EngineSpec, link: Link) -> tuple[Loop | EmbeddingLoop, ModelInfo]:
    open_library(spec)
    spinning = Spinning(SpinSwitch())  # before the first step, which warms up the model
    if spec.embeds:
        embedder = Embedder(spec, _progress(link))
        return EmbeddingLoop(embedder, link, spinning), embedder.info
    llama = Llama(spec, _progress(link))
    apply_stored_attention(llama, spec)
    loop = Loop(llama, spec, link, make_speculator(llama, spec, link.heartbeat), spinning)
    return loop, dataclasses.replace(llama.info, thinks=loop.thinks)


def _bind(cpus: tuple[int, ...]) -> None:
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)  # inherited by threads that start later
    except OSError as error:
        listed = ", ".join(map(str, cpus))
        raise CannotLoad("settings", f"the process cannot be bound to CPUs {listed}: {error.strerror}") from error


def _progress(link: Link) -> Callable[[float], None]:
    last = time.monotonic()

    def report(_: float) -> None:
        nonlocal last
        if time.monotonic() - last > _LOAD_HEARTBEAT_SECONDS:
            last = time.monotonic()
            link.send([Heartbeat(0.0)])
            if link.closed:
                os._exit(1)  # the parent is gone

    return report


def _die_with_parent() -> None:
    # When the thread that started this process ends, the socket is closed too, but that is noticed only between
    # steps.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
