"""LoRA weights for the largest embedded model."""

from pathlib import Path

import numpy as np

from orchestrator.memrl.parl.weights import Weights

TINY = Path(__file__).resolve().parents[3] / "registry" / "tiny"
WIDTH = 192  # of the model


def some_weights(scale: float, rank: int = 2) -> dict[tuple[int, str], tuple[Weights, Weights]]:
    """Return weights for the queries and values of the first layer."""
    draw = np.random.default_rng(1)
    return {
        (0, name): (
            draw.normal(size=(rank, WIDTH)).astype(np.float32),
            (scale * draw.normal(size=(WIDTH, rank))).astype(np.float32),
        )
        for name in ("attn_q", "attn_v")
    }
