"""What a head keeps for a standby that comes back."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.history import History, Item
from orchestrator.run.journal.replica import ChatsDeleted

ITEMS = st.lists(st.text(max_size=40) | st.builds(ChatsDeleted, st.none(), st.integers(0, 9)), max_size=40)


def size(items: list[Item]) -> int:
    return sum(len(msgspec.msgpack.encode(item)) for item in items)


@given(items=ITEMS, most=st.integers(0, 300), number=st.integers(-2, 45))
def test_what_follows_a_number_is_complete_or_nothing(items: list[Item], most: int, number: int) -> None:
    history = History(most)
    for item in items:
        history.add(item)
    rest = items[max(number, 0) :]
    there = 0 <= number <= len(items) and size(rest) <= most
    assert history.end == len(items)
    assert history.after(history.stream, number) == (rest if there else None)


@given(items=ITEMS)
def test_no_other_stream_is_continued(items: list[Item]) -> None:
    history, other = History(1 << 20), History(1 << 20)
    for item in items:
        history.add(item)
        other.add(item)
    assert history.after(other.stream, len(items)) is None
    assert history.after("", 0) is None
