"""Compare simulations with real runs of the same tasks, and say what to buy for wide ones."""
