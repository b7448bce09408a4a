"""Check the installation: what a run needs, what is optional, and what is good to know.

A check is `ok`, `note` (something optional is missing) or `broken` (a run would fail).
"""

import asyncio
import fcntl
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import psutil

from orchestrator.engine.client.library import LibraryFacts, LibraryFailed, probe_library
from orchestrator.engine.processor import cpu_quota, usable_cpus
from orchestrator.pool.machine import memory_budget, memory_limits
from orchestrator.pool.remote.http import probe
from orchestrator.registry.checks import BASE_MODEL, NO_BASE_MODEL, is_base
from orchestrator.registry.errors import GgufError, RegistryError
from orchestrator.registry.gguf import read_header
from orchestrator.registry.llama_library import ENVIRONMENT, default_library, installed_library
from orchestrator.registry.load import load_registry
from orchestrator.registry.memory import size
from orchestrator.registry.models import Endpoint, ModelEntry, Registry
from orchestrator.run.gates.jobs import place_of
from orchestrator.run.gates.planned import GATES
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.service.attachments import StandbyStatus
from orchestrator.task.reuse import LOSS_TEXTS, Reuse

MINIMUM_PYTHON = (3, 11)
CPU_FLAGS = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "amx_int8", "asimd", "sve", "i8mm")
REUSED_SHARE = 0.9  # below this share of reused common tokens, doctor notes it
FURTHER_USES = {"pytest": ", and the tool run_tests,"}  # of a gate's tool


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `mend` says what to do if the state is not `ok`."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str
    mend: str = ""


def examine(registry: Path, home: Path) -> list[Check]:
    """Run all checks, and return them in the order in which they are printed."""
    return [
        _python(),
        _llama(),
        _processor(),
        _cores(),
        _memory(),
        *_registry(registry),
        _folder(home),
        _lock(home),
        *_journal(home),
        Check("gates", "ok", f"built: {', '.join(row.name for row in GATES)}"),
        *_tools(),
        _sandbox(),
    ]


def examine_daemon(
    why_not_ready: str | None, standby: StandbyStatus | None, exposed: Mapping[str, Sequence[str] | None] | None
) -> Iterator[Check]:
    """Yield the checks of a daemon. `exposed` is None without a cluster; see `check_ray_ports`."""
    if why_not_ready is not None:
        yield Check("daemon", "broken", why_not_ready, "until then, the daemon accepts no runs")
    if standby is not None:
        yield check_standby(standby)
    if exposed is not None:
        yield check_ray_ports(exposed)


def check_standby(status: StandbyStatus) -> Check:
    """Return a check of the machine that takes over from this one."""
    shown = f"{status.state}; epoch {status.epoch} of the head"
    if status.problem is not None:
        mend = "until it answers, no other machine can become the head; see docs/cluster.md"
        return Check("standby", "note", f"{shown}; the arbiter does not answer: {status.problem}", mend)
    if status.state != "in sync":
        return Check("standby", "note", shown, "until it is in sync, nothing takes over: `orchestrator standby` there")
    return Check("standby", "ok", f"{shown}, at {status.address}")


def check_ray_ports(exposed: Mapping[str, Sequence[str] | None]) -> Check:
    """Return a check of where Ray accepts connections on machines of a cluster; see `NodeStatus.exposed`."""
    examined = {name: places for name, places in exposed.items() if places is not None}
    if not examined:
        return Check("ports of Ray", "note", "not examined yet", "`orchestrator nodes` says whether Ray answers")
    open_ports = [f"{name}: {exposure(places)}" for name, places in examined.items() if places]
    if open_ports:
        return Check("ports of Ray", "note", "; ".join(open_ports), "start Ray there by `orchestrator cluster start`")
    return Check("ports of Ray", "ok", f"closed at all addresses but Ray's own: {', '.join(examined)}")


def exposure(places: Sequence[str] | None) -> str:
    """Return a text about addresses with a port at which Ray accepts connections next to its own; "" without any."""
    if not places:
        return ""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"Ray also listens at {places[0]}{more}"


def _python() -> Check:
    interpreter = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < MINIMUM_PYTHON:
        return Check("Python", "broken", interpreter, "install Python 3.11 or later")
    return Check("Python", "ok", interpreter)


def _llama() -> Check:
    is_installed = default_library() == installed_library()
    mend = "build it here: `make setup`" if is_installed else f"correct or unset {ENVIRONMENT}"
    try:
        facts = probe_library()
        package = f"llama-cpp-python {version('llama-cpp-python')}" if is_installed else facts.file
    except (PackageNotFoundError, LibraryFailed) as error:
        return Check("llama.cpp", "broken", str(error), mend)
    return _library_check("llama.cpp", package, facts)


def _libraries(models: Iterable[ModelEntry]) -> Iterator[Check]:
    # Those that the registry names; a library that is no file makes its models unusable already.
    named = {model.options.llama_library for model in models if model.unavailable is None}
    for file in sorted(filter(None, named)):
        name = f"llama.cpp at {file}"
        try:
            yield _library_check(name, f"llama.cpp {(facts := probe_library(file)).build}", facts)
        except LibraryFailed as error:
            yield Check(name, "broken", str(error), "correct llama_library in the registry")


def _library_check(name: str, package: str, facts: LibraryFacts) -> Check:
    built = f"{package}, built with {', '.join(facts.extensions) or 'no extensions'}"
    if facts.strangers:
        built += f"; it loaded {', '.join(facts.strangers)}"
        return Check(name, "note", built, "a build whose libraries find each other in their own folder")
    if facts.lacking:
        return Check(name, "note", f"{built}; {'; '.join(facts.lacking)}", "a newer build of llama.cpp")
    return Check(name, "ok", built)


def _processor() -> Check:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Check("processor", "note", platform.processor() or platform.machine())
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    values = {key.strip(): value.strip() for key, value in fields.items()}
    name = values.get("model name", platform.machine())
    flags = set((values.get("flags") or values.get("Features") or "").split())
    extensions = ", ".join(flag for flag in CPU_FLAGS if flag in flags)
    return Check("processor", "ok", f"{name}; {extensions or 'no vector extensions'}")


def _cores() -> Check:
    physical, quota = psutil.cpu_count(logical=False), cpu_quota()
    cores = f"{usable_cpus()} usable, {physical or 'unknown'} physical"
    return Check("cores", "ok", cores if quota is None else f"{cores}, limited to {quota:g} by a control group")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    amount = f"{size(memory.available)} free of {size(memory.total)}"
    limit = min((limit.most for limit in memory_limits()), default=None)
    return Check("memory", "ok", amount if limit is None else f"{amount}, limited to {size(limit)} by a control group")


def _registry(path: Path) -> Iterator[Check]:
    try:
        registry = load_registry(path)
    except RegistryError as error:
        for problem in error.problems:
            yield Check("registry", "broken", str(problem), "correct the file, or name another one by --registry")
        return
    yield Check("registry", "ok", f"{registry.path}: {len(registry.models)} models, {len(registry.roles)} roles")
    yield from _libraries(registry.models.values())
    for model in registry.models.values():
        roles = ", ".join(role.name for role in registry.roles.values() if role.model == model.id)
        if not model.is_remote or model.why_not is not None:
            yield _model(model, registry)
        for server in model.servers if model.why_not is None else ():
            name = (
                f"model {model.id}" if model.is_remote and len(model.servers) == 1 else f"model {model.id} at a server"
            )
            yield _server(name, server, roles)


def _model(model: ModelEntry, registry: Registry) -> Check:
    name = f"model {model.id}"
    has = [role for role in registry.roles.values() if role.model == model.id]
    roles = ", ".join(role.name for role in has)
    if model.unavailable is None and model.residency == "cold":
        return Check(name, "ok", f"cold: known, and not loaded; {roles or 'no role'} would use it")
    if reason := model.why_not:
        return Check(name, "broken" if roles else "note", reason, "correct its entry in the registry, or remove it")
    assert model.memory is not None, "a usable model has a header"
    budget = memory_budget() if registry.defaults.memory is None else registry.defaults.memory
    if model.memory.total > budget:
        needed = f"needs {size(model.memory.total)} ({model.memory}), but {size(budget)} are available"
        return Check(name, "broken" if roles else "note", needed, "fewer slots, a smaller context, or a smaller file")
    summary = f"{size(model.memory.total)} when loaded; {roles or 'no role uses it'}"
    assert model.header is not None, "a usable model has a header"
    if model.header.state_bytes:
        how = "shares no prefixes" if model.options.batch_invariant else "shares prefixes where a state is kept"
        summary += f"; recurrent: {how}, {size(model.header.state_bytes)} a state"
    if (eagle := model.options.eagle) is not None:
        try:
            read_header(Path(eagle.file))
        except GgufError as error:
            mend = "correct `eagle` in its entry, or remove it"
            return Check(name, "note", f"{summary}; it drafts without its EAGLE-3 head: {error}", mend)
        summary += "; an EAGLE-3 head drafts"
    if is_base(model.header) and any(role.tier != "D" for role in has):
        return Check(name, "note", f"{summary}; {BASE_MODEL}", f"use {NO_BASE_MODEL}")
    return Check(name, "ok", summary)


def _server(name: str, endpoint: Endpoint, roles: str) -> Check:
    address = f"{endpoint.model} at {endpoint.base_url}"
    if endpoint.unavailable is not None:
        return Check(name, "note", f"{address}: {endpoint.unavailable}", "set it where the daemon starts")
    if reason := probe(endpoint):  # lists the server's models, which also checks the key
        mend = "start the server, or correct the entry in the registry"
        return Check(name, "broken" if roles else "note", f"{address}: {reason}", mend)
    if endpoint.sends_key_in_clear:
        return Check(name, "note", f"{address}: the key goes over the network in clear text", "use https")
    return Check(name, "ok", f"{address}; {roles or 'no role uses it'}")


def _folder(home: Path) -> Check:
    # The nearest that exists, since nothing is created here.
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    place = str(home) if nearest == home else f"{home}, to be created"
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        mend = "make it writable, or set ORCHESTRATOR_HOME or --home to another folder"
        return Check("state folder", "broken", f"{place}: {nearest} cannot be written to", mend)
    free = shutil.disk_usage(nearest).free
    return Check("state folder", "ok", f"{place}, {size(free)} free on its disk")


def _lock(home: Path) -> Check:
    try:
        with open(Home(home).lock_file, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released at once, since the file is closed
            except BlockingIOError:
                holder = file.read(32).decode("ascii", "replace").strip()
                if holder == str(os.getpid()):
                    return Check("lock", "ok", "held by this daemon")
                who = f"process {holder}" if holder.isdigit() else "a process"
                return Check("lock", "note", f"{who} owns the state folder", "wait for it, or use another --home")
    except OSError:
        pass  # no lock file that could be held
    return Check("lock", "ok", "free")


def _journal(home: Path) -> Iterator[Check]:
    try:
        with JournalReader.open_to_read(home) as journal:
            damage = journal.damage()
            runs, unfinished = len(journal.runs()), len(journal.unfinished())
            reuse = Reuse() if damage else journal.reuse()
    except JournalError as error:
        yield Check("journal", "broken", str(error))  # which says what to do
        return
    if damage:
        yield Check("journal", "broken", damage[0], "restore it from a backup, or move the state folder away")
        return
    if not runs and (folders := _folders(Home(home).runs)):
        lost = f"0 runs, but {folders} in {Home(home).runs}: the journal was emptied or replaced"
        yield Check("journal", "note", lost, "restore it from a backup: `orchestrator backup --list` names them")
        return
    open_runs = f", {unfinished} unfinished: `orchestrator runs`" if unfinished else ""
    yield Check("journal", "ok", f"{runs} run{'' if runs == 1 else 's'}{open_runs}")
    if reuse.expected_tokens:
        yield _reuse(reuse)


def _folders(runs: Path) -> int:
    return sum(1 for _ in runs.iterdir()) if runs.is_dir() else 0


def _reuse(reuse: Reuse) -> Check:
    """Compare how much the latest steps have reused of earlier prompts with what was expected."""
    counts = f"{reuse.reused_tokens:,} of {reuse.expected_tokens:,} shared tokens of the latest steps reused"
    causes = "; ".join(f"{tokens:,} not, since {LOSS_TEXTS[cause].why}" for cause, tokens in reuse.losses)
    shown = f"{counts}; {causes}" if causes else counts
    if reuse.reused_tokens >= REUSED_SHARE * reuse.expected_tokens:
        return Check("shared prompts", "ok", shown)
    hints = (LOSS_TEXTS[cause].hint for cause, _ in reuse.losses)
    return Check("shared prompts", "note", shown, next(filter(None, hints), ""))


def _tools() -> Iterator[Check]:
    uses: dict[str, list[str]] = {}
    for row in GATES:
        if tool := row.module or row.program:
            uses.setdefault(tool, []).append(row.name)
    modules = {row.module for row in GATES}
    for tool, gates in uses.items():
        yield _tool(tool, tool in modules, f"{_listed_gates(gates)}{FURTHER_USES.get(tool, '')}")
    yield _tool("bwrap", False, "running code that a model wrote")


def _tool(name: str, is_module: bool, use: str) -> Check:
    if place := place_of(name, is_module=is_module):
        return Check(f"tool {name}", "ok", place)
    missing = "not installed for this Python" if is_module else "not on the PATH"
    how = "" if name == "bwrap" else "; accepted: pip install 'orchestrator[gates]'"
    return Check(f"tool {name}", "note", missing, f"only {use} would use it{how}")


def _listed_gates(gates: list[str]) -> str:
    return f"the gates {', '.join(gates[:-1])} and {gates[-1]}" if len(gates) > 1 else f"the gate {gates[0]}"


def _sandbox() -> Check:
    try:
        # The probe starts programs that try what the sandbox has to prevent.
        return Check("sandbox", "ok", asyncio.run(Sandbox.probe()).describe())
    except SandboxUnavailable as error:
        return Check("sandbox", "note", error.reason, "until then, steps and gates that run code are refused")
