"""Fix the sizes of the family and how long each is trained: the recipe, from seeds to weights."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

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
    """A stretch of training: a short warm-up to `peak`, of the full learning rate, and a linear fall to zero.

    The fall takes the last `fall` of the steps. What it learns is drawn from `mix`, and packed into rows of `length`
    tokens.
    """

    steps: int
    peak: float = 1.0
    fall: float = 0.52
    mix: Mix = "reading"
    length: int = ROW


@dataclass(frozen=True, slots=True)
class Size:
    """One model: its shape, the rows of 512 tokens in each step, and how its training goes.

    The small ones take fewer steps: they are there to be quicker, and wrong more often.
    """

    name: str
    width: int
    layers: int
    heads: int
    rows: int
    cycles: tuple[Cycle, ...]

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return sum(cycle.steps for cycle in self.cycles)

    def cycle_at(self, step: int) -> tuple[Cycle, int]:
        """Return the cycle that `step` belongs to, and which of its steps it is. `step` is below `steps`."""
        for cycle in self.cycles:
            if step < cycle.steps:
                return cycle, step
            step -= cycle.steps
        raise ValueError(f"{self.name} is trained for {self.steps} steps")

    @property
    def hidden(self) -> int:
        """The inner width of the SwiGLU."""
        return 3 * self.width

    @property
    def shipped(self) -> Path:
        """Where the model lies that the registry loads."""
        return REGISTRY / f"{self.name}.gguf"

    @property
    def trained(self) -> Path:
        """Where the model lies that training from the seeds came to."""
        return BUILD / f"{self.name}.gguf"

    @property
    def measured(self) -> Path:
        """Where evaluation notes what the trained model got right."""
        return BUILD / f"{self.name}-rows.json"

    @property
    def checkpoint(self) -> Path:
        """Where training saves its state."""
        return BUILD / f"{self.name}.pt"

    @property
    def cost(self) -> Path:
        """Where the end of training notes what it cost."""
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
