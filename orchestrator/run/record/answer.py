"""Say what the answer of a run is. Everything that shows an answer, or checks it, asks here."""

from collections.abc import Mapping

from orchestrator.run.record.view import RunView


def answer_outputs(view: RunView) -> dict[str, str]:
    """Return the outputs that are the answer, in order: artifact name to digest.

    They are those that the user wants; if the plan does not say which, those of steps that no other step depends on.
    """
    made = {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}
    if wanted := {name: made[name] for name in view.wanted if name in made}:
        return wanted
    continued = {row.after for row in view.replans if row.steps}
    last = [step for step in view.graph.steps if not view.graph.after[step] and step not in continued]
    return {name: made[name] for step in last for name in view.outputs.get(step, {})}


def answer_text(texts: Mapping[str, str], request: str) -> str:
    """Return the answer in one text: each output under its name, but a single one only if the request names it."""
    if len(texts) == 1:
        ((name, text),) = texts.items()
        if name not in request:
            return text
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
