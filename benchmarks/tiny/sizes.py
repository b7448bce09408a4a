"""Fix the sizes of the family and how long each is trained: the recipe, from seeds to weights."""

from dataclasses import dataclass
from pathlib import Path

CONTEXT = 2048
ROOT = Path(__file__).parents[2]
REGISTRY = ROOT / "registry" / "tiny"
BUILD = ROOT / "build" / "tiny"
TOKENIZER_FILE = REGISTRY / "tokenizer.json"
RESULTS_FILE = ROOT / "benchmarks" / "results" / "tiny.json"
TOKENIZER_SEED = "tokenizer"
TOKENIZER_EXAMPLES = 6000


@dataclass(frozen=True, slots=True)
class Size:
    """One model: its shape, the number of training steps and the rows of 512 tokens in each.

    The small ones take fewer and smaller steps: they are there to be quicker, and wrong more often.
    """

    name: str
    width: int
    layers: int
    heads: int
    steps: int
    rows: int

    @property
    def hidden(self) -> int:
        """The inner width of the SwiGLU."""
        return 3 * self.width

    @property
    def weights(self) -> Path:
        """Where the exported model lies."""
        return REGISTRY / f"{self.name}.gguf"

    @property
    def checkpoint(self) -> Path:
        """Where training saves its state."""
        return BUILD / f"{self.name}.pt"

    @property
    def cost(self) -> Path:
        """Where the end of training notes what it cost."""
        return BUILD / f"{self.name}-cost.json"


SIZES = {
    size.name: size
    for size in (
        Size("large", 192, 5, 6, 5000, 14),
        Size("medium", 128, 4, 4, 2600, 12),
        Size("small", 96, 4, 3, 3000, 10),
        Size("draft", 64, 2, 2, 400, 10),
    )
}
