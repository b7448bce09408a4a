"""Make the frontdoor's adapter, and try one for the worker and the judge.

`python -m benchmarks.adapter {data,train,export,evaluate,measure,all}` is about the frontdoor. The trial is made of
`keep` (what the model itself writes where nothing is to change), `train-families` and `families`, which measures.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.adapter import families, family_training
from benchmarks.adapter.base import MODEL, SHAPES, NoModel, model_file
from benchmarks.adapter.data import SEED, answer_text, question_text, unseen
from benchmarks.adapter.evaluate import BARE, SHIPPED, PlanningSetup, adapted, as_request, evaluate
from benchmarks.adapter.family_measure import KEPT_FILE, counted, keep_answers
from benchmarks.adapter.plans import generate
from orchestrator.bench import environment
from orchestrator.bench.goals import wilson
from orchestrator.bench.real.measure import goals
from orchestrator.bench.real.requests import RealRequest, real_requests
from orchestrator.registry.prompts import prompt_set
from orchestrator.registry.sources.catalogue import read_catalogue

# Where checkpoints and the exported adapter are put, unless another folder is given: in a folder for each model.
WORK: Final = Path("build/adapter")
# What was measured of the first model's adapter. Those of the others are named after them.
RESULTS: Final = results.FOLDER / "adapter.json"
# The part of the results that is about the worker and the judge, and the folder of that trial.
FAMILIES: Final = "families"
MEASURED: Final = {
    "adapter": ("unseen", "wide", "tuning", "generated"),
    "prompt": ("unseen", "tuning"),
    "bare": ("unseen",),
}  # the systems that are measured, and on which requests: those that plan little correctly take long
TUNED_ON: Final = ("tuning", "generated")

# How many tokens to train on, unless another number is given. Two cores with AVX2 compute 100 to 190 a second.
TOKENS: Final = 800_000


def main() -> None:
    """Carry out one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapter", description=__doc__)
    parser.add_argument("command", choices=(*COMMANDS, "all"))
    parser.add_argument("--model", choices=tuple(SHAPES), default=MODEL, help="(default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=WORK, help="for checkpoints and the exported adapter")
    parser.add_argument("--tokens", type=int, help="how many tokens to train on in all")
    parser.add_argument("--count", type=int, default=100, help="how many examples to print, or to evaluate of each set")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--show", action="store_true", help="print the plans that are wrong")
    parser.add_argument("--shipped", action="store_true", help="evaluate the prompt that ships too")
    parser.add_argument("--again", action="store_true", help="measure anew what the published results have")
    parser.add_argument("--threads", type=int, help="how many threads train; all cores if not given")
    parser.add_argument("--device", help="where to train, as PyTorch names it; a GPU if there is one")
    arguments = parser.parse_args()
    arguments.folder /= arguments.model
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

    settings = {"seed": arguments.seed, "threads": arguments.threads, "device": arguments.device}
    file, shape = model_file(arguments.model), SHAPES[arguments.model]
    train(file, arguments.folder, arguments.tokens or TOKENS, shape=shape, **settings)


def _export(arguments: argparse.Namespace) -> None:
    from benchmarks.adapter.export import export
    from benchmarks.adapter.train import ALPHA, saved_adapter

    file, path = model_file(arguments.model), arguments.folder / "frontdoor.gguf"
    export(saved_adapter(arguments.folder), file, path, alpha=float(ALPHA))
    print(f"{path}: {path.stat().st_size:,} bytes, SHA-256 {_digest(path)}", flush=True)


def _keep(arguments: argparse.Namespace) -> None:
    print(keep_answers(model_file(), arguments.folder / FAMILIES, print), flush=True)


def _train_families(arguments: argparse.Namespace) -> None:
    from benchmarks.adapter.export import export
    from benchmarks.adapter.train import ALPHA, RANK, saved_adapter, train

    folder = arguments.folder / FAMILIES
    data = partial(family_training.family_batches, own_answers=folder / KEPT_FILE)
    settings = {"threads": arguments.threads, "device": arguments.device, "rank": family_training.RANK}
    tokens = arguments.tokens or family_training.TOKENS
    progress = train(model_file(), folder, tokens, seed=families.SEED, data=data, **settings)
    alpha = float(family_training.RANK * ALPHA // RANK)
    path = export(saved_adapter(folder), model_file(), folder / "families.gguf", alpha=alpha, name=FAMILIES)
    trained = {"tokens": progress.tokens, "rank": family_training.RANK}
    about = trained | {"bytes": path.stat().st_size, "sha256": _digest(path)}
    (folder / "families.json").write_text(json.dumps(about), "utf-8")
    print(f"{path}: {json.dumps(about)}", flush=True)


def _families(arguments: argparse.Namespace) -> None:
    """Measure the model with the adapter of the trial and without it, and write that to the results."""
    folder = arguments.folder / FAMILIES
    path = folder / "families.gguf"
    published = json.loads(RESULTS.read_text("utf-8"))
    rows = []
    for system, adapter in (("plain", None), ("adapter", path)):
        cache_file = folder / f"counted-{system if adapter is None else _digest(path)[:16]}.json"
        if not cache_file.exists():
            counts = asyncio.run(counted(model_file(), adapter, arguments.count, lambda line: print(line, flush=True)))
            cache_file.write_text(json.dumps(counts), "utf-8")
        for tasks, right in json.loads(cache_file.read_text("utf-8")).items():
            low, high = wilson(sum(right), len(right))
            row = {"tasks": tasks, "system": system, "count": len(right), "right": sum(right)}
            rows.append(row | {"interval": [round(low, 3), round(high, 3)]})
    published[FAMILIES] = {
        "command": f"python -m benchmarks.adapter families --count {arguments.count}",
        "adapter": json.loads((folder / "families.json").read_text("utf-8")),
        "prompts": prompt_set("general").stamp,
        "rows": rows,
    }
    results.write(RESULTS, published)


def _evaluate(arguments: argparse.Namespace) -> None:
    generated = [as_request(example) for example in unseen(arguments.count)]
    tuning = real_requests("tuning")[: arguments.count]
    setups = [adapted(arguments.folder / "frontdoor.gguf"), *([SHIPPED] if arguments.shipped else [])]
    for name, requests in (("generated, of words not trained on", generated), ("tuning", tuning)):
        for setup in setups:
            file = model_file(arguments.model)
            measured = asyncio.run(evaluate(file, setup, requests, lambda line: None, arguments.model))
            right, count = measured.count("plan")
            print(f"{name}, {setup.about}: {right} of {count} right", flush=True)
            for result in measured.results if arguments.show else ():
                if not result.right:
                    print(f"  {result.name}\n    {result.answer} {result.problem}")


def _measure(arguments: argparse.Namespace) -> None:
    """Measure the model with the adapter that ships, and without it, and write that to the results.

    Each row is kept in the folder as soon as it is there, so that an interrupted measurement continues. A row that the
    published results have is taken from there.
    """
    model = arguments.model
    adapter = read_catalogue()[model].adapters["frontdoor"]
    setups = {"adapter": adapted(adapter.path), "prompt": SHIPPED, "bare": BARE}
    digest, path = _digest(adapter.path), _results_file(model)
    sets: dict[str, Sequence[RealRequest]] = {name: real_requests(name) for name in ("unseen", "wide", "tuning")}
    sets["generated"] = [as_request(example) for example in unseen(arguments.count)]
    rows = {} if arguments.again else _published(path)
    cache_file = arguments.folder / f"measured-{digest[:16]}.json"
    if cache_file.exists():
        rows |= json.loads(cache_file.read_text("utf-8"))
    for system, asked in MEASURED.items():
        for name in asked:
            if f"{system}/{name}" not in rows:
                rows[f"{system}/{name}"] = _row(model, system, setups[system], name, sets[name])
                cache_file.parent.mkdir(parents=True, exist_ok=True)
                cache_file.write_text(json.dumps(rows), "utf-8")
    document = {
        "command": f"python -m benchmarks.adapter measure --model {model}",
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python"),
        "model": model,
        "adapter": {"file": adapter.file, "sha256": digest},
        "systems": {system: setup.about for system, setup in setups.items()},
        "rows": [{key: value for key, value in row.items() if key != "goals"} for row in rows.values()],
        "goals": [goal for name, row in rows.items() if name.startswith("adapter/") for goal in row["goals"]],
    }
    results.write(path, document | ({FAMILIES: _published_families()} if model == MODEL else {}))


def _results_file(model: str) -> Path:
    return RESULTS if model == MODEL else RESULTS.with_name(f"adapter_{model}.json")


def _published_families() -> object:
    """Return the published part about the worker and the judge, which its own command measures."""
    return json.loads(RESULTS.read_text("utf-8")).get(FAMILIES) if RESULTS.exists() else None


def _published(path: Path) -> dict[str, dict[str, Any]]:
    """Return the published rows of the systems without an adapter, by system and requests.

    They are of the prompts that ship and of this machine; others do not count.
    """
    if not path.exists():
        return {}
    published = json.loads(path.read_text("utf-8"))
    if published["machine"] != environment.machine():
        return {}
    stamp = prompt_set("general").stamp
    rows = [row for row in published["rows"] if row["prompts"] == stamp and row["system"] != "adapter"]
    return {f"{row['system']}/{row['requests']}": row for row in rows}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _row(model: str, system: str, setup: PlanningSetup, name: str, requests: Sequence[RealRequest]) -> dict[str, Any]:
    """Return what one system plans correctly of one set of requests, with the goals that are about these."""
    measured = asyncio.run(evaluate(model_file(model), setup, requests, lambda line: None, model))
    right, count = measured.count("plan")
    low, high = wilson(right, count)
    print(f"{name}, {system}: {right} of {count} right", flush=True)
    return {
        "requests": name,
        "system": system,
        "count": count,
        "right": right,
        "interval": [round(low, 3), round(high, 3)],
        "prompts": measured.prompts,
        "prompt_tokens": measured.usage.prompt_tokens,
        "output_tokens": measured.usage.output_tokens,
        # Names of the others are left out, so that nobody tunes to them.
        "wrong": [result.name for result in measured.results if not result.right] if name in TUNED_ON else None,
        "goals": goals(measured.results),
    }


COMMANDS: Final = {
    "data": _data,
    "train": _train,
    "export": _export,
    "evaluate": _evaluate,
    "measure": _measure,
    "keep": _keep,
    "train-families": _train_families,
    "families": _families,
}

if __name__ == "__main__":
    main()
