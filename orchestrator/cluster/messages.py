"""Define the messages between the daemon and the process that is its driver of Ray, and what a node says of itself.

They are framed like those of an engine. The descriptors of engines' sockets come over a second socket, each with the
engine's number.
"""

from typing import Any

import msgspec

from orchestrator.engine.contract import EngineSpec, PrefixFile
from orchestrator.engine.protocol import ProtocolError, WireMessage
from orchestrator.pool.machine import Topology

NUMBER_BYTES = 8  # of an engine's number, little endian, next to its descriptor


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself. Older and newer versions must be able to read `protocol` and `library`."""

    protocol: int  # `engine.protocol.VERSION`
    library: str  # the version of llama.cpp, or why it cannot be loaded
    topology: Topology | None = None
    bytes: int = 0  # of memory that engines may take
    processor: str = ""
    digests: tuple[str, ...] = ()  # SHA-256 of the model files that it has


class Connect(WireMessage, frozen=True):
    """The first message. Answered by Connected, or the end of the process."""

    address: str
    folder: str
    node_bytes: int
    silence_seconds: float
    digests_file: str
    prefixes: str  # this machine's folder of KV cells
    head_epoch: int = 0  # of the daemon as the head; 0 without a standby


class StartEngine(WireMessage, frozen=True):
    """Start an engine's process on a node. Answered by EngineStarted or EngineRefused."""

    engine: int  # a number that no other engine has had
    epoch: int  # of the node
    spec: EngineSpec  # with the files of this machine


class KillEngine(WireMessage, frozen=True):
    """End an engine, or its start, with SIGKILL. Answered by EngineEnded or EngineRefused."""

    engine: int


class CarryPrefix(WireMessage, frozen=True):
    """Carry a file of KV cells between the folders of two machines. Answered by PrefixCarried."""

    number: int  # that no other transfer has had
    file: PrefixFile
    source: int  # the epoch of a node; 0 for this machine
    target: int


class GiveUpPrefix(WireMessage, frozen=True):
    """Carry a file no further. The CarryPrefix is then not answered."""

    number: int


class Connected(WireMessage, frozen=True):
    """The driver is a part of the cluster."""


class ControlPlane(WireMessage, frozen=True):
    """Ray's control plane answers no longer, or again. Nodes continue without it, for a while."""

    problem: str  # or nothing


class Failing(WireMessage, frozen=True):
    """The last message: why the process ends."""

    reason: str


class NodeJoined(WireMessage, frozen=True):
    """A node may be used. A node that comes back after it was lost has a higher epoch."""

    epoch: int
    name: str
    address: str
    facts: NodeFacts
    bytes_per_second: float  # from this machine to the node
    files: tuple[str, ...]  # model files of this machine that the node has, too


class NodeRejected(WireMessage, frozen=True):
    """A node cannot be used until it has been started again."""

    epoch: int
    name: str
    address: str
    reason: str
    library: str = ""


class NodeLost(WireMessage, frozen=True):
    """A node and all of its engines are gone."""

    epoch: int
    reason: str


class Exposed(WireMessage, frozen=True):
    """Where Ray accepts connections next to the address that it has, each time that this changes."""

    epoch: int  # of the node; 0 for this machine
    places: tuple[str, ...]  # addresses with a port


class FileShipped(WireMessage, frozen=True):
    """A node has another model file of this machine."""

    epoch: int
    file: str


class FilesRemoved(WireMessage, frozen=True):
    """A node no longer has these model files of this machine, which made room for others."""

    epoch: int
    files: tuple[str, ...]


class EngineStarted(WireMessage, frozen=True):
    """A process waits for Load, which gets `spec`: the same with the files of the node."""

    engine: int
    spec: EngineSpec


class EngineRefused(WireMessage, frozen=True):
    """A process could not be started."""

    engine: int
    kind: str  # a `LoadFailure`
    message: str


class EngineBeat(WireMessage, frozen=True):
    """What an engine's process does, about once a second."""

    engine: int
    worked: bool
    states: str  # of its threads, as letters
    resident: int  # bytes in memory
    shared: int  # of these, bytes that other processes may share


class EngineEnded(WireMessage, frozen=True):
    """A process has ended, and its socket is closed."""

    engine: int
    code: int  # as of subprocess
    log: str


class PrefixCarried(WireMessage, frozen=True):
    """A file of KV cells has arrived, or not."""

    number: int
    problem: str  # why it has not arrived, or nothing


DaemonMessage = Connect | StartEngine | KillEngine | CarryPrefix | GiveUpPrefix
BridgeMessage = (
    Connected
    | ControlPlane
    | Failing
    | NodeJoined
    | NodeRejected
    | NodeLost
    | Exposed
    | FileShipped
    | FilesRemoved
    | EngineStarted
    | EngineRefused
    | EngineBeat
    | EngineEnded
    | PrefixCarried
)

_encoder = msgspec.msgpack.Encoder()
_of_daemon: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(DaemonMessage)
_of_bridge: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(BridgeMessage)


def encode(message: DaemonMessage | BridgeMessage) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "little") + body


def decode_daemon(body: bytes) -> DaemonMessage:
    """Raises ProtocolError."""
    try:
        message: DaemonMessage = _of_daemon.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is none of a daemon: {error}") from error
    return message


def decode_bridge(body: bytes) -> BridgeMessage:
    """Raises ProtocolError."""
    try:
        message: BridgeMessage = _of_bridge.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a message is none of a bridge: {error}") from error
    return message
