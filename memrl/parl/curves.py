"""The figures of each update of a training, and the page that draws them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from orchestrator.memrl.parl.trainings import write_points
from orchestrator.memrl.training_page import training_page

CURVES: Final = "curves.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Means over the plans of one update."""

    update: int
    reward: float
    performance: float
    parallel: float
    finish: float
    stage: float
    success: float
    width: float
    collapse: float
    spurious: float
    longer: float
    seconds: float
    kl: float


ABOUT: Final = {
    "reward": "all parts together",
    "performance": "how right answers are, less the price of time",
    "parallel": "share of the critical path that running in parallel saved",
    "finish": "share of steps whose output was used",
    "stage": "weight of the two parts before (λ)",
    "success": "share of answers that are right",
    "width": "steps that can run at a time",
    "collapse": "share of wide requests planned less than half as wide as the best plan",
    "spurious": "share of steps that are not used, or that the best plan does without",
    "longer": "by which part the critical path is longer than that of the best plan",
    "seconds": "critical path on the simulated machines",
    "kl": "divergence from the policy before training, per token that the grammar leaves free",
}


def write_curves(folder: Path, points: Sequence[CurvePoint]) -> None:
    """Write the page, and the figures for others to draw. Raises OSError."""
    rows = [asdict(point) for point in points]
    series = {name: (about, [float(row[name]) for row in rows]) for name, about in ABOUT.items()}
    page = training_page("Training of the frontdoor", "updates", [point.update for point in points], series, rows)
    (folder / CURVES).write_text(page, encoding="utf-8")
    write_points(folder, rows)
