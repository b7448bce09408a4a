"""Decide which of two machines is the head. Pure: times are arguments, in seconds of the clock of whoever decides.

The arbiter gives a lease for `seconds`, and the standby confirms it with each answer for as long. A head acts while one
of the two holds, counted from when it sent what was answered. Whoever gave a lease counts from when it answered, and
waits `MARGIN` times as long before somebody else may have it. So a standby needs both: it has not heard from the head
for that long, and neither has the arbiter. (SQL Server's mirroring with a witness has the same quorum, two of three.)

The arbiter's record also names the member that has every committed event. Only it and the holder may get the lease. A
head whose standby does not answer commits nothing until the record names nobody.
"""

import math
from typing import Final

import msgspec

MARGIN: Final = 1.1  # the clocks of two machines may differ in speed by less than this


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Who has the lease. The holder renews it by sending it with a higher `sequence`."""

    epoch: int = 0  # 0: nobody has had it; each time that it is given it is higher
    holder: str = ""  # a member: a state folder
    token: str = ""  # of the process that got it
    sequence: int = 0
    synced: str = ""  # the member that has all committed events, too
    released: bool = False  # the holder has ended in order
    seconds: float = 0.0
    address: str = ""  # where a standby reaches the holder
    key: str = ""  # that both know

    def says_the_same(self, other: "Record") -> bool:
        """Return whether the two differ in their sequence alone."""
        return msgspec.structs.replace(self, sequence=other.sequence) == other


class Acquire(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A member wants the lease."""

    member: str
    token: str
    seconds: float
    address: str
    key: str
    epoch: int = 0  # the highest that it knows
    handed: str = ""  # the token of a process of this member that got the lease for this one, and has ended
    waits: bool = False  # it is a standby, which is never the first to have the lease


class Look(msgspec.Struct, frozen=True, tag=True):
    """Somebody wants to know who has the lease. Answered by Granted or Refused, which change nothing."""


class Granted(msgspec.Struct, frozen=True, tag=True):
    """The lease is held as the record says."""

    record: Record


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Somebody else has the lease."""

    reason: str
    wait: float | None = None  # seconds until another try may succeed; None: it cannot
    record: Record = Record()


Request = Record | Acquire | Look
Answer = Granted | Refused


class Arbiter:
    """Gives the lease. `record` is what it had given before it was started again, at `now`."""

    def __init__(self, record: Record, now: float) -> None:
        self.record = record
        self._started = now
        self._until = now + MARGIN * record.seconds  # it may just have been renewed

    def answer(self, request: Request, now: float) -> Answer:
        match request:
            case Record():
                return self._renew(request, now)
            case Acquire():
                return self._acquire(request, now)
            case Look():
                return Granted(self.record)

    def _renew(self, record: Record, now: float) -> Answer:
        held = self.record
        newer = record.token == held.token and record.sequence > held.sequence
        if not newer and record.epoch <= held.epoch:  # a higher epoch: this arbiter has lost its memory
            return Refused(f"{held.address} has the lease in epoch {held.epoch}", None, held)
        self.record = record
        self._until = now + MARGIN * record.seconds
        return Granted(record)

    def _acquire(self, wanted: Acquire, now: float) -> Answer:
        held, until = self.record, self._until
        if not held.epoch:
            until = self._started + MARGIN * wanted.seconds  # there may be a holder that it does not remember
            if wanted.waits:
                return Refused("there is no head yet", None, held)
        own = wanted.member == held.holder
        if held.epoch and not own and wanted.member != held.synced:
            has = f"the head at {held.address} has the lease in epoch {held.epoch}"
            return Refused(f"{has}, and this machine does not have all of its events", None, held)
        handed_over = own and (held.released or wanted.handed == held.token)
        if now < until and not handed_over:
            return Refused(f"{held.address or 'somebody'} may still have it", until - now, held)
        self.record = Record(
            epoch=max(held.epoch, wanted.epoch) + 1,
            holder=wanted.member,
            token=wanted.token,
            synced=held.synced if own else "",
            seconds=wanted.seconds,
            address=wanted.address,
            key=wanted.key,
        )
        self._until = now + MARGIN * wanted.seconds
        return Granted(self.record)


class HeadLease:
    """What a head may do. It got `record` as the answer to a request that it sent at `sent`."""

    def __init__(self, record: Record, sent: float) -> None:
        self.record = record  # the latest that was sent
        self.synced = record.synced  # as the arbiter has accepted it: whoever can take over
        self._renewed = sent + record.seconds
        self._confirmed = -math.inf
        self._granted = record.sequence  # the highest that the arbiter has accepted
        self._named = record.sequence if record.synced else -1  # the highest that named a member in sync

    @property
    def until(self) -> float:
        """When it must not act any more, unless it hears from the arbiter or the standby."""
        return max(self._renewed, self._confirmed)

    def acts(self, now: float) -> bool:
        return now < self.until

    @property
    def alone(self) -> bool:
        """Whether nobody else can get the lease, so that events need not be anywhere else."""
        return self._granted > self._named

    def renewal(self, synced: str, *, released: bool = False) -> Record:
        """Return what to send next. If it names a member in sync, that member has all that was committed before."""
        sequence = self.record.sequence + 1
        self.record = msgspec.structs.replace(self.record, sequence=sequence, synced=synced, released=released)
        if synced:
            self._named = sequence
        return self.record

    def note_renewed(self, record: Record, sent: float) -> None:
        """Note that the arbiter has accepted what was sent at `sent`."""
        self._renewed = max(self._renewed, sent + record.seconds)
        if record.sequence > self._granted:
            self._granted, self.synced = record.sequence, record.synced

    def note_confirmed(self, sent: float) -> None:
        """Note that the member in sync has answered what was sent at `sent`."""
        self._confirmed = max(self._confirmed, sent + self.record.seconds)


class Promise:
    """What a standby has promised with its answers: not to ask for the lease yet."""

    def __init__(self, now: float) -> None:
        self._heard = now  # an earlier process of it may have answered just before

    def note_heard(self, now: float) -> None:
        self._heard = now

    def may_ask(self, now: float, seconds: float) -> bool:
        """Return whether it may ask for a lease that is given for `seconds`."""
        return now >= self._heard + MARGIN * seconds


_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_records: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(message: Request | Answer) -> bytes:
    return _encoder.encode(message)


def decode_request(body: bytes) -> Request:
    """Raises msgspec.DecodeError."""
    return _requests.decode(body)


def decode_record(body: bytes) -> Record:
    """Raises msgspec.DecodeError."""
    return _records.decode(body)
