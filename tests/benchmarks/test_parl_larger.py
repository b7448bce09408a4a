"""What is published of the training of a larger frontdoor."""

from typing import Any

import pytest

from benchmarks import page

FIGURES = {"performance": 0.5, "success": 0.6, "collapse": 0.1, "spurious": 0.0, "longer": 0.02, "width": 3.0}
REPORT: dict[str, Any] = {
    "requests": 54,
    "gain": 0.2,
    "low": 0.1,
    "high": 0.3,
    "current": FIGURES,
    "candidate": FIGURES,
}
REWARD = {"stage": {"first": 0.1, "outcomes": 60, "finish": 0.5}}
CHECKPOINT = {"settings": {"requests": 3, "reward": REWARD}, "done": 45, "seconds": 5400.0}


def test_a_training_gains_only_what_its_interval_shows() -> None:
    pytest.importorskip("torch", reason="training needs PyTorch: the extra `train`")
    from benchmarks.parl.larger import completed

    natural = {
        "supervised": {"unseen": [True, False] * 25, "wide": [False] * 40},
        "trained": {"unseen": [True, False] * 25, "wide": [True] + [False] * 39},
    }
    other = {"name": "another goal", "value": 1, "goal": ">= 0"}
    published = completed({"goals": [other], "rows": []}, "m", REPORT, natural, CHECKPOINT)
    first, families, plans = published["goals"]
    assert first == other
    assert (families["value"], families["interval"], families["met"]) == (0.1, [0.1, 0.3], True)
    assert plans["value"] < 0 < plans["interval"][1]
    assert published["larger"]["m"]["natural"] == {
        "unseen": {"count": 50, "supervised": 25, "trained": 25},
        "wide": {"count": 40, "supervised": 0, "trained": 1},
    }
    assert completed(published, "m", REPORT, natural, CHECKPOINT) == published
    text = "\n".join(page.parl_table(published))
    assert "45 updates (one seed; 1.5 hours" in text
    assert "λ fell from 0.1 to 0.027." in text
    assert "unseen: 25 of 50 instead of 25; wide: 1 of 40 instead of 0" in text
