import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kv.prefix_tree import PrefixTree, common_prefix
from orchestrator.registry.options import Lora


def tokens(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_common_prefix() -> None:
    assert common_prefix(tokens(1, 2, 3), tokens(1, 2, 4)) == 2
    assert common_prefix(tokens(1, 2), tokens(1, 2, 4)) == 2
    assert common_prefix(tokens(), tokens(1)) == 0


def test_a_fork_shares_cells_until_both_are_gone() -> None:
    tree = PrefixTree()
    tree.start(1)
    tree.extend(1, tokens(1, 2, 3, 4))
    assert tree.match(tokens(1, 2, 9)) == (1, 2)
    tree.fork(1, 2, 2)
    tree.extend(2, tokens(9))
    assert tree.cells == 5
    assert (tree.exclusive(1), tree.exclusive(2)) == (2, 1)
    tree.drop(1)
    assert tree.cells == 3
    assert tree.match(tokens(1, 2, 3)) == (2, 2)
    tree.drop(2)
    assert tree.cells == 0
    assert tree.match(tokens(1)) == (-1, 0)


def test_sequences_with_different_adapters_share_nothing() -> None:
    tree, plans = PrefixTree(), (Lora("plans.gguf"),)
    tree.start(1)
    tree.extend(1, tokens(1, 2, 3))
    assert tree.match(tokens(1, 2, 3), plans) == (-1, 0)
    tree.start(2, plans)
    tree.extend(2, tokens(1, 2))
    assert (tree.match(tokens(1, 2, 3)), tree.match(tokens(1, 2, 3), plans)) == ((1, 3), (2, 2))
    assert (tree.cells, tree.exclusive(2)) == (5, 2)
    wanted = tokens(1, 2, 9)
    assert [tree.held_of(wanted, seq, lora) for seq in (1, 2) for lora in ((), plans)] == [2, 0, 0, 2]
    tree.fork(2, 3, 1)
    tree.drop(2)
    assert (tree.match(tokens(1, 2), plans), tree.cells) == ((3, 1), 4)


action = st.tuples(
    st.sampled_from(["start", "fork", "extend", "drop"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(1, 8),
)


Cells = list[tuple[int, int]]
Actions = list[tuple[str, int, int, list[int], int]]


def play(actions: Actions) -> tuple[PrefixTree, dict[int, Cells]]:
    """Return a tree, and its model: each sequence is a list of (cell, token); a fork copies the head of the list."""
    tree, cells = PrefixTree(), iter(range(10**6))
    model: dict[int, Cells] = {}
    for kind, seq, other, values, length in actions:
        if kind == "start" and seq not in model:
            tree.start(seq)
            model[seq] = []
        elif kind == "fork" and seq in model and other not in model and length <= len(model[seq]):
            tree.fork(seq, other, length)
            model[other] = model[seq][:length]
        elif kind == "extend" and seq in model:
            tree.extend(seq, tokens(*values))
            model[seq] = model[seq] + [(next(cells), v) for v in values]
        elif kind == "drop" and seq in model:
            tree.drop(seq)
            del model[seq]
        assert tree.cells == len({cell for held in model.values() for cell, _ in held})
    return tree, model


def spelled(held: Cells) -> list[int]:
    return [token for _, token in held]


@given(st.lists(action, max_size=40))
def test_against_cells_that_are_listed_one_by_one(actions: Actions) -> None:
    tree, model = play(actions)
    for seq, held in model.items():
        others = {cell for o, h in model.items() if o != seq for cell, _ in h}
        assert tree.exclusive(seq) == len([c for c, _ in held if c not in others])
        some = [seq, *(other for other in model if other < seq)]
        assert tree.cells_of(some) == len({cell for one in some for cell, _ in model[one]})
        mine = tokens(*spelled(held))
        for wanted in ([0, 1, 2], [1, 1, 1, 1], [2], [*mine, 0]):
            assert tree.held_of(tokens(*wanted), seq) == common_prefix(mine, tokens(*wanted))
    for wanted in ([0, 1, 2], [1, 1, 1, 1], [2]):
        best = max((common_prefix(tokens(*spelled(held)), tokens(*wanted)) for held in model.values()), default=0)
        found, shared = tree.match(tokens(*wanted))
        assert shared == best
        assert shared == 0 or spelled(model[found])[:shared] == wanted[:shared]


@given(st.lists(action, max_size=40), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_a_prefix_that_is_too_short_for_its_sequence_does_not_match(actions: Actions, least: list[int]) -> None:
    tree, model = play(actions)
    for wanted in ([0, 1, 2], [1, 1, 1, 1], [2], [0, 0, 0, 0, 0, 0]):
        common = {seq: common_prefix(tokens(*spelled(held)), tokens(*wanted)) for seq, held in model.items()}
        usable = {seq: length for seq, length in common.items() if length >= least[seq]}
        found, shared = tree.match(tokens(*wanted), least=least.__getitem__)
        assert shared == max(usable.values(), default=0)
        assert shared == 0 or usable[found] == shared


@given(st.lists(action, max_size=40), st.sets(st.integers(0, 5)))
def test_ends_against_cells_that_are_listed_one_by_one(actions: Actions, usable: set[int]) -> None:
    tree, model = play(actions)
    for seq, held in model.items():
        others = {other: model[other] for other in usable & {*model} - {seq}}
        for more in ([1], [1, 2], []):
            wanted = [*spelled(held), *more]
            repeated = wanted in [spelled(cells) for cells in others.values()]
            assert not wanted or tree.is_repeated(seq, tokens(*more), usable.__contains__) == repeated
        before = [len(cells) for cells in others.values() if held[: len(cells)] == cells]
        assert tree.distance(seq, usable) == len(held) - max(before, default=0)
    for wanted in ([0, 1, 2], [1, 1, 1, 1], [2], [0, 0, 0, 0, 0, 0]):
        ends = {
            seq: len(held)
            for seq, held in model.items()
            if seq in usable and held and spelled(held) == wanted[: len(held)]
        }
        end, length = tree.match_end(tokens(*wanted), usable.__contains__)
        assert length == max(ends.values(), default=0)
        assert length == 0 or ends[end] == length


def test_cells_count_once_for_the_first_owner() -> None:
    tree = PrefixTree()
    tree.start(1)
    tree.extend(1, tokens(1, 2, 3, 4))
    tree.fork(1, 2, 2)
    tree.extend(2, tokens(9))
    tree.fork(1, 3, 4)
    assert tree.cells_by({1: "a", 2: "b", 3: "c"}) == {"a": 4, "b": 1, "c": 0}
    assert tree.cells_by({2: "b", 1: "a"}) == {"b": 3, "a": 2}
    assert tree.cells_by({1: "a", 2: "a", 3: "a"}) == {"a": tree.cells}
    assert tree.cells_by({}) == {}
