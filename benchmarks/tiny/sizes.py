"""Define the sizes of the models and how each is trained: the recipe from seeds to weights."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks.tiny.tokenizer import VOCABULARY_SIZE
from orchestrator.memrl.parl.shape import NetworkShape

Mix = Literal["reading", "acting", "everything", "finishing", "mending"]

CONTEXT = 2048
ROW = 512
ROOT = Path(__file__).parents[2]
REGISTRY = ROOT / "registry" / "tiny"
BUILD = ROOT / "build" / "tiny"
TOKENIZER_FILE = REGISTRY / "tokenizer.json"
RESULTS_FILE = ROOT / "benchmarks" / "results" / "tiny.json"
SEEDS_FILE = ROOT / "benchmarks" / "results" / "tiny-seeds.json"
TOKENIZER_SEED = "tokenizer"
TOKENIZER_EXAMPLES = 6000


@dataclass(frozen=True, slots=True)
class Cycle:
    """A stretch of training, in which the learning rate warms up to its peak and falls linearly to zero."""

    steps: int
    peak: float = 1.0  # the highest learning rate, as a share of the full one
    fall: float = 0.52  # the share of the steps, at the end, in which the learning rate falls
    mix: Mix = "reading"  # the mix of families from which examples are drawn
    length: int = ROW  # the tokens of a row
    warm_up: int = 40  # the steps, at the begin, in which the learning rate rises


@dataclass(frozen=True, slots=True)
class Size:
    """The shape and the training of one model.

    The small models have fewer training steps: they are meant to be faster, and to be wrong more often.
    """

    name: str
    width: int
    layers: int
    heads: int
    rows: int  # rows of 512 tokens in each training step
    cycles: tuple[Cycle, ...]
    vocabulary: int = VOCABULARY_SIZE  # the number of tokens that it knows

    @property
    def steps(self) -> int:
        """Return the number of training steps."""
        return sum(cycle.steps for cycle in self.cycles)

    def cycle_at(self, step: int) -> tuple[Cycle, int]:
        """Return the cycle of `step`, and its index in the cycle. `step` has to be below `steps`."""
        for cycle in self.cycles:
            if step < cycle.steps:
                return cycle, step
            step -= cycle.steps
        raise ValueError(f"{self.name} is trained for {self.steps} steps")

    @property
    def hidden(self) -> int:
        """Return the inner width of the SwiGLU."""
        return 3 * self.width

    @property
    def layout(self) -> NetworkShape:
        """Return the sizes of the network."""
        return NetworkShape(
            vocabulary=self.vocabulary,
            width=self.width,
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.heads,
            context=CONTEXT,
        )

    @property
    def shipped(self) -> Path:
        """Return the file of the shipped model, which the registry loads."""
        return REGISTRY / f"{self.name}.gguf"

    @property
    def trained(self) -> Path:
        """Return the file of the model that was trained here."""
        return BUILD / f"{self.name}.gguf"

    @property
    def measured(self) -> Path:
        """Return the file of the rows measured for the trained model."""
        return BUILD / f"{self.name}-rows.json"

    @property
    def checkpoint(self) -> Path:
        """Return the file in which training saves its state."""
        return BUILD / f"{self.name}.pt"

    @property
    def cost(self) -> Path:
        """Return the file that records the cost of training."""
        return BUILD / f"{self.name}-cost.json"


ACTS = Cycle(2500, peak=0.4, fall=1.0, mix="acting")
LEARNS = Cycle(14000, peak=0.3, fall=0.95, mix="everything", length=640)
FINISHES = Cycle(12000, peak=0.25, fall=0.92, mix="finishing", length=640)
MENDS = Cycle(10000, peak=0.25, fall=0.95, mix="mending", length=1024)
SIZES = {
    size.name: size
    for size in (
        Size("large", 192, 5, 6, 7, (LEARNS, FINISHES, MENDS)),
        Size("medium", 128, 4, 4, 12, (Cycle(2600), Cycle(3000, peak=0.4, fall=1.0), ACTS)),
        Size("small", 96, 4, 3, 10, (Cycle(3000), Cycle(3000, peak=0.4, fall=1.0), replace(ACTS, steps=1200))),
        Size("draft", 64, 2, 2, 10, (Cycle(1600, fall=0.85), replace(ACTS, steps=600))),
    )
}
