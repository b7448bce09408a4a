"""The graph answers Cypher, never changes anything, and is written anew whenever it is not whole."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from memrl.errors import CypherFailed, CypherRefused, CypherTimeout, GraphError
from memrl.graph import NO_TYPE, POINTER, Library, check_reads_only
from memrl.memory import Memory, MemoryOptions
from tests.memrl.observations import CODER, WRITER, opened, situation, told

LIBRARIES: tuple[Library, ...] = ("kuzu", "ladybug")
GARBAGE = b"garbage" * 5000


@pytest.fixture(scope="module", params=["ladybug", pytest.param("kuzu", marks=pytest.mark.slow)])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    library: Library = request.param
    memory = opened(tmp_path_factory.mktemp(library), MemoryOptions(graph=library))
    told(memory, "write a parser", 0.0, key=("r1", "S1", 1), failure="syntax: \"quoted\", and\n'more'")
    told(memory, "write a parser", 1.0, WRITER, key=("r1", "S1", 2))
    told(memory, "describe the parser", 1.0, WRITER, key=("r1", "S2", 1), after=["S1"])
    told(memory, "greet", None, key=("r2", "S1", 1), about=situation("greet", task_type=None), failure="infrastructure")
    return memory


def test_it_knows_what_led_to_what(memory: Memory) -> None:
    answer = memory.ask("MATCH (a:Step)-[:LED_TO]->(b:Step) RETURN a.id, b.id")
    assert (answer.columns, answer.rows, answer.more) == (("a.id", "b.id"), [["r1/S1", "r1/S2"]], False)
    answer = memory.ask(
        "MATCH (a:Attempt)-[f:FOLLOWED_BY]->(b:Attempt), (a)-[:FAILED_WITH]->(k) "
        "RETURN a.id, k.name, f.mitigation, b.id"
    )
    assert answer.rows == [
        ["r1/S1/1", "syntax: \"quoted\", and\n'more'", "other role and other persona and other model", "r1/S1/2"]
    ]
    answer = memory.ask("MATCH (:FailureKind)-[w:ANSWERED_BY]->(m:Mitigation) RETURN m.name, w.times, w.successes")
    assert answer.rows == [["other role and other persona and other model", 1, 1]]


def test_it_knows_runs_task_types_roles_personas_and_models(memory: Memory) -> None:
    answer = memory.ask("MATCH (r:Run)-[:OF_TYPE]->(t:TaskType) RETURN r.id, t.name ORDER BY r.id")
    assert answer.rows == [["r1", "code"], ["r2", NO_TYPE]]
    answer = memory.ask(
        "MATCH (a:Attempt)-[:IN_ROLE]->(r:Role), (a)-[:AS_PERSONA]->(p:Persona), (a)-[:WITH_MODEL]->(m:Model) "
        "RETURN a.id, r.name, p.name, m.name, a.success ORDER BY a.id"
    )
    assert answer.rows == [["r1/S1/1", "coder", "terse", "small", 0.0], ["r2/S1/1", "coder", "terse", "small", None]]
    answer = memory.ask("MATCH (r:Role)-[w:WORTH]->(t:TaskType) RETURN r.name, w.persona, w.q, t.name ORDER BY r.name")
    assert answer.rows == [
        ["coder", "terse", pytest.approx(0.35), "code"],
        ["writer", "none", pytest.approx(0.65), "code"],
    ]


def test_nodes_and_relations_are_objects(memory: Memory) -> None:
    answer = memory.ask("MATCH (s:Step)-[t:LED_TO]->() RETURN s, t")
    assert answer.rows == [[{"_label": "Step", "id": "r1/S1", "step": "S1"}, {"_label": "LED_TO"}]]


def test_it_returns_no_more_rows_than_wanted(memory: Memory) -> None:
    answer = memory.ask("MATCH (a:Attempt) RETURN a.id", rows=2)
    assert (len(answer.rows), answer.more) == (2, True)


def test_invalid_cypher_is_refused_by_the_library(memory: Memory) -> None:
    with pytest.raises(CypherFailed, match="Elephant"):
        memory.ask("MATCH (n:Elephant) RETURN n")


def test_a_question_that_takes_too_long_is_given_up(memory: Memory) -> None:
    endless = (
        "UNWIND range(1, 10000) AS x UNWIND range(1, 10000) AS y UNWIND range(1, 10000) AS z RETURN sum(x * y * z)"
    )
    with pytest.raises(CypherTimeout):
        memory.ask(endless, seconds=0.5)
    assert memory.ask("MATCH (r:Run) RETURN count(r)").rows == [[2]]


@pytest.mark.slow
def test_a_question_that_takes_too_much_memory_fails(memory: Memory) -> None:
    with pytest.raises((CypherFailed, CypherTimeout)):
        memory.ask("UNWIND range(1, 400000000) AS x RETURN collect(x)", seconds=20)
    assert memory.ask("MATCH (r:Run) RETURN count(r)").rows == [[2]]


def test_the_opened_graph_itself_refuses_to_be_changed(memory: Memory, tmp_path: Path) -> None:
    """Even a question that got past the check of its words changes nothing."""
    (graph,) = memory.folder.glob("graph-*.*")
    library = graph.suffix[1:]
    for cypher in ("CREATE (:Run {id: 'x'})", f"COPY (MATCH (r:Run) RETURN r.id) TO '{tmp_path}/out.csv'"):
        command = [sys.executable, "-m", "memrl.graph_reader", library, str(graph), "10", "10"]
        done = subprocess.run(command, input=cypher.encode(), capture_output=True, check=False)
        assert done.returncode != 0 or "error" in json.loads(done.stdout)
    assert not any(path.stat().st_size for path in tmp_path.iterdir())
    assert memory.ask("MATCH (r:Run) RETURN count(r)").rows == [[2]]


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
    ],
)
def test_what_only_reads_is_accepted(cypher: str) -> None:
    check_reads_only(cypher)


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
    tmp_path: Path, library: Library, damages: list[bytes]
) -> None:
    memory = opened(tmp_path, MemoryOptions(graph=library))
    told(memory, "write a parser", 1.0, key=("r1", "S1", 1))
    asked = "MATCH (a:Attempt) RETURN count(a)"
    memory.write_graph()
    for damage in damages:
        (graph,) = tmp_path.glob("graph-*.*")
        graph.write_bytes(damage)
        assert memory.ask(asked).rows == [[1]]
    (tmp_path / POINTER).write_text("{")
    assert memory.ask(asked).rows == [[1]]
    told(memory, "write a lexer", 1.0, key=("r1", "S2", 1))
    answer = memory.ask(asked)
    assert (answer.rows, answer.behind) == ([[2]], 0)
    assert len(list(tmp_path.glob("graph-*.*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_process_that_writes_may_be_killed_at_any_moment(tmp_path: Path, library: Library) -> None:
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
        assert memory.ask("MATCH (r:Run) RETURN count(r)").rows == [[500]]
        (tmp_path / POINTER).unlink()
    assert ended > 0
    assert memory.stats().outcomes == 500


def _write(memory: Memory) -> None:
    try:
        memory.write_graph()
    except GraphError as error:
        assert "signal 9" in str(error)  # noqa: PT017 -- it only fails if the process was killed


def _kill_children() -> int:
    """Kill the processes of graphs that this process has started, and return how many there were."""
    killed = 0
    for folder in Path("/proc").iterdir():
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) == os.getpid() and b"memrl.graph" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        except (OSError, ValueError, IndexError):
            continue
    return killed


@pytest.mark.slow
def test_a_graph_of_the_other_library_is_written_anew(tmp_path: Path) -> None:
    for library in LIBRARIES:
        memory = opened(tmp_path, MemoryOptions(graph=library))
        told(memory, "write a parser", 1.0, key=("r1", library, 1))
        assert memory.ask("MATCH (r:Run) RETURN r.id").rows == [["r1"]]
        memory.close()
    assert [path.suffix for path in tmp_path.glob("graph-*.*")] == [".ladybug"]
