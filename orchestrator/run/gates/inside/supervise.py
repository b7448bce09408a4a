"""Judge tests that run in another process, which this one starts and from which it imports nothing.

That process reports which tests ran, and the values that they compared. This one knows the expected values, which tests
were planted to fail, and a secret that every report needs. No other process may look into its memory or its
descriptors.
"""

import base64
import ctypes
import json
import os
import pickle
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from orchestrator.run.gates.inside.canaries import Canaries, plant
from orchestrator.run.gates.inside.guard import check_files
from orchestrator.run.gates.inside.hiding import HiddenValues, PreparedFile, PreparedTest, Statement, prepare
from orchestrator.run.gates.inside.values import Approximate, decode, decoys, encode, holds

# Lines of pytest's explanation that only point at signs of the line above.
_MARKS = re.compile(r"\?? *[\^~+-]+[ \^~+-]*|[+-] *")
_SET_DUMPABLE = 4
_CHUNK = 65536
_LINE = 4_000_000
_SHUFFLE = secrets.SystemRandom().shuffle


@dataclass(slots=True)
class RunningTest:
    name: str
    reached: set[int] = field(default_factory=set)
    failure: str | None = None  # of the first assertion that failed
    # Set while a value that is not plain data is compared: its text, the expected value, all candidates.
    choice: tuple[str, object, list[object]] | None = None


@dataclass(slots=True)
class Judgement:
    files: Mapping[str, PreparedFile]
    texts: Mapping[str, list[str]]
    hidden: HiddenValues
    planted: Canaries
    collected: list[str] | None = None
    passed: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    skipped: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    canaries_seen: dict[str, bool] = field(default_factory=dict)
    skipped_files: set[str] = field(default_factory=set)
    done: bool = False
    _test: RunningTest = field(default_factory=lambda: RunningTest(""))

    def handle(self, message: Mapping[str, Any]) -> list[object] | None:
        """Take in a message, and return the answer if it needs one. Raises ValueError for an invalid message."""
        match message:
            case {"at": int(number)}:
                return self._asserted(number, message)
            case {"start": str(name)}:
                self._test = RunningTest(name)
            case {"test": str(name), "when": str(when), "outcome": str(outcome)}:
                self._phase(name, when, outcome, message)
            case {"collected": list(names)} if self.collected is None:
                self.collected = [str(name) for name in names]
            case {"skipped_file": str(name), "where": where}:
                self._skipped_file(name, where)
            case {"broken_file": str(name), "message": list(lines), "where": where}:
                self._fail(name, self._explained(lines, where))
            case {"done": True}:
                self.done = True
            case _:
                raise ValueError("an unexpected message")
        return None

    def finish(self) -> None:
        """Add failures for tests that did not run, and for planted tests with another result."""
        names = self.collected or []
        if self.done and not self.failed and not self.planted.passes.keys() <= set(names):
            self._fail("the tests", "the process ended before they were collected")
        unfinished = [name for name in names if name not in self.ended and name not in self.planted.passes]
        if unfinished and not self.failed:
            self._fail("the tests", f"they were broken off, {len(unfinished)} were left to run")
        wrong = [name for name, passes in self.planted.passes.items() if self.canaries_seen.get(name) is not passes]
        if wrong and self.done and not unfinished and (self.canaries_seen or not self.failed):
            self._fail(
                "the tests",
                "planted tests have wrong results: the code changes how tests run or how values compare; accepted: "
                "code that leaves pytest, Python and comparisons alone",
            )
        if not self.failed:
            self._require_all(set(names))

    def _require_all(self, names: set[str]) -> None:
        ran = {name.partition("[")[0] for name in names}
        for file, prepared in self.files.items():
            missing = [test for test in prepared.tests if f"{file}::{test}" not in ran]
            if missing and file not in self.skipped_files and file != self.planted.file:
                self._fail(f"{file}::{missing[0]}", "the test has not run")

    def _asserted(self, number: int, message: Mapping[str, Any]) -> list[object] | None:
        statement = self.hidden.statements[number]
        test = self._test
        test.reached.add(number)
        if message.get("choose"):
            return self._candidates(number, message)
        if "chosen" in message:
            self._judge_choice(statement, message["chosen"])
        elif statement.comparison and not self._is_right(statement, message):
            self._note_values(statement, message)
        return None

    def _is_right(self, statement: Statement, message: Mapping[str, Any]) -> bool:
        left = message.get("left")
        if statement.comparison == "truth":
            return decode(str(left)) is statement.expected
        if statement.hidden:
            return left is not None and holds(
                decode(str(left)), statement.comparison, self._expected(statement, message.get("key"))
            )
        right = message.get("right")
        if message.get("odd"):
            return False
        return left is None or right is None or holds(decode(str(left)), statement.comparison, decode(str(right)))

    def _expected(self, statement: Statement, key: object) -> object:
        return statement.expected if key is None else self.hidden.keyed[str(key)]

    def _candidates(self, number: int, message: Mapping[str, Any]) -> list[object]:
        # For a value that is not plain data: the expected value among decoys, in random order.
        key = message.get("key")
        expected = self._expected(self.hidden.statements[number], key)
        candidates = 2 * [expected, *decoys(expected)]
        _SHUFFLE(candidates)
        self._test.choice = (str(message.get("shown")), expected, candidates)
        return [_described(candidate) for candidate in candidates]

    def _judge_choice(self, statement: Statement, answers: object) -> None:
        if self._test.choice is None:
            raise ValueError("an answer without a question")
        shown, expected, candidates = self._test.choice
        self._test.choice = None
        if answers != [candidate is expected for candidate in candidates]:
            several = isinstance(answers, list) and answers.count(True) > 2
            claims = f"\n{shown} claims to equal other values as well" if several else ""
            self._note(statement, shown, expected, claims)

    def _note(self, statement: Statement, shown: str, expected: object, more: str = "") -> None:
        if self._test.failure is None:
            source = self._source(statement.file, statement.line)
            self._test.failure = f"{_explain(statement, shown, expected, source)}{more}"

    def _note_values(self, statement: Statement, message: Mapping[str, Any]) -> None:
        left, right, shown = message.get("left"), message.get("right"), str(message.get("shown"))
        if message.get("odd"):
            self._note(statement, shown, right, f"\n{shown} claims to equal everything")
        elif statement.hidden:
            text = shown if statement.comparison == "truth" or left is None else _short(decode(str(left)))
            self._note(statement, text, self._expected(statement, message.get("key")))
        else:
            self._note(statement, _short(decode(str(left))), decode(str(right)))

    def _phase(self, name: str, when: str, outcome: str, message: Mapping[str, Any]) -> None:
        if self.collected is None or name not in self.collected or name != self._test.name:
            raise ValueError("a result of a test that was not collected")
        if message.get("part") and outcome == "passed":
            return
        if when == "teardown":
            self.ended.add(name)
        if name in self.planted.passes:
            self._planted(name, when, outcome)
        elif self._test.failure is not None and when == "call":
            self._fail(name, self._test.failure)
        elif outcome == "skipped":
            self._skip(name, message)
        elif outcome == "failed":
            self._fail(name, self._explained(message["message"], message["where"]))
        elif when == "call":
            self._pass(name)

    def _planted(self, name: str, when: str, outcome: str) -> None:
        if when == "call":
            self.canaries_seen[name] = outcome == "passed" and self._test.failure is None
        elif outcome != "passed":
            self._fail(self._label(name), "a planted test could not be set up")

    def _pass(self, name: str) -> None:
        missing = set(self._prepared(name).required) - self._test.reached
        if missing:
            statement = self.hidden.statements[min(missing)]
            source = self._source(statement.file, statement.line)
            self._fail(name, f"it ended without reaching line {statement.line} {source}")
        else:
            self.passed.add(name)

    def _skip(self, name: str, message: Mapping[str, Any]) -> None:
        file, where = name.partition("::")[0], message["where"]
        prepared = self.files.get(file)
        test = self._prepared(name)
        if message.get("expected_to_fail") and test.expected_to_fail:
            return
        by_mark = where is None and (test.may_skip or (prepared and prepared.module_may_skip))
        by_line = where is not None and prepared and where[0] == file and where[1] in prepared.skip_lines
        if by_mark or by_line:
            self.skipped += not message.get("expected_to_fail")
        elif where is None:
            self._fail(name, "the test was skipped, but its file does not ask for it")
        else:
            self._fail(
                name, f"{where[0]}:{where[1]} skips the test; accepted: skips that the file of the test asks for"
            )

    def _skipped_file(self, name: str, where: Sequence[Any]) -> None:
        if name in self.files and self.files[name].module_may_skip and where[0] == name:
            self.skipped += 1
            self.skipped_files.add(name)
        else:
            self._fail(name, "the file was skipped, but it does not ask for it")

    def _prepared(self, name: str) -> PreparedTest:
        file, _, test = name.partition("[")[0].partition("::")
        prepared = self.files.get(file)
        return prepared.tests.get(test, PreparedTest()) if prepared else PreparedTest()

    def _fail(self, name: str, message: str) -> None:
        self.failed.append((self._label(name), message[:1000]))

    def _label(self, name: str) -> str:
        for key, label in self.hidden.labels.items():
            name = name.replace(key, label)
        return name

    def _explained(self, lines: Sequence[object], where: Sequence[Any] | None) -> str:
        # With the line of source, which only this process can read.
        quoted, *rest = map(str, lines)
        if where is not None and where[0] in self.texts:
            quoted = self._source(str(where[0]), int(where[1]))
        text = "\n".join(line for line in [quoted, *rest] if line and not _MARKS.fullmatch(line))
        return re.sub(r"@(left|right)\d+", r"the \1 side", text)

    def _source(self, file: str, line: int) -> str:
        lines = self.texts.get(file, [])
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def main(spec: Mapping[str, Any]) -> None:
    """Run the tests of the spec, and write a report with the spec's secret to stdout."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot be hidden from others")
    report, code = _judged(spec)
    sys.stdout.write(json.dumps({"secret": spec["secret"], **report}))
    sys.stdout.flush()
    _end_like(code)


def _judged(spec: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    # The report, and the exit code of the process that ran the tests.
    if find_spec("pytest") is None:
        return {"missing": "pytest"}, 0
    if problems := check_files(spec["guarded"]):
        return {"refused": problems}, 0
    return _run(spec)


def _run(spec: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    hidden = HiddenValues()
    planted = plant(with_cases=any("unittest" in text for text in spec["tests"].values()))
    texts = {**spec["tests"], planted.file: planted.text}
    run = [*spec["run"], planted.file]
    files, broken = _prepare_all(texts, hidden)
    if failed := [(place, message) for name, place, message in broken if name in run]:
        return {"passed": 0, "skipped": 0, "failed": failed}, 0
    files_to_run = {name: files[name] for name in run}
    judgement = Judgement(files_to_run, {name: text.splitlines() for name, text in texts.items()}, hidden, planted)
    open(planted.file, "xb").close()
    code = _follow(_start(spec, files, run), judgement)
    judgement.finish()
    return {"passed": len(judgement.passed), "skipped": judgement.skipped, "failed": judgement.failed}, code


def _prepare_all(
    texts: Mapping[str, str], hidden: HiddenValues
) -> tuple[dict[str, PreparedFile], list[tuple[str, str, str]]]:
    # The prepared files, and (name, place, message) of each that is not valid Python.
    files, broken = {}, []
    for name, text in texts.items():
        try:
            files[name] = prepare(name, text, hidden)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", 0) or 0
            broken.append((name, f"{name}:{line}" if line else name, f"{type(error).__name__}: {error}"))
    return files, broken


def _start(spec: Mapping[str, Any], files: Mapping[str, PreparedFile], run: Sequence[str]) -> "Worker":
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-I", "-c", spec["boot"]]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, pass_fds=[theirs.fileno()])  # noqa: S603
        trees = {name: base64.b64encode(pickle.dumps(file.tree)).decode() for name, file in files.items()}
        worker = spec["worker"]
        arguments = [*worker["spec"]["arguments"], *(f"./{name}" for name in run)]
        worker["spec"] = {"channel": theirs.fileno(), "trees": trees, "arguments": arguments}
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(json.dumps(worker).encode())
    return Worker(process, ours)


@dataclass(frozen=True, slots=True)
class Worker:
    """The process that runs the tests."""

    process: "subprocess.Popen[bytes]"
    channel: socket.socket

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that it sends, until it ends."""
        # The end of the stream proves nothing: other processes may keep the channel open.
        ended = os.pidfd_open(self.process.pid)
        data = bytearray()
        while True:
            ready, _, _ = select.select([self.channel.fileno(), ended], [], [])
            chunk = self.channel.recv(_CHUNK) if self.channel.fileno() in ready else b""
            data += chunk
            *lines, rest = data.split(b"\n")
            data = bytearray(rest)
            yield from map(bytes, lines)
            if not chunk or len(data) > _LINE:
                return

    def answer(self, message: object) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")


def _follow(worker: Worker, judgement: Judgement) -> int:
    # Returns the exit code; negative for a signal.
    try:
        for line in worker.lines():
            answer = judgement.handle(json.loads(line))
            if answer is not None:
                worker.answer(answer)
    except (ValueError, LookupError, TypeError, OSError) as error:
        judgement.failed.append(("the tests", f"something else than the tests has written their results: {error}"))
        worker.process.kill()
    code = worker.process.wait()
    if not judgement.failed and (code or not judgement.done):
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        judgement.failed.append(("the tests", f"the process ended before they were done: {how}"))
    return code


def _end_like(code: int) -> None:
    # If a limit ended the tests, this process ends in the same way, so that the sandbox sees it.
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)


def _explain(statement: Statement, shown: str, expected: object, source: str) -> str:
    # The assertion as it stands in the test, and the value that it got.
    call = f" from {statement.call}" if statement.call and statement.call not in source else ""
    head = f"{source}: got {shown}{call}"
    right = _short(expected)
    if statement.comparison == "truth" or right in source:
        return head
    return f"{head}, not {right}" if statement.comparison == "==" else f"{head} for {statement.comparison} {right}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python writes
        return "a very long number"
    return text if len(text) <= 240 else f"{text[:239]}…"


def _described(value: object) -> list[object]:
    if isinstance(value, Approximate):
        return [encode(value.expected), value.relative, value.absolute]
    return [encode(value)]
