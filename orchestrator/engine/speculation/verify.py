"""Verify draft tokens: keep those that the target chooses too, and add its own choice."""

from collections.abc import Callable, Iterator

from orchestrator.engine.kv.prefix_tree import Tokens


def verified(drafts: Tokens, pick: Callable[[int], int]) -> Iterator[int]:
    """Yield the tokens that a step adds: the drafts up to the first that is refused, and one token of the target.

    `pick(row)` chooses from the target's logits after the first `row` drafts, exactly as without drafts. It is called
    for one row after the other, and only after the token before was taken, so that a grammar may move on in between;
    whoever has enough stops asking.

    At temperature 0 the result is the target's own. Above, it has the target's distribution. Speculative sampling
    (Leviathan et al. 2023; Chen et al. 2023) accepts a draft x with probability min(1, p(x) / q(x)), and otherwise
    draws from max(0, p - q), normalised. These drafts are not random, so q(x) is 1: x is accepted with probability
    p(x), and otherwise the token comes from p without x. To draw from p and see whether it is x does just that, and
    takes one random number a token, so that a seed gives the same text with and without drafts.
    """
    for row, draft in enumerate(drafts.tolist()):
        token = pick(row)
        yield token
        if token != draft:
            return
    yield pick(len(drafts))
