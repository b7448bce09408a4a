"""Memory and policy have none of the faults by which their predecessor learned nothing."""

from benchmarks.routing import faults


def test_none_of_the_six_faults_of_the_predecessor_is_there() -> None:
    part = faults.run(tasks=40, rounds=15)
    missed = [f"{goal['name']}: {goal['value']}, wanted {goal['goal']}" for goal in part.goals if not goal["met"]]
    assert not missed, "\n".join(missed)
