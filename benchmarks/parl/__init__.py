"""The frontdoor's training: arms with other parts of the reward, three seeds each, and controls without training."""

from typing import Final

from benchmarks import results

BUILD: Final = results.ROOT / "build" / "parl"
"""The folder of trainings, and of measurements that are not complete."""
RESULTS: Final = results.FOLDER / "parl.json"
