"""Code that does not do its task passes no gate, whatever it does to the tests; honest code passes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.run.gates.contract import Artifact, GateContext, RunJob
from orchestrator.run.gates.jobs import CODE_LIMITS, run_code
from orchestrator.run.gates.pipeline import run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.run.gates.tests import PytestReport, PytestRun
from orchestrator.task.events import FailureKind
from orchestrator.task.taskir.models import Bench, Commands
from tests.orchestrator.run.gates.forgeries import FORGERIES, TEST, Forgery
from tests.orchestrator.run.gates.gate_steps import check, step
from tests.orchestrator.run.gates.honest import CODE, OUTCOME, TESTS

SUM = "def add(a, b):\n    return a + b\n"


async def run_unguarded(run: RunJob, code: str, test: str = TEST) -> PytestReport:
    """Run tests on code that the guard does not read, which shows what the run itself refuses."""
    planned = PytestRun.plan({"total.py": code.encode(), "test_total.py": test.encode()}, ["test_total.py"], ())
    limits = replace(CODE_LIMITS, idle=False)
    outcome = await run_code(run, planned.argv, planned.files, "pytest", limits, planned.stdin)
    return planned.read(outcome)


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
async def test_forged_results_fail_even_without_the_guard(run: RunJob, forgery: Forgery) -> None:
    report = await run_unguarded(run, forgery.code)
    assert report.failed
    said = "\n".join(f"{finding.file}: {finding.message}" for finding in report.failed)
    assert forgery.found in said


async def test_refused_code_is_not_run_and_the_evidence_names_the_line(run: RunJob) -> None:
    code = "import os\n\n\ndef add(a, b):\n    os._exit(0)\n"
    checked = await check(("unit",), run, {"total.py": code}, tests={"test_total.py": TEST})
    assert checked.failure is not None
    assert checked.failure.kind is FailureKind.CODE
    assert checked.failure.evidence.startswith("total.py:5: os._exit is not accepted in code that is tested")
    assert "accepted: an exception" in checked.failure.evidence
    assert "    os._exit(0)" in checked.failure.evidence


async def test_the_code_cannot_look_into_the_judging_process(run: RunJob) -> None:
    looks = (
        "import os\n\nfor place in ('mem', 'environ', 'fd/0', 'fd/1', 'maps'):\n"
        "    for process in (1, os.getppid()):\n        try:\n"
        "            open(f'/proc/{process}/{place}', 'rb').close()\n        except OSError:\n            continue\n"
        "        raise AssertionError(f'opened {place} of {process}')\n\n" + SUM
    )
    report = await run_unguarded(run, looks)
    assert (report.passed, report.failed) == (4, ())


async def test_nothing_of_the_tests_is_on_the_disk_or_in_memory(run: RunJob) -> None:
    """The expected values of `==`, also in tables, are in no object that the code could find."""
    searches = (
        "import gc, os\n\nSIZE = sum(os.path.getsize(name) for name in os.listdir('.') if name.startswith('test_'))\n"
        "assert SIZE == 0, SIZE\n"
        "SOUGHT = int('424243')\n"
        "for thing in gc.get_objects():\n"
        "    assert not isinstance(thing, (list, tuple)) or SOUGHT not in [x for x in thing if type(x) is int]\n\n"
        "def add(a, b):\n    return a + b\n"
    )
    test = (
        "import pytest\nfrom total import add\n\n\ndef test_sum():\n    assert add(424200, 43) == 424243\n\n\n"
        "@pytest.mark.parametrize('a, b, c', [(1, 424242, 424243)])\n"
        "def test_table(a, b, c):\n    assert add(a, b) == c\n"
    )
    report = await run_unguarded(run, searches, test)
    assert (report.passed, report.failed) == (2, ())


async def test_honest_code_passes_with_all_that_tests_use(run: RunJob) -> None:
    checked = await check(("lint", "unit"), run, {"shop.py": CODE}, tests={"test_shop.py": TESTS})
    assert checked.results[-1].evidence == OUTCOME
    assert checked.failure is None


@pytest.mark.parametrize(
    ("test", "evidence"),
    [
        ("def test():\n    assert add(1, 1) == 3\n", "::test: assert add(1, 1) == 3: got 2"),
        ("def test():\n    assert add(1, 1) in (3, 4)\n", "assert add(1, 1) in (3, 4): got 2"),
        ("def test():\n    assert not add(1, 1)\n", "assert not add(1, 1): got 2"),
        ("def test():\n    raise OSError('no')\n", "::test: raise OSError('no') OSError: no"),
        (
            "@pytest.mark.parametrize('a, c', [(1, 2), (2, 5)])\ndef test(a, c):\n    assert add(a, 1) == c\n",
            "test[2-5]:",
        ),
        (
            "def test():\n    for a, c in [(1, 2), (2, 5)]:\n        assert add(a, 1) == c\n",
            "assert add(a, 1) == c: got 3, not 5",
        ),
        ("def test():\n    assert add(1, 1) == pytest.approx(3)\n", "assert add(1, 1) == pytest.approx(3): got 2"),
        ("def test(:\n", "test_total.py:3: SyntaxError:"),
        ("import os\nos._exit(0)\n", "the process ended before they were done: exit code 0"),
        ("def test():\n    pytest.exit('enough', 0)\n", "they were broken off, 1 were left to run"),
        ("def test():\n    add.missing\n", "::test: add.missing AttributeError: "),
    ],
)
async def test_evidence_of_a_failure_has_the_line_and_the_values(run: RunJob, test: str, evidence: str) -> None:
    tests = {"test_total.py": f"import pytest\nfrom total import add\n{test}"}
    checked = await check(("unit",), run, {"total.py": SUM}, tests=tests)
    assert checked.failure is not None
    assert evidence in checked.failure.evidence


async def test_the_users_test_wins_over_an_output_of_its_name(run: RunJob) -> None:
    made = [
        Artifact("total.py", b"def add(a, b):\n    return 1\n"),
        Artifact("test_total.py", b"def test():\n    pass\n"),
    ]
    scope = Scope(step("total.py", "test_total.py"), ("test_total.py",))
    wrong = await run_gates(("unit",), made, GateContext(scope, tests={"test_total.py": TEST.encode()}, run=run))
    assert wrong.failure is not None
    assert "assert add(20, 22) == 42" in wrong.failure.evidence
    test = b"from total import add\n\n\ndef test_one():\n    assert add(0, 0) == 1\n"
    right = await run_gates(("unit",), made, GateContext(scope, tests={"test_total.py": test}, run=run))
    assert right.results[0].evidence == "1 passed; test_total.py: the user's file counts, not the step's"


async def test_tests_of_the_same_step_cannot_reach_what_runs_them(run: RunJob) -> None:
    made = {
        "total.py": "def add(a, b):\n    return 1\n",
        "test_more.py": "import gc\n\n\ndef test():\n    gc.collect()\n",
    }
    checked = await check(("unit",), run, made, tests={"test_total.py": TEST})
    assert checked.failure is not None
    assert checked.failure.evidence.startswith("test_more.py:1: import gc is not accepted")


async def test_a_skip_in_another_file_of_tests_is_none_of_this_test(run: RunJob) -> None:
    own = "import pytest\n\n\ndef give_up():\n    pytest.skip('hard')\n\n\ndef test():\n    pass\n"
    made = {"total.py": "from test_own import give_up\n\n\ndef add(a, b):\n    give_up()\n", "test_own.py": own}
    checked = await check(("unit",), run, made, tests={"test_total.py": TEST})
    assert checked.failure is not None
    assert (
        "test_own.py:5 skips the test; accepted: skips that the file of the test asks for" in checked.failure.evidence
    )


async def test_a_skip_after_a_wrong_value_is_a_failure(run: RunJob) -> None:
    test = (
        "import pytest\nfrom total import add\n\n\ndef test_a():\n    assert add(1, 1) == 2\n    pytest.skip('rest')\n"
    )
    report = await run_unguarded(run, "def add(a, b):\n    return 3\n", test)
    assert [finding.message[:21] for finding in report.failed] == ["assert add(1, 1) == 2"]


@pytest.mark.parametrize("code", ["import os\nos._exit(0)\n", "import sys\nsys.exit(0)\n"])
async def test_code_that_ends_the_process_makes_no_command_succeed(run: RunJob, code: str) -> None:
    command = ("sh", "-c", "python -c 'import total; assert total.add(1, 1) == 2'")
    for gate, commands in (
        ("build", Commands(build=command)),
        ("bench", Commands(bench=Bench(run=command, max_seconds=3600))),
    ):
        checked = await check((gate,), run, {"total.py": code}, commands=commands)
        assert checked.failure is not None
        assert checked.failure.kind is FailureKind.CODE
        assert checked.failure.evidence.startswith("total.py:2: ")


async def test_a_program_that_a_command_starts_may_end_itself(run: RunJob) -> None:
    commands = Commands(build=("python", "main.py"))
    checked = await check(("build",), run, {"main.py": "import sys\n\nsys.exit(0)\n"}, commands=commands)
    assert checked.failure is None


USERS_MODULE = "def add(a, b):\n    return 1\n"


def versioned(*outputs: str, reads: Mapping[str, str], run: RunJob) -> GateContext:
    """Return the context of a step that reads files of the user and writes some of these outputs."""
    texts = {name: text.encode() for name, text in reads.items()}
    return GateContext(Scope(step(*outputs, inputs=tuple(reads))), reads=texts, users=frozenset(reads), run=run)


async def test_the_users_tests_run_on_the_new_version_of_a_module(run: RunJob) -> None:
    context = versioned("total.py", reads={"total.py": USERS_MODULE, "test_total.py": TEST}, run=run)
    right = await run_gates(("unit",), [Artifact("total.py", SUM.encode())], context)
    assert [(result.status, result.evidence) for result in right.results] == [("passed", "4 passed")]
    wrong = await run_gates(("unit",), [Artifact("total.py", USERS_MODULE.encode())], context)
    assert wrong.failure is not None


async def test_the_new_version_of_a_users_module_is_not_taken_for_the_users(run: RunJob) -> None:
    context = versioned("total.py", reads={"total.py": USERS_MODULE, "test_total.py": TEST}, run=run)
    checked = await run_gates(("unit",), [Artifact("total.py", b"import gc\n" + SUM.encode())], context)
    assert checked.failure is not None
    assert "total.py:1: import gc is not accepted" in checked.failure.evidence


async def test_a_step_that_writes_only_tests_is_checked_by_its_new_version_of_them(run: RunJob) -> None:
    reads = {"total.py": SUM, "test_total.py": TEST}
    more = TEST + "\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
    checked = await run_gates(
        ("unit",), [Artifact("test_total.py", more.encode())], versioned("test_total.py", reads=reads, run=run)
    )
    assert checked.results[0].evidence == "5 passed; all of them were written by the step itself"


async def test_a_step_that_writes_a_module_cannot_replace_the_users_test_of_it(run: RunJob) -> None:
    made = [Artifact("total.py", USERS_MODULE.encode()), Artifact("test_total.py", b"def test():\n    pass\n")]
    context = versioned("total.py", "test_total.py", reads={"total.py": SUM, "test_total.py": TEST}, run=run)
    checked = await run_gates(("unit",), made, context)
    assert checked.failure is not None
    assert "assert add(20, 22) == 42" in checked.failure.evidence
