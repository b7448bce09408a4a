"""The connection between the head and its standby: frames, proof of a shared key, and messages.

The standby connects, with TLS if Ray's connections have it. Each `Changes` is answered by `Done`, so one is under way
at a time.
"""

import hmac
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from orchestrator.cluster.tls import NotConnected, tls_context
from orchestrator.run.journal.replica import Change

VERSION: Final = 2
SLICE_BYTES: Final = 1 << 20  # has to be sent within the time limit of the socket
_LENGTH_BYTES: Final = 8
_NONCE_BYTES: Final = 32
_MOST_UNPROVEN: Final = 256  # bytes of a frame from somebody who has not proven that he has the key


class Broken(Exception):
    """The connection cannot be used any more. The message says why."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The standby's first message. Answered by Welcome or Rejected."""

    version: int
    schema: int  # of the journal
    member: str
    stream: str = ""  # whose items it has, up to `number`; empty if it needs a copy
    number: int = 0


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Database and Objects follow unless the stream is continued, then Changes without end."""

    epoch: int
    seconds: float  # of the lease
    stream: str  # a `History`
    continued: bool


class Rejected(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Database(msgspec.Struct, frozen=True, tag=True):
    """A part of the file of the database; the last one is empty."""

    part: bytes


class Objects(msgspec.Struct, frozen=True, tag=True):
    """The objects of the head. Answered by Missing; then each of those follows as Stored."""

    digests: tuple[str, ...]


class Missing(msgspec.Struct, frozen=True, tag=True):
    digests: tuple[str, ...]


class Stored(msgspec.Struct, frozen=True, tag=True):
    """An object, which has to be on the disk before Done."""

    data: bytes


class Changes(msgspec.Struct, frozen=True, tag=True):
    """What was committed since the last one; maybe nothing."""

    changes: tuple[Change, ...]
    number: int  # of the last item of the stream that the standby has then, objects included
    synced: bool  # the standby can take over: the head commits nothing any more that it does not have


class Done(msgspec.Struct, frozen=True, tag=True):
    """All before this is on the disk. The standby asks nobody for the lease for a while."""


Message = Hello | Welcome | Rejected | Database | Objects | Missing | Stored | Changes | Done
_messages: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Message)


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of a configured address."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def encrypted(connection: socket.socket, environ: Mapping[str, str], head: str | None = None) -> socket.socket:
    """Return a connection with TLS if Ray's have it, else this one. A standby passes the host of the head.

    Raises Broken.
    """
    try:
        if (context := tls_context(environ, server=head is None)) is None:
            return connection
        return context.wrap_socket(connection, server_side=head is None, server_hostname=head)
    except (NotConnected, OSError) as error:
        raise Broken(f"it cannot be encrypted: {error}") from error


def cut(connection: socket.socket) -> None:
    """End a connection that another thread may be reading."""
    with suppress(OSError):
        # `SSLSocket.shutdown` would forget the keys, and the reader would take what still comes for plain text.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def send(connection: socket.socket, message: Message) -> None:
    """Raises Broken."""
    send_frame(connection, msgspec.msgpack.encode(message))


def receive(connection: socket.socket) -> Message:
    """Raises Broken, also when nothing comes within the time limit of the socket."""
    body = receive_frame(connection)
    if body is None:
        raise Broken("the other end has closed the connection")
    try:
        message: Message = _messages.decode(body)
    except msgspec.DecodeError as error:
        raise Broken(f"the other end speaks otherwise: {error}") from error
    return message


def send_frame(connection: socket.socket, body: bytes) -> None:
    """Raises Broken."""
    frame = memoryview(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
    try:
        for start in range(0, len(frame), SLICE_BYTES):
            connection.sendall(frame[start : start + SLICE_BYTES])
    except OSError as error:
        raise Broken(f"nothing can be sent: {error}") from error


def receive_frame(connection: socket.socket, most: int | None = None) -> bytes | None:
    """Return the next frame, None at the end of the connection. Raises Broken."""
    head = _receive(connection, _LENGTH_BYTES)
    if head is None:
        return None
    length = int.from_bytes(head, "little")
    if most is not None and length > most:
        raise Broken(f"a message has {length} bytes; accepted: {most}")
    return _receive(connection, length)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, received = memoryview(data), 0
    try:
        while received < size:
            count = connection.recv_into(view[received:])
            if not count:
                return None
            received += count
    except OSError as error:
        raise Broken(f"nothing was received: {error}") from error
    return bytes(data)


def prove_to_standby(connection: socket.socket, key: str) -> None:
    """Prove to a standby that this machine has the key, once it has proven that. Raises Broken."""
    own = secrets.token_bytes(_NONCE_BYTES)
    send_frame(connection, own)
    answer = receive_frame(connection, _MOST_UNPROVEN) or b""
    other, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, b"standby", own, other)):
        raise Broken("the other end does not have the key")
    send_frame(connection, _proof(key, b"head", other, own))


def prove_to_head(connection: socket.socket, key: str) -> None:
    """Prove to the head that this machine has the key, and check that the head has it. Raises Broken."""
    own, other = secrets.token_bytes(_NONCE_BYTES), receive_frame(connection, _MOST_UNPROVEN) or b""
    send_frame(connection, own + _proof(key, b"standby", other, own))
    proof = receive_frame(connection, _MOST_UNPROVEN) or b""
    if not hmac.compare_digest(proof, _proof(key, b"head", own, other)):
        raise Broken("the other end does not have the key")


def _proof(key: str, role: bytes, challenge: bytes, own: bytes) -> bytes:
    return hmac.digest(key.encode(), role + challenge + own, "sha256")
