import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kv.prefix_store import BadPrefix, keep_within, prefix_file, read_prefix, write_prefix

TOKENS = np.arange(40, dtype=np.int32)
STATE = bytes(range(256)) * 8


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "prefixes"
    assert read_prefix(folder, "key", TOKENS) is None
    write_prefix(folder, "key", TOKENS, STATE)
    assert read_prefix(folder, "key", TOKENS) == STATE
    assert read_prefix(folder, "other", TOKENS) is None
    assert read_prefix(folder, "key", TOKENS[:-1]) is None
    assert len(list(folder.iterdir())) == 1


@given(st.data())
def test_no_damage_is_overlooked(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("prefixes")
    write_prefix(folder, "key", TOKENS, STATE)
    path = prefix_file(folder, "key", TOKENS)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["cut", "change", "lengthen"]))
    changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    damaged = {"cut": whole[:at], "change": whole[:at] + changed + whole[at + 1 :], "lengthen": whole + b"x"}[how]
    path.write_bytes(damaged)
    try:
        assert read_prefix(folder, "key", TOKENS) == STATE, "only if it says the same in other words"
        assert how == "change"
    except BadPrefix:
        pass


def test_what_belongs_to_something_else_is_not_taken(tmp_path: Path) -> None:
    write_prefix(tmp_path, "other", TOKENS, STATE)
    prefix_file(tmp_path, "other", TOKENS).rename(prefix_file(tmp_path, "key", TOKENS))
    with pytest.raises(BadPrefix, match="something else"):
        read_prefix(tmp_path, "key", TOKENS)


def test_the_least_recently_used_are_deleted_and_what_was_left_unfinished(tmp_path: Path) -> None:
    names = [TOKENS[:length] for length in range(30, 35)]
    for age, tokens in enumerate(names):
        write_prefix(tmp_path, "key", tokens, STATE)
        os.utime(prefix_file(tmp_path, "key", tokens), (1000 + age, 1000 + age))
    unfinished = tmp_path / "abc.kv.0123"
    unfinished.write_bytes(STATE)
    os.utime(unfinished, (1, 1))
    assert read_prefix(tmp_path, "key", names[0]) == STATE  # and that was a use
    each = prefix_file(tmp_path, "key", TOKENS[:30]).stat().st_size
    assert keep_within(tmp_path, 3 * each) == 3
    assert [read_prefix(tmp_path, "key", tokens) is not None for tokens in names] == [True, False, False, True, True]
    assert not unfinished.exists()
    assert keep_within(tmp_path, 0) == 3
    assert keep_within(tmp_path / "absent", 0) == 0
