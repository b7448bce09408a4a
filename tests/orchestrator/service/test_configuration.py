"""The configuration file, and the environment over it."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.service.configuration import (
    Configuration,
    FolderSettings,
    LogSettings,
    RunSettings,
    ServerSettings,
    configuration_path,
    load_configuration,
    show_configuration,
    tool_servers,
    with_value,
)


def loaded(tmp_path: Path, text: str, **variables: str) -> Configuration:
    """Return what a file and variables say."""
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_configuration({"ORCHESTRATOR_CONFIG": str(path), **variables})


def test_without_a_file_the_defaults_count(tmp_path: Path) -> None:
    assert load_configuration({"HOME": str(tmp_path)}) == Configuration()


def test_the_environment_stands_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    text = '[runs]\nmax_running = 3\nmax_queued = 7\n[server]\nhosts = ["a.example"]\n'
    found = loaded(tmp_path, text, ORCHESTRATOR_RUNS_MAX_RUNNING="5", ORCHESTRATOR_SERVER_INSECURE="true")
    assert (found.runs.max_running, found.runs.max_queued) == (5, 7)
    assert (found.server.hosts, found.server.insecure) == (("a.example",), True)
    listed = loaded(tmp_path, text, ORCHESTRATOR_SERVER_HOSTS="b.example, c.example")
    assert listed.server.hosts == ("b.example", "c.example")
    assert found.logs == LogSettings()


def test_aliases_are_a_table_of_the_file_or_pairs_of_the_environment(tmp_path: Path) -> None:
    text = '[server]\naliases = {gpt-4o-mini = "auto", "claude-*" = "worker"}\n'
    assert loaded(tmp_path, text).server.aliases == {"gpt-4o-mini": "auto", "claude-*": "worker"}
    found = loaded(tmp_path, text, ORCHESTRATOR_SERVER_ALIASES="a=b, c = d")
    assert found.server.aliases == {"a": "b", "c": "d"}
    with pytest.raises(InputError, match=r"ORCHESTRATOR_SERVER_ALIASES: .*accepted: NAME=TARGET"):
        loaded(tmp_path, text, ORCHESTRATOR_SERVER_ALIASES="a")


@pytest.mark.parametrize(
    ("text", "variable", "found"),
    [
        ("", None, {"default": 0.1}),
        ("explore = 0.3", None, {"default": 0.3}),
        ('explore = {code = "thompson", doc = 0}', None, {"default": 0.1, "code": "thompson", "doc": 0.0}),
        ('explore = "thompson"', None, {"default": "thompson"}),
        ("explore = 0.3", "0.2", {"default": 0.2}),
        ("explore = 0.3", "default=0.05, code=thompson", {"default": 0.05, "code": "thompson"}),
    ],
)
def test_how_it_is_explored_is_said_for_all_task_types_or_for_each(
    tmp_path: Path, text: str, variable: str | None, found: dict[str, object]
) -> None:
    variables = {} if variable is None else {"ORCHESTRATOR_MEMORY_EXPLORE": variable}
    configuration = loaded(tmp_path, f"[memory]\n{text}\n", **variables)
    assert configuration.memory.explore == found
    assert loaded(tmp_path, show_configuration(configuration)) == configuration


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("explore = 1.5", '1.5 for default is no share; accepted: 0 to 1, or "thompson"'),
        ("explore = {code = true}", "True for code is no share"),
        ('explore = {code = "ucb"}', "'ucb' for code is no share"),
        ("explore = {cod = 0.1}", "'cod' is no type of tasks; accepted: default, chat, doc, code"),
        ("explore = [0.1]", "[0.1] for default is no share"),
    ],
)
def test_what_cannot_be_explored_by_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, f"[memory]\n{text}\n")
    assert "memory.explore" in str(refused.value)
    assert told in str(refused.value)


SERVERS = """[mcp.servers.files]
command = ["python", "/srv/files.py"]
folders = ["/srv"]
env = {LEVEL = "2"}
[mcp.servers.search]
url = "https://example.org/mcp"
token_env = "SEARCH_TOKEN"
seconds = 5
"""


def test_mcp_servers_are_tables_of_the_file_or_json_of_the_environment(tmp_path: Path) -> None:
    found = loaded(tmp_path, SERVERS)
    servers = tool_servers(found.mcp)
    assert servers["files"] == ToolServer(
        name="files", command=("python", "/srv/files.py"), folders=("/srv",), env={"LEVEL": "2"}
    )
    assert (servers["search"].url, servers["search"].token_env, servers["search"].seconds) == (
        "https://example.org/mcp",
        "SEARCH_TOKEN",
        5.0,
    )
    assert loaded(tmp_path, show_configuration(found)) == found
    given = loaded(tmp_path, "", ORCHESTRATOR_MCP_SERVERS='{"a": {"command": ["node", "a.js"]}}')
    assert tool_servers(given.mcp) == {"a": ToolServer(name="a", command=("node", "a.js"))}
    with pytest.raises(InputError, match=r"ORCHESTRATOR_MCP_SERVERS: .*accepted: an object of servers by name"):
        loaded(tmp_path, "", ORCHESTRATOR_MCP_SERVERS="files")


@pytest.mark.parametrize(
    ("text", "variables", "told"),
    [
        ("[mcp.servers.a]\n", {}, r"mcp\.servers\.a: .*accepted: exactly one of them"),
        ('[mcp.servers.a]\nurl = "http://b"\ncommand = ["c"]', {}, r"accepted: exactly one of them"),
        ('[mcp.servers.a]\nurl = "http://b"\nfolders = ["/c"]', {}, r"accepted: a url without them"),
        ('[mcp.servers.a]\ncommand = ["c"]\ntoken_env = "T"', {}, r"accepted: env, for a command"),
        ('[mcp.servers.a]\ncomand = ["b"]', {}, r"mcp\.servers\.a\.comand.*command, folders, env, memory, url"),
        ('[mcp.servers.a]\nurl = "ftp://b"', {}, r"mcp\.servers\.a\.url"),
        ('[mcp.servers."a/b"]\nurl = "http://b"', {}, r"mcp\.servers\.a/b"),
        ('[mcp.servers.a]\ncommand = ["c"]\nenv = {"A-B" = "c"}', {}, r"mcp\.servers\.a\.env"),
        ("[mcp]\nserver = {}", {}, r"mcp\.server.*servers"),
        ("[runs]\nmax_runing = 3", {}, r"runs\.max_runing.*max_running"),
        ("[run]\n", {}, r"run.*server, runs, folder, retention, logs"),
        ("[runs]\nmax_running = 0", {}, r"runs\.max_running.*greater than or equal to 1"),
        ("runs = 3", {}, "runs"),
        ("[runs", {}, "config.toml"),
        ("", {"ORCHESTRATOR_LOGS_LEVEL": "loud"}, "ORCHESTRATOR_LOGS_LEVEL.*'debug'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, variables: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        loaded(tmp_path, text, **variables)


def test_a_file_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_configuration({"ORCHESTRATOR_CONFIG": str(tmp_path / "nowhere")})


def test_the_file_is_found_where_xdg_says(tmp_path: Path) -> None:
    assert configuration_path({"HOME": "/h"}) == Path("/h/.config/orchestrator/config.toml")
    assert configuration_path({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/orchestrator/config.toml")
    assert configuration_path({"HOME": "/h", "ORCHESTRATOR_CONFIG": "/c.toml"}) == Path("/c.toml")


@given(
    st.builds(
        Configuration,
        server=st.builds(
            ServerSettings, tcp=st.text(), hosts=st.lists(st.text()), aliases=st.dictionaries(st.text(), st.text())
        ),
        runs=st.builds(RunSettings, max_running=st.integers(1, 100), max_seconds=st.floats(0, 1e9)),
        folder=st.builds(FolderSettings, max_bytes=st.integers(0, 1 << 50)),
        logs=st.builds(LogSettings, level=st.sampled_from(["debug", "error"])),
    )
)
def test_what_is_shown_can_be_read_again(tmp_path_factory: pytest.TempPathFactory, stated: Configuration) -> None:
    assert loaded(tmp_path_factory.mktemp("shown"), show_configuration(stated)) == stated


def test_every_value_is_shown_with_what_it_means() -> None:
    shown = show_configuration(Configuration())
    for section in (ServerSettings, RunSettings, FolderSettings, LogSettings):
        for key, field in section.model_fields.items():
            assert field.description
            assert f"\n# {field.description} [ORCHESTRATOR_" in shown
            assert f"\n{key} = " in shown


VALUES = st.one_of(
    st.tuples(st.just("memory"), st.just("use"), st.sampled_from(["auto", "off", "shadow", "on"])),
    st.tuples(st.just("runs"), st.sampled_from(["max_running", "max_queued"]), st.integers(1, 10_000)),
    st.tuples(st.just("server"), st.just("insecure"), st.booleans()),
)
FILES = (
    "",
    "# mine\n[memory]\nexplore = 0.2 # less\n",
    '[server]\ntcp = "127.0.0.1:80"\n\n[ memory ] # learned\n  use  =  "off"   # why\n[runs]\nmax_running=3\n',
    '[logs]\nlevel = "debug"',
    show_configuration(Configuration()),
)


@given(text=st.sampled_from(FILES), change=VALUES)
def test_a_value_is_changed_and_nothing_else(text: str, change: tuple[str, str, object]) -> None:
    section, key, value = change
    made = with_value(text, Path("config.toml"), section, key, value)
    before, after = tomllib.loads(text), tomllib.loads(made)
    assert after == {**before, section: {**before.get(section, {}), key: value}}
    kept = [line for line in text.splitlines() if not line.strip().startswith(key)]
    assert [line for line in made.splitlines() if line in kept] == kept
    assert with_value(made, Path("config.toml"), section, key, value) == made


def test_what_cannot_be_changed_is_refused() -> None:
    path = Path("config.toml")
    for text, section, key, told in (
        ("", "memory", "use_it", "memory.use_it"),
        ("", "memmory", "use", "memmory"),
        ("[memory", "memory", "use", "TOML"),
        ('memory = {use = "off"}', "memory", "use", "put there by hand"),
    ):
        with pytest.raises(InputError, match=told):
            with_value(text, path, section, key, "on")
