"""Mix the families into the training text: which example comes where is a function of the seeds alone."""

from hashlib import sha256
from random import Random

from benchmarks.tiny.chat import encode_answer, encode_prompt
from benchmarks.tiny.example import Example
from benchmarks.tiny.families import FAMILIES
from benchmarks.tiny.families.compare import Compare
from benchmarks.tiny.families.condense import Condense
from benchmarks.tiny.families.extract import Extract
from benchmarks.tiny.families.merge import Merge
from benchmarks.tiny.families.plan import Plan
from benchmarks.tiny.families.prune import Prune
from benchmarks.tiny.families.summarize import Summarize
from benchmarks.tiny.tokenizer import Tokenizer
from benchmarks.tiny.words import SPLITS, Split, seeded

SHARES = {"plan": 25, "extract": 17, "code": 11, "shell": 5, "summarize": 16, "compare": 13, "merge": 5, "judge": 8}
ACTING_SHARES = {"tools": 8, "repl": 5, "prune": 2, "condense": 2, "retry": 4}
LONG_SHARES = {"long extract": 30, "long summarize": 30, "compare 16": 20, "merge 16": 10, "plan 8": 10}
LONG_ACTING_SHARES = {"prune": 40, "condense": 30, "long prune": 15, "long condense": 15}
HASHED_EXAMPLES = 500


def draw(rng: Random, split: Split, *, acting: bool = False) -> Example:
    """Return an example of a family drawn by its share; with `acting`, those of steps that act are among them."""
    shares = SHARES | ACTING_SHARES if acting else SHARES
    (name,) = rng.choices(list(shares), list(shares.values()))
    return FAMILIES[name].generate(rng, split)


def draw_long(rng: Random, split: Split, kind: str = "", *, acting: bool = False) -> Example:
    """Return an example with a long prompt or answer, of `kind` or of one drawn by its share as in `draw`."""
    shares = LONG_SHARES | LONG_ACTING_SHARES if acting else LONG_SHARES
    match kind or rng.choices(list(shares), list(shares.values()))[0]:
        case "long extract":
            return Extract().generate(rng, split, long=True)
        case "long summarize":
            return Summarize().generate(rng, split, long=True)
        case "long prune":
            return Prune().generate(rng, split, long=True)
        case "long condense":
            return Condense().generate(rng, split, long=True)
        case "compare 16":
            return Compare().generate(rng, split, join=rng.randint(9, 16) if split == "train" else 16)
        case "merge 16":
            return Merge().generate(rng, split, join=rng.randint(7, 16) if split == "train" else 16)
        case "plan 8":
            return Plan().generate(rng, split, fan_out=rng.randint(6, 8))
        case name:
            return FAMILIES[name].generate(rng, split)


def encode(tokenizer: Tokenizer, example: Example) -> tuple[list[int], int]:
    """Return the ids of `example` and how many of them are the prompt."""
    prompt = encode_prompt(tokenizer, example.messages)
    return prompt + encode_answer(tokenizer, example.answer), len(prompt)


def text_of(example: Example) -> str:
    """Return all that an example says, for the tokenizer to learn from."""
    return "\n".join([*(message.content for message in example.messages), example.answer])


def data_hash() -> str:
    """Return the SHA-256 of the first examples of each family and split: the same data has the same hash."""
    digest = sha256()
    for name, family in FAMILIES.items():
        for split in SPLITS:
            for index in range(HASHED_EXAMPLES):
                example = family.generate(example_rng(name, split, index), split)
                digest.update("\x1f".join((example.role, example.persona, text_of(example))).encode())
    return digest.hexdigest()


def example_rng(name: str, split: Split, index: int) -> Random:
    """Return the random state of the example that evaluation and hash know by this family, split and index."""
    return seeded(f"{name}/{split}/{index}")
