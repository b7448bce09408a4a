"""Derive from a run's events what can be learned from it: for each attempt its situation, action and outcome. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memrl.episodes import Action, Outcome, Situation, Source
from memrl.reward import (
    FORM_WEIGHT,
    IN_PROCESS,
    IN_PROCESS_WEIGHT,
    JUDGE,
    UNCHECKED_WEIGHT,
    propensity_weight,
    success_weight,
)
from orchestrator.run.journal import ChatRecord
from orchestrator.run.record.report import Report, StepRow, build_report
from orchestrator.run.record.view import AttemptRow, RatingRow, RunView
from orchestrator.run.routing.hybrid import MODES, situation_of
from orchestrator.task.events import (
    AttemptStarted,
    Event,
    FailureKind,
    GateResult,
    Mode,
    PlanFailed,
    PlanningStarted,
    RatingGiven,
)

CHECKER: Final = "checker:"
"""Ratings by a program that compares an answer with the right one are given under names that begin with this."""
PERSON_WEIGHT: Final = 1.0
CHECKER_WEIGHT: Final = 0.95
SELF_RATING_WEIGHT: Final = IN_PROCESS_WEIGHT
"""How much a rating counts by whoever submitted the run or the chat. Where other evidence counts more, that stands."""
RUN_FAILED_WEIGHT: Final = 0.3
"""How much a failed run counts against the way in which its plan was run: its steps may be to blame."""
ANSWER: Final = "answer"
"""Who says that an answer is doubtful: the comparison with its request."""
DOUBTFUL: Final = 0.5
"""How good the result of a run with a doubtful answer is, where nobody has rated it."""
USUAL_MODE: Final[Mode] = "as-planned"
"""How a plan is run unless somebody chooses another mode."""
INNER_STEP: Final = 0.5
"""How much of a rating of the whole run a step gets whose output other steps read."""
FAILURES: Final = frozenset(kind.value for kind in FailureKind)
NOT_THE_MODEL: Final = frozenset({FailureKind.INFRASTRUCTURE.value, FailureKind.RESOURCE.value})

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A choice and how it turned out."""

    key: Key
    """Run, step and number of the attempt; no step and 0 for the plan."""
    situation: Situation
    action: Action
    outcome: Outcome
    propensity: float
    at: float
    """When the attempt began, in seconds since the epoch."""
    after: tuple[str, ...] = ()
    """The steps whose output it read."""
    caller: str = ""
    """Who teaches it: whoever rated the attempt, else whoever submitted it. Empty if nobody recorded that."""
    drawn: bool = True
    """Whether the router or the rules chose the action, and no user forced any part of it."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the judge's verdict was the same as that of a checker or a gate that runs tests."""

    agreed: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, who reads what in it, and how good its result is by the judge."""

    view: RunView
    report: Report
    steps: Mapping[str, StepRow]
    readers: Mapping[str, Sequence[StepRow]]
    """The steps that read the output of each step."""
    judge_weight: float
    """How much the judge's verdict counts."""
    judged: float | None
    """The judge's mean score, from 0 to 1, of the steps whose output no other step reads; None without any."""

    @classmethod
    def of(cls, events: Sequence[Event], judge_weight: float) -> "_Run":
        view = RunView.of(events)
        report = build_report(view, lambda digest: b"")
        readers: dict[str, list[StepRow]] = {}
        for row in report.steps:
            for before in row.depends_on:
                readers.setdefault(before, []).append(row)
        results = [row.attempts[-1] for row in report.steps if row.attempts and row.id not in readers]
        scores = [_judged(gate) for one in results for gate in one.gates if gate.gate == JUDGE and gate.passed]
        judged = sum(scores) / len(scores) if scores and view.status == "done" else None
        return cls(view, report, {row.id: row for row in report.steps}, readers, judge_weight, judged)


@dataclass(frozen=True, slots=True)
class _LessonVerdict:
    """Who said how something turned out, and how much that counts."""

    success: float | None
    source: Source
    by: str
    weight: float
    quality: float = 1.0
    """How good the result of the whole run is, if that was judged."""

    def taught_by(self, owner: str) -> str:
        """Return who teaches it. The ratings of a run without owner, of an early version, are its single user's."""
        return self.by if owner and self.source == "person" else owner


def lessons_of(
    events: Sequence[Event], judge_weight: float, *, rating: RatingGiven | None = None
) -> tuple[list[Lesson], Agreement]:
    """Return what can be learned from a run that has ended, and how the judge compares with the checkers in it.

    A run is read again for each `rating` of it, which is one of its events: then the judge is compared with the rating,
    and otherwise with gates, so that nothing is compared twice.
    """
    run = _Run.of(events, judge_weight)
    started = {(one.step, one.number): one for one in events if isinstance(one, AttemptStarted)}
    lessons, agreed, compared = list(_plan_lessons(run, events)), 0, 0
    for row in run.report.steps:
        for attempt in row.attempts:
            event = started[row.id, attempt.number]
            if event.problem:
                continue
            lessons.append(_lesson(run, event, attempt))
            right = _right_by_gates(attempt) if rating is None else _right_by(rating, run, events, row.id, attempt)
            said = next((gate for gate in attempt.gates if gate.gate == JUDGE and gate.status != "not run"), None)
            if said is not None and right is not None:
                compared, agreed = compared + 1, agreed + (said.passed == right)
    return lessons, Agreement(agreed, compared)


def chat_lesson(chat: ChatRecord) -> Lesson | None:
    """Return what can be learned from a chat; None as long as none of its answers has ended."""
    routed = chat.routed
    if not chat.answers:
        return None
    verdict, answers = _chat_verdict(chat), chat.answers
    weight = verdict.weight * propensity_weight(routed.propensity, routed.unforced)
    return Lesson(
        key=(f"chat:{routed.chat}", "", 0),
        situation=situation_of(
            role=routed.asked_role, objective=routed.objective, task=None, step=None, interactive=True
        ),
        action=Action(routed.role, routed.persona or "", routed.model, routed.thinking),
        outcome=Outcome(
            success=verdict.success,
            source=verdict.source,
            by=verdict.by,
            weight=weight,
            failure=next((one.failure.value.upper() for one in answers if one.failure is not None), ""),
            critical_seconds=max(one.seconds for one in answers),
            tokens=sum(one.usage.prompt_tokens - one.usage.cached_tokens + one.usage.output_tokens for one in answers),
        ),
        propensity=routed.propensity,
        at=routed.at,
        caller=verdict.taught_by(routed.owner),
        drawn=routed.unforced is None,
    )


def _chat_verdict(chat: ChatRecord) -> _LessonVerdict:
    """Return how a chat turned out: by whoever has rated it last, else by the form of its answers, else by nobody."""
    failures = [one.failure for one in chat.answers if one.failure is not None]
    if any(failure.value in NOT_THE_MODEL for failure in failures):
        return _LessonVerdict(None, "run", "", 0.0)
    others = [rating for rating in chat.ratings if not _is_own(rating.by, chat.routed.owner)]
    if others:
        return _LessonVerdict(others[-1].score, "person", others[-1].by, PERSON_WEIGHT)
    if failures:
        return _LessonVerdict(0.0, "gate", failures[0].value, 1.0)
    if chat.ratings:
        return _LessonVerdict(chat.ratings[-1].score, "person", chat.ratings[-1].by, SELF_RATING_WEIGHT)
    done = any(one.finish == "stop" for one in chat.answers)
    return _LessonVerdict(1.0, "run", "", UNCHECKED_WEIGHT) if done else _LessonVerdict(None, "run", "", 0.0)


def _lesson(run: _Run, started: AttemptStarted, attempt: AttemptRow) -> Lesson:
    view = run.view
    step = view.state.steps[started.step]
    rows = view.attempts[started.step]
    earlier = [row.outcome for row in rows if row.number < started.number]
    asked = started.advice.asked if started.advice is not None else step.step.actor if not earlier else started.role
    situation = situation_of(
        role=asked,
        objective=view.title,
        task=view.accepted.task,
        step=step.step,
        input_bytes=sum(size.bytes or 0 for size in started.inputs),
        failures=tuple(outcome.upper() for outcome in earlier if outcome in FAILURES),
        interactive=view.accepted.priority == "interactive",
    )
    ratings = _ratings(run, started.step) if attempt is rows[-1] else ()
    verdict = _verdict(run, started.step, attempt, ratings)
    forced = _forced_chance(run, started)
    return Lesson(
        key=(view.accepted.run, started.step, started.number),
        situation=situation,
        action=Action(started.role, started.persona or "", started.model, started.thinking),
        outcome=_outcome(run, started, attempt, verdict, propensity_weight(started.propensity, forced)),
        propensity=started.propensity,
        at=started.at,
        after=run.steps[started.step].depends_on,
        caller=verdict.taught_by(view.accepted.owner),
        drawn=forced is None,
    )


def _forced_chance(run: _Run, started: AttemptStarted) -> float | None:
    """Return how probable a forced choice would have been without that; None if nothing was forced.

    Early versions recorded a forced model, and not what the router would have done.
    """
    return 0.0 if started.unforced is None and run.view.accepted.model is not None else started.unforced


def _outcome(
    run: _Run, started: AttemptStarted, attempt: AttemptRow, verdict: _LessonVerdict, chosen: float
) -> Outcome:
    """Return how an attempt turned out. `chosen` is how much that counts for how its action was chosen."""
    took = attempt.finished - attempt.started if attempt.finished is not None else 0.0
    critical = started.step in run.report.critical_path.steps
    usage, cold = attempt.usage, started.model not in started.resident
    return Outcome(
        success=verdict.success,
        quality=verdict.quality,
        source=verdict.source,
        by=verdict.by,
        weight=verdict.weight * chosen,
        failure=attempt.outcome.upper() if attempt.outcome in FAILURES else "",
        critical_seconds=took if critical else 0.0,
        tokens=usage.prompt_tokens - usage.cached_tokens + usage.output_tokens,
        load_seconds=min(usage.queued_seconds, took) if cold else 0.0,
        lost_prefix_tokens=usage.prompt_tokens - usage.cached_tokens if cold else 0,
        saved_seconds=0.0 if critical else took,
        used=_is_used(run, started.step),
    )


@dataclass(frozen=True, slots=True)
class _StepRating:
    """A rating that counts for a step."""

    rating: RatingRow
    whole: bool
    """Whether it is about the whole run, and not about this step."""
    part: float
    """How much of it counts for the step."""
    own: bool
    """Whether whoever submitted the run has given it."""

    @property
    def checker(self) -> bool:
        """Whether a program has given it, and not a person."""
        return self.rating.by.startswith(CHECKER)

    def verdict(self, done: bool) -> _LessonVerdict:
        """Return what it says of an attempt that is `done` or not.

        A rating of the whole run is about the quality of its result, and one of the step about the step's success.
        """
        person = SELF_RATING_WEIGHT if self.own else PERSON_WEIGHT
        weight = self.part * (CHECKER_WEIGHT if self.checker else person)
        source: Source = "checker" if self.checker else "person"
        if self.whole:
            return _LessonVerdict(float(done), source, self.rating.by, weight, self.rating.score)
        return _LessonVerdict(self.rating.score, source, self.rating.by, weight)


def _verdict(run: _Run, step: str, attempt: AttemptRow, ratings: Sequence[_StepRating]) -> _LessonVerdict:
    """Return how an attempt turned out, by whoever knows best: a person, a checker, gates, the judge, or nobody.

    What the run's owner says of it stands only where nothing else counts more.
    """
    if attempt.outcome in NOT_THE_MODEL or attempt.outcome not in {"done", *FAILURES}:
        return _LessonVerdict(None, "run", "", 0.0)
    own = _own_verdict(attempt, run.judge_weight)
    if attempt.outcome == "done" and own.weight <= FORM_WEIGHT and _is_doubtful(run, step, attempt):
        own = _LessonVerdict(0.0, "gate", ANSWER, FORM_WEIGHT)
    if own.source != "judge" and run.judged is not None:
        own = replace(own, quality=1.0 - INNER_STEP * run.judge_weight * (1.0 - run.judged))
    return _stronger(own, ratings, attempt.outcome == "done")


def _is_doubtful(run: _Run, step: str, attempt: AttemptRow) -> bool:
    """Return whether the output of an attempt that was done spoke against the answer: it does, or it was repaired."""
    repaired = any(row.number > attempt.number for row in run.view.attempts[step])
    return repaired or any(doubt.step == step for doubt in run.report.doubts)


def _own_verdict(attempt: AttemptRow, judge_weight: float) -> _LessonVerdict:
    """Return how an attempt turned out by its own gates, or by its end where it has none."""
    if attempt.outcome != "done":
        failed = next((gate for gate in attempt.gates if gate.status == "failed"), None)
        if failed is None:
            return _LessonVerdict(0.0, "run", "", 1.0)
        if failed.gate == JUDGE:
            return _LessonVerdict(_judged(failed), "judge", JUDGE, judge_weight)
        return _LessonVerdict(0.0, "gate", failed.gate, 1.0)
    passed = {gate.gate: gate for gate in attempt.gates if gate.passed}
    tests = next((name for name in passed if name in IN_PROCESS), None)
    if JUDGE in passed and tests is None:
        return _LessonVerdict(_judged(passed[JUDGE]), "judge", JUDGE, judge_weight)
    by = tests or next(iter(passed), "")
    return _LessonVerdict(1.0, "gate" if by else "run", by, success_weight(passed))


def _judged(result: GateResult) -> float:
    """Return the success that the judge's score from 0 to 9 stands for; its verdict decides on which side of 1/2."""
    score = 0.0 if result.score is None else result.score / 9
    return max(0.5, score) if result.passed else min(0.5, score)


def _right_by_gates(attempt: AttemptRow) -> bool | None:
    """Return whether an answer is right by a gate that runs tests; None if there was none."""
    known = [gate.passed for gate in attempt.gates if gate.gate in IN_PROCESS and gate.status != "not run"]
    return known[-1] if known else None


def _right_by(rating: RatingGiven, run: _Run, events: Sequence[Event], step: str, attempt: AttemptRow) -> bool | None:
    """Return whether an answer is right by a checker's rating; None if the rating says nothing about this answer.

    It is about the last attempt only, of the step that it names or else of those whose output no other step reads. What
    the same checker says again is no further comparison.
    """
    named = rating.step == step if rating.step is not None else step not in run.readers
    if not rating.by.startswith(CHECKER) or not named or attempt is not run.view.attempts[step][-1]:
        return None
    for event in events:
        if event is rating:
            break
        if isinstance(event, RatingGiven) and (event.by, event.step) == (rating.by, rating.step):
            return None
    return rating.score >= 0.5


def _ratings(run: _Run, step: str) -> tuple[_StepRating, ...]:
    """Return the ratings that count for a step, the one that counts most last."""
    ratings, part = run.view.ratings, INNER_STEP if step in run.readers else 1.0
    owner = run.view.accepted.owner
    own = [_StepRating(row, False, 1.0, _is_own(row.by, owner)) for row in ratings.get(step, ())]
    whole = [_StepRating(row, True, part, _is_own(row.by, owner)) for row in ratings.get(None, ())]
    return tuple(sorted([*whole, *own], key=lambda one: (not one.own, not one.checker, one.part)))


def _is_own(by: str, owner: str) -> bool:
    """Return whether a rating is by whoever submitted what is rated."""
    return by == owner != ""


def _is_used(run: _Run, step: str) -> bool:
    """Return whether somebody got what a step made: a later step that was done, or the user of a run that was."""
    readers = run.readers.get(step)
    return any(row.state == "done" for row in readers) if readers else run.report.status == "done"


def _plan_lessons(run: _Run, events: Sequence[Event]) -> Iterator[Lesson]:
    """Yield what can be learned from the way in which the plan of a request was run."""
    view, report, accepted = run.view, run.report, run.view.accepted
    planned = next((event for event in events if isinstance(event, PlanningStarted)), None)
    if planned is None or not report.steps:
        return
    choice = accepted.mode_choice
    # If no router chose the mode, the rules would have taken the usual one, and the user has forced another one.
    chosen = choice is not None or accepted.mode == USUAL_MODE
    path, seconds = report.critical_path, report.wall_seconds
    verdict = _plan_verdict(run, events)
    yield Lesson(
        key=(accepted.run, "", 0),
        situation=situation_of(
            role=planned.role,
            objective=view.title,
            task=None,
            step=None,
            plan=True,
            interactive=accepted.priority == "interactive",
        ),
        action=Action(planned.role, "", planned.model, "", MODES[accepted.mode]),
        outcome=Outcome(
            success=verdict.success,
            quality=verdict.quality,
            source=verdict.source,
            by=verdict.by,
            weight=verdict.weight if chosen else 0.0,
            failure="" if view.status == "done" else view.status.upper(),
            critical_seconds=seconds,
            tokens=sum(row.prompt_tokens + row.output_tokens for row in report.steps),
            saved_seconds=max(0.0, path.serial_seconds - path.seconds),
        ),
        propensity=1.0 if choice is None else choice.propensity,
        at=accepted.at,
        caller=verdict.taught_by(accepted.owner),
        drawn=chosen,
    )


def _plan_verdict(run: _Run, events: Sequence[Event]) -> _LessonVerdict:
    """Return how a plan turned out: by its end, and the quality of its result by whoever has judged that."""
    view = run.view
    machine = any(isinstance(event, PlanFailed) and event.failure.kind in NOT_THE_MODEL for event in events)
    if view.status == "cancelled" or machine:
        return _LessonVerdict(None, "run", "", 0.0)
    done = view.status == "done" and view.replaced is None  # a direct answer says nothing for the plan that failed
    own = _LessonVerdict(float(done), "run", "", UNCHECKED_WEIGHT if done else RUN_FAILED_WEIGHT)
    if done and view.doubt:
        own = _LessonVerdict(1.0, "gate", ANSWER, RUN_FAILED_WEIGHT, DOUBTFUL)
    elif run.judged is not None and run.judge_weight > UNCHECKED_WEIGHT:
        own = _LessonVerdict(1.0, "judge", JUDGE, run.judge_weight, run.judged)
    owner = view.accepted.owner
    ratings = [_StepRating(row, True, 1.0, _is_own(row.by, owner)) for row in view.ratings.get(None, ())]
    return _stronger(own, sorted(ratings, key=lambda one: (not one.own, not one.checker)), done)


def _stronger(own: _LessonVerdict, ratings: Sequence[_StepRating], done: bool) -> _LessonVerdict:
    """Return what the last rating says; what else is known, if nobody rated or only the owner, whose word counts less.

    `done` is whether what is rated was done.
    """
    if not ratings:
        return own
    rated = ratings[-1].verdict(done)
    return own if ratings[-1].own and own.weight > rated.weight else rated
