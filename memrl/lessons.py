"""Derive what can be learned from a run: for each attempt its situation, action and outcome. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.memrl.episodes import MODES, Action, Outcome, Situation, Source, situation_of
from orchestrator.memrl.reward import (
    FORM_WEIGHT,
    IN_PROCESS,
    IN_PROCESS_WEIGHT,
    JUDGE,
    UNCHECKED_WEIGHT,
    propensity_weight,
    success_weight,
)
from orchestrator.run.journal.chats import ChatRecord
from orchestrator.run.record.report import Report, StepRow, build_report
from orchestrator.run.record.view import AttemptRow, RatingRow, RunView
from orchestrator.task.events import (
    AttemptStarted,
    Event,
    FailureKind,
    GateResult,
    PlanFailed,
    PlanningStarted,
    RatingGiven,
)
from orchestrator.task.modes import Mode

# Names of raters that are programs, which compare an answer with the right one, start with this.
CHECKER: Final = "checker:"
PERSON_WEIGHT: Final = 1.0
CHECKER_WEIGHT: Final = 0.95
# Of a rating by the owner of the run or chat; other evidence of more weight stands.
SELF_RATING_WEIGHT: Final = IN_PROCESS_WEIGHT
# Of a failed run as evidence against the mode of its plan: its steps may be to blame.
RUN_FAILED_WEIGHT: Final = 0.3
# The source of doubts about an answer: its comparison with the request.
ANSWER: Final = "answer"
# The quality of a run with a doubtful answer, if nobody has rated it.
DOUBTFUL: Final = 0.5
USUAL_MODE: Final[Mode] = "as-planned"
# The share of a rating of the whole run that goes to a step whose output other steps read.
INNER_STEP: Final = 0.5
FAILURES: Final = frozenset(kind.value for kind in FailureKind)
NOT_THE_MODEL: Final = frozenset({FailureKind.INFRASTRUCTURE.value, FailureKind.RESOURCE.value})

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    key: Key  # run, step and number of the attempt; no step and 0 for the plan
    situation: Situation
    action: Action
    outcome: Outcome
    propensity: float
    at: float  # start of the attempt, in seconds since the epoch
    after: tuple[str, ...] = ()  # the steps whose output it read
    caller: str = ""  # who teaches it: the rater of the attempt, else the owner of the run
    drawn: bool = True  # whether the router or the rules chose the action, and no user forced any part of it


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the judge agreed with a checker, or with a gate that runs tests."""

    agreed: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    view: RunView
    report: Report
    steps: Mapping[str, StepRow]
    readers: Mapping[str, Sequence[StepRow]]  # the steps that read the output of each step
    judge_weight: float  # of the judge's verdict
    # The judge's mean score, from 0 to 1, of the steps whose output no other step reads; None without any.
    judged: float | None

    @classmethod
    def of(cls, events: Sequence[Event], judge_weight: float) -> "_Run":
        view = RunView.of(events)
        report = build_report(view, lambda digest: b"")
        readers: dict[str, list[StepRow]] = {}
        for row in report.steps:
            for before in row.depends_on:
                readers.setdefault(before, []).append(row)
        results = [row.attempts[-1] for row in report.steps if row.attempts and row.id not in readers]
        scores = [_judged(gate) for last in results for gate in last.gates if gate.gate == JUDGE and gate.passed]
        judged = sum(scores) / len(scores) if scores and view.status == "done" else None
        return cls(view, report, {row.id: row for row in report.steps}, readers, judge_weight, judged)


@dataclass(frozen=True, slots=True)
class _LessonVerdict:
    success: float | None
    source: Source
    by: str
    weight: float
    quality: float = 1.0  # of the result of the whole run, if that was judged

    def taught_by(self, owner: str) -> str:
        """Return who teaches it."""
        # Early versions: a run without owner is its single user's.
        return self.by if owner and self.source == "person" else owner


def lessons_of(
    events: Sequence[Event], judge_weight: float, *, rating: RatingGiven | None = None
) -> tuple[list[Lesson], Agreement]:
    """Return what can be learned from a run that has ended, and how the judge compares with the checkers in it.

    Call it again with each `rating` among the events. The judge is compared with the rating then, else with gates, so
    that nothing is compared twice.
    """
    run = _Run.of(events, judge_weight)
    started = {
        (start_event.step, start_event.number): start_event
        for start_event in events
        if isinstance(start_event, AttemptStarted)
    }
    lessons, agreed, compared = list(_plan_lessons(run, events)), 0, 0
    for row in run.report.steps:
        for attempt in row.attempts:
            event = started[row.id, attempt.number]
            if event.problem:
                continue
            lessons.append(_lesson(run, event, attempt))
            right = _right_by_gates(attempt) if rating is None else _right_by(rating, run, events, row.id, attempt)
            judgment = next((gate for gate in attempt.gates if gate.gate == JUDGE and gate.status != "not run"), None)
            if judgment is not None and right is not None:
                compared, agreed = compared + 1, agreed + (judgment.passed == right)
    return lessons, Agreement(agreed, compared)


def chat_lesson(chat: ChatRecord) -> Lesson | None:
    """Return what can be learned from a chat; None until one of its answers has ended."""
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
            failure=next((answer.failure.value.upper() for answer in answers if answer.failure is not None), ""),
            critical_seconds=max(answer.seconds for answer in answers),
            tokens=sum(
                answer.usage.prompt_tokens - answer.usage.cached_tokens + answer.usage.output_tokens
                for answer in answers
            ),
        ),
        propensity=routed.propensity,
        at=routed.at,
        caller=verdict.taught_by(routed.owner),
        drawn=routed.unforced is None,
    )


def _chat_verdict(chat: ChatRecord) -> _LessonVerdict:
    # By the last rater, else by the form of the answers, else by nobody.
    failures = [answer.failure for answer in chat.answers if answer.failure is not None]
    if any(failure.value in NOT_THE_MODEL for failure in failures):
        return _LessonVerdict(None, "run", "", 0.0)
    ratings = [rating for rating in chat.ratings if not _is_own(rating.by, chat.routed.owner)]
    if ratings:
        return _LessonVerdict(ratings[-1].score, "person", ratings[-1].by, PERSON_WEIGHT)
    if failures:
        return _LessonVerdict(0.0, "gate", failures[0].value, 1.0)
    if chat.ratings:
        return _LessonVerdict(chat.ratings[-1].score, "person", chat.ratings[-1].by, SELF_RATING_WEIGHT)
    complete = any(answer.finish == "stop" for answer in chat.answers)
    return _LessonVerdict(1.0, "run", "", UNCHECKED_WEIGHT) if complete else _LessonVerdict(None, "run", "", 0.0)


def _lesson(run: _Run, started: AttemptStarted, attempt: AttemptRow) -> Lesson:
    view = run.view
    step = view.state.steps[started.step]
    rows = view.attempts[started.step]
    earlier = [row.outcome for row in rows if row.number < started.number]
    role = started.advice.asked if started.advice is not None else step.step.actor if not earlier else started.role
    situation = situation_of(
        role=role,
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
    # The probability of a forced choice without the force; None if nothing was forced.
    # Early versions recorded a forced model, and not what the router would have done.
    return 0.0 if started.unforced is None and run.view.accepted.model is not None else started.unforced


def _outcome(
    run: _Run, started: AttemptStarted, attempt: AttemptRow, verdict: _LessonVerdict, action_weight: float
) -> Outcome:
    # `action_weight` is how much the outcome counts for the choice of the action.
    took = attempt.finished - attempt.started if attempt.finished is not None else 0.0
    critical = started.step in run.report.critical_path.steps
    usage, cold = attempt.usage, started.model not in started.resident
    return Outcome(
        success=verdict.success,
        quality=verdict.quality,
        source=verdict.source,
        by=verdict.by,
        weight=verdict.weight * action_weight,
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
    rating: RatingRow
    whole: bool  # about the whole run, not about this step
    part: float  # how much of it counts for the step
    own: bool  # by the owner of the run

    @property
    def checker(self) -> bool:
        return self.rating.by.startswith(CHECKER)

    def verdict(self, is_done: bool) -> _LessonVerdict:
        person = SELF_RATING_WEIGHT if self.own else PERSON_WEIGHT
        weight = self.part * (CHECKER_WEIGHT if self.checker else person)
        source: Source = "checker" if self.checker else "person"
        # A rating of the run is about the quality of its result, one of the step about the step's success.
        if self.whole:
            return _LessonVerdict(float(is_done), source, self.rating.by, weight, self.rating.score)
        return _LessonVerdict(self.rating.score, source, self.rating.by, weight)


def _verdict(run: _Run, step: str, attempt: AttemptRow, ratings: Sequence[_StepRating]) -> _LessonVerdict:
    # By whoever knows best: a person, a checker, gates, the judge, or nobody.
    if attempt.outcome in NOT_THE_MODEL or attempt.outcome not in {"done", *FAILURES}:
        return _LessonVerdict(None, "run", "", 0.0)
    own = _own_verdict(attempt, run.judge_weight)
    if attempt.outcome == "done" and own.weight <= FORM_WEIGHT and _is_doubtful(run, step, attempt):
        own = _LessonVerdict(0.0, "gate", ANSWER, FORM_WEIGHT)
    if own.source != "judge" and run.judged is not None:
        own = replace(own, quality=1.0 - INNER_STEP * run.judge_weight * (1.0 - run.judged))
    return _stronger(own, ratings, attempt.outcome == "done")


def _is_doubtful(run: _Run, step: str, attempt: AttemptRow) -> bool:
    # True also if the output was repaired.
    repaired = any(row.number > attempt.number for row in run.view.attempts[step])
    return repaired or any(doubt.step == step for doubt in run.report.doubts)


def _own_verdict(attempt: AttemptRow, judge_weight: float) -> _LessonVerdict:
    # By the attempt's gates, or by its end if it has none.
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
    # Maps the score from 0 to 9 to a success; the verdict decides on which side of 1/2.
    score = 0.0 if result.score is None else result.score / 9
    return max(0.5, score) if result.passed else min(0.5, score)


def _right_by_gates(attempt: AttemptRow) -> bool | None:
    # By a gate that runs tests; None if there was none.
    verdicts = [gate.passed for gate in attempt.gates if gate.gate in IN_PROCESS and gate.status != "not run"]
    return verdicts[-1] if verdicts else None


def _right_by(rating: RatingGiven, run: _Run, events: Sequence[Event], step: str, attempt: AttemptRow) -> bool | None:
    # None if the rating says nothing about this answer: it is about the last attempt only, of its step or else of the
    # steps whose output no other step reads.
    named = rating.step == step if rating.step is not None else step not in run.readers
    if not rating.by.startswith(CHECKER) or not named or attempt is not run.view.attempts[step][-1]:
        return None
    for event in events:
        if event is rating:
            break
        # The same checker again is no new comparison.
        if isinstance(event, RatingGiven) and (event.by, event.step) == (rating.by, rating.step):
            return None
    return rating.score >= 0.5


def _ratings(run: _Run, step: str) -> tuple[_StepRating, ...]:
    # The one that counts most is last.
    ratings, part = run.view.ratings, INNER_STEP if step in run.readers else 1.0
    owner = run.view.accepted.owner
    own = [_StepRating(row, False, 1.0, _is_own(row.by, owner)) for row in ratings.get(step, ())]
    whole = [_StepRating(row, True, part, _is_own(row.by, owner)) for row in ratings.get(None, ())]
    return tuple(sorted([*whole, *own], key=lambda rating: (not rating.own, not rating.checker, rating.part)))


def _is_own(by: str, owner: str) -> bool:
    # An empty name is nobody, and so never the owner.
    return by == owner != ""


def _is_used(run: _Run, step: str) -> bool:
    # By a later step that was done, or by the user of a run that was.
    readers = run.readers.get(step)
    return any(row.state == "done" for row in readers) if readers else run.report.status == "done"


def _plan_lessons(run: _Run, events: Sequence[Event]) -> Iterator[Lesson]:
    view, report, accepted = run.view, run.report, run.view.accepted
    planned = next((event for event in events if isinstance(event, PlanningStarted)), None)
    if planned is None or not report.steps:
        return
    choice = accepted.mode_choice
    # If no router chose the mode, the rules would have taken the usual one, and the user has forced another one.
    is_drawn = choice is not None or accepted.mode == USUAL_MODE
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
            weight=verdict.weight if is_drawn else 0.0,
            failure="" if view.status == "done" else view.status.upper(),
            critical_seconds=seconds,
            tokens=sum(row.prompt_tokens + row.output_tokens for row in report.steps),
            saved_seconds=max(0.0, path.serial_seconds - path.seconds),
        ),
        propensity=1.0 if choice is None else choice.propensity,
        at=accepted.at,
        caller=verdict.taught_by(accepted.owner),
        drawn=is_drawn,
    )


def _plan_verdict(run: _Run, events: Sequence[Event]) -> _LessonVerdict:
    # Success by the end of the plan, quality by whoever has judged its result.
    view = run.view
    machine = any(isinstance(event, PlanFailed) and event.failure.kind in NOT_THE_MODEL for event in events)
    if view.status == "cancelled" or machine:
        return _LessonVerdict(None, "run", "", 0.0)
    is_done = view.status == "done" and view.replaced is None  # a direct answer says nothing for the plan that failed
    own = _LessonVerdict(float(is_done), "run", "", UNCHECKED_WEIGHT if is_done else RUN_FAILED_WEIGHT)
    if is_done and view.doubt:
        own = _LessonVerdict(1.0, "gate", ANSWER, RUN_FAILED_WEIGHT, DOUBTFUL)
    elif run.judged is not None and run.judge_weight > UNCHECKED_WEIGHT:
        own = _LessonVerdict(1.0, "judge", JUDGE, run.judge_weight, run.judged)
    owner = view.accepted.owner
    ratings = [_StepRating(row, True, 1.0, _is_own(row.by, owner)) for row in view.ratings.get(None, ())]
    return _stronger(own, sorted(ratings, key=lambda rating: (not rating.own, not rating.checker)), is_done)


def _stronger(own: _LessonVerdict, ratings: Sequence[_StepRating], is_done: bool) -> _LessonVerdict:
    # The last rating, unless only the owner rated and other evidence counts more.
    if not ratings:
        return own
    rated = ratings[-1].verdict(is_done)
    return own if ratings[-1].own and own.weight > rated.weight else rated
