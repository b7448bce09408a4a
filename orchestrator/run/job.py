"""Define a job, which is what a user asks for, and check whether this installation can run it."""

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import get_args

from orchestrator.engine.client.grammar import left_to_validator
from orchestrator.errors import InputError, Problem
from orchestrator.registry.checks import BASE_MODEL, NO_BASE_MODEL, is_base
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.direct import mentioned, why_no_direct
from orchestrator.run.frontdoor.planner import FrontdoorPlanner
from orchestrator.run.frontdoor.request import RequestFiles
from orchestrator.run.gates.planned import GATES
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.planning import Planner
from orchestrator.run.record.prior import prior_artifacts
from orchestrator.run.record.repeated import Repeat
from orchestrator.run.sandbox.sandbox import Sandbox, why_no_sandbox
from orchestrator.run.steps.files import UnreadableFile, is_linked, read_text, size_of
from orchestrator.run.steps.tools.servers import Configured, Listing, ToolServers, no_servers
from orchestrator.run.steps.tools.toolbox import TOOLS
from orchestrator.task.analysis import StepGraph, analyze_task
from orchestrator.task.events import EscalationTarget, RoleRates, RunAccepted, RunLimits, RunOptions
from orchestrator.task.modes import Mode, Priority
from orchestrator.task.prediction import RateTable
from orchestrator.task.taskir.check import Capabilities, check_hints, check_task
from orchestrator.task.taskir.fields import MAX_NAME, NAME
from orchestrator.task.taskir.json_text import is_unicode
from orchestrator.task.taskir.models import KINDS, TaskIR
from orchestrator.task.taskir.problems import MAX_PROBLEMS, InvalidTask, pointer
from orchestrator.task.taskir.validation import unenforced

MAX_FILES = 10_000
NO_LIMITS = RunLimits()
NO_OPTIONS = RunOptions()
NO_LISTING = Listing()
MAX_REQUEST_BYTES = 1_000_000
# How many files of a folder are measured when no plan says which are read, those that the request mentions first.
SIZED_FILES = 100
FRONTDOOR_PLANNER = FrontdoorPlanner()
# Kinds of steps and tools that run code.
_SANDBOXED = frozenset[str](
    [*(kind for kind, row in KINDS.items() if row.sandboxed), *(name for name, tool in TOOLS.items() if tool.sandboxed)]
)


@dataclass(frozen=True, slots=True)
class Job:
    """What a user asks for: a request in words or a TaskIR document, exactly one of them."""

    request: str | None
    task: TaskIR | None
    directory: Path | None  # the folder whose files the steps may read
    mode: Mode
    priority: Priority | None = None  # None for the document's, else interactive
    limits: RunLimits = NO_LIMITS
    # Earlier runs whose artifacts the steps may read, in addition to those of the document.
    follows: tuple[str, ...] = ()
    key: str | None = None  # the idempotency key: all jobs with one key are one run
    digest: str = ""  # of the request of a client that waits for the answer, see `RunAccepted`
    model: str | None = None  # forced on all steps; None: the registry and the router choose
    any_mode: bool = False  # whether the router may choose another mode for a request
    # The digests, by name, of the artifacts of these runs, if they were found before (the runs may be gone
    # since), or of texts that come with the request; None if the artifacts are still to be found.
    found: Mapping[str, str] | None = None
    options: RunOptions = NO_OPTIONS
    owner: str = ""  # who submits it, see `RunAccepted.owner`
    traceparent: str = ""  # the caller's span, see `RunAccepted`
    sees_runs_of: str | None = None  # whose earlier runs it may name; None for everybody's
    repeats: Repeat | None = None  # an earlier run of the same job, whose plan and finished steps it takes over

    @property
    def prior(self) -> tuple[str, ...]:
        """The earlier runs whose artifacts the steps may read."""
        named = self.task.context.prior_task_ids if self.task is not None else ()
        return tuple(dict.fromkeys((*named, *self.follows)))

    def limited(self, limits: RunLimits) -> "Job":
        return replace(self, limits=limits)

    def asks_the_same(self, other: "Job") -> bool:
        """Return whether another job asks for the same work in the same folder, with the same texts."""
        fields = ("request", "task", "directory", "follows", "model", "options")
        same_mode = self.mode == other.mode or (self.any_mode and other.any_mode)
        same_texts = self.found is None or other.found is None or dict(self.found) == dict(other.found)
        return same_mode and same_texts and all(getattr(self, name) == getattr(other, name) for name in fields)

    @property
    def urgency(self) -> Priority:
        """The class of the run: the job's own, else the document's, else interactive."""
        return self.priority or (self.task.priority if self.task is not None else "interactive")


def job_of(accepted: RunAccepted) -> Job:
    """Return the job that a run was accepted for, without its key."""
    return Job(
        request=accepted.request,
        task=accepted.task,
        directory=None if accepted.directory is None else Path(accepted.directory),
        mode=accepted.mode,
        priority=accepted.priority,
        limits=accepted.limits,
        follows=accepted.follows,
        model=accepted.model,
        any_mode=accepted.mode_choice is not None,
        found=accepted.prior,
        options=accepted.options,
        owner=accepted.owner,
    )


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """The result of checking a job that can be run."""

    files: tuple[str, ...]  # the names that its steps may read: artifacts of earlier runs, then files of its folder
    prior: Mapping[str, str]  # digests of the artifacts of earlier runs, by name
    graph: StepGraph | None = None  # None for a request, which is still to be planned
    warnings: tuple[str, ...] = ()  # what the job requests and does not get here, but can do without
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes by name, if known without reading


async def check_job(
    job: Job,
    registry: Registry,
    journal: JournalReader,
    sandbox: Callable[[], Awaitable[Sandbox]],
    planner: Planner = FRONTDOOR_PLANNER,
    servers: Configured = no_servers,
) -> CheckedJob:
    """Check whether a job can be run here. Starts the MCP servers whose tools a task names, to list their tools.

    Raises InputError for a job that cannot be run here, and JournalError.
    """
    prior = job.found
    if prior is None:
        prior = await asyncio.to_thread(prior_artifacts, journal, job.prior, job.sees_runs_of) if job.prior else {}
    steps = () if job.task is None else job.task.plan.steps
    runs_code = any(not _SANDBOXED.isdisjoint((step.kind, *step.tools)) for step in steps)
    no_sandbox = await why_no_sandbox(sandbox) if runs_code else ""
    listing = await _listing(job.task, ToolServers(servers, sandbox))
    return await asyncio.to_thread(check_job_given, job, registry, prior, no_sandbox, planner, listing)


async def _listing(task: TaskIR | None, servers: ToolServers) -> Listing:
    if task is None:
        return NO_LISTING
    return await servers.listing(name for step in task.plan.steps for name in step.tools)


def check_job_given(
    job: Job,
    registry: Registry,
    prior: Mapping[str, str],
    no_sandbox: str = "",
    planner: Planner = FRONTDOOR_PLANNER,
    listing: Listing = NO_LISTING,
) -> CheckedJob:
    """Check a job, given the artifacts of earlier runs (`prior`, name to digest) and why there is no sandbox, if so.

    `listing` is what MCP servers say about the tools that the job names. Blocks on the disk. Raises InputError.
    """
    if job.model is not None:
        check_model(registry, job.model)
    files = (*prior, *(list_files(job.directory) if job.directory else ()))
    if job.task is None:
        _check_request(job.request or "", _why_refused(job, registry, planner))
        if problems := _unreadable_named(job, files, prior):
            raise InputError(*problems)
        messages = tuple(map(str, _base_models((planner.planned_by(registry).role,), registry)))
        return CheckedJob(files, prior, warnings=messages, sizes=_sizes(job, files))
    if job.mode == "direct":
        accepted = ", ".join(mode for mode in get_args(Mode) if mode != "direct")
        raise InputError(Problem("mode", "direct is for requests in words, and a document has its plan", accepted))
    able = capabilities(registry, no_sandbox, listing)
    problems = check_task(job.task, able)
    problems = problems or _unreadable(job.task, job.directory, prior)
    try:
        graph = analyze_task(job.task, files=files, mode=job.mode)
    except InvalidTask as error:
        raise InvalidTask(*problems, *error.problems) from error
    if problems:
        raise InvalidTask(*problems)
    warnings = (
        *check_hints(job.task, able),
        *_base_models(dict.fromkeys(step.actor for step in job.task.plan.steps), registry),
        *islice(_clamped_limits(job.task, registry), MAX_PROBLEMS),
        *islice(_left_to_validator(job.task), MAX_PROBLEMS),
        *islice(_checked_when_called(job.task, listing), MAX_PROBLEMS),
    )
    return CheckedJob(files, prior, graph, tuple(map(str, warnings)), _sizes(job, files, graph))


def _sizes(job: Job, files: Sequence[str], graph: StepGraph | None = None) -> dict[str, int]:
    # The bytes by name, for predictions.
    task_inputs = job.task.inputs if job.task is not None else ()
    sizes = {
        item.label: len(item.value.encode(errors="replace"))
        for item in task_inputs
        if item.type == "text" and item.label
    }
    if job.directory is None:
        return sizes
    paths = {item.label or item.value: item.value for item in task_inputs if item.type == "path"}
    if graph is None:
        paths |= {name: name for name in (*mentioned(job.request or "", files), *files)[:SIZED_FILES]}
    else:
        existing = set(files)
        paths |= {name: name for step in graph.steps.values() for name in step.inputs if name in existing}
    for name, file in paths.items():
        with suppress(UnreadableFile):  # such as an artifact of an earlier run, which is no file of the folder
            sizes[name] = size_of(job.directory, file)
    return sizes


def _base_models(roles: Iterable[str], registry: Registry) -> Iterator[Problem]:
    for role in roles:
        model = registry.models.get(registry.roles[role].model) if role in registry.roles else None
        if model is not None and model.header is not None and is_base(model.header):
            # A warning: the model was not taught to answer, but the job can run.
            yield Problem(f"roles.{role}.model", f"{model.id}: {BASE_MODEL}", NO_BASE_MODEL)


def _clamped_limits(task: TaskIR, registry: Registry) -> Iterator[Problem]:
    for at, step in enumerate(task.plan.steps):
        model = registry.roles[step.actor].model
        context = registry.models[model].countable_context
        if step.max_tokens is not None and context is not None and step.max_tokens >= context:
            # A warning: the answer gets what the prompt leaves of the context.
            detail = f"{step.max_tokens} is more than {model} has room for: {context} tokens, with the prompt"
            yield Problem(pointer(("plan", "steps", at, "max_tokens")), detail, "what the prompt leaves of that")


def _left_to_validator(task: TaskIR) -> Iterator[Problem]:
    for at, step in enumerate(task.plan.steps):
        place = ("plan", "steps", at, "output_schema")
        unchecked = {mismatch.path: mismatch.message for mismatch in unenforced(step.output_schema)}
        yield from (Problem(pointer((*place, *path)), detail) for path, detail in unchecked.items())
        reported = {pointer(path) for path in unchecked}
        # What the grammar cannot express, the gate `schema` checks in the complete answer.
        for where, keyword in left_to_validator(step.output_schema):
            if f"{where}/{keyword}" not in reported:
                detail = f"{keyword} is not enforced while the answer is written, only checked when it is complete"
                yield Problem(pointer(place) + where, detail)


def _checked_when_called(task: TaskIR, listing: Listing) -> Iterator[Problem]:
    for at, step in enumerate(task.plan.steps):
        for index, name in enumerate(step.tools):
            schema = listing.tools[name].parameters if name in listing.tools else None
            for where, keyword in left_to_validator(schema):
                # Arguments are checked by the whole schema before the server gets them.
                detail = f"{keyword} at {where} of the arguments of {name} is only checked when it is called"
                yield Problem(pointer(("plan", "steps", at, "tools", index)), detail)


def check_model(registry: Registry, model: str) -> None:
    """Raise InputError for a model that cannot be forced: it is unknown, cannot be used, or writes no text."""
    name = registry.model_named(model)
    usable = [entry.id for entry in registry.models.values() if entry.why_not is None and not entry.embeds]
    if name not in usable:
        detail = (
            f"there is no model {model!r}" if name is None else registry.models[name].why_not or "it writes no text"
        )
        raise InputError(Problem("model", detail, ", ".join(usable) or "none can be used"))


def _unreadable(task: TaskIR, directory: Path | None, prior: Collection[str]) -> tuple[Problem, ...]:
    paths = (
        (f"/inputs/{at}/value", item.value)
        for at, item in enumerate(task.inputs)
        if item.type == "path" and item.value not in prior
    )
    return _problems_reading(directory, paths)


def _unreadable_named(job: Job, files: Sequence[str], prior: Collection[str]) -> tuple[Problem, ...]:
    # Of the files that a request names to be read. Without this, it would fail at the step that reads one.
    read = RequestFiles.of(job.request or "", files)
    # Links are not listed in `files`, so they seem to be missing.
    linked = (name for name in read.missing if job.directory is not None and is_linked(job.directory, name))
    names = (*(name for name in read.named if name not in prior), *linked)
    return _problems_reading(job.directory, (("request", name) for name in names))


def _problems_reading(directory: Path | None, files: Iterable[tuple[str, str]]) -> tuple[Problem, ...]:
    problems = (problem for where, name in files if (problem := _why_unreadable(directory, where, name)))
    return tuple(islice(problems, MAX_PROBLEMS))


def _why_unreadable(directory: Path | None, where: str, name: str) -> Problem | None:
    if directory is None:
        return Problem(where, f"file {name!r} cannot be read: no folder was given", "--dir with the folder that has it")
    try:
        read_text(directory, name)
    except UnreadableFile as error:
        return Problem(where, str(error), f"a text file under {directory}")
    return None


def _why_refused(job: Job, registry: Registry, planner: Planner) -> Problem | None:
    if job.mode == "direct":
        return why_no_direct(registry)
    problem = planner.why_not(registry)
    # what cannot be planned is answered directly, unless the user wants a plan
    return why_no_direct(registry) if problem is not None and job.any_mode else problem


def _check_request(request: str, no_planner: Problem | None) -> None:
    if not request.strip():
        raise InputError(Problem("request", "is empty", "what to do, in words"))
    if not is_unicode(request):
        raise InputError(Problem("request", "is no Unicode", "text in UTF-8"))
    if (size := len(request.encode())) > MAX_REQUEST_BYTES:
        raise InputError(
            Problem("request", f"has {size} bytes", f"at most {MAX_REQUEST_BYTES}; put long texts in files")
        )
    if no_planner is not None:
        raise InputError(no_planner)


def list_files(directory: Path) -> tuple[str, ...]:
    """Return the names of the regular files under a folder, relative to it and in order.

    Links, hidden files and folders, files whose status cannot be read, and files that no document could name (too long,
    control characters, no Unicode) are left out. Raises InputError for a path that is no folder, a folder that cannot
    be read, and more than `MAX_FILES` files.
    """
    _check_folder(directory)
    names: list[str] = []
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        base = Path(folder)
        visible = [base / name for name in files if not name.startswith(".")]
        regular = [path.relative_to(directory).as_posix() for path in visible if _is_regular(path)]
        names += [name for name in regular if _can_be_named(name)]
        if len(names) > MAX_FILES:
            raise InputError(Problem(f"--dir {directory}", f"holds more than {MAX_FILES} files", "a smaller folder"))
    return tuple(sorted(names))


def _check_folder(directory: Path) -> None:
    try:
        os.scandir(os.path.join(directory, ".")).close()  # to find its `.` the folder has to be entered
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        detail = "is not a folder" if missing else f"cannot be read: {error.strerror}"
        raise InputError(Problem(f"--dir {directory}", detail, "a folder that can be read")) from error


def _is_regular(path: Path) -> bool:
    # False for links, too.
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _can_be_named(file: str) -> bool:
    return is_unicode(file) and len(file) <= MAX_NAME and re.fullmatch(NAME, file) is not None


def capabilities(registry: Registry, no_sandbox: str = "", listing: Listing = NO_LISTING) -> Capabilities:
    """Return what this installation can do.

    `no_sandbox` says why there is no sandbox, and is empty if there is one. Without it, nothing that runs code can be
    used. `listing` has the tools of MCP servers.
    """
    refused = _SANDBOXED if no_sandbox else frozenset[str]()
    return Capabilities(
        roles=frozenset(registry.step_roles),
        personas=frozenset(registry.personas),
        gates=frozenset(row.name for row in GATES if not row.role or row.role in registry.usable_roles),
        kinds=frozenset(KINDS) - refused,
        input_types=frozenset({"path", "text"}),
        models=registry.usable_names,
        tools={name: tool.parameters for name, tool in {**TOOLS, **listing.tools}.items() if name not in refused},
        unavailable={**dict.fromkeys(refused, no_sandbox), **listing.unavailable},
        unavailable_roles={name: why for name in registry.roles if (why := registry.why_not(name)) is not None},
    )


def escalation_targets(registry: Registry) -> dict[str, EscalationTarget]:
    """Return which role takes over from each role: the next one up the chain that has a usable model."""
    above = {name: _next_usable(role.escalates_to, registry) for name, role in registry.roles.items()}
    return {
        name: EscalationTarget(role, registry.roles[role].level) for name, role in above.items() if role is not None
    }


def _next_usable(role: str | None, registry: Registry) -> str | None:
    while role is not None and registry.why_not(role) is not None:
        role = registry.roles[role].escalates_to
    return role


class KnownRates:
    """Typical rates of roles and of kinds of their steps, from the generations that ended last."""

    def __init__(self, journal: JournalReader) -> None:
        self._journal = journal
        self._models: dict[str, str] = {}
        self._table = RateTable()
        self._last = 0
        self._unfinished: tuple[int, ...] = ()

    def read(self, registry: Registry) -> dict[str, RoleRates]:
        """Return the rates by key, as `RateTable.rates` does, with all attempts that have ended."""
        models = {name: role.model for name, role in registry.roles.items()}
        if models != self._models:
            self._models, self._table, self._last, self._unfinished = models, RateTable(), 0, ()
        # Only what was added since, because each new run waits for this.
        rows = self._journal.generations_after(self._last, self._unfinished)
        for row in reversed(rows):
            # Only the role's present model counts: another one may be a hundred times as large.
            if row.is_final and models.get(row.generation.role) == row.generation.model:
                self._table.add(row.generation)
        self._last = max([self._last, *(row.number for row in rows)])
        self._unfinished = tuple(row.number for row in rows if not row.is_final)
        return self._table.rates()


def known_rates(journal: JournalReader, registry: Registry) -> dict[str, RoleRates]:
    return KnownRates(journal).read(registry)
