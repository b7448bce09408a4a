"""Say what the answer of a run is. Everything that shows an answer, or checks it, asks here."""

from orchestrator.history.view import RunView


def answer_outputs(view: RunView) -> dict[str, str]:
    """Return the outputs that are the answer, in order: artifact name to digest.

    They are those that the user wants; if the plan does not say which, those of the steps that no other depends on.
    """
    made = {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}
    if wanted := {name: made[name] for name in view.wanted if name in made}:
        return wanted
    continued = {row.after for row in view.replans if row.steps}
    last = [step for step in view.graph.steps if not view.graph.after[step] and step not in continued]
    return {name: made[name] for step in last for name in view.outputs.get(step, {})}
