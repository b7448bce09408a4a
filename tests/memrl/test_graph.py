"""The graph answers Cypher in the sandbox, changes and reveals nothing else, and is replaced if it is not whole."""

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl import graph_reader
from orchestrator.memrl.endpoints import ask_graph
from orchestrator.memrl.errors import CypherFailed, CypherRefused, CypherTimeout, GraphError
from orchestrator.memrl.graph import NO_TYPE, POINTER, GraphAnswer, Library, check_reads_only
from orchestrator.memrl.memory import Memory, MemoryOptions
from orchestrator.run.sandbox.contract import SandboxJob
from orchestrator.run.sandbox.errors import SandboxUnavailable
from orchestrator.run.sandbox.memory_budget import MemoryBudget
from orchestrator.run.sandbox.sandbox import Sandbox
from tests.memrl.observations import CODER, WRITER, opened, situation, told

LIBRARIES: tuple[Library, ...] = ("kuzu", "ladybug")
GARBAGE = b"garbage" * 5000
HIDDEN = "only the daemon may read this"


class AskedGraph:
    """Asks the graphs of memories in the sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __call__(self, memory: Memory, cypher: str, **limits: Any) -> GraphAnswer:
        return asyncio.run(ask_graph(memory, self._probed, cypher, **limits))

    async def _probed(self) -> Sandbox:
        return self._sandbox


@pytest.fixture(scope="module")
def ask(sandbox: Sandbox) -> AskedGraph:
    return AskedGraph(sandbox)


@pytest.fixture(scope="module", params=["ladybug", pytest.param("kuzu", marks=pytest.mark.slow)])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    library: Library = request.param
    memory = opened(tmp_path_factory.mktemp(library), MemoryOptions(graph=library))
    told(memory, "write a parser", 0.0, key=("r1", "S1", 1), failure="syntax: \"quoted\", and\n'more'")
    told(memory, "write a parser", 1.0, WRITER, key=("r1", "S1", 2))
    told(memory, "describe the parser", 1.0, WRITER, key=("r1", "S2", 1), after=["S1"])
    told(memory, "greet", None, key=("r2", "S1", 1), about=situation("greet", task_type=None), failure="infrastructure")
    return memory


def test_it_knows_what_led_to_what(memory: Memory, ask: AskedGraph) -> None:
    answer = ask(memory, "MATCH (a:Step)-[:LED_TO]->(b:Step) RETURN a.id, b.id")
    assert (answer.columns, answer.rows, answer.more) == (("a.id", "b.id"), [["r1/S1", "r1/S2"]], False)
    answer = ask(
        memory,
        "MATCH (a:Attempt)-[f:FOLLOWED_BY]->(b:Attempt), (a)-[:FAILED_WITH]->(k) "
        "RETURN a.id, k.name, f.mitigation, b.id",
    )
    assert answer.rows == [
        ["r1/S1/1", "syntax: \"quoted\", and\n'more'", "other role and other persona and other model", "r1/S1/2"]
    ]
    answer = ask(memory, "MATCH (:FailureKind)-[w:ANSWERED_BY]->(m:Mitigation) RETURN m.name, w.times, w.successes")
    assert answer.rows == [["other role and other persona and other model", 1, 1]]


def test_it_knows_runs_task_types_roles_personas_and_models(memory: Memory, ask: AskedGraph) -> None:
    answer = ask(memory, "MATCH (r:Run)-[:OF_TYPE]->(t:TaskType) RETURN r.id, t.name ORDER BY r.id")
    assert answer.rows == [["r1", "code"], ["r2", NO_TYPE]]
    answer = ask(
        memory,
        "MATCH (a:Attempt)-[:IN_ROLE]->(r:Role), (a)-[:AS_PERSONA]->(p:Persona), (a)-[:WITH_MODEL]->(m:Model) "
        "RETURN a.id, r.name, p.name, m.name, a.success ORDER BY a.id",
    )
    assert answer.rows == [["r1/S1/1", "coder", "terse", "small", 0.0], ["r2/S1/1", "coder", "terse", "small", None]]
    answer = ask(memory, "MATCH (r:Role)-[w:WORTH]->(t:TaskType) RETURN r.name, w.persona, w.q, t.name ORDER BY r.name")
    assert answer.rows == [
        ["coder", "terse", pytest.approx(0.35), "code"],
        ["writer", "none", pytest.approx(0.65), "code"],
    ]


def test_nodes_and_relations_are_objects(memory: Memory, ask: AskedGraph) -> None:
    answer = ask(memory, "MATCH (s:Step)-[t:LED_TO]->() RETURN s, t")
    assert answer.rows == [[{"_label": "Step", "id": "r1/S1", "step": "S1"}, {"_label": "LED_TO"}]]


def test_it_returns_no_more_rows_than_wanted(memory: Memory, ask: AskedGraph) -> None:
    answer = ask(memory, "MATCH (a:Attempt) RETURN a.id", rows=2)
    assert (len(answer.rows), answer.more) == (2, True)


def test_invalid_cypher_is_refused_by_the_library(memory: Memory, ask: AskedGraph) -> None:
    with pytest.raises(CypherFailed, match="Elephant"):
        ask(memory, "MATCH (n:Elephant) RETURN n")


def test_a_question_that_takes_too_long_is_given_up(memory: Memory, ask: AskedGraph) -> None:
    endless = (
        "UNWIND range(1, 10000) AS x UNWIND range(1, 10000) AS y UNWIND range(1, 10000) AS z RETURN sum(x * y * z)"
    )
    with pytest.raises(CypherTimeout):
        ask(memory, endless, seconds=0.5)
    assert ask(memory, "MATCH (r:Run) RETURN count(r)").rows == [[2]]


@pytest.mark.slow
def test_a_question_that_takes_too_much_memory_fails(memory: Memory, ask: AskedGraph) -> None:
    with pytest.raises((CypherFailed, CypherTimeout)):
        ask(memory, "UNWIND range(1, 400000000) AS x RETURN collect(x)", seconds=20)
    assert ask(memory, "MATCH (r:Run) RETURN count(r)").rows == [[2]]


def test_without_the_check_of_words_a_question_still_cannot_reach_anything(
    memory: Memory, ask: AskedGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.memrl.graph.check_reads_only", lambda cypher: None)
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text(HIDDEN)
    secret.chmod(0o644)
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for cypher in attacks(memory, secret, target, server.getsockname()[1]):
            with pytest.raises(CypherFailed) as refused:
                print(cypher, ask(memory, cypher).rows)
            assert HIDDEN not in str(refused.value)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert list(target.iterdir()) == []
    assert ask(memory, "MATCH (r:Run) RETURN count(r)").rows == [[2]]


def attacks(memory: Memory, secret: Path, target: Path, port: int) -> list[str]:
    read = "(file_format='csv', header=false) RETURN *"
    return [
        f"UNWIND [1] AS x WITH x LIMIT 1LOAD FROM '{secret}' {read}",
        f"LOAD FROM '{memory.folder / POINTER}' (file_format='csv', header=false, delim='|') RETURN *",
        f"LOAD FROM '{sys.prefix}/pyvenv.cfg' {read}",  # which the sandbox shows to its programs
        f"LOAD FROM 'http://127.0.0.1:{port}/x.csv' {read}",
        f"COPY (MATCH (r:Run) RETURN r.id) TO '{target}/out.csv'",
        f"EXPORT DATABASE '{target}/exported'",
        f"ATTACH '{memory.folder / 'memory.db'}' AS other (dbtype sqlite)",
        f"LOAD EXTENSION '{secret}'",
        "INSTALL httpfs",
        "CREATE (:Run {id: 'x'})",
    ]


def test_a_process_that_answers_has_given_up_its_rights(sandbox: Sandbox) -> None:
    """Whatever a question makes the library do, the kernel refuses it to open, to write, to start and to connect."""
    source = Path(graph_reader.__file__).read_bytes() + PROBE
    job = SandboxJob(argv=("python", "-I", "probe.py"), files={"probe.py": source.replace(b"__main__", b"__no__")})
    outcome = asyncio.run(sandbox.run(job))
    assert outcome.exit_code == 0, outcome.stderr
    assert json.loads(outcome.stdout) == {
        "open": "EMFILE",
        "socket": "EMFILE",
        "fork": "EAGAIN",
        "write": "EFBIG",
        "raise": "EPERM",
    }


PROBE = b"""
import errno, os, signal, socket

def refused(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    except ValueError:
        return "EPERM"  # of resource.setrlimit
    return "no error"

there = os.open("there", os.O_CREAT | os.O_WRONLY)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
give_up_rights()
print(json.dumps({
    "open": refused(lambda: os.open("/etc/passwd", os.O_RDONLY)),
    "socket": refused(lambda: socket.socket()),
    "fork": refused(os.fork),
    "write": refused(lambda: os.write(there, b"x")),
    "raise": refused(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))),
}))
"""


def test_questions_are_answered_without_control_groups_too(memory: Memory, sandbox: Sandbox) -> None:
    """The limit of memory is then one of addresses, and what a machine of 4 GiB allows is enough."""
    plain = replace(sandbox, groups=None, budget=MemoryBudget(2 << 30))
    assert AskedGraph(plain)(memory, "MATCH (r:Run) RETURN count(r)").rows == [[2]]


def test_without_a_sandbox_questions_are_refused_with_the_reason(memory: Memory) -> None:
    async def unavailable() -> Sandbox:
        raise SandboxUnavailable("bubblewrap is not installed")

    with pytest.raises(GraphError, match=r"only answered in the sandbox: .*bubblewrap is not installed"):
        asyncio.run(ask_graph(memory, unavailable, "MATCH (r:Run) RETURN count(r)"))


@pytest.mark.parametrize(
    "cypher",
    [
        "",
        "   ",
        "CREATE (:Run {id: 'x'})",
        "MATCH (n) DELETE n",
        "MATCH (n:Run) SET n.id = 'x'",
        "match (n:Run)set n.id = 'x'",
        "MATCH (n) RETURN n; MATCH (m) RETURN m",
        "COPY (MATCH (n) RETURN n) TO '/tmp/x.csv'",
        "LOAD FROM '/etc/passwd' RETURN *",
        "MATCH (n) WITH n LOAD FROM '/etc/passwd' RETURN *",
        "INSTALL httpfs",
        "ATTACH 'x' AS y",
        "CALL threads=4",
        "CALL create_vector_index('Run', 'x', 'id') RETURN *",
        "// MATCH\nDROP TABLE Run",
        "MATCH (n) /* ' */ MERGE (m:Run {id: 'x'}) RETURN m",
        "MATCH (n) RETURN n\0",
        "UNWIND [1] AS x WITH x LIMIT 1LOAD FROM '/etc/passwd' RETURN *",
        "RETURN 1.5e3COPY (RETURN 1) TO 'x.csv'",
        "RETURN 0xALOAD FROM 'x' RETURN *",
        "RETURN 1.LOAD FROM 'x' RETURN *",
        "RETURN 1 // \rLOAD FROM 'x' RETURN *",
        "RETURN 1 // \r' \nLOAD FROM 'x' RETURN * //'",
        "RETURN 1/**/LOAD FROM 'x' RETURN *",
        "RETURN 1 /*/ LOAD FROM 'x' RETURN *",
        "RETURN 1 AS `a`LOAD FROM 'x' RETURN *",
        "RETURN `a\nLOAD FROM 'x' RETURN *",
        "RETURN 'it''LOAD FROM \"x\" RETURN *",
        r"RETURN '\q' LOAD FROM 'x' RETURN *",
        r"RETURN 1 AS a L\u004FAD FROM 'x' RETURN *",
        "RETURN 1 AS a\u00a0LOAD FROM 'x' RETURN *",
        "RETURN '\ud800'",
        "MATCH (n) RETURN n.`x` LOAD FROM 'x' RETURN *",
        "MATCH (n) WITH n CALL { LOAD FROM 'x' RETURN * } RETURN n",
    ],
)
def test_what_does_more_than_read_is_refused(cypher: str) -> None:
    with pytest.raises(CypherRefused, match="accepted"):
        check_reads_only(cypher)


@pytest.mark.parametrize(
    "cypher",
    [
        "MATCH (n) RETURN n;",
        "match (n) where n.name = 'CREATE; SET' return n",
        "MATCH (n:Set) RETURN n.set",
        'OPTIONAL MATCH (n) RETURN "it\'s; DELETE"',
        "CALL show_tables() RETURN *",
        "MATCH (n) // DELETE nothing\nRETURN n",
        "MATCH (n)\r\nRETURN n /* COPY */ LIMIT 10 // DROP",
        "MATCH (n) RETURN n.`set`, `n`.load, (n).use",
        r"MATCH (n) WHERE n.name = 'it\'s a \u0041' RETURN n SKIP 1 LIMIT 2",
        "MATCH (a)-[:LED_TO*1..3]->(b) WHERE a.q > 1.5e-3 RETURN a, b",
        "MATCH (n) WHERE n.name = 'größer' RETURN n AS größe",
    ],
)
def test_what_only_reads_is_accepted(cypher: str) -> None:
    check_reads_only(cypher)


@given(
    st.sampled_from(("LOAD", "copy", "Install", "ATTACH", "Export", "import", "CREATE", "set", "Drop", "USE")),
    st.sampled_from(
        ("1", "1.5", "1e9", "0x1", ")", "]", "}", "'s'", '"s"', "`n`", "/* c */", "// c\n", "\t", "\n", "*")
    ),
    st.sampled_from(("", " ", "\n", "/**/", "//\n")),
)
def test_a_word_that_writes_is_seen_after_anything(word: str, before: str, between: str) -> None:
    with pytest.raises(CypherRefused):
        check_reads_only(f"MATCH (n) RETURN {before}{between}{word} FROM 'x'")


@pytest.mark.parametrize(
    ("library", "damages"),
    [
        ("ladybug", [GARBAGE]),
        pytest.param("ladybug", [b"", GARBAGE], marks=pytest.mark.slow),
        pytest.param("kuzu", [b"", GARBAGE], marks=pytest.mark.slow),
    ],
    ids=["ladybug", "ladybug twice", "kuzu twice"],
)
def test_a_damaged_graph_is_thrown_away_and_written_anew(
    tmp_path: Path, library: Library, damages: list[bytes], ask: AskedGraph
) -> None:
    memory = opened(tmp_path, MemoryOptions(graph=library))
    told(memory, "write a parser", 1.0, key=("r1", "S1", 1))
    asked = "MATCH (a:Attempt) RETURN count(a)"
    memory.rebuild()
    for damage in damages:
        (graph,) = tmp_path.glob("graph-*.*")
        graph.write_bytes(damage)
        assert ask(memory, asked).rows == [[1]]
    (tmp_path / POINTER).write_text("{")
    assert ask(memory, asked).rows == [[1]]
    told(memory, "write a lexer", 1.0, key=("r1", "S2", 1))
    answer = ask(memory, asked)
    assert (answer.rows, answer.behind) == ([[2]], 0)
    assert len(list(tmp_path.glob("graph-*.*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_process_that_writes_may_be_killed_at_any_moment(tmp_path: Path, library: Library, ask: AskedGraph) -> None:
    memory = opened(tmp_path, MemoryOptions(graph=library))
    with memory.batch():
        for number in range(500):
            told(memory, f"task {number * 7919}", 1.0, CODER, key=(f"r{number}", "S1", 1))
    ended = 0
    for moment in (0.2, 0.6, 1.0):
        writing = Thread(target=_write, args=(memory,))
        writing.start()
        writing.join(moment)
        ended += _kill_children()
        writing.join()
        assert ask(memory, "MATCH (r:Run) RETURN count(r)").rows == [[500]]
        (tmp_path / POINTER).unlink()
    assert ended > 0
    assert memory.stats().outcomes == 500


def _write(memory: Memory) -> None:
    try:
        memory.rebuild()
    except GraphError as error:
        assert "signal 9" in str(error)  # noqa: PT017 -- it only fails if the process was killed


def _kill_children() -> int:
    """Kill the processes of graphs that this process has started, and return how many there were."""
    killed = 0
    for folder in Path("/proc").iterdir():
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) == os.getpid() and b"orchestrator.memrl.graph" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        except (OSError, ValueError, IndexError):
            continue
    return killed


@pytest.mark.slow
def test_a_graph_of_the_other_library_is_written_anew(tmp_path: Path, ask: AskedGraph) -> None:
    for library in LIBRARIES:
        memory = opened(tmp_path, MemoryOptions(graph=library))
        told(memory, "write a parser", 1.0, key=("r1", library, 1))
        assert ask(memory, "MATCH (r:Run) RETURN r.id").rows == [["r1"]]
        memory.close()
    assert [path.suffix for path in tmp_path.glob("graph-*.*")] == [".ladybug"]
