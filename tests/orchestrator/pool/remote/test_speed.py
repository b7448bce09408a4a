"""What is learned of a server from its answers, and where requests then go, on servers that are computed."""

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.remote.speed import FORGOTTEN_SECONDS, MOST_SECONDS, SentRequest, ServerSpeed
from orchestrator.pool.replica_choice import ReplicaCandidate, choose_replica

TOKENS = 100  # of every answer


def answered(
    speed: ServerSpeed, now: float, first_seconds: float, token_seconds: float = 0.01, prompt_tokens: int = 500
) -> float:
    """Have a server answer one request, and return when it has."""
    request = speed.sent(now)
    speed.started(request, now + first_seconds)
    end = now + first_seconds + (TOKENS - 1) * token_seconds
    speed.ended(request, end, prompt_tokens, TOKENS)
    return end


@given(st.floats(0.001, 5.0), st.floats(1e-5, 1e-2), st.floats(1e-4, 1.0))
def test_the_times_of_a_steady_server_are_learned(first: float, prompt_token: float, token: float) -> None:
    speed, now = ServerSpeed(), 0.0
    for prompt_tokens in (100, 2000, 8000) * 7:
        now = answered(speed, now, first + prompt_tokens * prompt_token, token, prompt_tokens)
    pace = speed.pace(now)
    assert pace is not None
    for prompt_tokens in (0, 1000, 10_000):
        expected = first + prompt_tokens * prompt_token
        assert pace.first + prompt_tokens * pace.prompt_token == pytest.approx(expected, rel=0.05, abs=3 * prompt_token)
    assert pace.step(1) == pytest.approx(token)
    assert speed.at_once is None


@given(st.floats(0.001, 100.0), st.integers(0, 100_000), st.integers(0, 100_000))
def test_one_answer_gives_times_that_grow_with_the_prompt(first: float, prompt: int, other: int) -> None:
    speed = ServerSpeed()
    now = answered(speed, 0.0, first, prompt_tokens=prompt)
    pace = speed.pace(now)
    assert pace is not None
    seconds = [pace.first + tokens * pace.prompt_token for tokens in sorted((prompt, other))]
    assert 0 <= seconds[0] <= seconds[1]
    assert first == pytest.approx(seconds[0 if prompt <= other else 1])


def test_what_was_learned_is_forgotten_and_learned_again() -> None:
    speed = ServerSpeed()
    assert speed.pace(0.0) is None
    now = answered(speed, 0.0, 60.0)  # it has loaded the model first
    assert speed.pace(now + FORGOTTEN_SECONDS - 1) is not None
    assert speed.pace(now + FORGOTTEN_SECONDS + 1) is None
    now = answered(speed, now + FORGOTTEN_SECONDS + 1, 0.5)
    assert speed.first_seconds == pytest.approx(0.5)
    for _ in range(100):
        now = answered(speed, now, 0.5)
    assert speed.pace(now + MOST_SECONDS - 1) is not None
    assert speed.pace(now + MOST_SECONDS + 1) is None


def test_answers_that_were_cut_off_teach_nothing() -> None:
    speed = ServerSpeed()
    speed.ended(speed.sent(0.0), 1.0)
    cut = speed.sent(1.0)
    speed.started(cut, 2.0)
    speed.ended(cut, 3.0)
    assert speed.pace(3.0) is None


@dataclass
class ComputedServer:
    """A server that answers `width` requests at a time, in the order in which they came."""

    width: int
    first_seconds: float
    token_seconds: float
    speed: ServerSpeed = field(default_factory=ServerSpeed)
    answering: int = 0
    queue: list[SentRequest] = field(default_factory=list)
    requests: int = 0


class Computed:
    """Servers and a clock. `place` is asked where each request goes."""

    def __init__(self, *servers: ComputedServer, slots: int = 64) -> None:
        self.servers, self.slots, self.now = servers, slots, 0.0
        self.answers: Counter[int] = Counter()
        self._events: list[tuple[float, int, str, int, SentRequest]] = []
        self._order = itertools.count()

    def run(self, requests: int, at_a_time: int) -> None:
        """Have `requests` requests answered, of which `at_a_time` are under way or wait."""
        waiting, under_way = requests, 0
        while waiting or under_way:
            while waiting and under_way < at_a_time and (number := self._place()) is not None:
                self._send(number)
                waiting, under_way = waiting - 1, under_way + 1
            under_way -= self._next()

    def _place(self) -> int | None:
        loads = [
            ReplicaCandidate(
                at, one.requests, min(self.slots, one.speed.at_once or self.slots), 0, one.speed.pace(self.now)
            )
            for at, one in enumerate(self.servers)
        ]
        number = choose_replica(loads, blocks=2, answer_tokens=TOKENS)
        assert number is not None
        return number if self.servers[number].requests < self.slots else None

    def _send(self, number: int) -> None:
        server = self.servers[number]
        server.requests += 1
        server.queue.append(server.speed.sent(self.now))
        self._answer_more(number)

    def _answer_more(self, number: int) -> None:
        server = self.servers[number]
        while server.queue and server.answering < server.width:
            server.answering += 1
            self._later(server.first_seconds, "starts", number, server.queue.pop(0))

    def _later(self, seconds: float, kind: str, number: int, request: SentRequest) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), kind, number, request))

    def _next(self) -> bool:
        # Whether a request was answered.
        self.now, _, kind, number, request = heapq.heappop(self._events)
        server = self.servers[number]
        if kind == "starts":
            server.speed.started(request, self.now)
            self._later(TOKENS * server.token_seconds, "ends", number, request)
            return False
        server.speed.ended(request, self.now, 128, TOKENS)
        server.answering, server.requests = server.answering - 1, server.requests - 1
        self.answers[number] += 1
        self._answer_more(number)
        return True


@given(st.integers(1, 12), st.integers(1, 12))
def test_how_many_requests_a_server_takes_at_once_is_learned(width: int, more: int) -> None:
    computed = Computed(ComputedServer(width, 0.1, 0.01))
    (server,) = computed.servers
    computed.run(1, 1)
    computed.run(4 * width, width)
    assert server.speed.at_once is None
    computed.run(4 * (width + more), width + more)
    assert server.speed.at_once == width
    server.width += 1  # and it may take more later
    computed.run(4 * (width + more), width + more)
    assert server.speed.at_once == min(width + 1, width + more)


@given(st.floats(0.001, 0.1), st.floats(1.5, 50.0), st.integers(1, 8), st.integers(1, 16))
def test_the_slower_server_gets_fewer_requests(token: float, slower: float, width: int, at_a_time: int) -> None:
    fast, slow = (ComputedServer(width, 10 * token * factor, token * factor) for factor in (1.0, slower))
    computed = Computed(slow, fast)
    computed.run(300, at_a_time)
    assert computed.answers.total() == 300
    assert computed.answers[0] < computed.answers[1]


@given(st.floats(0.001, 0.1), st.integers(1, 4), st.integers(2, 4))
def test_servers_of_one_speed_share_what_one_cannot_take(token: float, width: int, count: int) -> None:
    computed = Computed(*(ComputedServer(width, token, token) for _ in range(count)), slots=width)
    computed.run(40 * count, 3 * width * count)
    assert all(computed.answers[number] >= 20 for number in range(count))


def test_a_server_that_refuses_because_it_is_full_takes_no_more_at_once() -> None:
    speed = ServerSpeed()
    requests = [speed.sent(0.0) for _ in range(3)]
    assert speed.busy()
    assert speed.at_once == 2
    for request in requests[1:]:
        speed.ended(request, 1.0)
    assert not speed.busy()
