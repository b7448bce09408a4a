"""Share the physical cores out among the engines that are decoding. Pure.

With more engines than cores they take turns: a turn lasts `TURN_SECONDS`, the most urgent come first, and whoever has
waited for `PATIENCE_SECONDS` comes before all others, so that none waits for ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.pool.placement import Place
from orchestrator.pool.topology import Topology

TURN_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """An engine that has work. All times in seconds of one clock.

    `ceiling` is the most threads that it may have, None for no limit, and `node` the one that it is bound to. `due` is
    when its most urgent work has to be done. It has been `running`, or waiting for its turn, since `since`.
    """

    place: Place
    ceiling: int | None = None
    node: int | None = None
    due: float = 0.0
    running: bool = False
    since: float = 0.0


def share_cores(topology: Topology, decoders: Iterable[Decoder], now: float = 0.0) -> dict[Place, int]:
    """Return the threads of each decoder, 0 for one that has to wait for its turn.

    Those that may run get equal shares, none above its ceiling, and on no node more than it has cores; what does not
    divide goes to the most urgent. One alone gets all. The sum never exceeds the cores of the machine.
    """
    queue = sorted(decoders, key=lambda decoder: _rank(decoder, now))
    shares = {decoder.place: 0 for decoder in queue}
    left = topology.cores
    free = {node.id: len(node.cores) for node in topology.nodes}
    hungry: Sequence[Decoder] = queue
    while left and hungry:
        fed: list[Decoder] = []
        for decoder in hungry:
            if left and (decoder.node is None or free[decoder.node]):
                shares[decoder.place] += 1
                left -= 1
                if decoder.node is not None:
                    free[decoder.node] -= 1
                if decoder.ceiling is None or shares[decoder.place] < decoder.ceiling:
                    fed.append(decoder)
        hungry = fed
    return shares


def _rank(decoder: Decoder, now: float) -> tuple[int, float]:
    """Sort a turn that has begun first, then those that have waited too long, then by what is due."""
    spent = now - decoder.since
    if decoder.running and spent < TURN_SECONDS:
        return 0, decoder.since
    if not decoder.running and spent >= PATIENCE_SECONDS:
        return 1, decoder.since
    return 2, decoder.due
