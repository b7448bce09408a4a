"""Start the systems that a group of cells compares, one after the other, and before any of them is measured."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.engine.cells import (
    BETWEEN,
    EMBEDDED,
    HEADED,
    SERVED_WIDTHS,
    TRIAL_HEADED,
    Cell,
    CoderCell,
    HeadCell,
    Task,
    UserCell,
    keeps_otherwise,
)
from benchmarks.engine.models import (
    CODER,
    CODER_FILE,
    DRAFTS,
    HYBRID,
    INSTEAD,
    LARGE,
    SMALL,
    SMOLLM2,
    TRIAL,
    TRIAL_DRAFT,
    TRIAL_HYBRID,
    TRIAL_WINDOWED,
    WINDOWED,
    Generated,
)
from benchmarks.engine.names import (
    EXAMPLE,
    METHODS,
    OURS,
    POOLED,
    SERIAL,
    SERVER,
    SETTINGS,
    SPINNING,
    SPLIT,
    of_library,
    speculating,
)
from benchmarks.engine.peers import Peers
from benchmarks.engine.system import System, SystemSetup
from benchmarks.engine.systems import daemon, example_server, server
from benchmarks.engine.systems.ceiling import Ceiling
from benchmarks.engine.systems.ours import Ours
from benchmarks.engine.systems.serial import Serial
from benchmarks.engine.systems.served import ServerFailed
from benchmarks.heads.compose import DEEP, deepened, headed
from benchmarks.heads.eagle import eagle_file
from orchestrator.engine.processor import usable_cores
from orchestrator.registry.options import EagleOptions, MtpOptions, PromptLookupOptions, SpeculationOptions

TRIALS = (TRIAL, TRIAL_HYBRID, TRIAL_WINDOWED)
# The generated models, by name.
MODELS = {model.name: model for model in (SMALL, LARGE, HYBRID, WINDOWED, INSTEAD, *TRIALS)}
TINY = Path(__file__).parents[2] / "registry" / "tiny" / "large.gguf"
# The share of the draft model's tokens that the target agrees with, for each task.
AGREEMENT: dict[Task, float] = {"copy": 0.9, "free": 0.6}
LONGEST, MOST_DRAFTS = 3, 16  # the longest n-gram of prompt lookup, and the most tokens that are drafted in a step

Starter = Callable[[], Awaitable[System]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where models and peers are, and which systems are measured."""

    folder: Path
    peers: Peers
    systems: tuple[str, ...]  # the names of the systems
    # Builds of llama.cpp. If there are any, our engine with each of them is measured, and no other system.
    libraries: tuple[Path, ...] = ()

    def setup(self, cells: Sequence[Cell]) -> SystemSetup:
        """Return the common setup of a group of cells. Trial models get one thread, being too small for several."""
        width = max(cell.slots if isinstance(cell, UserCell) else cell.width for cell in cells)
        context = max(cell.context for cell in cells)
        if cells[0].task:
            context += width * cells[0].own  # so that every prompt can stay where it was computed
        return SystemSetup(
            model=self._file(cells[0].model),
            width=width,
            context=context,
            threads=1 if cells[0].model in {model.name for model in TRIALS} else usable_cores(),
            folder=self.folder,
        )

    def _file(self, name: str) -> Path:
        """Return the path of a model. A generated model is written first if it is not there."""
        if name in (EMBEDDED, TRIAL_HEADED["eagle"]):
            return TINY
        models = self.folder / "models"
        if name == HEADED["eagle"]:  # an EAGLE-3 head is a file of its own
            return deepened(TINY.stem, models, DEEP)
        if name == CODER:
            return models / CODER_FILE
        if name in (HEADED["mtp"], TRIAL_HEADED["mtp"]):
            return headed(TINY.stem, models, DEEP if name == HEADED["mtp"] else 0)
        return SMOLLM2.file(models) if name == SMOLLM2.name else MODELS[name].write(models)

    def drafter(self, task: Task, model: str) -> Generated:
        """Return the draft model for a task and a target model."""
        return TRIAL_DRAFT if model == TRIAL.name else DRAFTS[AGREEMENT[task]]


@asynccontextmanager
async def started(place: Place, cells: Sequence[Cell], tell: Callable[[str], None]) -> AsyncIterator[list[System]]:
    """Start the systems of a group, and end them with the context. A server that does not start is left out."""
    setup = place.setup(cells)
    async with AsyncExitStack() as stack:
        systems = []
        for start in _starters(place, setup, cells):
            try:
                system = await start()
            except ServerFailed as error:
                tell(f"left out: {error}")
                continue
            stack.push_async_callback(system.close)
            systems.append(system)
        yield systems


def takes_part(system: str, cell: Cell) -> bool:
    """Return whether a system is measured in a cell.

    Our daemon with spinning threads is measured only on an idle machine with the first model and chats that share no
    document, and runs of steps only with our own daemon. Hybrids and models with windows are compared with llama-server
    only, and kinds of speculation with its own.
    """
    if isinstance(cell, UserCell):
        if system == SPINNING:
            return not (cell.shared or cell.beside or cell.steps or isinstance(cell, CoderCell))
        return system == OURS or not cell.steps
    if isinstance(cell, HeadCell):
        return system in (OURS, speculating(OURS, cell.method))
    if cell.task:
        return system.startswith(OURS) or (system.startswith(SERVER) and cell.width in SERVED_WIDTHS)
    if keeps_otherwise(cell.model):
        return system in (OURS, SERVER)
    return cell.width != BETWEEN or system in (OURS, SERIAL)


def _starters(place: Place, setup: SystemSetup, cells: Sequence[Cell]) -> list[Starter]:
    if place.libraries:
        return [
            partial(Ours.start, setup, of_library(number), library=file) for number, file in enumerate(place.libraries)
        ]
    if isinstance(cells[0], UserCell):
        return _served(place, setup, cells)
    if isinstance(cells[0], HeadCell):
        return _with_and_without_head(setup, cells[0]) if OURS in place.systems else []
    return _speculating(place, setup, cells[0]) if cells[0].task else _plain(place, setup, cells)


def _with_and_without_head(setup: SystemSetup, cell: HeadCell) -> list[Starter]:
    # Steps of a model with many layers take long to measure, which would disturb the other engine.
    start = partial(Ours.start, setup, calibrated=cell.model in HEADED.values())
    name = speculating(OURS, cell.method)
    if cell.method == "mtp":
        return [start, partial(start, name, mtp=MtpOptions())]
    return [start, partial(start, name, eagle=EagleOptions(str(eagle_file(TINY.stem))))]


def _served(place: Place, setup: SystemSetup, cells: Sequence[Cell]) -> list[Starter]:
    """Return the starters of the systems that answer chats over HTTP."""
    starters: dict[str, Starter] = {
        OURS: partial(daemon.start, setup),
        SPINNING: partial(daemon.start, setup, SPINNING, daemon.SPINNING_ENVIRONMENT),
        SERVER: partial(server.start, setup, place.peers.server, chats=True),
    }
    return [starters[name] for name in place.systems if any(takes_part(name, cell) for cell in cells)]


def _plain(place: Place, setup: SystemSetup, cells: Sequence[Cell]) -> list[Starter]:
    peers = place.peers
    starters: dict[str, Starter] = {
        OURS: partial(Ours.start, setup),
        SERIAL: partial(Serial.start, setup),
        SERVER: partial(server.start, setup, peers.server),
        EXAMPLE: partial(example_server.start, setup, peers.example, peers.packages),
        POOLED: partial(Ceiling.start, setup, split=False),
        SPLIT: partial(Ceiling.start, setup, split=True),
    }
    return [starters[name] for name in place.systems if any(takes_part(name, cell) for cell in cells)]


def _speculating(place: Place, setup: SystemSetup, cell: Cell) -> list[Starter]:
    """Return the starters of our engine and llama-server, without drafts and with each kind of drafts."""
    assert cell.task is not None, "only cells with a task compare speculation"
    draft = place.drafter(cell.task, cell.model).write(place.folder / "models")
    lookup = PromptLookupOptions(LONGEST, MOST_DRAFTS)
    starters: list[Starter] = []
    if OURS in place.systems:
        starters.append(partial(Ours.start, setup))
        starters.append(partial(Ours.start, setup, speculating(OURS, "lookup"), lookup=lookup))
        speculation = SpeculationOptions(str(draft), MOST_DRAFTS)
        drafting = partial(Ours.start, setup, speculating(OURS, "draft"), speculation=speculation)
        starters.append(drafting)
    if SERVER in place.systems:
        served = replace(setup, width=min(setup.width, max(SERVED_WIDTHS)))
        starters.append(partial(server.start, served, place.peers.server))
        for method in METHODS:
            for settings in SETTINGS:
                options = _server_options(method, settings, draft)
                name = speculating(SERVER, method, settings)
                starters.append(partial(server.start, served, place.peers.server, name, options))
    return starters


def _server_options(method: str, settings: str, draft: Path) -> list[str]:
    ours = settings == SETTINGS[1]
    if method == "draft":
        most = ["--spec-draft-n-max", str(MOST_DRAFTS)]
        return ["-md", str(draft), "--spec-type", "draft-simple", *(most if ours else [])]
    sizes = ["--spec-ngram-simple-size-n", str(LONGEST), "--spec-ngram-simple-size-m", str(MOST_DRAFTS)]
    return ["--spec-type", "ngram-simple", *(sizes if ours else [])]
