"""Reproduce the embedded models: `python -m benchmarks.tiny {data,tokenizer,train,export,evaluate,card,all}`."""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.tiny import card, corpus, tokenizer
from benchmarks.tiny.evaluate import evaluate
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.sizes import SIZES, TOKENIZER_EXAMPLES, TOKENIZER_FILE, TOKENIZER_SEED, Size
from benchmarks.tiny.words import SPLITS, Split, seeded


def show_data(family: str, split: Split, count: int, seed: str) -> None:
    """Print the hash of the data and `count` examples of `family`."""
    print(f"SHA-256 of the data: {corpus.data_hash()}")
    for index in range(count):
        example = FAMILIES[family].generate(seeded(f"{seed}/{index}"), split)
        for message in example.messages:
            print(f"<{message.role}>\n{message.content}")
        print(f"<assistant>\n{example.answer}\n")


def train_tokenizer() -> None:
    """Learn a tokenizer from training examples and write it to the registry: the start of another family."""
    rng = seeded(TOKENIZER_SEED)
    texts = [corpus.text_of(corpus.draw(rng, "train")) for _ in range(TOKENIZER_EXAMPLES)]
    tokenizer.train(texts).save(TOKENIZER_FILE)


def run_module(module: str, size: Size) -> None:
    """Run a part that needs PyTorch in a process of its own, so that everything else does without it."""
    command = [sys.executable, "-m", f"benchmarks.tiny.{module}", size.name]
    subprocess.run(command, check=True)  # noqa: S603 - our own modules


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    data = commands.add_parser("data", help="print the hash of the data and examples of a family")
    data.add_argument("--family", choices=FAMILIES, default="plan")
    data.add_argument("--split", choices=SPLITS, default="train")
    data.add_argument("--count", type=int, default=3)
    data.add_argument("--seed", default="show")
    commands.add_parser("tokenizer", help="learn another tokenizer")
    for name, text in (("train", "train, going on from checkpoints"), ("export", "write GGUF files")):
        part = commands.add_parser(name, help=text)
        part.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: all")
    part = commands.add_parser("evaluate", help="measure the GGUF files through llama.cpp")
    part.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: all")
    commands.add_parser("card", help="write the results and the model card from the measured rows")
    commands.add_parser("all", help="everything from seeds to model card, with the tokenizer that is there")
    options = parser.parse_args(arguments)
    if options.command == "data":
        show_data(options.family, options.split, options.count, options.seed)
        return
    sizes = [SIZES[name] for name in getattr(options, "sizes", None) or SIZES]
    if options.command == "tokenizer":
        train_tokenizer()
    for part_name in ("train", "export"):
        if options.command in (part_name, "all"):
            for size in sizes:
                run_module(part_name, size)
    if options.command in ("evaluate", "all"):
        for size in sizes:
            asyncio.run(evaluate(size, partial(print, flush=True)))
    if options.command in ("card", "all"):
        card.write()


if __name__ == "__main__":
    main()
