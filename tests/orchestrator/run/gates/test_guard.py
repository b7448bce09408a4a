"""What the guard refuses in code under test, and what it lets pass."""

import pytest

from orchestrator.run.gates.inside.guard import check_files
from tests.orchestrator.run.gates.forgeries import FORGERIES, Forgery
from tests.orchestrator.run.gates.honest import CODE, TESTS


def problems(text: str, *, program: bool = False, tests: bool = False) -> list[tuple[str, int, str]]:
    return check_files({"total.py": {"text": text, "program": program, "tests": tests}})


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_forgeries_are_refused_where_they_begin(forgery: Forgery) -> None:
    found = problems(forgery.code)
    if not forgery.line:
        assert found == [], "only running it shows what it does"
        return
    file, line, message = found[0]
    assert (file, line) == ("total.py", forgery.line)
    assert forgery.refused in message
    assert "is not accepted in code that is tested: " in message


@pytest.mark.parametrize(
    "line",
    [
        "import os as system; system._exit(0)",
        "from os import _exit as leave",
        "from os import *",
        "import random; random._os._exit(0)",
        "from random import _os",
        "import os; leave = getattr(os, '_exit')",
        "import os; vars(os)['x']",
        "import os; os.__dict__['x']",
        "import os; things = [os]",
        "import sys; sys.modules['pytest']",
        "import sys; sys.settrace(print)",
        "__import__('py' + 'test')",
        "import importlib; importlib.import_module('pytest')",
        "import importlib; importlib.import_module(name())",
        "import builtins; builtins.len = lambda x: 0",
        "import builtins; setattr(builtins, 'len', None)",
        "import operator; operator.attrgetter('f_back')",
        "().__class__.__base__.__subclasses__()",
        "print.__self__",
        "(lambda: 0).__globals__",
        "(lambda: 0).__code__ = None",
        "exit()",
        "raise SystemExit",
        "open('tests/test_other.py')",
        "open('/proc/self/maps')",
        "import unittest; raise unittest.SkipTest",
        "import ctypes",
        "import linecache",
        "eval('1')",
        "globals()['__builtins__']",
    ],
)
def test_ways_around_the_names_are_refused(line: str) -> None:
    assert [number for _, number, _ in problems(f"x = 1\n{line}\n")] or pytest.fail(line)


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        "import sys\n\n\ndef main():\n    return 0\n\n\nif __name__ == '__main__':\n    sys.exit(main())\n",
        "import sys\n\n\ndef usage():\n    sys.exit(2)\n\n\ndef main():\n    usage()\n",
        "import os\n\nFLAG = getattr(os, 'O_BINARY', 0)\nHOME = os.environ.get('HOME', os.getcwd())\n",
        "import re\n\nWORD = re.compile('a')\nTEXT = '# the tests are in test_total.py'\n",
        "import signal\n\n\ndef handle(number, frame):\n    pass\n\n\nsignal.signal(signal.SIGINT, handle)\n",
        "import inspect\n\n\ndef arity(f):\n    return inspect.signature(f) or f.__code__.co_argcount\n",
        "class Shape:\n    pass\n\n\ndef shapes():\n    return Shape.__subclasses__()\n",
        "import threading\n\nlock = threading.Lock()\nthread = threading.Thread(target=print)\nthread.daemon = True\n",
        "import io\nimport sys\n\nsys.stdout = io.StringIO()\nsys.path.insert(0, '.')\nsys.setrecursionlimit(9)\n",
        "import ast\n\n\ndef read(text):\n    return ast.literal_eval(text)\n",
        "class Parser:\n    def eval(self, x):\n        return x\n\n    def compile(self):\n        self.eval(1)\n",
        "import random\n\n\ndef draw(rng=random):\n    return rng.random()\n",
        "class P:\n    def __eq__(self, other):\n        return self is other\n\n    def exit(self):\n        pass\n",
        "import logging\nimport importlib.metadata\nimport traceback\n\nlog = logging.getLogger(__name__)\n",
        "import unittest\n\nCase = unittest.TestCase\n\nif __name__ == '__main__':\n    unittest.main()\n",
        "x = (\n",
    ],
)
def test_honest_programs_pass(text: str) -> None:
    assert problems(text) == []


def test_a_program_that_is_started_may_end_itself() -> None:
    text = "import sys\n\n\ndef fail():\n    sys.exit(1)\n\n\nfail()\n"
    assert problems(text)
    assert problems(text, program=True) == []


def test_tests_that_a_model_writes_may_use_pytest_but_not_reach_into_it() -> None:
    assert problems(TESTS, tests=True) == []
    assert problems("import _pytest\n", tests=True)
    assert problems("import atexit\n", tests=True)


def test_modules_of_the_same_step_may_be_named_like_others() -> None:
    files = {"trace.py": {"text": "LEVEL = 1\n"}, "app.py": {"text": "import trace\n\ntrace.LEVEL = 2\n"}}
    assert check_files(files) == []


@pytest.mark.parametrize("name", ["pytest", "gc", "json"])
def test_a_file_of_the_step_does_not_stand_for_a_module_that_is_loaded_already(name: str) -> None:
    files = {
        f"{name}.py": {"text": "x = 1\n"},
        "app.py": {"text": f"import {name}\n\n{name}.raises = {name}.dumps = 1\n"},
    }
    assert check_files(files)[0][0] == "app.py"
