"""Later held-out jobs for which one call is enough: look-ups, lists, sums, conversions, letters and wordings."""

import re
from collections.abc import Mapping
from typing import Final

from benchmarks.jobs.checks import (
    code_blocks,
    every,
    holds,
    in_order,
    items,
    json_with,
    lacks,
    language,
    mentions,
    number,
    plain,
    reworded,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob
from benchmarks.jobs.part_checks import each_part, only

_CODES: Final = """\
Bellavista B3: messages on the display

E1  water tank is empty
E2  drip tray is full
E3  no beans in the grinder
E4  machine needs descaling: hold the left button for 5 seconds
E5  milk tube is blocked: hold the right button for 5 seconds
E6  call service, 555-0147
"""
_CASHBOOK: Final = """\
Flower stall, Saturday 9 May

pots 12.00
soil 8.50
ribbon 4.00
posters 15.50
parking 6.00
coffee for the helpers 9.00
"""
_SWIMMERS: Final = """\
name,age,badge
Ayodele,7,yes
Beatrix,9,yes
Cosmo,10,no
Dilan,8,yes
Elsie,11,yes
Finnian,6,no
Gustav,9,no
"""
_CHOIR: Final = """\
name,voice,since
Marta,alto,2015
Yusuf,bass,2021
Helen,soprano,2009
Ravi,tenor,2018
"""
_TOOLS: Final = """\
Was im Vereinskeller liegt:

- 3 Hammer, Regal A
- 2 Sägen, Regal C
- 12 Schraubzwingen, Regal B
- 1 Bohrmaschine, Regal A
- 5 Pinsel, Regal D
"""
_RUBBISH: Final = (
    "Tenants are requested to refrain from depositing bulky refuse in the courtyard. Collection thereof is effected "
    "upon prior notification by telephone on 555-0142. Non-compliance may incur a charge of 50 euros."
)
_POSTCARD: Final = """\
Lieve allemaal,
We zijn goed aangekomen op het eiland. Het weer is prachtig en we fietsen elke dag.
Morgen gaan we naar de vuurtoren.
Groetjes, Saskia en Wim
"""
_MENU: Final = """\
Menú del jueves

Lentejas con chorizo
Tortilla de patatas
Pollo asado con limón
Pimientos rellenos de arroz y queso
Sopa de pescado
Ensalada de tomate y aceitunas
"""
_SICK: Final = (
    "write my boss a short mail pls: im ill today, doc says i can be back on thursday, Jonas takes over the client "
    "call at 2. we're on first name terms, her name is Priya"
)
_CLASSES: Final = """\
Yoga 6:30 pm
Pilates 9:15 am
Boxing 8:00 pm
Swimming 7:45 am
Dance 5:20 pm
"""
_CLASS_TIMES: Final[Mapping[str, str]] = {
    "yoga": r"18[:.]30",
    "pilates": r"0?9[:.]15",
    "boxing": r"20[:.]00",
    "swimming": r"0?7[:.]45",
    "dance": r"17[:.]20",
}
_MUSEUM_TRIP: Final = """\
Noura
Timo
Wren
Noura
Pavel
Idris
timo
Sanna
Lucia
"""
_MUSEUM_KIDS: Final = ("noura", "timo", "wren", "pavel", "idris", "sanna", "lucia")
_VISITORS: Final = """\
day,visitors
Tuesday,61
Wednesday,54
Thursday,38
Friday,72
Saturday,140
Sunday,133
"""


def _has_class_times(text: str) -> bool:
    """Return whether each class has a line with its time of 24 hours, without am or pm."""
    lines = [line for line in map(plain, text.splitlines()) if not re.search(r"\d ?[ap]\.?m\b", line)]
    return all(
        any(name in line and re.search(rf"(?<!\d){time}(?!\d)", line) for line in lines)
        for name, time in _CLASS_TIMES.items()
    )


def _has_each_kid_once(text: str) -> bool:
    """Return whether the text, a paragraph or a block of it has each of the kids once."""
    candidates = [text, *re.split(r"\n\s*\n", text), *code_blocks(text)]
    return any(
        all(len(re.findall(rf"\b{name}\b", plain(candidate))) == 1 for name in _MUSEUM_KIDS) for candidate in candidates
    )


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "coffee-machine-code",
        "one-call",
        "the office coffee machine shows E4, and nobody can find the manual, only this list (codes.txt). what does it "
        "want, and which button do I hold?",
        every(
            mentions(("descal*", "limescale", "lime scale", "decalcif*"), "left"),
            lacks("right button", "drip tray", "grinder", "milk"),
            words(4, 90),
        ),
        {"codes.txt": _CODES},
        held_out=True,
    ),
    BenchJob(
        "flower-stall-total",
        "one-call",
        "Hi, I paid for everything in cashbook.txt out of my own pocket. How much was it in total? Benno already gave "
        "me 20 euros of it back, so how much do I still get?",
        every(number(55), number(35), words(2, 200)),
        {"cashbook.txt": _CASHBOOK},
        held_out=True,
    ),
    BenchJob(
        "deep-pool",
        "one-call",
        "only kids who are 8 or older AND have the swimming badge may go in the deep pool. who in swim.csv is that? "
        "names only thx",
        every(
            only(("beatrix", "dilan", "elsie"), ("ayodele", "beatrix", "cosmo", "dilan", "elsie", "finnian", "gustav")),
            words(3, 45),
        ),
        {"swim.csv": _SWIMMERS},
        held_out=True,
    ),
    BenchJob(
        "choir-as-json",
        "one-call",
        "The web designer would like choir.csv as JSON (choir.json): a list with one object per singer, and the column "
        "names as keys.",
        json_with(
            [
                {"name": "Marta", "voice": "alto", "since": 2015},
                {"name": "Yusuf", "voice": "bass", "since": 2021},
                {"name": "Helen", "voice": "soprano", "since": 2009},
                {"name": "Ravi", "voice": "tenor", "since": 2018},
            ],
            "choir.json",
        ),
        {"choir.csv": _CHOIR},
        ("choir.json",),
        held_out=True,
    ),
    BenchJob(
        "werkzeug-als-csv",
        "one-call",
        "Mach mir aus werkzeug.txt bitte eine Tabelle, die Excel lesen kann: werkzeug.csv mit den Spalten Anzahl, "
        "Gegenstand und Regal (nur der Buchstabe). Die Spaltennamen kommen in die erste Zeile.",
        table(
            (3, "Hammer", "A"),
            (2, "Sägen", "C"),
            (12, "Schraubzwingen", "B"),
            (1, "Bohrmaschine", "A"),
            (5, "Pinsel", "D"),
            count=5,
            header=("Anzahl", "Gegenstand", "Regal"),
            columns=3,
            file="werkzeug.csv",
        ),
        {"werkzeug.txt": _TOOLS},
        ("werkzeug.csv",),
        held_out=True,
    ),
    BenchJob(
        "mot-aux-voisins",
        "one-call",
        "Tu peux me traduire ça en anglais ? C'est pour les étudiants du dessous : « Bonsoir ! Samedi soir, nous "
        "faisons une fête. La musique s'arrête à minuit. Si c'est trop fort, appelez-nous. »",
        every(
            mentions(
                ("party", "parties", "celebrat*"),
                "Saturday",
                ("midnight", "12 am", "12am", "twelve"),
                ("loud*", "noisy", "noise"),
                ("call*", "phone*", "ring*"),
            ),
            words(14, 140),
        ),
        held_out=True,
    ),
    BenchJob(
        "plain-english-for-a-neighbour",
        "one-call",
        "My neighbour has been learning English for a year and doesn't understand this notice in our hallway. Can you "
        f'say it in simple words, in two to four short sentences? "{_RUBBISH}"',
        every(
            language("en"),
            mentions(
                (
                    "rubbish",
                    "trash",
                    "garbage",
                    "waste",
                    "things",
                    "items",
                    "objects",
                    "stuff",
                    "furniture",
                    "junk",
                    "refuse",
                ),
                ("courtyard", "yard"),
                ("call*", "phone*", "ring", "telephone*"),
                ("555 0142", "5550142"),
                ("50*", "fifty"),
            ),
            lacks("refrain*", "thereof", "notification", "compliance", "non-compliance", "incur*", "effected"),
            words(15, 100),
        ),
        held_out=True,
    ),
    BenchJob(
        "postcard-in-a-book",
        "one-call",
        "Found postcard.txt (well, the card) in a second-hand book! What language is that, and what does it say in "
        "English?",
        every(
            mentions(
                "Dutch",
                ("weather", "sunny"),
                ("bik*", "cycl*", "bicycl*"),
                ("every day", "daily", "each day", "everyday"),
                ("lighthouse*", "light house"),
            ),
            words(15, 170),
        ),
        {"postcard.txt": _POSTCARD},
        held_out=True,
    ),
    BenchJob(
        "platos-sin-carne",
        "one-call",
        "mi hija es vegetariana: come huevos y queso, pero ni carne ni pescado. qué platos de menu.txt puede pedir? "
        "solo los nombres",
        every(
            only(
                ("tortilla", "pimientos", "ensalada"),
                ("lentejas", "tortilla", "pollo", "pimientos", "sopa", "ensalada"),
            ),
            words(3, 50),
        ),
        {"menu.txt": _MENU},
        held_out=True,
    ),
    BenchJob(
        "debit-or-credit",
        "one-call",
        "Gran wants to know how a debit card is different from a credit card. Two or three easy sentences please, she "
        "has never had either.",
        every(
            language("en"),
            each_part(
                {
                    "debit": (
                        r"debit",
                        mentions(
                            (
                                "account*",
                                "own money",
                                "your money",
                                "already have",
                                "you have",
                                "funds",
                                "savings",
                                "directly",
                                "immediately",
                                "right away",
                                "straight*",
                            )
                        ),
                    ),
                    "credit": (
                        r"credit",
                        mentions(
                            (
                                "borrow*",
                                "later",
                                "lend*",
                                "lent",
                                "loan*",
                                "bill*",
                                "owe*",
                                "repay*",
                                "debt",
                                "pay back",
                                "pay it back",
                                "paid back",
                                "pay them back",
                                "pay it off",
                                "pay off",
                                "paid off",
                                "over time",
                                "interest",
                                "don't have",
                                "do not have",
                                "end of the month",
                                "each month",
                            )
                        ),
                    ),
                }
            ),
            holds(
                lambda text: len(re.findall(r"[.!?](?=[\s\"']|$)", plain(text))) <= 4,
                "there are more than three sentences",
            ),
            words(18, 130),
        ),
        held_out=True,
    ),
    BenchJob(
        "ill-until-thursday",
        "one-call",
        _SICK,
        every(
            language("en"),
            mentions(
                "Priya",
                ("ill", "sick", "unwell", "under the weather", "well", "health", "illness"),
                "Thursday",
                "Jonas",
                "client*",
                ("2*", "two", "14*"),
            ),
            words(18, 150),
            reworded(_SICK, 0.7),
        ),
        held_out=True,
    ),
    BenchJob(
        "by-last-name",
        "one-call",
        "For the concert leaflet I need these sorted by last name from A to Z, one name per line: Oliver Zeman, Ruth "
        "Abbott, Zoe Nyberg, Carlos Ibarra, Amina Tall, Ben Craddock",
        every(
            in_order("Abbott", "Craddock", "Ibarra", "Nyberg", "Tall", "Zeman"),
            each_part(
                {
                    first: (rf"{first} {last}|{last},? {first}", words(2, 30))
                    for first, last in (
                        ("Ruth", "Abbott"),
                        ("Ben", "Craddock"),
                        ("Carlos", "Ibarra"),
                        ("Zoe", "Nyberg"),
                        ("Amina", "Tall"),
                        ("Oliver", "Zeman"),
                    )
                }
            ),
            items(6, 8),
        ),
        held_out=True,
    ),
    BenchJob(
        "times-in-24-hours",
        "one-call",
        "Our new notice board uses the 24 hour clock!! Change the times in classes.txt please, and leave the order as "
        "it is. I need the whole list.",
        every(
            holds(_has_class_times, "a time is missing or wrong"),
            in_order("yoga", "pilates", "boxing", "swimming", "dance"),
            words(10, 120),
        ),
        {"classes.txt": _CLASSES},
        held_out=True,
    ),
    BenchJob(
        "signed-up-twice",
        "one-call",
        "some kids signed up twice for the museum, see trip_list.txt. give me the list with every kid on it just once "
        "(upper or lower case is the same kid)",
        every(holds(_has_each_kid_once, "there is no list that has each kid once"), words(7, 90)),
        {"trip_list.txt": _MUSEUM_TRIP},
        held_out=True,
    ),
    BenchJob(
        "fewest-visitors",
        "one-call",
        "On which day of last week did the fewest people visit our village museum, and how many were they? The numbers "
        "are in visitors.csv, we want to open for fewer hours on that day.",
        every(mentions("Thursday*"), number(38), lacks("61", "54"), words(2, 80)),
        {"visitors.csv": _VISITORS},
        held_out=True,
    ),
    BenchJob(
        "du-statt-sie",
        "one-call",
        "Könntest du das bitte in die Du-Form bringen, es geht an einen Jugendlichen: „Bitte bringen Sie Ihren Ausweis "
        "und ein Handtuch mit. Sie finden uns im zweiten Stock. Wenn Sie sich verspäten, rufen Sie uns an.“",
        every(
            mentions(
                ("bring", "bringe", "bringst"),
                "deinen Ausweis",
                "Handtuch",
                ("du findest", "findest du", "findest uns"),
                ("zweiten Stock", "2. Stock"),
                ("dich verspät*", "du zu spät*", "du später*", "Verspätung*"),
                ("ruf", "rufe", "ruf'"),
            ),
            lacks("Ihren", "Sie finden", "rufen Sie", "bringen Sie"),
            words(15, 80),
        ),
        held_out=True,
    ),
)
