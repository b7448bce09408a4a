"""Read the configuration from a TOML file and the environment, and print the current one with comments.

A value is looked up in the environment (`ORCHESTRATOR_RUNS_MAX_RUNNING` for `max_running` of `[runs]`), then in the
file; else it has its default.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from orchestrator.errors import InputError, Problem
from orchestrator.files import user_folder
from orchestrator.run.sandbox.contract import MIB
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.service.callers import check_callers
from orchestrator.service.permissions import Permission
from orchestrator.service.schedules import schedules_from
from orchestrator.task.taskir.models import TaskIR

FILE_NAME = "config.toml"
PREFIX = "ORCHESTRATOR"
ENVIRONMENT = f"{PREFIX}_CONFIG"  # names the file
# Keys of earlier versions, which are still read, and their new places.
MOVED = {("procedures", "callers"): ("server", "callers")}


def _listed(value: object) -> object:
    return _split(value) if isinstance(value, str) else value  # a text is an environment variable's, a list the file's


def _paired(value: object) -> object:
    if not isinstance(value, str):
        return value
    # NAME=TARGET in an environment variable; the file has a table.
    pairs = [part.partition("=") for part in _split(value)]
    if any(not target.strip() for _, _, target in pairs):
        raise ValueError(f"{value!r} is no list of pairs; accepted: NAME=TARGET, separated by commas")
    return {name.strip(): target.strip() for name, _, target in pairs}


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


NameTable = Annotated[dict[str, str], BeforeValidator(_paired)]
NameList = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _schedule_lines(value: object) -> object:
    # An environment variable separates by semicolons, since cron expressions have commas.
    return [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value


def _checked_schedules(lines: tuple[str, ...]) -> tuple[str, ...]:
    schedules_from(lines)
    return lines


ScheduleList = Annotated[tuple[str, ...], BeforeValidator(_schedule_lines), AfterValidator(_checked_schedules)]


EVERY_TYPE = "default"  # in `explore`: the task types that it does not name, and what has no type
EXPLORED = 0.1  # default share of choices that try something else at first
TASK_TYPES: tuple[str, ...] = get_args(TaskIR.model_fields["task_type"].annotation)


def _explored(value: object) -> object:
    if isinstance(value, str) and "=" in value:
        value = _paired(value)
    table = value if isinstance(value, dict) else {EVERY_TYPE: value}  # a number or a word alone is for all types
    return {EVERY_TYPE: EXPLORED} | {name: _share(name, share) for name, share in table.items()}


def _share(name: object, value: object) -> float | str:
    if name not in (EVERY_TYPE, *TASK_TYPES):
        raise ValueError(f"{name!r} is no type of tasks; accepted: {', '.join((EVERY_TYPE, *TASK_TYPES))}")
    if value == "thompson":
        return "thompson"
    try:
        share = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ValueError(f'{value!r} for {name} is no share; accepted: 0 to 1, or "thompson"')
    return share


ExploreTable = Annotated[dict[str, float | Literal["thompson"]], BeforeValidator(_explored)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    """How the daemon is reached. It always listens on the socket `api.sock` of the state folder."""

    tcp: str = Field(default="", description="listen on ADDRESS:PORT too, with a token; empty: on the socket alone")
    tls_certificate: str = Field(default="", description="PEM file; with it and the key, TCP speaks TLS")
    tls_key: str = Field(default="", description="PEM file of the certificate's key")
    insecure: bool = Field(default=False, description="allow TCP beyond this machine's loopback without TLS")
    tokens: NameTable = Field(
        default={},
        description='further tokens by name, each in a file that only its owner can read: `ann = "/etc/ann.token"`;'
        " their holders may do what `callers` gives them, and nothing else",
    )
    callers: Annotated[NameTable, AfterValidator(check_callers)] = Field(
        default={},
        description='what callers may do, `"token:ann" = "read:own submit"`: users of the socket (user:NAME,'
        " user:NUMBER), the API's own token (token) and named ones (token:NAME), with permissions"
        f" ({', '.join(Permission)}) and roles: owner (all but approve), operator (read:all submit operate teach),"
        " approver (read:all approve, as a person), and those that procedures name; without an entry the folder's owner"
        " and root may do everything, the API's own token is operator, and others may do nothing",
    )
    hosts: NameList = Field(default=(), description="names that requests may be addressed to, in addition to localhost")
    origins: NameList = Field(
        default=(), description="web origins whose pages may send requests (CORS), `*` for any; none otherwise"
    )
    aliases: NameTable = Field(
        default={}, description='other names for `model` in requests, as `gpt-4o-mini = "auto"` or `claude-* = "auto"`'
    )
    max_body: int = Field(default=16 << 20, ge=1024, description="bytes of one request's body")
    body_seconds: float = Field(
        default=30.0, gt=0, description="for a request's head to arrive, for its body, and for a client to read on"
    )
    max_requests: int = Field(
        default=1000, ge=1, description="requests at a time; more are refused, to be tried again later"
    )
    max_generations: int = Field(default=64, ge=1, description="chat, response, embedding and plan requests at a time")
    rejoin_seconds: float = Field(
        default=60.0,
        ge=0,
        description="that a run of `orchestrate` continues after its client has gone, for the same request to join it",
    )
    drain_seconds: float = Field(default=30.0, ge=0, description="for runs to end when the daemon is to stop")


class RunSettings(_Section):
    """How many runs there may be, and what each may take."""

    max_running: int = Field(default=8, ge=1, description="runs at a time; the others wait")
    reserved: int = Field(default=2, ge=0, description="how many of these batch runs leave free for interactive ones")
    max_queued: int = Field(default=10_000, ge=1, description="runs of each priority that may wait; more are refused")
    max_tokens: int = Field(default=0, ge=0, description="tokens of one run, prompts and answers together; 0: no limit")
    max_seconds: float = Field(default=0.0, ge=0, description="seconds that one run may be executed; 0: no limit")
    max_bytes: int = Field(default=0, ge=0, description="bytes of one run's artifacts; 0: no limit")
    folders: NameList = Field(default=(), description="folders that runs submitted over TCP may read")


class FolderSettings(_Section):
    """What the state folder may take."""

    max_bytes: int = Field(
        default=0, ge=0, description="bytes of the state folder above which no run is accepted; 0: no limit"
    )
    min_free_bytes: int = Field(
        default=256 << 20, ge=0, description="bytes of the disk that must stay free for a run to be accepted"
    )
    max_uploaded_bytes: int = Field(
        default=1 << 30, ge=0, description="bytes of the files that clients have uploaded; further ones are refused"
    )


class RetentionSettings(_Section):
    """Which runs that have ended `orchestrator vacuum` keeps, and which chats, unless its options say otherwise."""

    max_days: float = Field(
        default=0.0, ge=0, description="days that a run is kept after its end, and a chat after its start; 0: no limit"
    )
    max_runs: int = Field(default=0, ge=0, description="how many runs are kept, the newest; 0: no limit")
    max_bytes: int = Field(
        default=0, ge=0, description="bytes of artifacts that are kept, those of the newest runs; 0: no limit"
    )
    max_chats: int = Field(
        default=0,
        ge=0,
        description="chats that are kept of those whose model the router chose, the newest; 0: as many as the journal "
        "keeps, 100,000",
    )
    max_plan_days: float = Field(
        default=0.0,
        ge=0,
        description="days that the plan of a procedure is kept after the end of its execution, by the procedure vacuum;"
        " those that can still be rolled back stay; 0: no limit",
    )
    max_audit_days: float = Field(
        default=0.0,
        ge=0,
        description="days that full parts of the procedures' audit log are kept, by the procedure vacuum; 0: no limit",
    )


class LogSettings(_Section):
    """What is logged, in `logs/` of the state folder."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the lowest level that is logged"
    )
    max_bytes: int = Field(
        default=8 << 20, ge=4096, description="bytes of a log file; a full one is renamed, and a new one begun"
    )
    keep: int = Field(default=4, ge=1, le=100, description="log files that are kept")


class ModelSettings(_Section):
    """Where models are."""

    folder: str = Field(default="", description="for downloads; empty: XDG_DATA_HOME/orchestrator/models")


class ProcedureSettings(_Section):
    """Procedures, which maintain this installation."""

    folder: str = Field(default="", description="with procedures of your own; empty: `procedures` beside this file")
    commands: NameList = Field(
        default=(), description="programs, by their absolute paths, that steps may run outside the sandbox"
    )
    schedules: ScheduleList = Field(
        default=(),
        description='when the daemon runs which, in lines as of crontab: "0 3 * * * backup", "@weekly vacuum days=30";'
        " one that needs an approval then waits for it; in the environment with ; between them",
    )
    audit_bytes: int = Field(
        default=64 << 20, ge=1 << 16, description="bytes of the audit log in one file; a full one is sealed"
    )


class MemorySettings(_Section):
    """How the router uses what it learns from the outcomes of runs, in `memory/` of the state folder."""

    use: Literal["auto", "off", "shadow", "on"] = Field(
        default="auto",
        description="off: nothing is learned; shadow: advice is journaled beside the choice of the rules; on: it is"
        " followed where it is sure; auto: shadow until there are 200 outcomes, then on",
    )
    explore: ExploreTable = Field(
        default={EVERY_TYPE: EXPLORED},
        description="how something else than the best is tried, by type of task: a share of the choices, which falls as"
        ' outcomes come in, or "thompson"; `default` is for all others and for requests in words; a number alone is'
        " for all",
    )
    explore_interactive: bool = Field(
        default=False, description="try something else in interactive runs and chats, too, while somebody waits"
    )
    personas: int = Field(
        default=4,
        ge=0,
        le=50,
        description="personas that the memory may have proposed for tasks that come often and are not done well, and"
        " that are in use to be tried; 0: none",
    )
    capacity: int = Field(default=1_000_000, ge=1000, description="episodes that are kept")
    graph: Literal["kuzu", "ladybug"] = Field(default="ladybug", description="the library of the graph")


class ToolServerSettings(_Section):
    """An MCP server: either a `command`, which is run in the sandbox, or a `url`."""

    command: tuple[str, ...] = Field(default=(), description="the program and its arguments, as `python` or `node`")
    folders: tuple[str, ...] = Field(
        default=(), description="absolute paths of folders that the command may read, if any user of this machine may"
    )
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default={}, description="environment variables of the command"
    )
    memory: int = Field(default=512 * MIB, ge=16 * MIB, description="bytes of memory of the command")
    url: str = Field(default="", pattern=r"^(https?://\S+)?$", description="the address of a server of streamable HTTP")
    token_env: str = Field(default="", description="the environment variable that holds the bearer token for the url")
    seconds: float = Field(default=60.0, gt=0, le=3600, description="for one call")
    start_seconds: float = Field(default=30.0, gt=0, le=600, description="to start it, and to list its tools")

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("has neither command nor url, or both; accepted: exactly one of them")
        if self.url and (self.folders or self.env):
            raise ValueError("folders and env are of a command; accepted: a url without them")
        if self.command and self.token_env:
            raise ValueError("token_env is for a url; accepted: env, for a command")
        return self


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)  # the text of an environment variable; the file has a table
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}; accepted: an object of servers by name") from error


ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class McpSettings(_Section):
    """MCP servers, whose tools steps may use if their `tools` name them, as mcp:SERVER/TOOL."""

    servers: Annotated[dict[ServerName, ToolServerSettings], BeforeValidator(_from_json)] = Field(
        default={},
        description="by name, each best as a table of its own, [mcp.servers.NAME], with command (run in the sandbox,"
        " without a network), folders, env and memory, or url and token_env; and seconds, start_seconds; in the"
        " environment as JSON",
    )


class TelemetrySettings(_Section):
    """Where runs are exported when they have ended, as spans of OpenTelemetry. Needs the extra `otel`."""

    endpoint: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="of a collector that takes OTLP over HTTP, as http://localhost:4318, to which /v1/traces is added;"
        " empty: nothing is exported",
    )
    content: bool = Field(default=False, description="export prompts, outputs and messages that may quote them, too")


class ClusterSettings(_Section):
    """Further machines that run engines, by Ray. Needs the extra `ray`. Read when the daemon starts."""

    ray: str = Field(
        default="",
        pattern=r"^(auto|[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5})?$",
        description='the Ray cluster: "auto" for the one that this machine is a part of, or ADDRESS:PORT of its head;'
        " empty: none",
    )
    folder: str = Field(
        default="",
        description="on each node, for models, logs and step costs; empty: .cache/orchestrator/nodes of the user that"
        " runs Ray there",
    )
    node_bytes: int = Field(
        default=0, ge=0, description="bytes that models may take of each node's disk; 0: as many as are free"
    )
    silence_seconds: float = Field(
        default=10.0,
        ge=1,
        le=600,
        description="after which a node that does not answer is lost, with its attempts, and a head that reaches nobody"
        " ends",
    )
    standby: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5})?$",
        description="ADDRESS:PORT of this machine, at which its standby gets a copy of the journal; the standby has its"
        " own; empty: none",
    )


class Configuration(_Section):
    """All sections of the configuration file."""

    server: ServerSettings = ServerSettings()
    runs: RunSettings = RunSettings()
    folder: FolderSettings = FolderSettings()
    retention: RetentionSettings = RetentionSettings()
    logs: LogSettings = LogSettings()
    models: ModelSettings = ModelSettings()
    procedures: ProcedureSettings = ProcedureSettings()
    memory: MemorySettings = MemorySettings()
    mcp: McpSettings = McpSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    cluster: ClusterSettings = ClusterSettings()

    @model_validator(mode="before")
    @classmethod
    def _take_moved(cls, stated: Any) -> Any:
        for (section, key), (now, name) in MOVED.items():
            earlier = _table(_table(stated).get(section))
            if key not in earlier:
                continue
            if name in (present := _table(stated.get(now))):
                raise ValueError(f"{section}.{key} has become {now}.{name}, and both are stated; accepted: the latter")
            rest = {old_key: value for old_key, value in earlier.items() if old_key != key}
            stated = {**stated, section: rest, now: {**present, name: earlier[key]}}
        return stated


def configuration_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the file: ORCHESTRATOR_CONFIG, else under XDG_CONFIG_HOME, else under ~/.config."""
    if path := environ.get(ENVIRONMENT):
        return Path(path).expanduser().absolute()
    return user_folder(environ, "XDG_CONFIG_HOME", ".config") / "orchestrator" / FILE_NAME


def models_folder(settings: ModelSettings, environ: Mapping[str, str]) -> Path:
    """Return the folder for downloaded models: the configured one, else under XDG_DATA_HOME."""
    if settings.folder:
        return Path(settings.folder).expanduser().absolute()
    return user_folder(environ, "XDG_DATA_HOME", ".local/share") / "orchestrator" / "models"


def procedures_folder(settings: ProcedureSettings, environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's own procedures: the configured one, else next to the configuration."""
    if settings.folder:
        return Path(settings.folder).expanduser().absolute()
    return configuration_path(environ).parent / "procedures"


def tool_servers(settings: McpSettings) -> dict[str, ToolServer]:
    return {name: ToolServer(name=name, **dict(server)) for name, server in settings.servers.items()}


def load_configuration(environ: Mapping[str, str] = os.environ) -> Configuration:
    """Return the configuration from the file, if there is one, and the environment. Raises InputError."""
    path = configuration_path(environ)
    stated = _read(path, required=bool(environ.get(ENVIRONMENT)))
    variables = dict(_variables(environ))
    for (section, key), text in variables.items():
        stated[section] = {**_table(stated.get(section, {})), key: text}
    try:
        return Configuration.model_validate(stated)
    except ValidationError as error:
        raise InputError(*(_problem(path, variables, item) for item in error.errors())) from error


def show_configuration(configuration: Configuration) -> str:
    """Return a configuration file with all current values, each with a comment."""
    return "\n".join(_lines(configuration))


def with_value(text: str, path: Path, section: str, key: str, value: object) -> str:
    """Return the text of a configuration file with one value changed. Everything else stays as it is.

    `path` is for errors. Raises InputError for a key or a value that the configuration cannot have, for a text that is
    not TOML, and if more than the value would change.
    """
    before = _parsed(text, path)
    after = {**before, section: {**_table(before.get(section, {})), key: value}}
    try:
        Configuration.model_validate(after)
    except ValidationError as error:
        raise InputError(*(_problem(path, {}, item) for item in error.errors())) from error
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{section}\s*\]\s*(#.*)?", line)), None)
    if head is None:
        lines += [*([""] if lines else []), f"[{section}]"]
        head = len(lines) - 1
    end = next((at for at in range(head + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
    stated = re.compile(rf"(\s*{key}\s*=\s*)(\"[^\"]*\"|'[^']*'|[^#\s]+)(.*)")
    at = next((at for at in range(head + 1, end) if stated.fullmatch(lines[at])), None)
    if at is None:
        lines.insert(head + 1, f"{key} = {_toml(value)}")
    elif (match := stated.fullmatch(lines[at])) is not None:
        lines[at] = f"{match[1]}{_toml(value)}{match[3]}"
    changed = "\n".join(lines) + "\n"
    try:
        same = tomllib.loads(changed) == after
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        problem = f"{section}.{key} cannot be changed without changing more"
        raise InputError(Problem(str(path), problem, "the value, put there by hand"))
    return changed


def variable(section: str, key: str) -> str:
    """Return the name of the environment variable for a value."""
    return f"{PREFIX}_{section}_{key}".upper()


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return _parsed(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        if required:
            raise InputError(Problem(str(path), "does not exist", f"a file, or no {ENVIRONMENT}")) from error
        return {}
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}", "a TOML file")) from error
    except UnicodeDecodeError as error:
        raise _no_toml(path, error) from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(path, error) from error


def _no_toml(path: Path, error: ValueError) -> InputError:
    return InputError(Problem(str(path), str(error), "TOML; `orchestrator config show` prints it"))


def _table(stated: object) -> dict[str, Any]:
    return stated if isinstance(stated, dict) else {}


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
    keys = [(section, key) for section, model in _sections() for key in model.model_fields]
    for section, key in (*keys, *MOVED):
        if (text := environ.get(variable(section, key))) is not None:
            yield (section, key), text


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Configuration.model_fields.items():
        assert isinstance(field.annotation, type), "each section is a model"
        yield name, field.annotation


def _problem(path: Path, variables: Mapping[tuple[str, str], str], error: Any) -> Problem:
    where = tuple(map(str, error["loc"]))
    section, key = (*where, "", "")[:2]
    earlier = (old for old, now in MOVED.items() if now == (section, key))
    stated = next((place_key for place_key in ((section, key), *earlier) if place_key in variables), None)
    place = f"{path}: {'.'.join(where)}" if stated is None else variable(*stated)
    form = ToolServerSettings if where[:2] == ("mcp", "servers") and len(where) > 2 else dict(_sections()).get(section)
    accepted = ", ".join(form.model_fields if form else Configuration.model_fields)
    unknown = error["type"] == "extra_forbidden"
    return Problem(place, "is not known" if unknown else str(error["msg"]), accepted if unknown else "")


def _lines(configuration: Configuration) -> Iterator[str]:
    yield "# The configuration of the orchestrator. A value that is left out has its default."
    for section, model in _sections():
        yield f"\n# {' '.join((model.__doc__ or '').split())}\n[{section}]"
        stated = getattr(configuration, section)
        for key, field in model.model_fields.items():
            yield f"# {field.description} [{variable(section, key)}; default: {_toml(field.default)}]"
            yield f"{key} = {_toml(getattr(stated, key))}"


def _toml(value: object) -> str:
    if isinstance(value, BaseModel):
        return _toml(value.model_dump(exclude_defaults=True))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    # TOML writes strings, numbers, booleans and lists as JSON does, except for the character DEL.
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False).replace("\x7f", "\\u007f")
