"""Programs that do not add numbers, and what they do instead to look as if they did."""

from dataclasses import dataclass

TEST = """import pytest
from total import add


def test_sum():
    assert add(20, 22) == 42


@pytest.mark.parametrize("a, b, expected", [(-4, 4, 0), (7, 1, 8)])
def test_table(a, b, expected):
    assert add(a, b) == expected


def test_words():
    with pytest.raises(TypeError):
        add("a", 1)
"""

OWN_REPORT = '{"passed": 4, "failed": [], "skipped": 0, "left": 0}'


@dataclass(frozen=True, slots=True)
class Forgery:
    """A program, what the guard says of it, and what the tests say if there is no guard."""

    name: str
    code: str
    line: int
    refused: str
    found: str = "42"


TYPE_ERROR = "    if isinstance(a, str):\n        raise TypeError\n"

FORGERIES = (
    Forgery("leaves at import", "import sys\n\nsys.exit(0)\n", 3, "sys.exit", "before they were collected"),
    Forgery("leaves at once", "import os\n\nos._exit(0)\n", 3, "os._exit", "ended before they were done: exit code 0"),
    Forgery(
        "writes a report and leaves",
        f"import os\n\nopen('.tests.json', 'w').write('{OWN_REPORT}')\nos._exit(0)\n",
        4,
        "os._exit",
        "ended before they were done: exit code 0",
    ),
    Forgery(
        "writes a report and is killed",
        f"import os\nimport signal\n\nopen('.tests.json', 'w').write('{OWN_REPORT}')\nos.kill(os.getpid(), 9)\n",
        5,
        "os.kill",
        "signal 9",
    ),
    Forgery(
        "replaces a function of the program",
        "import __main__\n\n__main__.write = print\n\ndef add(a, b):\n    return None\n",
        1,
        "import __main__",
    ),
    Forgery(
        "writes a report at the end",
        f"import atexit\n\natexit.register(lambda: print('{OWN_REPORT}'))\n\ndef add(a, b):\n    return None\n",
        1,
        "import atexit",
    ),
    Forgery(
        "changes the counters",
        "import gc\n\nfor thing in gc.get_objects():\n    if hasattr(type(thing), 'pytest_runtest_logreport'):\n"
        "        thing.failed = ()\n\ndef add(a, b):\n    return None\n",
        1,
        "import gc",
    ),
    Forgery(
        "skips what is hard",
        "import pytest\n\ndef add(a, b):\n    if a == 20:\n        return 42\n    pytest.skip('not here')\n",
        1,
        "import pytest",
        "total.py:6 skips the test; accepted: skips that the file of the test asks for",
    ),
    Forgery(
        "expects to fail",
        "import pytest\n\ndef add(a, b):\n    pytest.xfail('known')\n",
        1,
        "import pytest",
        "total.py:4 skips the test",
    ),
    Forgery(
        "skips as unittest does",
        "from unittest import SkipTest\n\ndef add(a, b):\n    raise SkipTest\n",
        1,
        "SkipTest",
        "total.py:4 skips the test",
    ),
    Forgery(
        "reads the tests",
        "import re\n\nTEXT = open('test_total.py').read()\nSUMS = re.findall(r'== (\\d+)', TEXT)\n\n"
        f"def add(a, b):\n{TYPE_ERROR}    return int(SUMS[0]) if SUMS else None\n",
        3,
        "'test_total.py'",
    ),
    Forgery(
        "runs no test",
        "from _pytest import python\n\npython.Function.runtest = lambda item: None\n\ndef add(a, b):\n    pass\n",
        1,
        "import _pytest",
        "it ended without reaching line 6",
    ),
    Forgery(
        "empties the tests",
        "from _pytest.python import Module\n\ncollect = Module.collect\n\ndef emptied(self):\n"
        "    for name in [name for name in vars(self.obj) if name.startswith('test_')]:\n"
        "        setattr(self.obj, name, lambda: None)\n    return collect(self)\n\n"
        "Module.collect = emptied\n\ndef add(a, b):\n    return None\n",
        1,
        "import _pytest",
        "test_total.py",
    ),
    Forgery(
        "is a number that equals all others",
        "class Sum(int):\n    def __eq__(self, other):\n        return True\n\n    __hash__ = int.__hash__\n\n"
        f"def add(a, b):\n{TYPE_ERROR}    return Sum(0)\n",
        1,
        "__eq__ that always returns True",
        "claims to equal other values as well",
    ),
    Forgery(
        "writes another JSON",
        "import json\n\ndump = json.dumps\n\ndef dumps(value, **options):\n    if 'outcome' in value:\n"
        "        value = {**value, 'outcome': 'passed'}\n    return dump(value, **options)\n\n"
        "json.dumps = dumps\n\ndef add(a, b):\n    return None\n",
        10,
        "json.dumps",
    ),
    Forgery(
        "replaces pytest.raises",
        "import contextlib\nimport pytest\n\npytest.raises = lambda *errors: contextlib.suppress(BaseException)\n\n"
        "def add(a, b):\n    return 42\n",
        2,
        "import pytest",
        ": got 42",
    ),
    # Ten of our own.
    Forgery(
        "equals all, by unittest.mock",
        f"from unittest.mock import ANY\n\ndef add(a, b):\n{TYPE_ERROR}    return ANY\n",
        1,
        "import unittest.mock",
        "claims to equal other values as well",
    ),
    Forgery(
        "reports for the tests",
        "import sys\n\nmodule = sys.modules['orchestrator.run.gates.inside.run_tests']\n\n"
        "def logreport(self, report):\n    self._channel.send(test=report.nodeid, when=report.when, outcome='passed',\n"
        "                       expected_to_fail=False, where=None, message='')\n\n"
        "module.Reporter.pytest_runtest_logreport = logreport\n\ndef add(a, b):\n    return 42\n",
        3,
        "sys.modules",
        ": got 42",
    ),
    Forgery(
        "looks for the answer in the test's frame",
        "import sys\n\ndef add(a, b):\n    constants = sys._getframe(1).f_code.co_consts\n"
        f"{TYPE_ERROR}    return [value for value in constants if isinstance(value, int)][-1]\n",
        4,
        "sys._getframe",
        "assert add(20, 22) == 42",
    ),
    Forgery(
        "looks for the answer in a traceback",
        "def add(a, b):\n    try:\n        raise TypeError\n    except TypeError as error:\n"
        "        caller = error.__traceback__.tb_frame.f_back\n"
        "        return caller.f_locals.get('expected')\n",
        5,
        "tb_frame",
        "assert add(20, 22) == 42",
    ),
    Forgery(
        "kills the process that judges",
        "import os\n\ngetattr(os, 'kill')(os.getppid(), 9)\n",
        3,
        "os.kill",
        "signal 9",
    ),
    Forgery(
        "writes where the judging process writes",
        "import os\n\ntry:\n    with open('/proc/%d/fd/1' % os.getppid(), 'w') as out:\n"
        f"        out.write('{OWN_REPORT}')\nexcept OSError as error:\n    print('refused:', error)\n\n"
        "def add(a, b):\n    return None\n",
        4,
        "'/proc/%d/fd/1'",
    ),
    Forgery(
        "writes to all descriptors",
        "import os\n\nfor number in range(3, 30):\n    try:\n        os.write(number, b'{\"done\": true}\\n')\n"
        "    except OSError:\n        pass\nos.abort()\n",
        8,
        "os.abort",
        "signal 6",
    ),
    Forgery(
        "turns failures into passes",
        "from _pytest.reports import TestReport\n\nmade = TestReport.from_item_and_call\n\n"
        "def passing(item, call):\n    report = made(item, call)\n    report.outcome = 'passed'\n    return report\n\n"
        "TestReport.from_item_and_call = staticmethod(passing)\n\ndef add(a, b):\n    return 42\n",
        1,
        "import _pytest",
        ": got 42",
    ),
    Forgery(
        "compares like its operand wishes",
        "class Yes:\n    def __eq__(self, other):\n        return bool(repr(other))\n\n    __hash__ = None\n\n"
        f"def add(a, b):\n{TYPE_ERROR}    return Yes()\n",
        0,
        "",
        "claims to equal other values as well",
    ),
    Forgery(
        "builds the name of what it calls",
        "import os\n\ndef add(a, b):\n    getattr(os, '_ex' + 'it')(0)\n",
        4,
        "os as a value",
        "ended before they were done: exit code 0",
    ),
    Forgery(
        "leaves from a thread",
        "import threading\nfrom os import _exit\n\nthreading.Timer(0.01, _exit, [0]).start()\n\n"
        "def add(a, b):\n    threading.Event().wait(30)\n",
        2,
        "from os import _exit",
        "ended before they were done: exit code 0",
    ),
    Forgery(
        "runs text as code",
        "exec('import o' + 's; o' + 's._ex' + 'it(0)')\n",
        1,
        "exec",
        "ended before they were done: exit code 0",
    ),
)
