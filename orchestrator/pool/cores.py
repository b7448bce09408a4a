"""Share the physical cores out among the engines that are decoding. Pure."""

from collections.abc import Mapping


def share_cores(cores: int, ceilings: Mapping[str, int | None]) -> dict[str, int]:
    """Return the threads of each decoding engine: equal shares of `cores`, none above its own ceiling.

    What an engine may not take goes to the others, and what does not divide goes to the first ones. One alone gets
    all. With more engines than cores each gets one thread, and the operating system makes them take turns.
    """
    shares = dict.fromkeys(ceilings, 1)
    left = cores - len(shares)
    hungry = list(shares)
    while left > 0 and hungry:
        hungry = [engine for engine in hungry if (most := ceilings[engine]) is None or shares[engine] < most]
        for engine in hungry[:left]:
            shares[engine] += 1
        left -= len(hungry)
    return shares
