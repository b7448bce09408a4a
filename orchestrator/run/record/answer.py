"""Define what the answer of a run is, for everything that shows or checks it."""

from collections.abc import Mapping

from orchestrator.run.record.view import RunView


def answer_outputs(view: RunView) -> dict[str, str]:
    """Return the outputs that are the answer, in order: artifact name to digest."""
    outputs = {name: digest for step in view.graph.steps for name, digest in view.outputs.get(step, {}).items()}
    if answer := {name: outputs[name] for name in view.wanted if name in outputs}:
        return answer
    # If the plan names no wanted outputs, the answer is what no other step depends on.
    continued = {row.after for row in view.replans if row.steps}
    last = [step for step in view.graph.steps if not view.graph.after[step] and step not in continued]
    return {name: outputs[name] for step in last for name in view.outputs.get(step, {})}


def answer_text(texts: Mapping[str, str], request: str) -> str:
    """Return the answer as one text: each output under its name, a single one without unless the request names it."""
    if len(texts) == 1:
        ((name, text),) = texts.items()
        if name not in request:
            return text
    return "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
