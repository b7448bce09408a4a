"""Run prepared tests with pytest in the process of the code under test, and report events over a channel.

The process that started this one judges. It gets values and events, never a verdict. What a test expects is not in this
process, if it could be hidden (see `hiding`). The tests come as syntax trees through stdin, and their files on disk are
empty.
"""

import base64
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pickle
import socket
import sys
import types
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pytest
from _pytest.assertion.rewrite import rewrite_asserts

from orchestrator.run.gates.inside.values import decode, decoys, encode

_MESSAGE = 1000
_SHOWN = 200
_INSTALLED = tuple({os.path.realpath(folder) + os.sep for folder in (sys.prefix, sys.base_prefix)} | {"<frozen "})


class ResultChannel:
    """Sends messages to the judging process as lines of JSON."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._file: IO[str] = self._socket.makefile("rw", encoding="utf-8")

    def send(self, **message: object) -> None:
        """Send a message; it may stay in a buffer until `flush`."""
        self._file.write(json.dumps(message) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def ask(self, **message: object) -> Any:
        """Send a message and return the answer."""
        self.send(**message)
        self.flush()
        return json.loads(self._file.readline())


class Assertions:
    """What prepared tests call instead of asserting, by the kind of assertion."""

    def __init__(self, channel: ResultChannel) -> None:
        self._channel = channel

    def reached(self, number: int) -> None:
        """Report that a test has come to its end."""
        self._channel.send(at=number)

    def truth(self, number: int, value: object) -> None:
        self._channel.send(at=number, left=repr(True if value else False), shown=_shown(value))

    def value(self, number: int, value: object) -> None:
        """Report a value that is compared with a hidden one."""
        self.keyed(number, value, None)

    def keyed(self, number: int, value: object, key: str | None) -> None:
        """Report a value that is compared with the hidden value of a key."""
        text = encode(value)
        if text is not None:
            self._channel.send(at=number, left=text, key=key)
            return
        # Not plain data: it has to tell the hidden value from decoys that it should not equal.
        candidates = self._channel.ask(at=number, key=key, shown=_shown(value), choose=True)
        self._channel.send(at=number, chosen=[_same(value, _candidate(candidate)) for candidate in candidates])

    def pair(self, number: int, left: object, right: object, *comparisons: str) -> None:
        """Report both sides of a comparison, and whether a side claims to equal what it cannot equal."""
        sides = (left, right)
        texts = [encode(side) for side in sides]
        odd = any(
            text is None and comparison == "==" and _equals_anything(side, opposite)
            for side, text, comparison, opposite in zip(sides, texts, comparisons, reversed(texts), strict=True)
        )
        self._channel.send(at=number, left=texts[0], right=texts[1], odd=odd, shown=_shown(left))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports test files from memory."""

    def __init__(self, codes: Mapping[str, types.CodeType], gate: Assertions) -> None:
        self._codes = codes
        self._gate = gate

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = f"{name.rpartition('.')[2]}.py"
        places = (os.path.abspath(os.path.join(folder, file)) for folder in (sys.path if path is None else path))
        place = next((place for place in places if place in self._codes), None)
        return None if place is None else importlib.util.spec_from_file_location(name, place, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python create the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["@gate"] = self._gate
        exec(self._codes[str(module.__file__)], vars(module))  # noqa: S102 - a test is code


class Reporter:
    """A pytest plugin that reports what is collected and how each phase of each test ends."""

    def __init__(self, channel: ResultChannel, finder: Finder) -> None:
        self._channel = channel
        self._finder = finder
        self._where: tuple[str, int] | None = None

    def pytest_configure(self, config: Any) -> None:
        # Before pytest looks for files.
        sys.meta_path.insert(0, self._finder)
        config.option.tbstyle = "short"

    def pytest_collectstart(self, collector: Any) -> None:
        # Files of the same name in two folders become two modules, each of which can import its neighbours by name.
        # Pytest's own option for that (importlib) confuses a folder with a module of the same name inside it.
        if isinstance(collector, pytest.Module):
            name, file = collector.path.stem, str(collector.path)
            if getattr(sys.modules.get(name), "__file__", file) != file:
                del sys.modules[name]

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: Any) -> None:
        # Forget where the last test was skipped.
        self._where = None

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "skipped":
            self._channel.send(skipped_file=report.nodeid, where=_relative(*report.longrepr[:2]))
        elif report.outcome == "failed":
            self._channel.send(broken_file=report.nodeid, message=_message(report.longrepr), where=_crash(report))

    def pytest_collection_finish(self, session: Any) -> None:
        self._channel.send(collected=[item.nodeid for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._channel.send(start=nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        # Remember where an exception was raised, before pytest turns it into another one.
        self._where = _raised(call.excinfo.tb) if call.excinfo else None

    def pytest_runtest_logreport(self, report: Any) -> None:
        failed = report.outcome == "failed"
        self._channel.send(
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            part=type(report) is not pytest.TestReport,
            expected_to_fail=hasattr(report, "wasxfail"),
            where=_crash(report) if failed else self._where,
            message=_message(report.longrepr) if failed else "",
        )
        self._channel.flush()


def main(spec: Mapping[str, Any]) -> None:
    """Run the tests of the spec."""
    channel = ResultChannel(spec["channel"])
    codes = {os.path.abspath(name): _compiled(name, data) for name, data in spec["trees"].items()}
    pytest.main(spec["arguments"], plugins=[Reporter(channel, Finder(codes, Assertions(channel)))])
    channel.send(done=True)
    channel.flush()


def _compiled(name: str, data: str) -> types.CodeType:
    tree = pickle.loads(base64.b64decode(data))  # noqa: S301 - the judging process made it
    # Adds pytest's explanations of failed assertions.
    rewrite_asserts(tree, b"")
    code = compile(tree, os.path.abspath(name), "exec", dont_inherit=True)
    assert isinstance(code, types.CodeType)
    return code


def _candidate(described: Any) -> object:
    text, *approximate = described
    value = decode(text)
    return pytest.approx(value, *approximate) if approximate else value


def _equals_anything(value: object, opposite: str | None) -> bool:
    strangers = [object(), 7_919_104_729, "stranger", *(decoys(decode(opposite)) if opposite is not None else ())]
    return any(_same(value, stranger) for stranger in strangers)


def _same(value: object, candidate: object) -> bool:
    try:
        return bool(value == candidate)
    except Exception:  # noqa: BLE001 - whatever a comparison raises, it does not say that the values are equal
        return False


def _shown(value: object) -> str:
    try:
        return repr(value)[:_SHOWN]
    except Exception as error:  # noqa: BLE001 - a text for people
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _message(longrepr: object) -> list[str]:
    # The line that failed, if its file has text, and pytest's explanation of it.
    lines = str(longrepr).splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("E ")]
    if not errors:
        return ["\n".join(lines)[-_MESSAGE:]]
    before = [line for line in lines[: errors[0]] if line.strip(" ^~")]
    quoted = before[-1] if before and before[-1].startswith("    ") else ""
    explained = [line.removeprefix("E ").strip()[:_MESSAGE] for line in lines[errors[0] :]]
    return [quoted.strip().removesuffix("???"), *explained]


def _crash(report: Any) -> tuple[str, int] | None:
    crash = getattr(report.longrepr, "reprcrash", None)
    return None if crash is None else _relative(crash.path, crash.lineno)


def _raised(traceback: types.TracebackType | None) -> tuple[str, int] | None:
    # The innermost line that is not in an installed package.
    line = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not os.path.realpath(file).startswith(_INSTALLED) and not file.startswith("<frozen "):
            line = _relative(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def _relative(file: object, line: int) -> tuple[str, int]:
    return os.path.relpath(str(file)), line
