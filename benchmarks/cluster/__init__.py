"""What several machines cost and bring: three nodes of a Ray cluster on this machine, and simulated clusters."""
