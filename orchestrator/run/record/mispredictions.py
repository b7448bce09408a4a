"""Find out why a step took far longer or shorter than predicted. Pure. Times are in seconds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.run.record.view import AttemptRow
from orchestrator.task.events import Prediction

# A prediction is wrong if the measured time differs by more than this part of it.
WRONG: Final = 0.5
LEAST_SECONDS: Final = 0.01  # smaller differences are ignored
# A cause is named if it explains at least this part of the difference.
SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class MispredictionCause:
    why: str  # in words, as the end of a sentence about the step
    seconds: float  # by which it made the step longer; negative: shorter


@dataclass(frozen=True, slots=True)
class Misprediction:
    """A step whose prediction was wrong by more than half."""

    step: str
    predicted_seconds: float
    seconds: float
    causes: tuple[MispredictionCause, ...]  # the greatest first; they need not add up to the whole difference
    assumed: bool  # nothing like it had been measured


def misprediction(
    step: str, predicted: Prediction, seconds: float, attempts: Sequence[AttemptRow]
) -> Misprediction | None:
    """Return the error of the prediction for a step, and its causes; None if it was right within `WRONG`."""
    late = seconds - predicted.seconds
    if abs(late) < LEAST_SECONDS or abs(late) <= WRONG * predicted.seconds:
        return None
    causes = [cause for cause in _causes(predicted, attempts) if cause.seconds * late > 0]
    named = [cause for cause in causes if abs(cause.seconds) >= SHARE * abs(late)]
    named.sort(key=lambda cause: -abs(cause.seconds))
    if predicted.generations == 0:
        named.append(MispredictionCause("no generation of such a step was known, so its time was assumed", late))
    return Misprediction(step, predicted.seconds, seconds, tuple(named), assumed=predicted.generations == 0)


def _causes(predicted: Prediction, attempts: Sequence[AttemptRow]) -> Iterable[MispredictionCause]:
    if not attempts:
        return
    *earlier, last = attempts
    lost = sum(row.finished - row.started for row in earlier if row.finished is not None)
    if lost:
        yield MispredictionCause(f"it was tried {len(attempts)} times", lost)
    usage = last.usage
    yield MispredictionCause("it waited for a slot", usage.queued_seconds)
    wrote = usage.output_tokens - predicted.output_tokens
    per_token = predicted.decode_seconds / predicted.output_tokens if predicted.output_tokens else 0.0
    expected = f"{predicted.output_tokens:.0f} were expected"
    yield MispredictionCause(f"it wrote {usage.output_tokens} tokens, {expected}", wrote * per_token)
    computed = usage.prompt_tokens - usage.cached_tokens
    read = computed - predicted.prompt_tokens
    per_prompt = predicted.prefill_seconds / predicted.prompt_tokens if predicted.prompt_tokens else 0.0
    expected = f"{predicted.prompt_tokens:.0f} were expected"
    yield MispredictionCause(f"{computed} tokens of its prompt were not in the cache, {expected}", read * per_prompt)
    took = usage.prefill_seconds + usage.decode_seconds
    alone = usage.alone_seconds or took
    normal = predicted.alone_seconds + wrote * per_token + read * per_prompt
    slower = alone - normal
    word = "slower" if slower > 0 else "faster"
    yield MispredictionCause(
        f"the model was {word} than usual: {alone:.2g} s alone for what takes {max(0.0, normal):.2g} s", slower
    )
    beside = predicted.seconds - predicted.alone_seconds - predicted.other_seconds
    crowd = (took - alone) - beside
    yield MispredictionCause(
        "more was computed at the same time" if crowd > 0 else "less was computed at the same time", crowd
    )
    if last.finished is not None:
        remainder = last.finished - last.started - usage.queued_seconds - took - predicted.other_seconds
        yield MispredictionCause(
            "gates, tools and what else is not the model took " + ("longer" if remainder > 0 else "less"), remainder
        )
