"""Make the task: fifty short documents, of which a few are about one ship, whose facts have to be found."""

import random
from pathlib import Path

DOCUMENTS = 50
RELEVANT = 6
SHIP = "Koldin"
_OTHERS = ("Marvon", "Velmar", "Hastrel", "Orvane", "Pellin", "Tarkos")
_FACTS = ("length in m", "weight in t", "speed in km/h", "crew", "year of its launch", "number of decks")
_FILLER = (
    "The survey was made in calm weather by two inspectors of the harbour.",
    "Its paint is worn on the port side, and the owner was told.",
    "The papers were complete and lie in the office of the registrar.",
    "A second visit is planned for the spring, when the ice is gone.",
    "The inspectors thank the crew for the coffee and for their patience.",
)


def write_documents(folder: Path, seed: int) -> dict[str, int]:
    """Write the documents into a folder, and return the values of the facts about the ship, by fact."""
    rng = random.Random(seed)  # noqa: S311 - a task, no secret
    facts = {fact: rng.randrange(10, 300) for fact in _FACTS[:RELEVANT]}
    about = [(SHIP, fact, value) for fact, value in facts.items()]
    about += [(rng.choice(_OTHERS), rng.choice(_FACTS), rng.randrange(10, 300)) for _ in range(DOCUMENTS - RELEVANT)]
    rng.shuffle(about)
    for number, (ship, fact, value) in enumerate(about):
        filler = rng.sample(_FILLER, 3)
        text = (
            f"Report {number} on the {ship}. {filler[0]} The {fact} of the {ship} is {value}. {' '.join(filler[1:])}\n"
        )
        (folder / f"report{number:02}.txt").write_text(text, encoding="utf-8")
    return facts
