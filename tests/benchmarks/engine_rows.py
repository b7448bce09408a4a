"""Rows as the engine's benchmark would measure them."""

from benchmarks.engine.rows import EngineRow


def row(system: str, seconds: float, *, rounds: int = 5, **more: object) -> EngineRow:
    """Return a row; each round takes a little longer than the one before."""
    known = {
        "cell": "150m/16x1024",
        "model": "150m",
        "width": 16,
        "requests": 16,
        "prefix": 1024,
        "state": "cold",
        "tokens": 512,
    }
    times = tuple(seconds * (1 + number / 100) for number in range(rounds))
    return EngineRow(**{**known, **more}, system=system, seconds=times)  # type: ignore[arg-type]
