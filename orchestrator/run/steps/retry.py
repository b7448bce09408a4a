"""Write what the prompt of a retry says: the answer before it, what was wrong with it, and what to do better."""

from collections.abc import Sequence
from typing import Final

from orchestrator.run.steps.prompt import after_failure
from orchestrator.task.events import Failure
from orchestrator.task.failures import feedback
from registry.prompts import PromptSet

WORDS_A_TOKEN: Final = 0.5
"""How many words are asked for instead of a token. English has about 0.75, and models write more than asked for."""
PREVIOUS_LENGTHS: Final = (4_000, 1_000, 0)
"""How many characters of the previous answer a prompt shows, the first number that fits."""


def with_evidence(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str = "") -> str:
    """Return the action with the evidence of earlier failures, shortened, for the next prompt.

    `previous` is the answer that failed last; the embedded models, which were not trained on it, are not shown it. If
    the prompts have words for it, an answer that was cut off is not mentioned: the next one is asked to be short, and
    shorter each time. Small models repeat what a prompt says of an answer, and do what it asks for.
    """
    if not prompts.shorter:
        return after_failure(action, feedback(failures))
    asked = _with_previous(action, [failure for failure in failures if failure.cut_at is None], prompts, previous)
    cut = [failure.cut_at for failure in failures if failure.cut_at is not None]
    if not cut:
        return asked
    words = max(1, round(WORDS_A_TOKEN * cut[0] / 2 ** len(cut)))
    return f"{asked}\n{prompts.shorter.format(words=words)}"


def shortened(answer: str, length: int) -> str:
    """Return an answer of at most about `length` characters, without its middle if it is longer."""
    if len(answer) <= length:
        return answer
    if not length:
        return ""
    head, tail = answer[: length // 2], answer[-length // 2 :]
    return "\n".join((head.rpartition("\n")[0] or head, "[…]", tail.partition("\n")[2] or tail))


def shown_previous(answer: str) -> str:
    """Return what the prompt of a step that acts shows of the previous answer, whose turns need the room."""
    return shortened(answer, PREVIOUS_LENGTHS[1])


def _with_previous(action: str, failures: Sequence[Failure], prompts: PromptSet, previous: str) -> str:
    told = feedback(failures)
    if not told or not previous.strip() or not prompts.listed_names:
        return after_failure(action, told)
    fence = "~~~~" if "```" in previous else "```"
    return "\n".join(
        [
            after_failure(action, told[:-1]),
            "",
            f"Your previous answer:\n{fence}\n{previous.strip()}\n{fence}",
            f"It failed: {told[-1]}",
            "Write the complete answer again, without this fault.",
        ]
    )
