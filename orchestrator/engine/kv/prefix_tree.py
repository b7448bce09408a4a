"""Record which sequence holds which prompt tokens in the KV cache, as a radix tree, and count their cells.

Cells depend on the adapters they were computed with, so sequences with different adapters share nothing.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orchestrator.registry.options import Adapters

Tokens = npt.NDArray[np.int32]


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Return how many tokens two arrays have in common at the start."""
    length = min(len(left), len(right))
    different = left[:length] != right[:length]
    at = int(different.argmax()) if length else 0
    return at if length and different[at] else length


# A run of tokens that follows those of its parent.
@dataclass(slots=True, eq=False)
class _Node:
    tokens: Tokens
    parent: "_Node | None"
    children: list["_Node"] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)  # sequences whose last token is the last one of this node

    def sequences(self) -> Iterator[int]:
        # At least one sequence ends here or below.
        yield from self.ends
        for child in self.children:
            yield from child.sequences()


class PrefixTree:
    def __init__(self) -> None:
        self.cells = 0  # tokens that are held; shared ones count once
        self._roots: dict[Adapters, _Node] = {}
        self._at: dict[int, _Node] = {}

    def start(self, seq: int, lora: Adapters = ()) -> None:
        self._place(seq, self._roots.setdefault(lora, _Node(np.empty(0, np.int32), None)))

    def match(self, tokens: Tokens, lora: Adapters = (), least: Callable[[int], int] = lambda _: 0) -> tuple[int, int]:
        """Return the sequence with these adapters that holds the longest prefix of `tokens`, and its length.

        Prefixes of a sequence that are shorter than `least` returns for it do not count. Returns (-1, 0) if there is
        none.
        """
        root = self._roots.get(lora)
        return (-1, 0) if root is None else self._longest(root, tokens, 0, least)

    def match_end(self, tokens: Tokens, is_usable: Callable[[int], bool], lora: Adapters = ()) -> tuple[int, int]:
        """Return like `match` a usable sequence, of those of which all tokens are a prefix of `tokens`."""
        root = self._roots.get(lora)
        return (-1, 0) if root is None else self._longest_end(root, tokens, is_usable)

    def is_repeated(self, seq: int, more: Tokens, is_usable: Callable[[int], bool]) -> bool:
        """Return whether another, usable sequence holds what this one would hold with `more` tokens."""
        path = self._path(seq)
        tokens = np.concatenate([*(node.tokens for node in path), more])
        root = path[0].parent if path else self._at[seq]
        assert root is not None, "a path starts below a root"
        end = self._longest_end(root, tokens, lambda other: other != seq and is_usable(other))
        return end[1] == len(tokens)

    def content(self, seq: int) -> tuple[Adapters, Tokens]:
        """Return the adapters and the tokens of a sequence."""
        path = self._path(seq)
        root = path[0].parent if path else self._at[seq]
        lora = next(lora for lora, its_root in self._roots.items() if its_root is root)
        return lora, np.concatenate([np.empty(0, np.int32), *(node.tokens for node in path)])

    def distance(self, seq: int, others: Container[int]) -> int:
        """Return how many tokens of a sequence follow those that one of `others` ends with."""
        node, count = self._at[seq], 0
        while node.parent is not None and not any(other != seq and other in others for other in node.ends):
            count += len(node.tokens)
            node = node.parent
        return count

    def held_of(self, tokens: Tokens, seq: int, lora: Adapters = ()) -> int:
        """Return how many of the first `tokens` this sequence holds, computed with these adapters."""
        path = self._path(seq)
        if not path or path[0].parent is not self._roots.get(lora):
            return 0
        count = 0
        for node in path:
            common = common_prefix(node.tokens, tokens[count:])
            count += common
            if common < len(node.tokens):
                break
        return count

    def exclusive(self, seq: int) -> int:
        """Return how many cells removing this sequence would free."""
        node, count = self._at[seq], 0
        if node.children or node.ends != {seq}:
            return 0
        while node.parent is not None:
            count += len(node.tokens)
            node = node.parent
            if node.ends or len(node.children) > 1:
                break
        return count

    def cells_of(self, seqs: Iterable[int]) -> int:
        """Return how many tokens these sequences hold; shared ones count once."""
        return sum(len(node.tokens) for node in {node for seq in seqs for node in self._path(seq)})

    def cells_by(self, owners: Mapping[int, str]) -> Counter[str]:
        """Return how many tokens the sequences of each owner hold; shared ones count once, for the first of them."""
        counts: Counter[str] = Counter()
        counted: set[_Node] = set()
        for seq, owner in owners.items():
            nodes = [node for node in self._path(seq) if node not in counted]
            counts[owner] += sum(len(node.tokens) for node in nodes)
            counted.update(nodes)
        return counts

    def fork(self, source: int, target: int, length: int) -> None:
        """Add `target`, which shares the first `length` tokens of `source`, at least one of them.

        Raises ValueError if `source` holds fewer.
        """
        for node in self._path(source):
            if length <= len(node.tokens):
                self._place(target, node if length == len(node.tokens) else self._split(node, length))
                return
            length -= len(node.tokens)
        raise ValueError(f"sequence {source} is {length} tokens too short to be forked there")

    def extend(self, seq: int, tokens: Tokens) -> None:
        node = self._at[seq]
        self.cells += len(tokens)
        if node.parent is not None and not node.children and node.ends == {seq}:
            node.tokens = np.concatenate((node.tokens, tokens))
            return
        child = _Node(tokens, node)
        node.children.append(child)
        node.ends.discard(seq)
        self._place(seq, child)

    def drop(self, seq: int) -> None:
        """Remove a sequence, and the tokens that no other sequence holds."""
        node = self._at.pop(seq)
        node.ends.discard(seq)
        while node.parent is not None and not node.ends and not node.children:
            self.cells -= len(node.tokens)
            node.parent.children.remove(node)
            node = node.parent

    def _longest(self, node: _Node, tokens: Tokens, above: int, least: Callable[[int], int]) -> tuple[int, int]:
        # The length counts from the root, and `tokens` are those after the first `above`.
        best = (-1, 0)
        for child in node.children:
            common = common_prefix(child.tokens, tokens)
            if not common:
                continue
            seq, length = -1, 0
            if common == len(child.tokens):
                seq, length = self._longest(child, tokens[common:], above + common, least)
            if not length:
                length = above + common
                seq = next((holder for holder in child.sequences() if least(holder) <= length), -1)
            if seq >= 0 and length > best[1]:
                best = (seq, length)
        return best

    def _longest_end(self, node: _Node, tokens: Tokens, is_usable: Callable[[int], bool]) -> tuple[int, int]:
        best = (-1, 0)
        for child in node.children:
            length = len(child.tokens)
            if common_prefix(child.tokens, tokens) < length:
                continue
            seq, more = self._longest_end(child, tokens[length:], is_usable)
            if not more:
                seq = next(filter(is_usable, child.ends), -1)
            if seq >= 0 and length + more > best[1]:
                best = (seq, length + more)
        return best

    def _place(self, seq: int, node: _Node) -> None:
        node.ends.add(seq)
        self._at[seq] = node

    def _split(self, node: _Node, length: int) -> _Node:
        upper = _Node(node.tokens[:length], node.parent, [node])
        if node.parent is not None:
            node.parent.children[node.parent.children.index(node)] = upper
        # The node itself becomes the lower part: its sequences still end at it.
        node.tokens, node.parent = node.tokens[length:], upper
        return upper

    def _path(self, seq: int) -> list[_Node]:
        path, node = [], self._at[seq]
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path[::-1]  # from the root
