"""Define the shape and the training of the tool caller, and where its files are."""

from pathlib import Path
from typing import Final

from benchmarks.tiny.sizes import ROOT, SIZES, Cycle, Size
from benchmarks.tiny.tokenizer import VOCABULARY_SIZE
from benchmarks.tool_caller.syntax import ADDED

# The embedded model whose weights the training starts from: it has learned to copy and to read JSON.
START: Final = SIZES["medium"]
SIZE: Final = Size(
    "tool-caller",
    START.width,
    START.layers,
    START.heads,
    9,
    (Cycle(2400, peak=0.7, fall=0.7, warm_up=40),),
    VOCABULARY_SIZE + len(ADDED),
)
FOLDER: Final = ROOT / "tests" / "data" / "tool_caller"
SHIPPED: Final[Path] = FOLDER / "tool-caller.gguf"
