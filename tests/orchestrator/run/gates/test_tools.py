"""The gates with their real tools, in the real sandbox."""

from collections.abc import Mapping

import pytest

from orchestrator.pool.decoding import Decoding
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Replica
from orchestrator.run.gates.contract import GateError, RunJob
from orchestrator.run.gates.shares import JobRunner, JobShares
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.task.events import FailureKind
from orchestrator.task.taskir.models import Bench, Commands
from tests.orchestrator.run.gates.gate_steps import check
from tests.orchestrator.run.sandbox.sandbox_jobs import busy_core

CODE, LOGIC, FORMAT, TIMEOUT, RESOURCE = (
    FailureKind.CODE,
    FailureKind.LOGIC,
    FailureKind.FORMAT,
    FailureKind.TIMEOUT,
    FailureKind.RESOURCE,
)
ADD = "def add(a: int, b: int) -> int:\n    return a + b\n"
TEST = "from add import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
DOCUMENTED = '"""Say so.\n```\nx = 1\n```\n"""\n'
READS_STDIN = "import sys\n\n\nfor line in sys.stdin.splitlines():\n    print(line)\n"
OTHER_CAUSE = """
class NoFile(Exception):
    pass


try:
    len(1)
except TypeError as error:
    raise NoFile("a.txt") from error
"""
GIVES_UP = "import pytest\n\n\ndef add(a, b):\n    pytest.exit('enough', 0)\n"
UNCHECKED = "import typing\n\n\n@typing.no_type_check\ndef f(a: int) -> str:\n    return a\n"


@pytest.mark.parametrize(
    ("gate", "name", "text", "kind", "evidence"),
    [
        ("format", "a.py", "def f(:\n    pass\n", CODE, "a.py:1: SyntaxError:"),
        ("format", "a.py", "Here it is:\n```python\nx = 1\n```\n", FORMAT, "write the code alone"),
        ("format", "a.py", "```python\nx = 1\n```\nThat's it.\n", FORMAT, "write the code alone"),
        ("format", "a.py", "Here it is:\n```python\nx = (\n```\n", CODE, "a.py:1: SyntaxError:"),
        ("format", "a.py", DOCUMENTED + "x = )\n", CODE, "a.py:6: SyntaxError:"),
        ("lint", "a.py", "def f(a):\n    return b\n", CODE, "a.py:2: F821 Undefined name `b`\n    return b"),
        ("lint", "a.py", "def f(a):\n    return b  # noqa\n", CODE, "F821"),
        ("lint", "a.py", "# ruff: noqa\ndef f(a):\n    return b\n", CODE, "F821"),
        ("build", "sub/a.py", "x = (\n", CODE, "sub/a.py:1: SyntaxError: '(' was never closed\n    x = ("),
        ("build", "a.py", "x = 1\0", CODE, "a.py"),
        ("typecheck", "a.py", "x = (\n", CODE, "[syntax]"),
        ("typecheck", "a.py", "x: int = ''  # type:\x0cignore\n", CODE, "a.py:1: [assignment]"),
        ("typecheck", "a.py", UNCHECKED, CODE, "a.py:4: no_type_check turns the check off"),
        ("lint", "a.py", "# ruff: disable[F821]\ndef f(a):\n    return b  # ruff: ignore[F821]\n", CODE, "F821"),
        ("shellcheck", "a.sh", "#\tshellcheck disable=all\nrm -rf $1/\n", CODE, "a.sh:2: SC2115"),
        ("security", "a.py", "def f(a):\n    return eval(a)  # noqa: S307\n", CODE, "a.py:2: S307"),
        ("security", "a.txt", "one\nAKIAIOSFODNN7EXAMPLE\n", CODE, "a.txt: line 2 holds an AWS access key"),
        ("shellcheck", "a.sh", "if true; then\n  ls\n", CODE, "a.sh:1: SC1046"),
        ("shellcheck", "a.sh", "# shellcheck disable=SC2115\nrm -rf $1/\n", CODE, "a.sh:2: SC2115"),
        ("smoke", "a.py", READS_STDIN, CODE, "a.py:4: it ends at once when it is started: AttributeError: "),
        ("smoke", "src/a.py", "import json\n\njson.loads(json)\n", CODE, "src/a.py:3: it ends at once"),
        ("unit", "add.py", ADD.replace("+", "-"), CODE, "test_add.py::test_sum: assert add(1, 2) == 3: got -1"),
        ("unit", "add.py", "def add(a, b:\n", CODE, "test_add.py: "),
        ("unit", "add.py", "import os\nos._exit(0)\n", CODE, "add.py:2: os._exit is not accepted"),
        ("unit", "add.py", GIVES_UP, CODE, "add.py:1: import pytest is not accepted"),
    ],
)
async def test_what_is_wrong_is_found_and_reported(
    run: RunJob, gate: str, name: str, text: str, kind: FailureKind, evidence: str
) -> None:
    tests = {"test_add.py": TEST} if gate == "unit" else {}
    checked = await check((gate,), run, {name: text}, tests=tests)
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.final) == (kind, False)
    assert evidence in checked.failure.evidence
    assert checked.results[0].kind is kind


@pytest.mark.parametrize(
    "harmless",
    [
        "import os\n\nx = 1\n",
        "from math import *\n\nx = pi\n",
        "def f(pairs):\n    for name, price in pairs:\n        print(price)\n",
        "def f():\n    unused = 1\n    return f'no field'\n",
        "def f(seen=[]):\n    return seen\n",
        "'only a text'\n1 + 1\n",
    ],
)
async def test_what_may_be_in_a_right_program_passes_lint(run: RunJob, harmless: str) -> None:
    assert (await check(("lint",), run, {"a.py": harmless})).failure is None


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        ("def f(a):\n    a == 1\n    return a\n", "B015"),
        ("def f(rows):\n    for rows in rows:\n        print(rows)\n", "B020"),
        ("def f():\n    return [lambda: i for i in range(3)]\n", "B023"),
        ("def f():\n    raise 'no'\n", "B016"),
        ("def f(a):\n    return a.rstrip('.txt')\n", "B005"),
        ("def f():\n    pass\n\n\ndef f():\n    pass\n", "F811"),
    ],
)
async def test_what_nobody_means_fails_lint(run: RunJob, mistake: str, code: str) -> None:
    failure = (await check(("lint",), run, {"a.py": mistake})).failure
    assert failure is not None
    assert code in failure.evidence


@pytest.mark.parametrize(
    "program",
    [
        "import sys\n\nprint(open(sys.argv[1]).read())\n",
        "import sys\n\n\ndef main(path):\n    print(path)\n\n\nmain(*sys.argv[1:])\n",
        "import sys\n\nsys.exit('usage: a.py FILE')\n",
        "import package_that_nobody_has\n",
        "import os\n\nport = int(os.environ.get('PORT_OF_NOBODY'))\n",
        "import re\n\nname = re.match(r'\\w+', input() if False else '').group()\n",
        "input('Your name: ')\n",
        "while True:\n    pass\n",
        "x = 'x' * 10**12\n",
        OTHER_CAUSE,
        "from .b import x\n",
        "import urllib.request\n\nurllib.request.urlopen('http://127.0.0.1:1/')\n",
        "import sys\n\nprint('TypeError: of a message', file=sys.stderr)\nsys.exit(1)\n",
    ],
)
async def test_what_input_or_a_machine_might_prevent_passes_smoke(run: RunJob, program: str) -> None:
    checked = await check(("smoke",), run, {"a.py": program})
    assert [(result.status, result.evidence) for result in checked.results] == [("passed", "")]


async def test_a_name_that_another_output_lacks_fails_smoke(run: RunJob) -> None:
    made = {"shapes.py": "class Circle:\n    pass\n", "report.py": "from shapes import Square\n"}
    failure = (await check(("smoke",), run, made)).failure
    assert failure is not None
    assert "report.py:1: it ends at once when it is started: ImportError: cannot import name" in failure.evidence


async def test_smoke_starts_neither_tests_nor_text(run: RunJob) -> None:
    checked = await check(("smoke",), run, {"test_a.py": "x = y\n", "conftest.py": "x = y\n", "a.txt": "x"})
    assert [(result.status, result.evidence) for result in checked.results] == [
        ("not run", "no output is Python that can be started")
    ]


async def test_smoke_gives_a_program_the_files_that_its_step_reads(run: RunJob) -> None:
    program = "print(len(open('notes.txt').read().splitlines('no')))\n"
    failure = (await check(("smoke",), run, {"a.py": program}, reads={"notes.txt": "a"})).failure
    assert failure is not None
    assert "TypeError: 'str' object cannot be interpreted as an integer" in failure.evidence


async def test_types_that_do_not_fit_are_found_in_each_file_whatever_its_comments_say(run: RunJob) -> None:
    wrong = {
        "a.py": "def f(a: int) -> str:\n    return a\n",
        "b.py": "# mypy: ignore-errors\nx: int = ''\n",
        "c.py": "x: int = ''  # type: ignore\n",
    }
    checked = await check(("typecheck",), run, wrong)
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.final, checked.results[0].kind) == (CODE, False, CODE)
    for found in ("a.py:2: [return-value] Incompatible", "b.py:2: [assignment]", "c.py:1: [assignment]"):
        assert found in checked.failure.evidence


async def test_files_that_are_only_read_are_not_type_checked(run: RunJob) -> None:
    reads = {"lib.py": "def size() -> int:\n    return 'many'\n"}
    good, bad = "import lib\n\nx: int = lib.size()\n", "import lib\n\nx: str = lib.size()\n"
    assert (await check(("typecheck",), run, {"a.py": good}, reads=reads)).failure is None
    failure = (await check(("typecheck",), run, {"a.py": bad}, reads=reads)).failure
    assert failure is not None
    assert "a.py:3: [assignment]" in failure.evidence
    assert "lib.py" not in failure.evidence


async def test_good_code_passes_all_gates_and_is_formatted_on_the_way(run: RunJob) -> None:
    gates = ("format", "lint", "build", "typecheck", "security", "unit")
    checked = await check(gates, run, {"add.py": ADD.replace(" + ", "+")}, tests={"test_add.py": TEST})
    assert checked.failure is None
    assert [result.status for result in checked.results] == ["passed"] * 6
    assert checked.results[0].evidence == "formatted add.py"
    assert checked.results[-1].evidence == "1 passed"
    assert checked.artifacts[0].data.decode() == ADD


@pytest.mark.parametrize(
    ("gate", "made"),
    [
        ("shellcheck", {"a.sh": "wc -l a.txt\n"}),
        ("lint", {"-x.py": "x = 1\n", "@y.py": "y = 1\n"}),
        ("typecheck", {"a/x.py": "x = 1\n", "b/x.py": "y: str = 2 * ''\n"}),
        ("unit", {"test_own.py": "def test_one():\n    assert True\n"}),
    ],
)
async def test_nothing_is_found_where_nothing_is_wrong(run: RunJob, gate: str, made: Mapping[str, str]) -> None:
    checked = await check((gate,), run, made)
    assert [(result.status, result.evidence) for result in checked.results] == [
        ("passed", "1 passed; all of them were written by the step itself" if gate == "unit" else "")
    ]


async def test_a_line_break_at_the_end_is_added_without_a_note(run: RunJob) -> None:
    checked = await check(("format",), run, {"add.py": ADD.rstrip()})
    assert checked.results[0].evidence == ""
    assert checked.artifacts[0].data.decode() == ADD


async def test_one_job_looks_at_all_artifacts_and_names_each(run: RunJob) -> None:
    checked = await check(("lint",), run, {"a.py": "x = u\n", "b.py": "ok = 1\n", "c.py": "y = v\n"})
    assert checked.failure is not None
    first, second = "a.py:1: F821 Undefined name `u`\n    x = u", "c.py:1: F821 Undefined name `v`\n    y = v"
    assert checked.failure.evidence == f"{first}\n{second}"


async def test_integration_tests_see_what_the_step_reads_and_writes(run: RunJob) -> None:
    reads = {"add.py": ADD, "test_all.py": "from main import two\n\n\ndef test_two():\n    assert two() == 2\n"}
    main = "from add import add\n\ndef two():\n    return add(1, 1)\n"
    good = await check(("unit", "integration"), run, {"main.py": main}, reads=reads)
    assert [(result.gate, result.status) for result in good.results] == [("unit", "not run"), ("integration", "passed")]
    bad = await check(("integration",), run, {"main.py": "def two():\n    return 3\n"}, reads=reads)
    assert bad.failure is not None
    assert bad.failure.kind is LOGIC


async def test_a_fence_in_another_file_makes_a_syntax_error_no_text_around_the_code(run: RunJob) -> None:
    checked = await check(("format",), run, {"a.py": DOCUMENTED, "b.py": "x = )\n"})
    assert checked.failure is not None
    assert checked.failure.kind is CODE
    assert checked.failure.evidence.startswith("b.py:1: SyntaxError:")


async def test_files_of_one_name_are_tests_of_their_own_and_import_what_lies_beside_them(run: RunJob) -> None:
    made = {"add/add.py": ADD, "b/sub.py": ADD.replace("add", "sub").replace("+", "-")}
    uses = {"add/test_all.py": TEST, "b/test_all.py": TEST.replace("add", "sub").replace("== 3", "== -1")}
    checked = await check(("integration",), run, made, reads=uses)
    assert [(result.status, result.evidence) for result in checked.results] == [("passed", "2 passed")]


@pytest.mark.parametrize(
    ("module", "test", "imported"),
    [
        ("src/slugify.py", "tests/test_slugify.py", "slugify"),
        ("src/slugify.py", "tests/test_slugify.py", "src.slugify"),
        ("werkzeuge/größe.py", "werkzeuge/test_größe.py", "größe"),
        ("werkzeuge/größe.py", "test_größe.py", "werkzeuge.größe"),
    ],
)
async def test_code_in_folders_and_with_names_of_other_scripts_is_checked(
    run: RunJob, module: str, test: str, imported: str
) -> None:
    made = {module: ADD, test: f"from {imported} import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"}
    checked = await check(("format", "lint", "typecheck", "unit"), run, made)
    assert [(result.gate, result.status) for result in checked.results] == [
        ("format", "passed"),
        ("lint", "passed"),
        ("typecheck", "passed"),
        ("unit", "passed"),
    ]


@pytest.mark.parametrize(
    ("text", "status", "evidence"),
    [
        ("import pytest\n\npytest.skip('no', allow_module_level=True)\n", "passed", "1 passed, 1 skipped"),
        ("import pytest\n\n@pytest.mark.skip\ndef test_no():\n    pass\n", "passed", "1 passed, 1 skipped"),
        ("def test_no():\n    assert False\n", "failed", "1 failed, 1 passed"),
    ],
)
async def test_tests_that_are_skipped_are_reported(run: RunJob, text: str, status: str, evidence: str) -> None:
    checked = await check(("unit",), run, {"add.py": ADD, "test_more.py": text}, tests={"test_add.py": TEST})
    assert checked.results[0].status == status
    assert checked.results[0].evidence.endswith(evidence)


SLUG = "def slugify(text):\n    return text.replace(' ', '-')\n"


@pytest.mark.parametrize(
    ("test", "evidence"),
    [
        ("assert slugify('Ä b') == 'a-b'", "assert slugify('Ä b') == 'a-b': got 'Ä-b'"),
        ("want = 'a-b'\n    assert slugify('Ä b') == want", "assert slugify('Ä b') == want: got 'Ä-b', not 'a-b'"),
        ("assert not slugify('Ä b')", "assert not slugify('Ä b'): got 'Ä-b'"),
        ("assert len(slugify('Ä b')) > 3", "assert len(slugify('Ä b')) > 3: got 3"),
        (
            "assert slugify(3) == '3'",
            "return text.replace(' ', '-') AttributeError: 'int' object has no attribute 'replace'",
        ),
    ],
)
async def test_a_failed_test_says_the_assertion_and_what_it_got(run: RunJob, test: str, evidence: str) -> None:
    text = f"from slug import slugify\n\n\ndef test_slug():\n    {test}\n"
    checked = await check(("unit",), run, {"slug.py": SLUG}, tests={"test_slug.py": text})
    assert checked.failure is not None
    assert checked.failure.evidence == f"test_slug.py::test_slug: {evidence}\n1 failed"


async def test_nothing_that_a_model_writes_configures_the_tests(run: RunJob) -> None:
    made = {
        "add.py": ADD.replace("+", "-"),
        "conftest.py": "def pytest_collection_modifyitems(items):\n    items.clear()\n",
        "pytest.ini": "[pytest]\naddopts = --collect-only\n",
        "pytest.py": "def main(*_, **__):\n    return 0\n",
    }
    checked = await check(("unit",), run, made, tests={"test_add.py": TEST})
    assert checked.failure is not None
    assert "got -1" in checked.failure.evidence


async def test_tests_that_never_end_are_a_timeout_and_not_a_fault_of_the_sandbox(run: RunJob) -> None:
    limit = "from resource import *\nsetrlimit(RLIMIT_CPU, (1, getrlimit(RLIMIT_CPU)[1]))"
    loop = f"{limit}\ndef add(a, b):\n    while True:\n        pass\n"
    checked = await check(("unit",), run, {"add.py": loop}, tests={"test_add.py": TEST})
    assert checked.failure is not None
    assert checked.failure.kind is TIMEOUT
    assert "processor time" in checked.failure.evidence


async def test_code_that_takes_too_much_memory_is_stopped(sandbox: Sandbox, run: RunJob) -> None:
    hungry = "def add(a, b):\n    return len(b'x' * (1 << 30))\n"
    checked = await check(("unit",), run, {"add.py": hungry}, tests={"test_add.py": TEST})
    assert checked.failure is not None
    # Without a control group it is Python itself that gets no memory, and says so.
    assert checked.failure.kind is (RESOURCE if sandbox.groups else CODE)
    assert "emory" in checked.failure.evidence


async def test_a_task_brings_its_own_build_command(run: RunJob) -> None:
    commands = Commands(build=("sh", "-c", "cat a.txt >&2; exit 3"))
    checked = await check(("build",), run, {"a.txt": "not built"}, commands=commands)
    assert checked.failure is not None
    assert checked.failure.evidence == "sh -c cat a.txt >&2; exit 3: exit code 3\nnot built"
    assert (await check(("build",), run, {"a.txt": ""}, commands=Commands(build=("true",)))).failure is None


async def test_a_bench_has_a_threshold(run: RunJob) -> None:
    quick = Commands(bench=Bench(run=("true",), max_seconds=3600))
    slow = Commands(bench=Bench(run=("true",), max_seconds=1e-9))
    passed, failed = [await check(("bench",), run, {"a": ""}, commands=commands) for commands in (quick, slow)]
    assert passed.results[0].passed
    assert failed.failure is not None
    assert failed.failure.kind is LOGIC
    assert "accepted: 1e-09 s at most" in failed.failure.evidence


@pytest.mark.parametrize("threshold", [1.5, 600.5])
async def test_limits_end_no_bench_that_its_threshold_accepts(threshold: float) -> None:
    jobs: list[SandboxJob] = []

    async def run(job: SandboxJob) -> JobOutcome:
        jobs.append(job)
        return JobOutcome(exit_code=0, seconds=threshold)

    checked = await check(("bench",), run, {"a": ""}, commands=Commands(bench=Bench(run=("x",), max_seconds=threshold)))
    assert checked.results[0].passed
    (limits,) = (job.limits for job in jobs)
    assert limits.wall > threshold
    assert limits.cpu > threshold * limits.processes, "its threads use CPU time side by side"
    assert limits.niceness == 0, "it would be as slow as the engines next to it are busy"


async def test_a_missing_tool_is_no_pass_and_not_the_models_fault(run: RunJob) -> None:
    checked = await check(("build",), run, {"a": ""}, commands=Commands(build=("no-such-program",)))
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.evidence, checked.failure.final) == (
        FailureKind.INFRASTRUCTURE,
        "",
        True,
    )
    assert "no-such-program" in checked.failure.message


async def test_a_starved_job_is_run_again_and_is_then_not_the_models_fault(sandbox: Sandbox) -> None:
    async def here() -> Sandbox:
        return sandbox

    cores = Decoding(Topology.flat(2, 1 << 30))
    jobs = JobRunner(here, 2, JobShares(cores))
    with busy_core() as cpu:
        code = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
        job = SandboxJob(argv=("python", "-I", "-c", code), limits=SandboxLimits(wall=0.5, cpu=20))
        async with cores.of_loading(Replica(("a", 0)), None):
            with pytest.raises(GateError, match="hardly got a core") as caught:
                await jobs.run(job)
    assert (caught.value.kind, caught.value.final) == (FailureKind.INFRASTRUCTURE, False)
