"""Measure the memory's index and database at many episodes: `python -m benchmarks.memory [--episodes N]`.

    flat        how long a search takes that compares with every vector, by their number
    lists       time and recall of inverted lists, by how many there are and how many are searched
    similarity  from which similarity on outcomes agree, and how many outcomes then update an episode
    memory      a memory of N episodes: insertion, retrieval, recall, stalls, bytes, start

Times are those of the calling thread's CPU, which other programs do not lengthen, unless a name says wall. Texts are
pairs of a request and a step's action, as the task families of `benchmarks.tiny` generate them.
"""

import argparse
import csv
import gc
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.tiny.families import FAMILIES
from orchestrator.bench import environment, goals
from orchestrator.bench.families.words import seeded
from orchestrator.memrl.episodes import Action, Outcome, Reward, Situation
from orchestrator.memrl.memory import Memory, MemoryOptions
from orchestrator.memrl.vectors import IndexSettings, VectorIndex, lists_for
from orchestrator.task import lexical

FOLDER: Final = Path(__file__).parents[1] / "build" / "memory"
RESULTS: Final = results.FOLDER / "memory.json"
POOL: Final = 4000  # how many requests and how many actions are generated. A text is a pair of them.
QUERIES: Final = 500
FEW: Final = 20  # with fewer pairs of prompts than this nothing is said about them
NEIGHBOURS: Final = 20
ACTIONS: Final = tuple(
    Action(role, persona, model) for role in ("worker", "coder") for persona in ("", "terse") for model in ("s", "l")
)
BATCH: Final = 500

Vectors = NDArray[np.float32]
Row = dict[str, Any]


def texts(count: int, seed: str) -> list[str]:
    """Return `count` different texts of situations."""
    rng = seeded(seed)
    requests = [
        FAMILIES["plan"].generate(rng, "train").messages[-1].content.split("Request: ")[-1] for _ in range(POOL)
    ]
    steps = [
        FAMILIES[("code", "shell", "extract", "summarize")[n % 4]].generate(rng, "train").action for n in range(POOL)
    ]
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn[f"{rng.choice(requests)}\n{rng.choice(steps)}"] = None
    return list(drawn)


def vectors_of(count: int, dimensions: int, seed: str, folder: Path) -> tuple[list[str], Vectors]:
    """Return texts and their vectors, which are kept in a file: shape (count, dimensions)."""
    sample = texts(count, seed)
    file = folder / f"vectors-{count}-{dimensions}-{seed}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        vectors = np.lib.format.open_memmap(file.with_suffix(".new"), "w+", np.float32, (count, dimensions))
        for start in range(0, count, 1000):
            vectors[start : start + 1000] = lexical.embed(sample[start : start + 1000], dimensions)
        vectors.flush()
        file.with_suffix(".new").rename(file)
    loaded: Vectors = np.load(file, mmap_mode="r")
    return sample, loaded


def queries_of(kind: str, options: argparse.Namespace) -> Vectors:
    """Return the vectors of queries: of `unseen` requests and steps, or of `recurring` ones in new pairs."""
    if kind == "unseen":
        return vectors_of(QUERIES, options.dimensions, "queries", options.folder)[1]
    queries: Vectors = lexical.embed(texts(options.episodes + QUERIES, "episodes")[-QUERIES:], options.dimensions)
    return queries


def nearest(vectors: Vectors, queries: Vectors, count: int) -> NDArray[np.int64]:
    """Return the places of the most similar vectors of each query, found by comparing with all."""
    best = np.full((len(queries), count), -np.inf, dtype=np.float32)
    places = np.zeros((len(queries), count), dtype=np.int64)
    for start in range(0, len(vectors), 20_000):
        block = np.asarray(vectors[start : start + 20_000])
        similarity = np.concatenate([best, queries @ block.T], axis=1)
        order = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        everything = np.concatenate(
            [places, np.broadcast_to(start + np.arange(len(block)), (len(queries), len(block)))], axis=1
        )
        best = np.take_along_axis(similarity, order, axis=1)
        places = np.take_along_axis(everything, order, axis=1)
    return places


def timed(work: Callable[[int], object], count: int) -> Row:
    """Return median, 99th percentile, mean and maximum of the CPU milliseconds of `work(0)` to `work(count - 1)`."""
    taken = np.empty(count)
    for number in range(count):
        begun = time.thread_time()
        work(number)
        taken[number] = 1e3 * (time.thread_time() - begun)
    return {
        "p50_ms": _rounded(np.median(taken)),
        "p99_ms": _rounded(np.quantile(taken, 0.99)),
        "mean_ms": _rounded(taken.mean()),
        "max_ms": _rounded(taken.max()),
    }


def flat(options: argparse.Namespace) -> list[Row]:
    """Return how long a search among few vectors takes, exact and with lists."""
    rows = []
    _, vectors = vectors_of(options.episodes, options.dimensions, "episodes", options.folder)
    _, queries = vectors_of(QUERIES, options.dimensions, "queries", options.folder)
    for count in (2_000, 4_000, 8_000, 16_000, 32_000):
        subset = np.asarray(vectors[:count])
        for kind, numbers in (("flat", 1 << 40), ("ivf", 0)):
            folder = options.folder / f"few-{count}-{options.dimensions}-{kind}"
            index = _index(folder, subset, options.dimensions, IndexSettings(flat_numbers=numbers))
            neighbours = [index.search(query, NEIGHBOURS)[0] for query in queries]
            row = {
                "vectors": count,
                "dimensions": options.dimensions,
                "kind": kind,
                "recall": _recall(neighbours, nearest(subset, queries, NEIGHBOURS)),
            }
            rows.append({**row, **timed(partial(_search, index, queries), QUERIES)})
            index.abandon()
            shutil.rmtree(folder, ignore_errors=True)
    return rows


def lists(options: argparse.Namespace) -> list[Row]:
    """Return time and recall by the number of lists and of probes."""
    _, vectors = vectors_of(options.episodes, options.dimensions, "episodes", options.folder)
    queries_by_kind = {kind: queries_of(kind, options) for kind in options.queries}
    truths = {kind: nearest(vectors, queries, NEIGHBOURS) for kind, queries in queries_by_kind.items()}
    rows = []
    for per_root, components in product(options.per_root, options.components):
        folder = options.folder / f"lists-{options.episodes}-{options.dimensions}-{per_root:g}-{components}"
        settings = IndexSettings(lists_per_root=per_root, components=components)
        begun = time.process_time()
        built = _index(folder, vectors, options.dimensions, settings)
        seconds = time.process_time() - begun
        built.close()
        for probes, candidates in product(options.probes, options.candidates):
            wanted = replace(settings, probes=probes, candidates=candidates)
            index = _index(folder, vectors, options.dimensions, wanted)
            for kind, queries in queries_by_kind.items():
                neighbours = [index.search(query, NEIGHBOURS)[0] for query in queries]
                row: Row = {
                    "vectors": options.episodes,
                    "dimensions": options.dimensions,
                    "kind": kind,
                    "components": components,
                    "lists": lists_for(options.episodes, per_root),
                    "probes": probes,
                    "candidates": candidates,
                    "recall": _recall(neighbours, truths[kind]),
                    "cpu_seconds_to_build": _rounded(seconds),
                    **timed(partial(_search, index, queries), QUERIES),
                }
                rows.append(row)
                print(row, flush=True)
            inserted = timed(partial(_insert, index, queries), QUERIES)
            rows[-1] |= {f"insert_{name}": value for name, value in inserted.items()}
            index.abandon()
        shutil.rmtree(folder)
    return rows


def similarity(options: argparse.Namespace) -> list[Row]:
    """Return for each threshold how far outcomes of similar prompts agree, and how many situations recur.

    Prompts and outcomes are those of `--data`, in the format of RouteLLM's evaluation data.
    """
    rows = []
    thresholds = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
    recurring = recurring_texts(6000)
    wordings = lexical.embed([text for text, _ in recurring], options.dimensions)
    kinds = np.array([kind for _, kind in recurring])
    among = np.tril(wordings @ wordings.T, -1)
    for name in ("mmlu", "gsm8k"):
        with (options.data / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            prompts = list(csv.DictReader(file))
        vectors = lexical.embed([row["prompt"] for row in prompts], options.dimensions)
        correct = np.array([[int(row["weak_correct"]), int(row["strong_correct"])] for row in prompts])
        cosine = np.triu(vectors @ vectors.T, 1)
        base = [float(p * p + (1 - p) * (1 - p)) for p in correct.mean(axis=0)]
        for threshold in thresholds:
            first, second = np.nonzero(cosine >= threshold)
            if len(first) < FEW:
                continue
            same = (correct[first] == correct[second]).mean(axis=0)
            row: Row = {"data": name, "threshold": threshold, "pairs": len(first)}
            row |= {"agree_weak": _rounded(same[0]), "agree_strong": _rounded(same[1])}
            rows.append(row | {"agree_weak_by_chance": _rounded(base[0]), "agree_strong_by_chance": _rounded(base[1])})
    for threshold in thresholds:
        nearest_one = among.argmax(axis=1)
        taken = among.max(axis=1) >= threshold
        wrong = taken & (kinds[nearest_one] != kinds)
        row = {"data": "task families", "threshold": threshold, "share_updated": _rounded(taken.mean())}
        rows.append(row | {"share_into_another_family": _rounded(wrong.sum() / max(1, taken.sum()))})
    return rows


def recurring_texts(count: int) -> list[tuple[str, str]]:
    """Return texts of situations as they come in use, with their family: each family in turn, and names that change."""
    rng = seeded("recurring")
    names = ("code", "shell", "extract", "summarize")
    return [(FAMILIES[names[n % 4]].generate(rng, "train").action, names[n % 4]) for n in range(count)]


def memory(options: argparse.Namespace) -> list[Row]:
    """Return the figures of a memory with all episodes."""
    said, vectors = vectors_of(options.episodes, options.dimensions, "episodes", options.folder)
    _, queries = vectors_of(QUERIES, options.dimensions, "queries", options.folder)
    more, more_vectors = vectors_of(2 * QUERIES, options.dimensions, "more", options.folder)
    folder = options.folder / f"memory-{options.episodes}-{options.dimensions}"
    row: Row = {"episodes": options.episodes, "dimensions": options.dimensions}
    learned = _opened(folder, options.dimensions, most_alike=0)  # the texts are different ones
    episodes = learned.stats().episodes
    begun = time.monotonic()
    _fill(learned, said, vectors, episodes)
    row["wall_milliseconds_to_observe_each"] = _rounded(1e3 * (time.monotonic() - begun) / max(1, len(said) - episodes))
    learned.close()
    learned = _opened(folder, options.dimensions)
    learned._index.wait()
    row["wall_seconds_to_observe_all"] = _rounded(time.monotonic() - begun)
    print(row, flush=True)
    row |= _figures(learned, more, more_vectors, queries, nearest(vectors, queries, NEIGHBOURS))
    del learned
    gc.collect()
    return [row | _start(folder, options)]


def _figures(
    learned: Memory, more: list[str], more_vectors: Vectors, queries: Vectors, truth: NDArray[np.int64]
) -> Row:
    row: Row = {}
    row |= {
        f"stall_while_training_{name}": value
        for name, value in _stalls(learned, more[:QUERIES], more_vectors, queries).items()
    }
    learned._index.wait()
    row["index"] = asdict(learned.stats().index)
    neighbours = [learned.retrieve(query, NEIGHBOURS).ids for query in queries]
    row["recall"] = _recall(neighbours, truth)
    for k in (NEIGHBOURS, 100):
        row |= {
            f"retrieve_{k}_{name}": value
            for name, value in timed(partial(_retrieve, learned, queries, k), QUERIES).items()
        }
    observed = timed(lambda n: _observe(learned, QUERIES + n, more[QUERIES + n], more_vectors[QUERIES + n]), QUERIES)
    row |= {f"observe_{name}": value for name, value in observed.items()}
    index = learned._index
    inserted = timed(partial(_insert, index, more_vectors), QUERIES)
    row |= {f"insert_{name}": value for name, value in inserted.items()}
    row |= {"database_mib": learned.stats().database_bytes >> 20}
    print(row, flush=True)
    learned._index._complete = False  # what was inserted into the index alone is no episode: it must not be saved
    learned.close()
    return row


def _start(folder: Path, options: argparse.Namespace) -> Row:
    """Return how long it takes to open the memory with its index and without, and the memory it takes then."""
    row: Row = {}
    _ready(folder, options.dimensions)  # it saves the index
    for name in ("with_index", "without_index"):
        if name == "without_index":
            (folder / "index.json").unlink()
        command = [sys.executable, "-m", "benchmarks.memory", "--open", str(folder)]
        command += ["--dimensions", str(options.dimensions)]
        said = subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603 -- this module
        row |= {f"open_{name}_{key}": value for key, value in json.loads(said).items()}
    return row


def _open_alone(folder: Path, dimensions: int) -> Row:
    """Return how long this process takes to open the memory, and what it takes then."""
    before = psutil.Process().memory_info().rss
    begun, cpu = time.monotonic(), time.process_time()
    memory = _opened(folder, dimensions)
    opened = time.monotonic() - begun
    memory._index.wait()
    row = {"wall_seconds": _rounded(opened), "ready_wall_seconds": _rounded(time.monotonic() - begun)}
    row["ready_cpu_seconds"] = _rounded(time.process_time() - cpu)
    row["resident_mib"] = (psutil.Process().memory_info().rss - before) >> 20
    memory.close()
    return row


def _ready(folder: Path, dimensions: int) -> None:
    memory = _opened(folder, dimensions)
    memory._index.wait()
    memory.close()


def _stalls(learned: Memory, more: list[str], more_vectors: Vectors, queries: Vectors) -> Row:
    """Return how late a loop is that observes and retrieves every 5 ms, while a new index is trained and without.

    The same loop without a memory tells what the machine itself does.
    """
    row: Row = {"control_max_ms": _rounded(max(_ticks(400, lambda _: None)))}
    learned._index.build()
    late: list[float] = []
    step = 0
    while learned._index.stats().building:
        late += _ticks(20, lambda n: learned.retrieve(queries[n], NEIGHBOURS))
        if step < len(more):
            late += _ticks(1, partial(_observe, learned, step, more[step], more_vectors[step]))
        step += 1
    row["ticks"] = len(late)
    row["p99_ms"] = _rounded(np.quantile(late, 0.99)) if late else 0.0
    row["max_ms"] = _rounded(max(late, default=0.0))
    return row


def _ticks(count: int, work: Callable[[int], object]) -> list[float]:
    """Return by how many wall milliseconds each tick of 5 ms came late or took long."""
    late = []
    for number in range(count):
        due = time.monotonic() + 0.005
        time.sleep(0.005)
        work(number)
        late.append(1e3 * (time.monotonic() - due))
    return late


def _search(index: VectorIndex, queries: Vectors, number: int) -> None:
    index.search(queries[number], NEIGHBOURS)


def _insert(index: VectorIndex, vectors: Vectors, number: int) -> None:
    index.add([1 << 40 | number], vectors[number : number + 1])


def _retrieve(learned: Memory, queries: Vectors, k: int, number: int) -> None:
    learned.retrieve(queries[number], k)


def _opened(folder: Path, dimensions: int, most_alike: int = 64) -> Memory:
    return Memory.open(folder, lexical.NAME, dimensions, MemoryOptions(most_alike=most_alike))


def _fill(learned: Memory, said: Sequence[str], vectors: Vectors, there: int) -> None:
    """Observe every text but the first ones that are there already."""
    for start in range(there, len(said), BATCH):
        with learned.batch():
            for number in range(start, min(start + BATCH, len(said))):
                _observe(learned, -1 - number, said[number], vectors[number])


def _observe(learned: Memory, number: int, text: str, vector: Vectors, _: int = 0) -> None:
    success = float(number % 3 != 0)
    learned.observe(
        Situation(task_type="code", kind="generate", role="worker", text=text),
        vector,
        ACTIONS[number % len(ACTIONS)],
        outcome=Outcome(success=success, source="gate", by="tests"),
        reward=Reward(total=success),
        propensity=0.5,
        at=1e9 + number,
        key=("run", "step", number),
    )


def _index(folder: Path, vectors: Vectors, dimensions: int, settings: IndexSettings) -> VectorIndex:
    """Return an index of vectors that have their places as ids, counted from 1."""

    def source(after: int) -> Iterator[tuple[list[int], Vectors]]:
        for start in range(after, len(vectors), 1024):
            block = np.asarray(vectors[start : start + 1024])
            yield list(range(start + 1, start + 1 + len(block))), block

    index = VectorIndex(folder, lexical.NAME, dimensions, source, lambda last: (last, 0), settings)
    index.load(len(vectors))
    index.wait()
    return index


def _recall(neighbours: Sequence[NDArray[np.int64]], truth: NDArray[np.int64]) -> float:
    """Return which share of the truly nearest was found. Ids count from 1, places from 0."""
    hits = [len(np.intersect1d(ids - 1, places)) for ids, places in zip(neighbours, truth, strict=True)]
    return _rounded(float(np.sum(hits)) / truth.size)


def _rounded(value: Any) -> float:
    return float(f"{float(value):.4g}")


def goals_of(rows: Mapping[str, list[Row]]) -> list[goals.Goal]:
    """Return the goals of the largest memory that was measured, with the dimensions that it had."""
    reached: list[goals.Goal] = []
    default = IndexSettings()
    for row in rows.get("lists", []):
        lists = lists_for(row["vectors"], default.lists_per_root)
        shipped = (lists, default.components, default.probes, default.candidates)
        if (row["lists"], row["components"], row["probes"], row["candidates"]) == shipped:
            name = f"{row['vectors']:,} vectors of {row['dimensions']} dimensions, {row['kind']} queries, index alone"
            reached += [
                goals.at_most(f"{name}: CPU milliseconds of a search, p99", row["p99_ms"], 1.5),
                goals.at_least(f"{name}: recall of the 20 nearest", row["recall"], 0.95),
            ]
            if "insert_mean_ms" in row:
                reached.append(
                    goals.at_most(f"{name}: CPU milliseconds of an insertion, mean", row["insert_mean_ms"], 0.1)
                )
    for row in rows.get("memory", []):
        name = f"{row['episodes']:,} episodes of {row['dimensions']} dimensions"
        reached += [
            goals.at_most(f"{name}: CPU milliseconds of a retrieval, p99", row["retrieve_20_p99_ms"], 1.5),
            goals.at_least(f"{name}: recall of the 20 nearest", row["recall"], 0.95),
            goals.at_most(f"{name}: CPU milliseconds of an insertion into the index, mean", row["insert_mean_ms"], 0.1),
            goals.at_most(
                f"{name}: longest stall in milliseconds while an index is trained",
                row["stall_while_training_max_ms"],
                20,
            ),
        ]
    return reached


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], list[Row]]]] = {
    "flat": flat,
    "lists": lists,
    "similarity": similarity,
    "memory": memory,
}
# What tells rows apart: a row replaces an earlier one that has the same of these.
KEYS: Final = tuple("vectors episodes dimensions kind components lists probes candidates data threshold".split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts, and write their rows into the results, in place of earlier ones of the same size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--dimensions", type=int, default=lexical.LEARNING_DIMENSIONS, help="numbers of a vector (default: %(default)s)"
    )
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=["flat", "lists", "memory"])
    default = IndexSettings()
    parser.add_argument(
        "--per-root", nargs="+", type=float, default=[default.lists_per_root], help="lists per root of vectors"
    )
    parser.add_argument("--components", nargs="+", type=int, default=[default.components], help="of the projection")
    parser.add_argument("--probes", nargs="+", type=int, default=[16, 32, 64, 128], help="lists that are searched")
    parser.add_argument("--candidates", nargs="+", type=int, default=[default.candidates], help="compared again")
    parser.add_argument("--queries", nargs="+", choices=["unseen", "recurring"], default=["unseen", "recurring"])
    parser.add_argument("--data", type=Path, help="the folder of gsm8k.csv and mmlu.csv, for the part similarity")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps vectors (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    parser.add_argument("--open", type=Path, help="only open the memory in this folder, and print how that went")
    options = parser.parse_args(arguments)
    if options.open is not None:
        print(json.dumps(_open_alone(options.open, options.dimensions)))
        return 0
    if "similarity" in options.parts and options.data is None:
        print("the part similarity needs --data FOLDER", file=sys.stderr)
        return 2
    written = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    rows: dict[str, list[Row]] = written.get("rows", {})
    for part in options.parts:
        new = PARTS[part](options)
        for row in new:
            print(part, row, flush=True)
        names = {_key(row) for row in new}
        rows[part] = [row for row in rows.get(part, []) if _key(row) not in names] + new
        results.write(
            options.out,
            {
                "command": "python -m benchmarks.memory",
                "machine": environment.machine(),
                "versions": environment.versions("faiss-cpu", "numpy"),
                "goals": [asdict(goal) for goal in goals_of(rows)],
                "rows": rows,
            },
        )
    return 0


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in KEYS)


if __name__ == "__main__":
    sys.exit(main())
