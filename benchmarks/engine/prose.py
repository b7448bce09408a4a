"""Write English prose from seeds: everyday sentences, which a real vocabulary tokenises as it does users' texts."""

import random
from collections.abc import Callable

PEOPLE = (
    "Martha",
    "the miller",
    "her younger brother",
    "old Tom Hale",
    "the harbour master",
    "a travelling clockmaker",
    "the baker's daughter",
    "Captain Ellison",
    "the schoolteacher",
    "our neighbour Tobias",
    "the engineer from the waterworks",
    "a retired botanist",
)
DEEDS = (
    "repaired the wooden bridge over the stream",
    "wrote a long letter to the council",
    "carried twelve baskets of apples to the market",
    "counted the boats before the storm arrived",
    "planted a row of walnut trees behind the station",
    "found a leather notebook under the floorboards",
    "measured the depth of the well with a knotted rope",
    "sold the last copper kettle for a fair price",
    "painted the shutters of the library dark green",
    "argued with the surveyor about the new road",
    "kept a careful record of the rainfall",
    "taught the children to read the old maps",
)
TIMES = (
    "Early in the spring",
    "On the second Tuesday of October",
    "Just before sunrise",
    "After the long drought",
    "While the church bells were ringing",
    "During the coldest week of the winter",
    "A few days later",
    "Every evening that summer",
)
PLACES = (
    "at the edge of the village",
    "near the lighthouse",
    "in the narrow street behind the mill",
    "on the far side of the valley",
    "beside the railway line",
    "in the quiet courtyard of the hospital",
    "above the salt marshes",
    "at the foot of the quarry",
)
REASONS = (
    "because nobody else had remembered to do it",
    "although the weather was turning worse by the hour",
    "so that the younger families could stay through the winter",
    "and the whole town talked about it for weeks",
    "which surprised everyone who had known the place before the war",
    "even though the cost was higher than the mayor had promised",
    "and it turned out to be the best decision of the year",
    "since the river had already flooded two of the cellars",
)
QUESTIONS = (
    "Write a long and detailed story about what happened to {who} next, with many sentences.",
    "Explain at length, in several paragraphs, why {who} mattered to the people of the town.",
    "Describe the town and the days of {who} in as much detail as you can, in full sentences.",
    "Write a long letter from {who} to a friend abroad that tells of all these events, one after the other.",
    "Continue this account for several pages, and tell what {who} thought and did in the following years.",
)


def document(rng: random.Random, tokens: int, count: Callable[[str], int]) -> str:
    """Return as few sentences as have at least `tokens` tokens together; `count` returns the tokens of a text."""
    text = _sentence(rng)
    while count(text) < tokens:
        text = f"{text} {_sentence(rng)}"
    return text


def question(rng: random.Random) -> str:
    """Return a request for a long answer about one of the people that documents mention."""
    return rng.choice(QUESTIONS).format(who=rng.choice(PEOPLE))


def list_task(rng: random.Random) -> str:
    """Return a task whose answer is a list of digits."""
    who, when, where = (rng.choice(parts) for parts in (PEOPLE, TIMES, PLACES))
    return f"{when}, {who} counted the visitors {where}, hour by hour. Go on with the list of numbers."


def _sentence(rng: random.Random) -> str:
    who, deed, when, where, why = (rng.choice(parts) for parts in (PEOPLE, DEEDS, TIMES, PLACES, REASONS))
    return f"{when}, {who} {deed} {where}, {why}."
