import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kv.prefix_store import BLOCK, LEAST_FREE_BYTES, BadPrefix, PrefixStore
from orchestrator.engine.kv.prefix_tree import Tokens

TOKENS = np.arange(3 * BLOCK + 8, dtype=np.int32)
STATE = bytes(range(256)) * 8
BUDGET = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> PrefixStore:
    return fresh(tmp_path)


def fresh(folder: Path, most_bytes: int = BUDGET) -> PrefixStore:
    opened = PrefixStore(folder / "prefixes", most_bytes)
    opened.refresh()
    return opened


def files(folder: Path) -> list[Path]:
    return sorted((folder / "prefixes").iterdir())


def writing(
    store: PrefixStore, tokens: Tokens = TOKENS, key: str = "key", seconds: float = 1.0, cuts: bool = True
) -> Iterator[None] | None:
    state = memoryview(STATE)
    return store.write(key, tokens, lambda: state, size=len(state), seconds=seconds, cuts=cuts)


def write(
    store: PrefixStore, tokens: Tokens = TOKENS, key: str = "key", seconds: float = 1.0, cuts: bool = True
) -> bool:
    """Write a prefix, and return whether there was room for it."""
    pieces = writing(store, tokens, key, seconds, cuts)
    for _ in pieces or ():
        pass
    store.refresh()
    return pieces is not None


def length(store: PrefixStore, tokens: Tokens, key: str = "key") -> int:
    prefix = store.longest(key, tokens)
    return 0 if prefix is None else prefix.length


def test_what_was_written_is_read_by_the_next_engine(store: PrefixStore, tmp_path: Path) -> None:
    assert store.longest("key", TOKENS) is None
    assert write(store)
    later = fresh(tmp_path)
    prefix = later.longest("key", TOKENS)
    assert prefix is not None
    assert later.read(prefix) == STATE
    assert (prefix.length, prefix.tokens) == (len(TOKENS), len(TOKENS))
    assert later.longest("other", TOKENS) is None


def test_a_prompt_that_parts_from_it_has_its_start(store: PrefixStore) -> None:
    write(store)
    longer, parts = np.append(TOKENS, 5), TOKENS.copy()
    parts[2 * BLOCK + 3] = 7
    assert length(store, longer.astype(np.int32)) == len(TOKENS)
    assert length(store, parts) == 2 * BLOCK
    assert length(store, TOKENS[:-1]) == 3 * BLOCK
    assert length(store, TOKENS[1:]) == 0


def test_a_state_is_usable_only_at_its_end(store: PrefixStore) -> None:
    write(store, cuts=False)
    assert length(store, TOKENS[:-1]) == 0
    assert length(store, TOKENS) == len(TOKENS)
    write(store, TOKENS[:BLOCK], cuts=False)
    assert length(store, TOKENS[:-1]) == BLOCK


def test_a_longer_one_takes_the_place_of_its_start(store: PrefixStore, tmp_path: Path) -> None:
    write(store, TOKENS[: BLOCK + 9])
    write(store, TOKENS[:BLOCK], key="other")
    write(store, TOKENS[: 2 * BLOCK + 5])
    write(store)
    assert len(files(tmp_path)) == 2
    for end in (BLOCK + 9, 2 * BLOCK + 5):
        assert length(store, TOKENS[: end + 1]) == end
    assert length(store, TOKENS, "other") == BLOCK


@given(st.data())
def test_no_damage_is_overlooked(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("prefixes")
    write(fresh(folder))
    (path,) = files(folder)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["cut", "change", "lengthen"]))
    changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    damaged = {"cut": whole[:at], "change": whole[:at] + changed + whole[at + 1 :], "lengthen": whole + b"x"}[how]
    path.write_bytes(damaged)
    later = fresh(folder)
    prefix = later.longest("key", TOKENS)
    if prefix is not None:
        with pytest.raises(BadPrefix):
            later.read(prefix)
        later.remove(prefix)
        assert files(folder) == []
    else:
        assert how == "change" or files(folder) == []


def test_another_file_in_its_place_is_not_taken(store: PrefixStore, tmp_path: Path) -> None:
    write(store, key="other")
    (other,) = files(tmp_path)
    write(store)
    prefix = store.longest("key", TOKENS)
    assert prefix is not None
    other.replace(prefix.path)
    with pytest.raises(BadPrefix, match="another file has taken its place"):
        store.read(prefix)


def test_what_another_version_or_program_wrote_is_removed(store: PrefixStore, tmp_path: Path) -> None:
    write(store)
    (path,) = files(tmp_path)
    later = path.read_bytes().replace(b'"schema":2', b'"schema":3')
    path.with_name("0123.kv").write_bytes(later)
    path.with_name("4567.kv").write_bytes(STATE)
    path.with_name("notes.txt").write_text("mine")
    fresh(tmp_path)
    assert [file.name for file in files(tmp_path)] == sorted([path.name, "notes.txt"])


def test_only_the_owner_may_read_it(store: PrefixStore, tmp_path: Path) -> None:
    write(store)
    for path, mode in ((tmp_path / "prefixes", 0o700), (files(tmp_path)[0], 0o600)):
        assert path.stat().st_mode & 0o777 == mode


def test_nothing_is_there_before_the_last_piece(store: PrefixStore, tmp_path: Path) -> None:
    pieces = writing(store)
    assert pieces is not None
    next(pieces)
    assert [file.suffix == ".kv" for file in files(tmp_path)] == [False]
    assert fresh(tmp_path).longest("key", TOKENS) is None
    del pieces
    assert files(tmp_path) == []


def test_what_a_killed_engine_left_unfinished_is_removed_after_a_while(store: PrefixStore, tmp_path: Path) -> None:
    write(store)
    left = files(tmp_path)[0].with_name("0123.kv.abcd")
    left.write_bytes(STATE)
    fresh(tmp_path)
    assert left.exists(), "it may still be written"
    os.utime(left, (1, 1))
    fresh(tmp_path)
    assert not left.exists()


def test_the_least_valuable_go_and_what_is_worth_less_is_not_written(store: PrefixStore, tmp_path: Path) -> None:
    prompts = [TOKENS + 1000 * number for number in range(4)]
    for age, (prompt, seconds) in enumerate(zip(prompts[:3], (1.0, 50.0, 1.0), strict=True)):
        write(store, prompt, seconds=seconds)
        prefix = store.longest("key", prompt)
        assert prefix is not None
        used = time.time() - 1000 + age
        os.utime(prefix.path, (used, used))
    each = files(tmp_path)[0].stat().st_size
    tight = fresh(tmp_path, most_bytes=3 * each + 500)
    first = tight.longest("key", prompts[0])
    assert first is not None
    tight.read(first)  # a use
    tight.refresh()
    assert write(tight, prompts[3], seconds=1.0)
    assert [length(tight, prompt) > 0 for prompt in prompts] == [True, True, False, True]
    assert not write(tight, TOKENS - 1000, seconds=0.01)
    assert [length(tight, prompt) > 0 for prompt in prompts] == [True, True, False, True]
    assert fresh(tmp_path, most_bytes=0).longest("key", prompts[1]) is None
    assert files(tmp_path) == []


def test_nothing_is_written_to_a_disk_that_is_nearly_full(
    store: PrefixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = LEAST_FREE_BYTES + 100
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert not write(store)
    assert files(tmp_path) == []
    free += 1 << 20
    assert write(store)
