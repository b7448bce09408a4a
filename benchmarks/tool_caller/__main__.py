"""Make the tool caller from its seeds: `python -m benchmarks.tool_caller --help`."""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from benchmarks.tiny.__main__ import KEEP_MEMORY
from benchmarks.tool_caller import card, evaluate
from benchmarks.tool_caller.data import written
from benchmarks.tool_caller.recipe import SHIPPED, SIZE
from orchestrator.bench.families.words import SPLITS, seeded


def main() -> None:
    """Carry out one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_caller", description=__doc__)
    parser.add_argument("command", choices=(*COMMANDS, "all"))
    parser.add_argument("--split", choices=SPLITS, default="train", help="of the examples that are printed")
    parser.add_argument("--count", type=int, default=3, help="how many examples to print")
    arguments = parser.parse_args()
    names = ("train", "export", "ship", "evaluate") if arguments.command == "all" else (arguments.command,)
    for name in names:
        COMMANDS[name](arguments)


def _data(arguments: argparse.Namespace) -> None:
    """Print examples: the prompt, then the answer."""
    rng = seeded("show")
    for _ in range(arguments.count):
        example = written(rng, arguments.split)
        print(f"{example.prompt}\n-----\n{example.answer}\n=====")


def _module(name: str) -> None:
    """Run a module that needs PyTorch in its own process, so that other parts work without PyTorch."""
    command = [sys.executable, "-m", f"benchmarks.tool_caller.{name}"]
    done = subprocess.run(command, check=False, env=os.environ | KEEP_MEMORY)  # noqa: S603 - our own modules
    if done.returncode:
        raise SystemExit(done.returncode)


def _evaluate(arguments: argparse.Namespace) -> None:
    """Measure the model that the tests have, and publish what came out."""
    rows = asyncio.run(evaluate.rows(SHIPPED))
    for row in rows:
        print(f"{row.syntax} {row.split} thinks={row.thinks}: {row.right} of {row.answers}, thoughts {row.thoughts}")
    card.publish(rows)
    card.write()


def _ship(arguments: argparse.Namespace) -> None:
    """Let the tests have the trained model."""
    SHIPPED.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SIZE.trained, SHIPPED)


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "data": _data,
    "train": lambda _: _module("train"),
    "export": lambda _: _module("export"),
    "ship": _ship,
    "evaluate": _evaluate,
    "card": lambda _: card.write(),
}

if __name__ == "__main__":
    main()
