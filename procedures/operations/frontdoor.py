"""The operation of procedures that trains the frontdoor, in a process of its own.

PyTorch stays out of the daemon, and the training can be killed at any moment: it continues after its last update.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.upkeep import Installation
from orchestrator.registry.forms import Form

# Seconds between checks whether a training should continue: Popen can wait for the process or the clock only.
LOOK_SECONDS: Final = 1.0
MAX_ERROR: Final = 2000  # characters


class TrainArguments(Form):
    updates: Annotated[int, Field(ge=1, le=100_000)] = 200
    examples: Annotated[int, Field(ge=0, le=100_000)] = 240
    requests: Annotated[int, Field(ge=1, le=1000)] = 8
    group: Annotated[int, Field(ge=2, le=64)] = 8
    pairs: Annotated[int, Field(ge=6, le=10_000)] = 60
    history: Annotated[float, Field(ge=0, le=1)] = 0.0  # the share of requests that are runs of this state folder
    seconds: Annotated[float, Field(gt=0, le=500_000)] = 14_400.0  # after which it stops, and continues another time
    seed: int = 0


class FrontdoorOperations:
    def __init__(self, installation: Installation) -> None:
        self._on = installation

    def by_name(self) -> dict[str, Operation[Any]]:
        operation = Operation(
            name="frontdoor.train",
            description="Train an adapter of the frontdoor to split requests, and compare it with the present one on"
            " held-out requests. Nothing is changed. A training that is over its time continues when this is called"
            " again with the same arguments. Needs the extra `train`.",
            form=TrainArguments,
            outputs={
                "complete": "whether it had time for all updates",
                "better": "whether the adapter is better with a certainty of 95 %",
                "values": "the values of the frontdoor's entry with the adapter",
                "gain": "by how much it is better; null if it is not complete",
                "low": "the lower end of the interval of that",
                "high": "its upper end",
                "curves": "the page that shows how the training went",
            },
            run=self._train,
            preview=lambda arguments: (
                f"train the frontdoor by {arguments.updates} updates, for up to {arguments.seconds:g} s, and compare it"
                f" on {arguments.pairs} requests"
            ),
        )
        return {operation.name: operation}

    def _train(self, arguments: TrainArguments, work: Work) -> Mapping[str, Any]:
        options = [f"--{name}={value}" for name, value in arguments.model_dump().items()]
        command = (
            *(sys.executable, "-m", "orchestrator", "--home", str(self._on.home), "--registry", str(self._on.registry)),
            *("frontdoor", "train", "--no-promote", "--json", *options),
        )
        process = subprocess.Popen(  # noqa: S603 - this program itself, with checked numbers
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        with process:
            try:
                out, errors = _communicated(process, work)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise StepFailed(errors.decode(errors="replace").strip()[-MAX_ERROR:])
        report = json.loads(out)
        outputs = ("complete", "better", "values", "gain", "low", "high", "curves")
        return {name: report.get(name) for name in outputs}


def _communicated(process: subprocess.Popen[bytes], work: Work) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=min(LOOK_SECONDS, work.seconds_left))
        except subprocess.TimeoutExpired:
            continue
