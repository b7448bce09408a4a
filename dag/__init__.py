"""Order the steps of a plan: pure functions over ids and pairs of ids, for tasks and for procedures."""
