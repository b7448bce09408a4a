"""The rules of the lease, with messages that are late or lost, processes that are killed, and clocks that differ."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.cluster.lease import (
    MARGIN,
    Acquire,
    Answer,
    Arbiter,
    Granted,
    HeadLease,
    Look,
    Promise,
    Record,
    Refused,
    Request,
    decode_record,
    decode_request,
    encode,
)

SECONDS = 10.0


def wanted(member: str, token: str = "", **more: Any) -> Acquire:
    return Acquire(member=member, token=token or member, seconds=SECONDS, address=f"{member}:1", key="", **more)


def granted(answer: Answer) -> Record:
    assert isinstance(answer, Granted), answer
    return answer.record


def refused(answer: Answer) -> Refused:
    assert isinstance(answer, Refused), answer
    return answer


def test_the_first_head_waits_for_one_that_the_arbiter_may_have_forgotten() -> None:
    arbiter = Arbiter(Record(), 100.0)
    assert refused(arbiter.answer(wanted("a"), 101.0)).wait == pytest.approx(MARGIN * SECONDS - 1.0)
    assert granted(arbiter.answer(wanted("a", epoch=6), 100.0 + MARGIN * SECONDS)).epoch == 7
    assert granted(arbiter.answer(Look(), 200.0)).holder == "a"


def test_a_standby_is_never_the_first_head() -> None:
    answer = Arbiter(Record(), 0.0).answer(wanted("b", waits=True), 1000.0)
    assert refused(answer) == Refused("there is no head yet", None)


def first_head(synced: str = "") -> tuple[Arbiter, HeadLease]:
    arbiter = Arbiter(Record(), -1000.0)
    lease = HeadLease(granted(arbiter.answer(wanted("a"), 0.0)), 0.0)
    lease.note_renewed(granted(arbiter.answer(lease.renewal(synced), 0.0)), 0.0)
    return arbiter, lease


def test_a_member_that_is_not_in_sync_is_refused_for_ever() -> None:
    arbiter, _ = first_head()
    answer = refused(arbiter.answer(wanted("b"), 1000.0))
    assert answer.wait is None
    assert "the head at a:1 has the lease in epoch 1" in answer.reason
    assert "does not have all of its events" in answer.reason


def test_a_member_in_sync_takes_over_after_the_lease_with_a_higher_epoch() -> None:
    arbiter, lease = first_head(synced="b")
    assert refused(arbiter.answer(wanted("b"), 10.9)).wait == pytest.approx(0.1)
    record = granted(arbiter.answer(wanted("b"), 11.0))
    assert (record.epoch, record.holder, record.synced) == (2, "b", "")
    assert refused(arbiter.answer(lease.renewal(""), 11.0)).record == record
    assert refused(arbiter.answer(wanted("a"), 1000.0)).wait is None


def test_a_head_that_ended_in_order_is_the_head_again_at_once() -> None:
    arbiter, lease = first_head(synced="b")
    granted(arbiter.answer(lease.renewal("b", released=True), 5.0))
    assert refused(arbiter.answer(wanted("b"), 6.0)).wait == pytest.approx(10.0)
    record = granted(arbiter.answer(wanted("a", "second"), 6.0))
    assert (record.epoch, record.synced, record.released) == (2, "b", False)
    assert not HeadLease(record, 6.0).alone


def test_a_head_that_was_killed_waits_unless_a_process_has_handed_the_lease_over() -> None:
    arbiter, _ = first_head()
    assert refused(arbiter.answer(wanted("a", "second"), 5.0)).wait == pytest.approx(6.0)
    assert granted(arbiter.answer(wanted("a", "second", handed="a"), 5.0)).epoch == 2


def test_a_late_renewal_does_not_undo_a_later_one() -> None:
    arbiter, lease = first_head()
    late = lease.renewal("b")
    granted(arbiter.answer(lease.renewal(""), 1.0))
    refused(arbiter.answer(late, 2.0))
    assert arbiter.record.synced == ""


def test_an_arbiter_that_has_forgotten_believes_a_head() -> None:
    _, lease = first_head(synced="b")
    arbiter = Arbiter(Record(), 2.0)
    assert granted(arbiter.answer(lease.renewal("b"), 3.0)).epoch == 1
    assert refused(arbiter.answer(wanted("b"), 4.0)).wait == pytest.approx(10.0)


def test_a_head_is_not_alone_until_the_arbiter_has_answered_so() -> None:
    _, lease = first_head(synced="b")
    record = lease.renewal("")
    assert not lease.alone
    lease.note_renewed(record, 1.0)
    assert lease.alone
    lease.renewal("b")
    assert not lease.alone


def test_a_head_acts_while_its_standby_answers_and_that_asks_for_nothing_meanwhile() -> None:
    _, lease = first_head(synced="b")
    promise = Promise(-1000.0)
    lease.note_confirmed(7.0)
    promise.note_heard(7.0)
    assert lease.acts(16.9)
    assert not lease.acts(17.0)
    assert not promise.may_ask(17.9, SECONDS)
    assert promise.may_ask(18.0, SECONDS)


def test_messages_are_the_same_after_they_were_sent() -> None:
    record = Record(epoch=3, holder="a", token="t" * 3, synced="b", seconds=2.5)
    assert decode_request(encode(record)) == record == decode_record(encode(record))
    assert decode_request(encode(wanted("a"))) == wanted("a")
    assert decode_request(encode(Look())) == Look()


@dataclass
class Member:
    """A machine: its clock, its events, and what its process is."""

    name: str
    rate: float  # of its clock
    log: list[int] = field(default_factory=list)
    tokens: int = 0
    lease: HeadLease | None = None  # of a head
    promise: Promise | None = None  # of a standby
    asks: bool = False  # it has not got an answer yet
    standby: "Member | None" = None  # that is connected to this head
    done: int = 0  # events that this head knows to be there
    caught_up: bool = False

    def restart(self) -> None:
        self.lease = self.promise = self.standby = None
        self.asks = self.caught_up = False
        self.tokens += 1

    @property
    def token(self) -> str:
        return f"{self.name}{self.tokens}"


@dataclass
class Letter:
    """A message that is under way: between a member and the arbiter, or from a standby to its head."""

    member: Member
    token: str
    sent: float  # by the clock of the member
    body: Request | Answer | int  # an int: how many events the standby has


class Heads(RuleBasedStateMachine):
    """Two members, and everything that may happen to them. Each step is at one moment of the real time."""

    @initialize(first=st.floats(0.97, 1.06), second=st.floats(0.97, 1.06))
    def begin(self, first: float, second: float) -> None:
        self.now = 0.0
        self.members = [Member("a", first), Member("b", second)]
        self.arbiter = Arbiter(Record(), -100.0)
        self.letters: list[Letter] = []
        self.committed = 0
        self.acknowledged: set[int] = set()
        self.start_head(0)
        self.deliver_all()
        self.start_standby(1)
        self.work()

    def clock(self, member: Member) -> float:
        return 1000.0 + self.now * member.rate

    def heads(self) -> list[Member]:
        return [member for member in self.members if member.lease is not None]

    def standbys(self) -> list[Member]:
        return [member for member in self.members if member.promise is not None]

    def head_of(self, standby: Member) -> Member | None:
        return next((head for head in self.heads() if head.standby is standby), None)

    def send(self, member: Member, body: Request | int) -> None:
        self.letters.append(Letter(member, member.token, self.clock(member), body))

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 9.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def work(self) -> None:
        """Do what happens when nothing goes wrong, for a while."""
        for _ in range(3):
            if self.standbys() and self.heads():
                self.connect()
            if any(head.standby is not None for head in self.heads()):
                self.exchange()
            self.renew_all()
            self.deliver_all()

    @rule(number=st.integers(0, 1), standby=st.booleans())
    def start(self, number: int, standby: bool) -> None:
        if standby:
            self.start_standby(number)
        else:
            self.start_head(number)

    def start_head(self, number: int) -> None:
        member = self.members[number]
        if member.lease is not None and member.lease.acts(self.clock(member)):
            return  # nobody starts a second one
        self.disconnect(member)
        member.restart()
        self.send(member, wanted(member.name, member.token))

    def start_standby(self, number: int) -> None:
        member = self.members[number]
        self.disconnect(member)
        member.restart()
        member.promise = Promise(self.clock(member))

    @rule(seconds=st.sampled_from([0.0, 9.0, 12.0]))
    def part(self, seconds: float) -> None:
        """Cut the connection between the two, and let some time go by."""
        for member in self.members:
            self.disconnect(member)
        self.now += seconds
        self.ask_all()

    def disconnect(self, member: Member) -> None:
        for head in self.members:
            if head is member or head.standby is member:
                head.standby, head.caught_up = None, False

    @rule()
    def restart_arbiter(self) -> None:
        self.arbiter = Arbiter(self.arbiter.record, self.now)

    @rule()
    def renew_all(self) -> None:
        for head in self.heads():
            if head.lease is not None:
                synced = head.standby.name if head.standby is not None and head.caught_up else ""
                self.send(head, head.lease.renewal(synced))

    @precondition(lambda self: self.letters)
    @rule(data=st.data(), is_lost=st.sampled_from([False, False, False, True]))
    def deliver(self, data: st.DataObject, is_lost: bool) -> None:
        self.pass_on(data.draw(st.integers(0, len(self.letters) - 1)), is_lost=is_lost)

    def pass_on(self, number: int, *, is_lost: bool) -> None:
        letter = self.letters.pop(number)
        member, body = letter.member, letter.body
        is_current = letter.token == member.token
        if is_lost:
            member.asks = member.asks and not is_current
        elif isinstance(body, Granted | Refused):
            member.asks = member.asks and not is_current
            if is_current:
                self.receive(letter, body)
        elif isinstance(body, int):
            if is_current and member.lease is not None:
                member.done = max(member.done, body)
                member.lease.note_confirmed(letter.sent)
        else:
            letter.body = self.arbiter.answer(body, self.now)
            self.letters.append(letter)

    @rule()
    def deliver_all(self) -> None:
        while self.letters:
            self.pass_on(0, is_lost=False)

    def receive(self, letter: Letter, answer: Answer) -> None:
        member = letter.member
        if isinstance(answer, Refused):
            if member.lease is not None:
                self.disconnect(member)
                member.restart()
            return
        if member.lease is not None:
            member.lease.note_renewed(answer.record, letter.sent)
        elif answer.record.token == member.token:
            member.lease, member.promise = HeadLease(answer.record, letter.sent), None

    @precondition(lambda self: self.standbys() and self.heads())
    @rule()
    def connect(self) -> None:
        head, standby = self.heads()[0], self.standbys()[0]
        lease = head.lease
        if lease is not None and lease.alone and not standby.asks and head.standby is None:
            head.standby, head.done, head.caught_up = standby, 0, False
            standby.log = head.log.copy()

    @precondition(lambda self: any(head.standby is not None for head in self.heads()))
    @rule(reaches=st.booleans())
    def stream(self, reaches: bool) -> None:
        head = next(head for head in self.heads() if head.standby is not None)
        if reaches:
            self.exchange()
        else:
            self.disconnect(head)

    def exchange(self) -> None:
        head = next(head for head in self.heads() if head.standby is not None)
        standby = head.standby
        assert standby is not None
        assert standby.promise is not None
        standby.log = head.log.copy()
        standby.promise.note_heard(self.clock(standby))
        if head.done >= len(head.log):
            head.caught_up = True
        self.send(head, len(standby.log))

    @rule()
    def commit(self) -> None:
        for head in self.heads():
            if head.lease is not None and head.lease.acts(self.clock(head)):
                self.committed += 1
                head.log.append(self.committed)

    @rule()
    def acknowledge(self) -> None:
        for head in self.heads():
            if head.lease is None or not head.lease.acts(self.clock(head)):
                continue
            if head.lease.alone and not head.caught_up:
                self.acknowledged.update(head.log)
            elif head.standby is not None:
                self.acknowledged.update(head.log[: head.done])

    @rule()
    def ask_all(self) -> None:
        for standby in self.standbys():
            self.ask(standby)

    def ask(self, standby: Member) -> None:
        assert standby.promise is not None
        is_free = not standby.asks and self.head_of(standby) is None
        if is_free and standby.promise.may_ask(self.clock(standby), SECONDS):
            standby.asks = True
            self.send(standby, wanted(standby.name, standby.token, waits=True, handed=standby.token))

    @invariant()
    def only_one_acts_and_it_has_all_that_was_acknowledged(self) -> None:
        if not hasattr(self, "members"):
            return
        acting = [head for head in self.heads() if head.lease is not None and head.lease.acts(self.clock(head))]
        assert len(acting) <= 1
        for head in acting:
            assert self.acknowledged <= {*head.log}


Heads.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestHeads = Heads.TestCase
