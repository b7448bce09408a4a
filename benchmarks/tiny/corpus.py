"""Mix the families into the training text. Which example comes where depends only on the seeds."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from random import Random

from benchmarks.tiny.chat import encode_answer, encode_prompt
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.families.condense import Condense
from benchmarks.tiny.families.plan import PlanFamily
from benchmarks.tiny.families.prune import PruneFamily
from benchmarks.tiny.sizes import Mix
from benchmarks.tiny.tokenizer import Tokenizer
from orchestrator.bench.families.compare import Compare
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.extract import Extract
from orchestrator.bench.families.merge import Merge
from orchestrator.bench.families.summarize import Summarize
from orchestrator.bench.families.words import SPLITS, Lexicon, Split, seeded

# The share of each kind of example in a mix. The small models first learn to read and write, then to use tools as well.
# The large model learns everything at once, also to choose among inputs; later, more of what it had learned least.
READING = {"plan": 25, "extract": 17, "code": 11, "shell": 5, "summarize": 16, "compare": 13, "merge": 5, "judge": 8}
ACTING = READING | {"tools": 8, "repl": 5, "prune": 2, "condense": 2, "retry": 4}
EVERYTHING = (
    ACTING
    | {"plan": 32, "summarize": 18, "compare": 32, "judge": 20, "tools": 10, "repl": 12, "condense": 7, "retry": 10}
    | {"choose summarize": 10, "choose extract": 8, "list": 12, "files": 6}
)
FINISHING = EVERYTHING | {"plan": 36, "extract": 20, "merge": 10, "tools": 18, "repl": 14, "condense": 10}
MENDING = (
    FINISHING | {"plan": 40, "extract": 24, "summarize": 22, "merge": 12, "judge": 28} | {"tools": 24, "condense": 20}
)
LONG_READING = {"long extract": 30, "long summarize": 30, "compare 16": 20, "merge 16": 10, "plan 8": 10}
LONG_ACTING = LONG_READING | {"prune": 40, "condense": 30, "long prune": 15, "long condense": 15}
MIXES: dict[Mix, tuple[dict[str, int], dict[str, int]]] = {
    "reading": (READING, LONG_READING),
    "acting": (ACTING, LONG_ACTING),
    "everything": (EVERYTHING, LONG_ACTING),
    "finishing": (FINISHING, LONG_ACTING),
    "mending": (MENDING, LONG_ACTING),
}
HASHED_EXAMPLES = 500


def draw(rng: Random, split: Split, mix: Mix = "reading") -> Example:
    """Return an example whose kind is drawn by its share in `mix`."""
    shares, _ = MIXES[mix]
    return example(rng, split, *rng.choices(list(shares), list(shares.values())))


def draw_long(rng: Random, split: Split, mix: Mix = "reading") -> Example:
    """Return an example with a long prompt or answer, whose kind is drawn by its share in `mix`."""
    _, shares = MIXES[mix]
    return example(rng, split, *rng.choices(list(shares), list(shares.values())))


def example(rng: Random, split: Split, kind: str) -> Example:
    """Return an example of `kind`: the name of a family, or that with a suffix for a longer or harder variant."""
    make = _KINDS.get(kind)
    return FAMILIES[kind].generate(rng, split) if make is None else make(rng, split)


def _compare_many(rng: Random, split: Split) -> Example:
    return Compare().generate(rng, split, join=rng.randint(9, 16) if split == "train" else 16)


def _merge_many(rng: Random, split: Split) -> Example:
    return Merge().generate(rng, split, join=rng.randint(7, 16) if split == "train" else 16)


_KINDS: dict[str, Callable[[Random, Split], Example]] = {
    "long extract": partial(Extract().generate, long=True),
    "long summarize": partial(Summarize().generate, long=True),
    "long prune": partial(PruneFamily().generate, long=True),
    "long condense": partial(Condense().generate, long=True),
    "compare 16": _compare_many,
    "merge 16": _merge_many,
    "plan 8": lambda rng, split: PlanFamily().generate(rng, split, fan_out=rng.randint(6, 8)),
    "choose summarize": lambda rng, split: Summarize().generate(rng, split, among=rng.randint(2, 5)),
    "choose extract": lambda rng, split: Extract().generate(rng, split, among=rng.randint(2, 5)),
    "list": lambda rng, split: Extract().list_of(Lexicon(rng, split), split, rng.randint(3, 8)),
    "files": lambda rng, split: Extract().files_of(Lexicon(rng, split), split, short=rng.random() < 0.5),
}


def encode(tokenizer: Tokenizer, example: Example) -> tuple[list[int], int]:
    """Return (the token ids of `example`, how many of them are the prompt)."""
    prompt = encode_prompt(tokenizer, example.messages)
    return prompt + encode_answer(tokenizer, example.answer), len(prompt)


def text_of(example: Example) -> str:
    """Return all text of an example, for training the tokenizer."""
    return "\n".join([*(message.content for message in example.messages), example.answer])


def data_hash() -> str:
    """Return the SHA-256 of the first examples of each family and split, which identifies the data."""
    digest = sha256()
    for name, family in FAMILIES.items():
        for split in SPLITS:
            for index in range(HASHED_EXAMPLES):
                example = family.generate(example_rng(name, split, index), split)
                digest.update("\x1f".join((example.role, example.persona, text_of(example))).encode())
    return digest.hexdigest()


def example_rng(name: str, split: Split, index: int) -> Random:
    """Return the random generator of the example with this family, split and index, for evaluation and hash."""
    return seeded(f"{name}/{split}/{index}")
