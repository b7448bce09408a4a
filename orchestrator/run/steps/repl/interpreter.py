"""Run a step's code, turn by turn, inside the sandbox; requests to the outside go over the channel to the host.

The host sends this file into the sandbox, so it imports only the standard library. Model-written code runs in this
process and can do anything to it: the host trusts nothing that comes out of it.

A message is four bytes of length (big endian) and JSON: see `orchestrator.run.steps.repl.protocol`.
"""

import ast
import io
import json
import linecache
import re
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any

CHANNEL = 3
CHUNK = 32 * 1024
PIECE = 1_000_000
LINE = 300
# Seconds after which a turn's timer fires again, since a bare `except` of the step's code catches `Stopped`.
AGAIN = 1.0


class HostGone(BaseException):
    """The host has closed the channel, which ends the interpreter; no error of the step's code."""


class Stopped(BaseException):
    """The turn has to end. Not an `Exception`, so that `except Exception` in the step's code does not catch it."""


class FinalCalled(Stopped):
    def __init__(self, value: Any) -> None:
        self.value = value


class HostError(RuntimeError):
    """A request to the host failed. The message says why."""


class Channel:
    """The connection to the host. Requests are sent one at a time, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.RLock()
        self._requests = 0

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        with self._lock:
            # The timer of the turn must not interrupt a message.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            try:
                self._socket.sendall(len(body).to_bytes(4, "big") + body)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def receive(self) -> Any:
        """Raises HostGone."""
        return json.loads(self._read(int.from_bytes(self._read(4), "big")))

    def ask(self, question: str, /, **arguments: Any) -> Any:
        """Send a request to the host and return its answer. Raises HostError."""
        with self._lock:
            # Waiting for the host does not count as computing.
            remaining, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                self._requests += 1
                sys.stdout.flush()
                self.send({"type": "ask", "id": self._requests, "name": question, "arguments": arguments})
                answer = self.receive()
            finally:  # also after arguments that are no JSON
                signal.setitimer(signal.ITIMER_REAL, remaining, AGAIN)
        if answer["error"] is not None:
            raise HostError(answer["error"])
        return answer["value"]

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise HostGone
            parts += part
        return bytes(parts)


class OutputStream(io.TextIOBase):
    """Sends what the code prints to the host. It ends a turn that prints more than it may."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pieces: list[str] = []
        self._size = 0
        self.left = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Buffer text. Raises Stopped if the turn prints more than it may."""
        self.left -= len(text)
        if self.left < 0:
            self.left = CHUNK  # for the traceback
            raise Stopped("the turn printed more than it may")
        self._pieces.append(text.encode(errors="replace").decode())  # half a character could not be sent
        self._size += len(text)
        if self._size >= CHUNK:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text = "".join(self._pieces)
        self._pieces, self._size = [], 0
        for start in range(0, len(text), CHUNK):
            self._channel.send({"type": "printed", "text": text[start : start + CHUNK]})


class Artifacts(MutableMapping[str, str]):
    """The outputs that the step has written. Assigning to a name writes it, if the host allows that."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._written: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._written[name]

    def __setitem__(self, name: str, text: str) -> None:
        self._channel.ask("write", name=name, text=text)
        self._written[name] = text

    def __delitem__(self, name: str) -> None:
        raise TypeError("an artifact cannot be unwritten; write it again")

    def __iter__(self) -> Iterator[str]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)


class ReadableTexts:
    """What `peek` and `grep` look into: inputs, artifacts, outputs of earlier turns (out1, out2, …)."""

    def __init__(self, channel: Channel, inputs: dict[str, str], artifacts: Artifacts) -> None:
        self._channel = channel
        self._inputs = inputs
        self._artifacts = artifacts

    def peek(self, name: str, start: int = 0, length: int = 2000) -> str:
        """Return a part of a text."""
        return self._text(name)[start : start + length]

    def grep(self, pattern: str, name: str | None = None, limit: int = 50) -> list[tuple[str, int, str]]:
        """Return (name, line number, line) for lines that match; in all inputs and artifacts, or in one text."""
        matcher = re.compile(pattern)
        names = [*self._inputs, *self._artifacts] if name is None else [name]
        matches = (
            (source, number, line[:LINE])
            for source in names
            for number, line in enumerate(self._text(source).splitlines(), start=1)
            if matcher.search(line)
        )
        return list(islice(matches, limit))

    def _text(self, name: str) -> str:
        if name in self._inputs:
            return self._inputs[name]
        if name in self._artifacts:
            return self._artifacts[name]
        return "".join(self._pieces(name))

    def _pieces(self, name: str) -> Iterator[str]:
        start, piece = 0, "?"
        while piece:
            piece = self._channel.ask("output", name=name, start=start, length=PIECE)
            start += len(piece)
            yield piece


def api(channel: Channel, inputs: dict[str, str]) -> dict[str, Any]:
    # These names are defined for the step's code.
    artifacts = Artifacts(channel)
    texts = ReadableTexts(channel, inputs, artifacts)
    return {"inputs": inputs, "artifacts": artifacts, "peek": texts.peek, "grep": texts.grep, **_asking(channel)}


def _asking(channel: Channel) -> dict[str, Any]:
    def llm_call(prompt: str, role: str | None = None, persona: str | None = None, **more: Any) -> Any:
        """Return a model's answer."""
        return channel.ask("llm_call", prompt=prompt, role=role, persona=persona, **more)

    def llm_batch(
        prompts: Sequence[str | dict[str, Any]], role: str | None = None, persona: str | None = None
    ) -> list[str | HostError]:
        """Return the answers to all prompts, asked at once; a HostError in the place of one that failed."""
        requests = [{"prompt": prompt} if isinstance(prompt, str) else prompt for prompt in prompts]
        answers = channel.ask("llm_batch", calls=[{"role": role, "persona": persona, **call} for call in requests])
        return [HostError(answer["error"]) if answer["error"] is not None else answer["value"] for answer in answers]

    def tool(name: str, /, **arguments: Any) -> Any:
        """Call a tool of this step and return its result."""
        return channel.ask("tool", tool=name, arguments=arguments)

    def final(value: Any = None) -> None:
        """End the step with its result: a text or JSON."""
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # half a character is no text either
        raise FinalCalled(value)

    return {"llm_call": llm_call, "llm_batch": llm_batch, "tool": tool, "final": final, "HostError": HostError}


def run(code: str, turn: int, namespace: dict[str, Any]) -> None:
    """Run one turn. If its last line is an expression, its value is printed, as at a prompt."""
    name = f"<turn {turn}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)  # noqa: S102 - to run it is what the sandbox is for
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # noqa: S307
        if value is not None:
            print(repr(value))


def format_error(error: BaseException) -> str:
    """Return the traceback of the step's code, without the frames of this file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    while frames and not frames[0].filename.startswith("<turn "):
        del frames[0]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*lines, *traceback.format_exception_only(error)]).strip()


def on_alarm(signum: int, frame: FrameType | None) -> None:
    raise Stopped("the turn took longer than it may")


def main() -> None:
    """Serve one step: inputs, then turns, until the host closes the channel."""
    channel = Channel(CHANNEL)
    output = OutputStream(channel)
    inputs: dict[str, str] = {}
    namespace: dict[str, Any] = {"__name__": "__main__", **api(channel, inputs)}
    sys.stdout = sys.stderr = output
    signal.signal(signal.SIGALRM, on_alarm)
    while True:
        message = channel.receive()
        if message["type"] == "input":
            inputs[message["name"]] = inputs.get(message["name"], "") + message["text"]
        else:
            output.left = message["output"]
            channel.send({"type": "done", **turn(message, namespace)})


def turn(message: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    outcome: dict[str, Any] = {"error": None, "final": False, "value": None}
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, message["seconds"], AGAIN)
            run(message["code"], message["turn"], namespace)
        finally:  # the timer must not interrupt the report of how the turn ended
            signal.setitimer(signal.ITIMER_REAL, 0)
    except FinalCalled as finished:
        outcome |= {"final": True, "value": finished.value}
    except HostGone:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the step's code raises is how its turn ended
        outcome["error"] = format_error(error)
    finally:
        sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    main()
