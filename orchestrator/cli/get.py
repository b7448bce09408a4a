"""`orchestrator models get`: get a model onto this machine, and print how to use it."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from orchestrator.cli.complete import complete_source
from orchestrator.cli.settings import JsonFlag
from orchestrator.cli.terminal import (
    make_console,
    one_line,
    print_json,
    print_lines,
    print_notes,
    printable,
    size,
    write,
)
from orchestrator.errors import InputError, Problem
from orchestrator.registry.checks import BASE_MODEL, NO_BASE_MODEL, OTHER_TEMPLATE, is_base, why_no_prompt, why_no_text
from orchestrator.registry.errors import GgufError
from orchestrator.registry.forms import EMBEDDER, RERANKER
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.propose import DRAFT
from orchestrator.registry.sources.catalogue import read_catalogue
from orchestrator.registry.sources.contract import Obtained, SourceError
from orchestrator.registry.sources.get import FORMS, get_model
from orchestrator.registry.sources.local import find_here, link_model
from orchestrator.service.configuration import load_configuration, models_folder

DIGEST = re.compile(r"[0-9a-fA-F]{64}")
# If stderr is no terminal, a line is printed for each of this many equal parts of a file.
TENTHS = 10
# Bytes. Smaller files, such as pieces of a model, have no such lines: they come quickly, and there may be many.
SMALL = 64 << 20


def get(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help=f"Where the model is: {FORMS}.", autocompletion=complete_source),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where downloads go; the configuration's `models` without it."),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256", metavar="DIGEST", help="The SHA-256 that the GGUF file has to have, in 64 hex digits."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring a model onto this machine.

    What is downloaded goes into the folder for models. A transfer that broke off is resumed by the same command. A file
    is kept only if it has the size and the hash that its source states, and the output says what was compared; a plain
    address states no hash, so give one with --sha256. A model of Ollama, and a file of this machine, is used where it
    is, and linked into the folder for models. Without SOURCE the names of the catalogue are listed.
    """
    if sha256 is not None and not DIGEST.fullmatch(sha256):
        raise InputError(Problem("--sha256", f"{sha256} is no SHA-256", "64 hexadecimal digits"))
    if source is None:
        _list(as_json)
        return
    usual = downloads()
    obtained, header = fetch(source, folder or usual, None if sha256 is None else sha256.lower())
    warnings = [*_warnings(header)]
    link = _linked(source, obtained, header, folder or usual, warnings)
    if as_json:
        shown = None if link is None else str(link)
        print_json({"file": str(obtained.file), **_facts(obtained, header), "link": shown, "warnings": warnings})
        return
    by_name = not Path(source).expanduser().is_file() and find_here(source, usual) == obtained.file
    name = source if by_name else str(obtained.file)
    text = _text(shlex.quote(name), obtained, header, link)
    write(lambda: print(printable(text), end=""))
    print_notes("warning", warnings)


def downloads() -> Path:
    """Return the folder for models that the configuration names. Raises InputError for a bad configuration."""
    return models_folder(load_configuration().models, os.environ)


def fetch(source: str, folder: Path, sha256: str | None = None) -> tuple[Obtained, GgufHeader]:
    """Get a model as `get_model` does, and show the progress on stderr. Raises InputError."""
    reporter = _Bars() if make_console(sys.stderr).is_terminal else _Lines()
    try:
        with reporter:
            return get_model(source, folder.expanduser().absolute(), reporter, sha256)
    except SourceError as error:
        raise InputError(Problem(error.where, error.what, error.accepted)) from error


def read_model(file: Path) -> GgufHeader:
    """Return the header of a model's file. Raises InputError."""
    try:
        return read_header(file)
    except GgufError as error:
        raise InputError(Problem(str(error.path), error.reason, "a GGUF model")) from error


def _linked(source: str, obtained: Obtained, header: GgufHeader, folder: Path, warnings: list[str]) -> Path | None:
    # The link is for `orchestrator init`, which looks for models in the folder for models.
    folder = folder.expanduser().absolute()
    if why_no_prompt(header) is not None or obtained.file.is_relative_to(folder):
        return None
    name = (
        re.sub(r"[^\w.-]+", "-", source.removeprefix("ollama:")) if source.startswith("ollama:") else obtained.file.name
    )
    try:
        return link_model(obtained.file, name, folder)
    except OSError as error:
        warnings.append(f"it is not linked into {folder}: {error.strerror}; accepted: orchestrator init --model FILE")
        return None


def _list(as_json: bool) -> None:
    entries = read_catalogue()
    body = {"models": [{"name": name, **entry.model_dump(mode="json")} for name, entry in entries.items()]}
    rows = [(name, size(e.size), e.quantisation, e.licence, e.description) for name, e in entries.items()]
    name, amount, form, licence, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = (f"{a:{name}}  {b:>{amount}}  {c:{form}}  {d:{licence}}  {e}" for a, b, c, d, e in rows)
    print_lines(body, lines, as_json=as_json)


def _facts(obtained: Obtained, header: GgufHeader) -> dict[str, Any]:
    return {
        "source": obtained.source,
        "downloaded": obtained.downloaded,
        "checked": _checked(obtained),
        "model": {
            "name": header.name,
            "architecture": header.architecture,
            "quantisation": header.file_type,
            "parameters": header.parameters,
            "context": header.context_length,
            "bytes": header.file_bytes,
        },
    }


def _text(model: str, obtained: Obtained, header: GgufHeader, link: Path | None) -> str:
    # `orchestrator init` knows the model by the name `model`.
    came = f"downloaded {size(obtained.downloaded)}" if obtained.downloaded else "was here already"
    return (
        f"{one_line(header.name)}: {header.architecture} {header.file_type}, {size(header.file_bytes)}; {came}\n"
        f"from {obtained.source}\n"
        f"{obtained.file}\n"
        f"{f'linked as {link}' + chr(10) if link is not None else ''}"
        f"checked: {_checked(obtained)}\n"
    ) + "".join(_next(header, model, shlex.quote(str(obtained.file))))


def _next(header: GgufHeader, model: str, file: str) -> Iterator[str]:
    # Commands that would be refused are not suggested.
    if why_no_prompt(header) is not None:
        return
    if header.pooling == "rank":
        role = RERANKER
    elif why_no_text(header) is not None:
        role = EMBEDDER
    elif is_base(header):
        role = DRAFT  # of a larger model, which needs no template
    else:
        role = "worker"
        yield f"To use it for everything: orchestrator init --model {model}\n"
    yield f"To add it to a registry: orchestrator models add {file} --role {role} --write\n"


def _checked(obtained: Obtained) -> str:
    header = "its GGUF header says that it is whole"
    return f"{obtained.checked}; {header}" if obtained.checked else header


def _warnings(header: GgufHeader) -> list[str]:
    if is_base(header):
        return [f"{BASE_MODEL}; accepted for roles that answer: {NO_BASE_MODEL}"]
    if (why := why_no_prompt(header)) is not None:
        return [f"it cannot be used: {why}; accepted: {OTHER_TEMPLATE}"]
    return []


class _Bars:
    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=make_console(sys.stderr),
        )

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str, size: int | None, done: int) -> None:
        self._name = one_line(name)
        self._task = self._progress.add_task(self._name, total=size, completed=done)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def end(self, checked: str) -> None:
        self._progress.update(self._task, description=f"{self._name}: {checked}")
        self._progress.refresh()


class _Lines:
    def __init__(self) -> None:
        self._name = ""
        self._size: int | None = None
        self._done = self._tenths = 0

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because lines need no cleaning up."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        self._name, self._size, self._done, self._tenths = one_line(name), size, done, 0
        self._say(f"{self._name}: {_of(done, size)}")

    def advance(self, count: int) -> None:
        self._done += count
        tenth = 0 if self._size is None or self._size < SMALL else TENTHS * self._done // self._size
        if tenth > self._tenths:
            self._tenths = tenth
            self._say(f"{self._name}: {_of(self._done, self._size)}")

    def end(self, checked: str) -> None:
        self._say(f"{self._name}: complete; {checked}")

    def _say(self, line: str) -> None:
        write(lambda: print(line, file=sys.stderr))


def _of(received: int, whole: int | None) -> str:
    return size(received) if whole is None else f"{size(received)} of {size(whole)}"
