"""What the prompt of a retry says: the previous answer, what was wrong with it, and what to do better."""

from collections.abc import Sequence
from typing import Final

from orchestrator.registry.prompts import PromptSet
from orchestrator.run.steps.role import after_failure
from orchestrator.task.events import Failure
from orchestrator.task.failures import feedback

# Words to ask for in place of a token. English has about 0.75, but models write more than they are asked for.
WORDS_A_TOKEN: Final = 0.5
# Characters of the previous answer in a prompt; the first that fits counts.
PREVIOUS_LENGTHS: Final = (4_000, 1_000, 0)


def with_evidence(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str = "") -> str:
    """Return the action with the evidence of earlier failures, for the next prompt.

    `previous` is the answer that failed last. Embedded models are not shown it, since they were not trained on it.
    """
    if not prompts.shorter:
        return after_failure(action, feedback(failures))
    # Small models repeat what a prompt says about an answer, and do what it asks for. So a cut-off answer is not
    # mentioned: the next one is asked to be short, and shorter each time.
    prompt = _with_previous(action, [failure for failure in failures if failure.cut_at is None], prompts, previous)
    cut = [failure.cut_at for failure in failures if failure.cut_at is not None]
    if not cut:
        return prompt
    words = max(1, round(WORDS_A_TOKEN * cut[0] / 2 ** len(cut)))
    return f"{prompt}\n{prompts.shorter.format(words=words)}"


def shortened(answer: str, length: int) -> str:
    """Cut the middle out of an answer of more than about `length` characters."""
    if len(answer) <= length:
        return answer
    if not length:
        return ""
    head, tail = answer[: length // 2], answer[-length // 2 :]
    return "\n".join((head.rpartition("\n")[0] or head, "[…]", tail.partition("\n")[2] or tail))


def shown_previous(answer: str) -> str:
    """Return what a step that acts is shown of the previous answer: its turns need the room."""
    return shortened(answer, PREVIOUS_LENGTHS[1])


def _with_previous(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str) -> str:
    evidence = feedback(failures)
    if not evidence or not previous.strip() or not prompts.listed_names:
        return after_failure(action, evidence)
    fence = "~~~~" if "```" in previous else "```"
    return "\n".join(
        [
            after_failure(action, evidence[:-1]),
            "",
            f"Your previous answer:\n{fence}\n{previous.strip()}\n{fence}",
            f"It failed: {evidence[-1]}",
            "Write the complete answer again, without this fault.",
        ]
    )
