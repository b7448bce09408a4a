"""Order a graph: its topological order and waves, or the cycles that prevent one."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

Neighbours = Mapping[str, tuple[str, ...]]


def neighbours(ids: Sequence[str], pairs: Iterable[tuple[str, str]]) -> tuple[Neighbours, Neighbours]:
    """Return the steps before and after each step, unique and in document order; `pairs` are (before, after)."""
    index = {identity: position for position, identity in enumerate(ids)}
    before: list[list[int]] = [[] for _ in ids]
    after: list[list[int]] = [[] for _ in ids]
    for first, second in pairs:
        before[index[second]].append(index[first])
        after[index[first]].append(index[second])
    return _named(ids, before), _named(ids, after)


def _named(ids: Sequence[str], positions: Sequence[list[int]]) -> dict[str, tuple[str, ...]]:
    return {
        identity: tuple(
            ids[position]
            for position in (sorted(set(positions_of_step)) if len(positions_of_step) > 1 else positions_of_step)
        )
        for identity, positions_of_step in zip(ids, positions, strict=True)
    }


def topological(ids: Sequence[str], before: Neighbours, after: Neighbours) -> tuple[str, ...]:
    """Return the steps in topological order (Kahn), ties in document order, without those that a cycle blocks."""
    index = {identity: position for position, identity in enumerate(ids)}
    missing = [len(before[identity]) for identity in ids]
    ready = [position for position, count in enumerate(missing) if count == 0]
    order: list[str] = []
    while ready:
        identity = ids[heapq.heappop(ready)]
        order.append(identity)
        for later in after[identity]:
            position = index[later]
            missing[position] -= 1
            if missing[position] == 0:
                heapq.heappush(ready, position)
    return tuple(order)


def waves(ids: Sequence[str], order: Sequence[str], before: Neighbours) -> tuple[tuple[str, ...], ...]:
    """Return the steps by depth: those without predecessors, then those that wait only for these, and so on.

    `order` is their topological order.
    """
    depth: dict[str, int] = {}
    for identity in order:
        depth[identity] = max((depth[earlier] + 1 for earlier in before[identity]), default=0)
    levels: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for identity in ids:
        levels[depth[identity]].append(identity)
    return tuple(map(tuple, levels))


def cycles(ids: Sequence[str], order: Sequence[str], before: Neighbours) -> Iterator[tuple[str, ...]]:
    """Yield cycles among the steps that are missing in `order`, each from its first step in document order.

    Every missing step is in one of them or waits for one; there may be more cycles. The time is linear.
    """
    ordered = frozenset(order)
    index = {identity: position for position, identity in enumerate(ids)}
    walk_of: dict[str, str] = {}
    # each walk goes backwards until it meets its own path or that of an earlier walk
    for start in ids:
        path: list[str] = []
        at = start
        while at not in ordered and at not in walk_of:
            walk_of[at] = start
            path.append(at)
            at = next(earlier for earlier in before[at] if earlier not in ordered)
        if path and walk_of.get(at) == start:
            cycle = path[path.index(at) :][::-1]
            first = min(range(len(cycle)), key=lambda position: index[cycle[position]])
            yield (*cycle[first:], *cycle[:first])
