"""Make the embedded models from their seeds: `python -m benchmarks.tiny --help`."""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.tiny import card, corpus, seeds, tokenizer
from benchmarks.tiny.evaluate import evaluate
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import SIZES, TOKENIZER_EXAMPLES, TOKENIZER_FILE, TOKENIZER_SEED, Size
from orchestrator.bench.families.words import SPLITS, Split, seeded

say = partial(print, flush=True)
# Without this, getting memory from the kernel for each large tensor takes a fifth of a step with long rows.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}


def show_data(family: str, split: Split, count: int, seed: str) -> None:
    """Print the hash of the data and `count` examples of `family`."""
    print(f"SHA-256 of the data: {corpus.data_hash()}")
    for index in range(count):
        example = FAMILIES[family].generate(seeded(f"{seed}/{index}"), split)
        for message in example.messages:
            print(f"<{message.role}>\n{message.content}")
        print(f"<assistant>\n{example.answer}\n")


def train_tokenizer() -> None:
    """Train a tokenizer on training examples, and write it to the registry. All models depend on it."""
    rng = seeded(TOKENIZER_SEED)
    texts = [corpus.text_of(corpus.draw(rng, "train")) for _ in range(TOKENIZER_EXAMPLES)]
    tokenizer.train(texts).save(TOKENIZER_FILE)


def run_module(module: str, size: Size) -> None:
    """Run a module that needs PyTorch in its own process, so that other parts work without PyTorch."""
    command = [sys.executable, "-m", f"benchmarks.tiny.{module}", size.name]
    done = subprocess.run(command, check=False, env=os.environ | KEEP_MEMORY)  # noqa: S603 - our own modules
    if done.returncode:
        raise SystemExit(done.returncode)


def all_of(sizes: Sequence[Size]) -> None:
    """Train, export, evaluate and compare `sizes`."""
    for part in ("train", "export", "evaluate", "compare"):
        PARTS[part](sizes)


def train(sizes: Sequence[Size]) -> None:
    """Train `sizes`, continuing from checkpoints."""
    for size in sizes:
        run_module("train", size)


def export(sizes: Sequence[Size]) -> None:
    """Write the trained models as GGUF files."""
    for size in sizes:
        run_module("export", size)


def measure(sizes: Sequence[Size]) -> None:
    """Measure the trained models with llama.cpp."""
    for size in sizes:
        asyncio.run(evaluate(size, say))


def compare(sizes: Sequence[Size]) -> None:
    """Compare the measured models with the shipped ones."""
    seeds.compare(sizes, say)


PARTS = {"train": train, "export": export, "evaluate": measure, "compare": compare, "ship": card.ship, "all": all_of}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    data = commands.add_parser("data", help="print the hash of the data and examples of a family")
    data.add_argument("--family", choices=FAMILIES, default="plan")
    data.add_argument("--split", choices=SPLITS, default="train")
    data.add_argument("--count", type=int, default=3)
    data.add_argument("--seed", default="show")
    commands.add_parser("tokenizer", help="learn another tokenizer")
    commands.add_parser("card", help="write the model card from the results")
    for name, part in PARTS.items():
        command = commands.add_parser(name, help=part.__doc__)
        command.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: all")
    options = parser.parse_args(arguments)
    match options.command:
        case "data":
            show_data(options.family, options.split, options.count, options.seed)
        case "tokenizer":
            train_tokenizer()
        case "card":
            card.write()
        case name:
            PARTS[name]([SIZES[size] for size in options.sizes or SIZES])


if __name__ == "__main__":
    main()
