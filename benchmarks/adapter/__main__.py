"""Make the frontdoor's adapter: `python -m benchmarks.adapter {data,train,export,evaluate,measure,all}`."""

import argparse
import asyncio
import hashlib
import json
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Final

from benchmarks import results
from benchmarks.adapter.base import NoModel, model_file
from benchmarks.adapter.data import SEED, answer_text, question_text, unseen
from benchmarks.adapter.evaluate import MODEL, as_request, evaluate
from benchmarks.adapter.plans import generate
from benchmarks.goals import at_least
from benchmarks.real.requests import real_requests
from benchmarks.tiny.evaluate import wilson
from registry.sources.catalogue import read_catalogue

WORK: Final = Path("build/adapter")
"""Where checkpoints and the exported adapter are put, unless another folder is given."""
GOAL: Final = 0.7
"""The share of unseen requests whose plans are to be right."""

TOKENS: Final = 200_000
"""How many tokens to train on, unless another number is given. A core with AVX2 computes about 100 a second."""


def main() -> None:
    """Carry out one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapter", description=__doc__)
    parser.add_argument("command", choices=(*COMMANDS, "all"))
    parser.add_argument("--folder", type=Path, default=WORK, help="for checkpoints and the exported adapter")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="how many tokens to train on in all")
    parser.add_argument("--count", type=int, default=100, help="how many examples to print or to evaluate")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--show", action="store_true", help="print the plans that are wrong")
    parser.add_argument("--bare", action="store_true", help="evaluate the prompt that ships too")
    parser.add_argument("--threads", type=int, help="how many threads train; all cores if not given")
    arguments = parser.parse_args()
    try:
        for command in ("train", "export", "evaluate") if arguments.command == "all" else (arguments.command,):
            COMMANDS[command](arguments)
    except NoModel as error:
        sys.exit(str(error))


def _data(arguments: argparse.Namespace) -> None:
    """Print examples, one a line, as JSON."""
    for example in islice(generate(arguments.seed), arguments.count):
        shown = {"form": example.form, "files": example.files, "request": question_text(example)}
        print(json.dumps(shown | {"plan": answer_text(example.parts)}, ensure_ascii=False))


def _train(arguments: argparse.Namespace) -> None:
    from benchmarks.adapter.train import train

    train(model_file(), arguments.folder, arguments.tokens, seed=arguments.seed, threads=arguments.threads)


def _export(arguments: argparse.Namespace) -> None:
    from benchmarks.adapter.export import export
    from benchmarks.adapter.train import ALPHA, saved_adapter

    path = export(
        saved_adapter(arguments.folder), model_file(), arguments.folder / "frontdoor.gguf", alpha=float(ALPHA)
    )
    print(f"{path}: {path.stat().st_size:,} bytes")


def _evaluate(arguments: argparse.Namespace) -> None:
    generated = [as_request(example) for example in unseen(arguments.count)]
    adapters = [arguments.folder / "frontdoor.gguf", *([None] if arguments.bare else [])]
    for name, requests in (("generated, of words not trained on", generated), ("tuning", real_requests("tuning"))):
        for adapter in adapters:
            measured = asyncio.run(evaluate(model_file(), adapter, requests, lambda line: None))
            right, count = measured.count("plan")
            which = "the prompt that ships" if adapter is None else adapter.name
            print(f"{name}, {which}: {right} of {count} right", flush=True)
            for result in measured.results if arguments.show else ():
                if not result.right:
                    print(f"  {result.name}\n    {result.answer} {result.problem}")


def _measure(arguments: argparse.Namespace) -> None:
    """Measure the adapter that ships beside the prompt that ships, and write benchmarks/results/adapter.json."""
    adapter = read_catalogue()[MODEL].adapters["frontdoor"]
    generated = [as_request(example) for example in unseen(arguments.count)]
    sets = {"unseen": real_requests("unseen"), "tuning": real_requests("tuning"), "generated": generated}
    rows: list[dict[str, object]] = []
    for name, requests in sets.items():
        for system, file in (("adapter", adapter.path), ("prompt", None)):
            measured = asyncio.run(evaluate(model_file(), file, requests, lambda line: None))
            right, count = measured.count("plan")
            low, high = wilson(right, count)
            rows.append(
                {
                    "requests": name,
                    "system": system,
                    "count": count,
                    "right": right,
                    "interval": [round(low, 3), round(high, 3)],
                    "prompts": measured.prompts,
                    "prompt_tokens": measured.usage.prompt_tokens,
                    "output_tokens": measured.usage.output_tokens,
                    "seconds": round(measured.seconds, 1),
                    "wrong": [one.name for one in measured.results if not one.right] if name != "unseen" else None,
                }
            )
            print(f"{name}, {system}: {right} of {count} right", flush=True)
    by_system = {row["system"]: row for row in rows if row["requests"] == "unseen"}
    reached = int(str(by_system["adapter"]["right"])) / int(str(by_system["adapter"]["count"]))
    goal = at_least("unseen requests whose plan has a right structure, with the adapter", reached, GOAL)
    results.write(
        results.FOLDER / "adapter.json",
        {
            "command": "python -m benchmarks.adapter measure",
            "machine": results.machine(),
            "versions": results.versions("llama-cpp-python"),
            "adapter": {"file": adapter.file, "sha256": hashlib.sha256(adapter.path.read_bytes()).hexdigest()},
            "rows": rows,
            "goals": [asdict(goal) | {"interval": by_system["adapter"]["interval"]}],
        },
    )


COMMANDS: Final = {
    "data": _data,
    "train": _train,
    "export": _export,
    "evaluate": _evaluate,
    "measure": _measure,
}

if __name__ == "__main__":
    main()
